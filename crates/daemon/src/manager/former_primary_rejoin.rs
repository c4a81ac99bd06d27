//! Makes a former primary a replica again: repairs it from the log or copies it from the primary, lets it
//! replicate from the log, and compares it with the primary.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tailwater_check::table_check::{self, CheckOptions, CheckReport, TableFinding};
use tailwater_dump::load::LoadOptions;
use tailwater_dump::server_copy::{self, CopyOptions, CopyReport};
use tailwater_log::LogDir;
use tailwater_manager::actions::replication_setup::{self, ReplicationSource};
use tailwater_manager::actions::semi_sync_source;
use tailwater_rejoin::{RejoinError, RejoinOptions, RejoinPlan, RejoinRepair};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::Selection;
use tailwater_tables::throttle::Throttle;
use tailwater_topology::server_state::ReplicaChannel;
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::manager_startup;
use crate::api::jobs::JobProgress;
use crate::jobs::progress_of;
use crate::options_from_config;
use tailwater_config::{Config, SourceConfig};

/// How long the server may take until it receives events from the log.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server whose rows differ from the primary's may take to execute what it has received.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Which server to rejoin, and how.
#[derive(Debug, Clone)]
pub struct RejoinRequest {
    /// The server, by its name in the configuration.
    pub server: String,
    /// Whether to copy the server from scratch, whatever it holds.
    pub copy: bool,
    /// Whether to compare the server's rows with the primary's at the end.
    pub check: bool,
    /// See [`RejoinOptions::window`].
    pub window: Option<Duration>,
    /// See [`RejoinOptions::may_undo`].
    pub may_undo: bool,
}

/// A former primary, and everything that is needed to rejoin it.
#[derive(Debug)]
pub struct FormerPrimary {
    request: RejoinRequest,
    primary: String,
    options: RejoinOptions,
    log: LogDir,
    read_from: ReplicationSource,
    folder: PathBuf,
    /// What the rejoin does now, and its counters.
    phase: Mutex<(&'static str, Arc<BulkProgress>)>,
}

/// The result of a rejoin.
#[derive(Debug, Serialize)]
pub struct RejoinReport {
    /// The name of the rejoined server.
    pub server: String,
    /// The name of the current primary.
    pub primary: String,
    /// Which transactions the rejoin undid on the server and applied again; `None` if the server was copied.
    #[serde(rename = "healed")]
    pub repair: Option<RejoinRepair>,
    /// Number of rows copied, if the server was copied.
    pub rows_copied: Option<u64>,
    /// The address that the server replicates from; `None` if the rows of the server differ from the
    /// primary's: the server then does not replicate.
    pub reads_from: Option<String>,
    /// The result of the comparison with the primary; `None` without a comparison.
    pub compared: Option<RejoinComparison>,
}

/// The result of comparing a server with the primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejoinComparison {
    /// Number of compared tables.
    pub tables: u64,
    /// Number of rows that the primary has in these tables.
    pub rows: u64,
    /// Number of differences: rows that differ, and tables that cannot be compared.
    pub differences: u64,
    /// Number of rows among them.
    pub differing_rows: u64,
    /// The tables with differences.
    pub in_tables: Vec<String>,
}

impl RejoinComparison {
    fn of(report: &CheckReport) -> Self {
        let findings = report.findings.iter().map(|finding| match finding {
            TableFinding::OnlySource(table)
            | TableFinding::OnlyTarget(table)
            | TableFinding::TooMany(table)
            | TableFinding::Unreadable(table, _)
            | TableFinding::Columns(table, _) => table.to_string(),
        });
        let tables = report.differences.iter().map(|difference| difference.table_name().to_string());
        let mut in_tables: Vec<_> = tables.chain(findings).collect();
        in_tables.dedup();
        Self {
            tables: report.tables,
            rows: report.rows,
            differences: (report.differences.len() + report.findings.len()) as u64,
            differing_rows: report.differences.len() as u64,
            in_tables,
        }
    }
}

impl FormerPrimary {
    /// Finds the server and the current primary in the configuration. Connects to no server.
    ///
    /// # Errors
    /// If the configuration does not name the server, if the server is the primary or the target of a
    /// channel, or if the log cannot be opened or is not served.
    pub fn new(config: &Config, source: &SourceConfig, request: RejoinRequest) -> anyhow::Result<Self> {
        let wired = options_from_config::cluster_led_by(config, source, None)?;
        let name = &request.server;
        ensure!(wired.primary.name != *name, "{name} is the current primary: the capture follows it");
        let known =
            || wired.followers.iter().map(|server| server.name.clone()).collect::<Vec<_>>().join(", ");
        let server = wired.followers.iter().find(|server| server.name == *name);
        let server = server.with_context(|| {
            format!(
                "source {} has no server {name:?} besides its primary; its servers are: {}",
                source.name,
                known()
            )
        })?;
        let target = config.channels.iter().find(|channel| {
            let address =
                options_from_config::connect_options(channel.server()).map(|options| options.endpoint);
            channel.source == source.name && address.is_ok_and(|address| address == server.connect.endpoint)
        });
        if let Some(channel) = target {
            anyhow::bail!(
                "{name} is the target of channel {channel}: remove the channel first, or copy the server with \
                 `tailwater channel add {channel} --provision`",
                channel = channel.name
            );
        }
        let read_from = manager_startup::read_from(config, source)?.with_context(|| {
            format!("the log of source {} is not served: add a [[serve]] with a [[serve.user]]", source.name)
        })?;
        let folder = config.log.directory.join("rejoin");
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%SZ");
        let options = RejoinOptions {
            server: server.connect.clone(),
            primary: wired.primary.connect.clone(),
            server_id: source.server_id,
            window: request.window,
            may_undo: request.may_undo,
            tail_bytes_max: RejoinOptions::TAIL_BYTES_MAX,
            tail_file: folder.join(format!("{name}-{now}.binlog")),
        };
        let log = LogDir::open_read_only(&config.log.directory.join(&source.name))?;
        let phase = Mutex::new(("preparing", Arc::default()));
        Ok(Self { primary: wired.primary.name, request, options, log, read_from, folder, phase })
    }

    /// Returns how far the rejoin is.
    pub fn progress(&self) -> JobProgress {
        let (phase, counters) = self.phase.lock().clone();
        progress_of(phase, &counters)
    }

    /// Returns the name of the server.
    pub fn server(&self) -> &str {
        &self.request.server
    }

    /// Returns the server and the primary, for the list of jobs.
    pub fn subject(&self) -> String {
        let (name, address) = (&self.request.server, &self.options.server.endpoint);
        format!("{name} ({address}), a former primary, to {}", self.primary)
    }

    /// Begins a phase, and returns its counters.
    fn begin(&self, phase: &'static str) -> Arc<BulkProgress> {
        let counters = Arc::<BulkProgress>::default();
        *self.phase.lock() = (phase, Arc::clone(&counters));
        counters
    }

    /// Plans the repair. Changes nothing.
    ///
    /// # Errors
    /// The errors of [`tailwater_rejoin::inspect`].
    pub async fn inspect(&self) -> Result<RejoinPlan, RejoinError> {
        tailwater_rejoin::inspect(&self.options, &self.log).await
    }

    /// Rejoins the server. The server is read-only from the first step on, and also afterwards.
    ///
    /// # Errors
    /// The errors of [`tailwater_rejoin::repair`], and errors of the copy, of replication or of the
    /// comparison. The next call continues.
    pub async fn run(&self) -> anyhow::Result<RejoinReport> {
        let _lock = self.lock()?;
        let mut report = self.report();
        if self.request.copy {
            report.rows_copied = Some(self.copy().await?.load.rows);
        } else {
            if !self.options.may_undo {
                // The server is inspected before it becomes read-only, so that a refusal changes nothing.
                // `repair` inspects the server again when no client writes to it any more.
                self.inspect().await?;
            }
            self.begin("repairing from the log");
            report.repair = Some(tailwater_rejoin::repair(&self.options, &self.log).await?);
        }
        // The server gets a replication channel now. Until now the missing channel showed that the rejoin is
        // incomplete. From now on a marker file shows that.
        let marker = self.marker();
        tailwater_files::create_replacing(&marker, 0o640)
            .with_context(|| format!("cannot create {}", marker.display()))?;
        self.replicate(report).await
    }

    /// Completes a [`FormerPrimary::run`] that was interrupted after the server got its replication channel.
    /// Returns `None` if no run was interrupted, or if the server replicates from another source now.
    ///
    /// # Errors
    /// Errors of replication or of the comparison. The next call continues.
    pub(super) async fn resume(&self, channel: &ReplicaChannel) -> anyhow::Result<Option<RejoinReport>> {
        if !self.marker().exists() || !self.read_from.is_source_of(channel) {
            return Ok(None);
        }
        let _lock = self.lock()?;
        self.replicate(self.report()).await.map(Some)
    }

    /// Lets the server replicate from the log, and compares it with the primary.
    async fn replicate(&self, mut report: RejoinReport) -> anyhow::Result<RejoinReport> {
        let mut server = Connection::connect(&self.options.server).await?;
        self.begin("starting replication");
        info!(server = self.request.server, from = self.address(), "starting replication from the log");
        replication_setup::read_from(&mut server, &self.read_from, RECEIVE_TIMEOUT).await?;
        // Until now the server waits for semi-sync ACKs after a restart, so that it cannot acknowledge
        // commits to clients. As a replica it must not wait for ACKs, so the setting is changed now.
        semi_sync_source::disable_after_restart(&mut server).await?;
        if server.server().flavour == Flavour::MySql {
            server.execute("SET GLOBAL super_read_only=1").await?;
        }
        if self.request.check {
            info!(server = self.request.server, primary = self.primary, "comparing with the primary");
            let compared = self.check().await?;
            let differs = compared.differences > 0;
            report.compared = Some(compared);
            if differs {
                warn!(
                    server = self.request.server,
                    primary = self.primary,
                    "the rows differ from the primary's; removing replication from the server"
                );
                stop_replication(&mut server).await?;
                self.remove_marker()?;
                return Ok(report);
            }
        }
        server.close().await;
        self.remove_marker()?;
        report.reads_from = Some(self.address());
        Ok(report)
    }

    /// Returns the path of a file that exists while the server replicates from the log and the rejoin is not
    /// complete.
    fn marker(&self) -> PathBuf {
        self.folder.join(format!("{}.half-way", self.request.server))
    }

    fn remove_marker(&self) -> anyhow::Result<()> {
        let marker = self.marker();
        std::fs::remove_file(&marker).with_context(|| format!("cannot remove {}", marker.display()))
    }

    fn report(&self) -> RejoinReport {
        RejoinReport {
            server: self.request.server.clone(),
            primary: self.primary.clone(),
            repair: None,
            rows_copied: None,
            reads_from: None,
            compared: None,
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.read_from.host, self.read_from.port)
    }

    /// Takes a lock that allows only one rejoin of a server at a time, among all processes that share the
    /// log's folder.
    fn lock(&self) -> anyhow::Result<File> {
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        let path = self.folder.join(format!("{}.lock", self.request.server));
        let file = tailwater_files::open_or_create(&path, 0o640)
            .with_context(|| format!("cannot open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("another process is rejoining {}: {} is locked", self.request.server, path.display())
        })?;
        Ok(file)
    }

    async fn copy(&self) -> anyhow::Result<CopyReport> {
        let RejoinOptions { server, primary, .. } = &self.options;
        check_flavours(server, primary).await?;
        let inserts = !has_local_infile(server).await?;
        let removed = tailwater_rejoin::wipe(server, primary).await?;
        info!(
            server = self.request.server,
            removed = removed.join(", "),
            "removed the databases; copying the primary"
        );
        let load = LoadOptions {
            set_gtid: true,
            binlog: false,
            inserts,
            events_disabled: true,
            ..LoadOptions::new(server.clone())
        };
        let options = CopyOptions::new(primary.clone(), Selection::default(), load);
        // The copy stops if the caller no longer waits for it.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        Ok(server_copy::copy(&options, &self.begin("copying"), &cancelled).await?)
    }

    async fn check(&self) -> anyhow::Result<RejoinComparison> {
        let options = CheckOptions::new(self.options.primary.clone(), self.options.server.clone());
        let (throttle, progress) = (Arc::new(Throttle::open()), self.begin("comparing"));
        // The comparison stops if the caller no longer waits for it.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let report = table_check::check(&options, throttle, progress, cancelled).await?;
        Ok(RejoinComparison::of(&report))
    }
}

/// Removes the replication of a server after the server has executed everything that it has received.
async fn stop_replication(server: &mut Connection) -> anyhow::Result<()> {
    replication_setup::stop_receiving(server).await?;
    let start = Instant::now();
    while let Err(error) = replication_setup::forget(server).await {
        if start.elapsed() > DRAIN_TIMEOUT {
            return Err(error)
                .context("the server differs from the primary, and its replication cannot be removed");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether a server accepts `LOAD DATA LOCAL`, which is faster than `INSERT`.
async fn has_local_infile(server: &ConnectOptions) -> anyhow::Result<bool> {
    let mut connection = Connection::connect(server).await?;
    let answer = connection.query("SELECT @@GLOBAL.local_infile").await?;
    let is_on = answer.scalar() == Some("1");
    connection.close().await;
    Ok(is_on)
}

/// Refuses to copy between MySQL and MariaDB, before anything is removed.
async fn check_flavours(server: &ConnectOptions, primary: &ConnectOptions) -> anyhow::Result<()> {
    let (one, other) = (Connection::connect(server).await?, Connection::connect(primary).await?);
    let (ours, theirs) = (one.server().flavour, other.server().flavour);
    one.close().await;
    other.close().await;
    ensure!(
        ours == theirs,
        "the server is {ours} and the primary is {theirs}: a copy needs the same flavour"
    );
    Ok(())
}
