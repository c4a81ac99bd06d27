//! A source, its log, and a target to which a channel applies the log.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use tailwater_capture::resume_position::StartPolicy;
use tailwater_capture::{Capture, CaptureOptions};
use tailwater_log::{AckMode, LogHandle, LogOptions};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The time limit for one step of a test, long enough for a busy machine. Only a test that fails reaches this
/// limit.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Returns the options of servers in these tests.
pub fn spec(kind: ServerKind, server_id: u32) -> ServerSpec {
    // These tests compare final states, and do not test power failures.
    let mut spec = ServerSpec::new(kind).options([
        format!("--server-id={server_id}"),
        "--sync-binlog=0".into(),
        "--innodb-flush-log-at-trx-commit=2".into(),
    ]);
    if kind.flavour() == Flavour::MySql {
        spec = spec.options(["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]);
    }
    spec
}

/// A source, its log, and a target. A relay in this process captures the log.
pub struct Rig {
    pub source: Server,
    pub target: Server,
    pub folder: tempfile::TempDir,
    /// When the relay acknowledges transactions. A change takes effect at the next start of the capture.
    pub ack: AckMode,
    pub capture: Option<Capture>,
    ended: CancellationToken,
}

impl Rig {
    /// Starts two servers of one kind. Returns `None` if the servers are not installed.
    pub async fn start(
        kind: ServerKind,
        source_options: &[&str],
        target_options: &[&str],
    ) -> Result<Option<Self>> {
        Self::start_pair(kind, kind, source_options, target_options).await
    }

    /// Starts a source of one kind and a target of another.
    pub async fn start_pair(
        from: ServerKind,
        to: ServerKind,
        source_options: &[&str],
        target_options: &[&str],
    ) -> Result<Option<Self>> {
        let source = spec(from, 1).options(source_options.iter().copied());
        let target = spec(to, 2).options(target_options.iter().copied());
        Self::start_specs(source, target).await
    }

    /// Starts servers with these options. Returns `None` if one of them is not installed.
    pub async fn start_specs(source: ServerSpec, target: ServerSpec) -> Result<Option<Self>> {
        let Some(mut rig) = Self::idle(source, target).await? else { return Ok(None) };
        rig.start_capture()?;
        Ok(Some(rig))
    }

    /// Does the same as [`Rig::start_specs`], but does not start the capture.
    pub async fn idle(source: ServerSpec, target: ServerSpec) -> Result<Option<Self>> {
        if require(source.kind).is_none() || require(target.kind).is_none() {
            return Ok(None);
        }
        let source = Server::start(source).await?;
        let target = Server::start(target).await?;
        source.create_replication_user().await?;
        let folder = tempfile::tempdir()?;
        // The source has no semi-sync, so the relay sends no ACKs and need not sync the log for them.
        let ack = AckMode::Received;
        Ok(Some(Self { source, target, folder, ack, capture: None, ended: CancellationToken::new() }))
    }

    /// Captures the source, starting at its oldest binlog file. If the current runtime has several threads,
    /// the capture runs in this runtime, as in the daemon.
    pub fn start_capture(&mut self) -> Result<()> {
        let options = CaptureOptions {
            name: "source".into(),
            connect: self.source.replication_options(),
            server_id: 4201,
            semi_sync: false,
            start: StartPolicy::Oldest,
            heartbeat: Duration::from_millis(500),
            source_check_interval: Duration::from_millis(500),
            directory: self.folder.path().join("log"),
            log: LogOptions { ack: self.ack, preallocate_bytes: 1 << 20, ..LogOptions::default() },
            servers: BTreeMap::new(),
            wait_when_refused: false,
        };
        self.capture = Some(Capture::start(options, self.ended.clone(), Some(&Handle::current()))?);
        Ok(())
    }

    pub fn log(&self) -> LogHandle {
        self.capture.as_ref().expect("the capture must be running").log()
    }

    /// Returns the source's GTIDs, in the source's notation.
    pub async fn source_gtids(&self) -> Result<GtidSet> {
        let flavour = self.source.kind().flavour();
        let sql = match flavour {
            Flavour::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
            Flavour::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
        };
        let lines = self.source.sql(sql).await?;
        Ok(GtidSet::parse(flavour, lines.first().map_or("", String::as_str))?)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(capture) = self.capture.take() {
            capture.stop();
            // Dropping the capture closes the log. The result of the capture does not matter after the test.
            let _ = capture.join();
        }
    }
}
