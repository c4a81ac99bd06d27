//! A source, its log, and a target to which a channel applies the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tailwater_apply::Channel;
use tailwater_apply::channel::{ChannelFault, ChannelOptions, ChannelState, ChannelStatus, SourceTime};
use tailwater_capture::resume_position::StartPolicy;
use tailwater_capture::{Capture, CaptureOptions};
use tailwater_log::{AckMode, LogHandle, LogOptions};
use tailwater_sandbox::{Server, ServerKind, ServerSpec, require};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// The time limit for a step on a busy machine, or for a channel without progress. It is reached only if a
/// test fails.
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
    /// When the relay acknowledges transactions. A change takes effect only when the capture is started.
    pub ack: AckMode,
    capture: Option<Capture>,
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

    /// As [`Rig::start_specs`], but does not start the capture.
    pub async fn idle(source: ServerSpec, target: ServerSpec) -> Result<Option<Self>> {
        if require(source.kind).is_none() || require(target.kind).is_none() {
            return Ok(None);
        }
        let source = Server::start(source).await?;
        let target = Server::start(target).await?;
        source.create_replication_user().await?;
        let folder = tempfile::tempdir()?;
        // The source has no semi-sync, so the relay acknowledges nothing and need not sync for it.
        let ack = AckMode::Received;
        Ok(Some(Self { source, target, folder, ack, capture: None, ended: CancellationToken::new() }))
    }

    /// Captures the source, starting at its oldest binlog file. If the current runtime has several threads,
    /// the capture runs in it, as in the daemon.
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

    /// Stops the capture. The log stays open.
    #[allow(dead_code, reason = "the tests of rejoin use it")]
    pub fn stop_capture(&mut self) -> Result<()> {
        let capture = self.capture.take().context("the source is not captured")?;
        capture.stop();
        Ok(capture.join()?)
    }

    pub fn log(&self) -> LogHandle {
        self.capture.as_ref().expect("the capture must be running").log()
    }

    /// Returns the options of a channel with small batches, so that there are many batches.
    pub fn options(&self, name: &str) -> ChannelOptions {
        ChannelOptions { workers: 3, ..ChannelOptions::new(name, self.target.socket_options()) }
    }

    pub fn channel(&self, options: ChannelOptions) -> Channel {
        Channel::start(options, self.log(), self.source_time(), false)
    }

    /// Returns the source's clock, as the relay measures it.
    pub fn source_time(&self) -> SourceTime {
        let status = self.capture.as_ref().expect("the capture must be running").status();
        SourceTime::new(move || status.source_now_us())
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

    /// Waits until the channel has applied all transactions that the source has now.
    pub async fn wait_applied(&self, channel: &Channel) -> Result<()> {
        let wanted = self.source_gtids().await?;
        let flavour = self.source.kind().flavour();
        let has = |status: &ChannelStatus| {
            GtidSet::parse(flavour, &status.gtids).is_ok_and(|gtids| wanted.is_subset_of(&gtids))
        };
        wait_for(channel, "apply everything", has).await.map(drop)
    }

    /// Returns the GTID of the newest transaction on the source.
    pub async fn newest_gtid(&self) -> Result<Gtid> {
        let flavour = self.source.kind().flavour();
        let text = match self.source_gtids().await? {
            GtidSet::MySql(set) => {
                let own = self.source.sql("SELECT @@GLOBAL.server_uuid").await?.concat();
                let last = set.to_string();
                let last = last.rsplit(['-', ':']).next().unwrap_or_default();
                format!("{own}:{last}")
            }
            GtidSet::MariaDb(state) => state.position().to_string(),
        };
        Ok(Gtid::parse(flavour, &text)?)
    }

    /// Waits until the channel has failed. Returns its fault.
    pub async fn wait_failed(&self, channel: &Channel) -> Result<ChannelFault> {
        let started = Instant::now();
        let mut status = channel.status();
        loop {
            let now = status.borrow_and_update().clone();
            if let (ChannelState::Failed, Some(fault)) = (now.state, now.fault.clone()) {
                return Ok(fault);
            }
            let left = PATIENCE
                .checked_sub(started.elapsed())
                .with_context(|| format!("the channel did not fail in time: {now:#?}"))?;
            if let Ok(changed) = tokio::time::timeout(left, status.changed()).await {
                changed.context("the channel has ended")?;
            }
        }
    }

    /// Checks that the tables of these databases are equal on both servers.
    pub async fn ensure_equal(&self, schemas: &[&str]) -> Result<()> {
        for schema in schemas {
            let list = format!(
                "SELECT table_name FROM information_schema.tables WHERE table_schema='{schema}' AND \
                 table_type='BASE TABLE' ORDER BY 1"
            );
            let tables = self.source.sql(&list).await?;
            ensure!(tables == self.target.sql(&list).await?, "{schema}: the tables differ from {tables:?}");
            ensure!(!tables.is_empty(), "{schema} has no tables");
            for table in tables {
                let checksum = format!("CHECKSUM TABLE `{schema}`.`{table}` EXTENDED");
                let (ours, theirs) = (self.source.sql(&checksum).await?, self.target.sql(&checksum).await?);
                if ours == theirs {
                    continue;
                }
                // MariaDB's checksums sometimes differ although the rows are equal. Then compare the rows.
                let rows = format!("SELECT * FROM `{schema}`.`{table}`");
                let (mut on_source, mut on_target) =
                    (self.source.sql(&rows).await?, self.target.sql(&rows).await?);
                on_source.sort();
                on_target.sort();
                if on_source != on_target {
                    let differs = |one: &[String], other: &[String]| -> Vec<String> {
                        one.iter().filter(|row| other.binary_search(row).is_err()).take(10).cloned().collect()
                    };
                    let (lacking, extra) = (differs(&on_source, &on_target), differs(&on_target, &on_source));
                    bail!("{schema}.{table} differs: {ours:?} {theirs:?}\n{lacking:#?}\n{extra:#?}");
                }
            }
        }
        Ok(())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(capture) = self.capture.take() {
            capture.stop();
            // Dropping the capture closes the log. Its result does not matter after the test.
            let _ = capture.join();
        }
    }
}

/// Waits until the status of a channel satisfies `is_so`. Fails if the channel fails.
pub async fn wait_for(
    channel: &Channel,
    what: &str,
    is_so: impl Fn(&ChannelStatus) -> bool,
) -> Result<ChannelStatus> {
    let mut started = Instant::now();
    let mut status = channel.status();
    let mut applied = 0;
    loop {
        let now = status.borrow_and_update().clone();
        if is_so(&now) {
            return Ok(now);
        }
        if now.transactions_total != applied {
            (applied, started) = (now.transactions_total, Instant::now());
        }
        ensure!(
            now.state != ChannelState::Failed,
            "the channel failed while the test waited for it to {what}: {:?}",
            now.fault
        );
        let left = PATIENCE
            .checked_sub(started.elapsed())
            .with_context(|| format!("timed out while waiting for the channel to {what}: {now:#?}"))?;
        if let Ok(changed) = tokio::time::timeout(left, status.changed()).await {
            changed.context("the channel has ended")?;
        }
    }
}
