//! A former primary becomes a replica again: healed from the log or copied anew, led to the log, compared with who leads.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tailwater_apply::ApplyError;
use tailwater_apply::rejoin::{self, Findings, Healed, RejoinOptions};
use tailwater_bulk::check::{self, CheckOptions, CheckReport, TableFinding};
use tailwater_bulk::copy::{self, CopyOptions, CopyReport};
use tailwater_bulk::load::LoadOptions;
use tailwater_bulk::progress::Progress;
use tailwater_bulk::schema::Selection;
use tailwater_bulk::throttle::Throttle;
use tailwater_log::LogDir;
use tailwater_manager::acting::replication::{self, ReadFrom};
use tailwater_manager::hands::Hands;
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::cluster::ManagedCluster;
use super::starting;
use crate::config::{Config, SourceConfig};
use crate::wiring;

/// How long the server may take until it receives from the log.
const RECEIVE_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked for former primaries.
const LOOK: Duration = Duration::from_secs(2);

/// How long a server that differs may take to execute what it has received.
const LEAVE_PATIENCE: Duration = Duration::from_secs(60);

/// What is wished for.
#[derive(Debug, Clone)]
pub struct RejoinWish {
    /// The server, by its name in the configuration.
    pub server: String,
    /// Copy it anew, whatever it holds.
    pub copy: bool,
    /// Whether its rows are compared in the end.
    pub check: bool,
    /// See [`RejoinOptions::window`].
    pub window: Option<Duration>,
}

/// What is needed for it.
#[derive(Debug)]
pub struct Rejoining {
    wish: RejoinWish,
    primary: String,
    options: RejoinOptions,
    log: LogDir,
    read_from: ReadFrom,
    folder: PathBuf,
}

/// What was done.
#[derive(Debug, Serialize)]
pub struct RejoinReport {
    /// The server.
    pub server: String,
    /// Who leads.
    pub primary: String,
    /// What was undone and done again, unless it was copied.
    pub healed: Option<Healed>,
    /// How many rows were copied, if it was.
    pub rows_copied: Option<u64>,
    /// Where it reads from now; nothing if it differs from the primary, and was not joined.
    pub reads_from: Option<String>,
    /// What the comparison says.
    pub compared: Option<Compared>,
}

/// What a comparison says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// How many tables were compared.
    pub tables: u64,
    /// How many rows the primary had in them.
    pub rows: u64,
    /// How many of them differ.
    pub differences: u64,
    /// In which tables.
    pub in_tables: Vec<String>,
}

impl Compared {
    fn of(report: &CheckReport) -> Self {
        let findings = report.findings.iter().map(|finding| match finding {
            TableFinding::OnlySource(table)
            | TableFinding::OnlyTarget(table)
            | TableFinding::TooMany(table)
            | TableFinding::Columns(table, _) => table.to_string(),
        });
        let tables = report.differences.iter().map(|difference| difference.table_name().to_string());
        let mut in_tables: Vec<_> = tables.chain(findings).collect();
        in_tables.dedup();
        Self {
            tables: report.tables,
            rows: report.rows,
            differences: (report.differences.len() + report.findings.len()) as u64,
            in_tables,
        }
    }
}

impl Rejoining {
    /// Finds out who is meant, and who leads. Nothing is asked of any server yet.
    ///
    /// # Errors
    /// If the configuration does not name the server, or it leads, or the log cannot be opened or is not served.
    pub fn new(config: &Config, source: &SourceConfig, wish: RejoinWish) -> anyhow::Result<Self> {
        let wired = wiring::cluster_led_by(config, source, None)?;
        let name = &wish.server;
        ensure!(wired.primary.name != *name, "{name} is the server that leads: the log follows it");
        let known =
            || wired.followers.iter().map(|server| server.name.clone()).collect::<Vec<_>>().join(", ");
        let server = wired.followers.iter().find(|server| server.name == *name);
        let server = server.with_context(|| {
            format!(
                "source {} has no server {name:?} beside its primary; there are: {}",
                source.name,
                known()
            )
        })?;
        let target = config.channels.iter().find(|channel| {
            let address = wiring::connect_options(channel.server()).map(|options| options.endpoint);
            channel.source == source.name && address.is_ok_and(|address| address == server.connect.endpoint)
        });
        if let Some(channel) = target {
            anyhow::bail!(
                "{name} is the target of channel {}, which feeds it: end the channel first, or copy it by `tailwater \
                 channel add {} --provision`",
                channel.name,
                channel.name
            );
        }
        let read_from = starting::read_from(config, source)?.with_context(|| {
            format!("the log of source {} is not served: add a [[serve]] with a [[serve.user]]", source.name)
        })?;
        let folder = config.log.directory.join("rejoin");
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%SZ");
        let options = RejoinOptions {
            server: server.connect.clone(),
            primary: wired.primary.connect.clone(),
            server_id: source.server_id,
            window: wish.window,
            tail_bytes_max: RejoinOptions::TAIL_BYTES_MAX,
            tail_file: folder.join(format!("{name}-{now}.binlog")),
        };
        let log = LogDir::open_read_only(&config.log.directory.join(&source.name))?;
        Ok(Self { primary: wired.primary.name, wish, options, log, read_from, folder })
    }

    /// What would be done. Nothing is changed.
    ///
    /// # Errors
    /// As [`rejoin::look`].
    pub async fn look(&self) -> Result<Findings, ApplyError> {
        rejoin::look(&self.options, &self.log).await
    }

    /// Does it. The server is read-only from the first moment on, and stays so.
    ///
    /// # Errors
    /// As [`rejoin::heal`]; what a copy, replication or the comparison says. If it fails, the same again goes on.
    pub async fn run(&self) -> anyhow::Result<RejoinReport> {
        let _alone = self.lock()?;
        let mut report = RejoinReport {
            server: self.wish.server.clone(),
            primary: self.primary.clone(),
            healed: None,
            rows_copied: None,
            reads_from: None,
            compared: None,
        };
        if self.wish.copy {
            report.rows_copied = Some(self.copy().await?.load.rows);
        } else {
            report.healed = Some(rejoin::heal(&self.options, &self.log).await?);
        }
        let mut server = Connection::connect(&self.options.server).await?;
        info!(server = self.wish.server, from = self.address(), "it replicates from the log");
        replication::read_from(&mut server, &self.read_from, RECEIVE_PATIENCE).await?;
        if server.server().flavour == Flavour::MySql {
            server.execute("SET GLOBAL super_read_only=1").await?;
        }
        if self.wish.check {
            info!(server = self.wish.server, primary = self.primary, "comparing it with the primary");
            let compared = self.check().await?;
            let differs = compared.differences > 0;
            report.compared = Some(compared);
            if differs {
                warn!(server = self.wish.server, "it differs from the primary, and is not joined");
                leave(&mut server).await?;
                return Ok(report);
            }
        }
        server.close().await;
        report.reads_from = Some(self.address());
        Ok(report)
    }

    fn address(&self) -> String {
        format!("{}:{}", self.read_from.host, self.read_from.port)
    }

    /// Only one at a time works on a server, of those that share the log's folder.
    fn lock(&self) -> anyhow::Result<File> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("make {}", self.folder.display()))?;
        let path = self.folder.join(format!("{}.lock", self.wish.server));
        let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("somebody else brings {} back: {} is locked", self.wish.server, path.display())
        })?;
        Ok(file)
    }

    async fn copy(&self) -> anyhow::Result<CopyReport> {
        let RejoinOptions { server, primary, .. } = &self.options;
        same_family(server, primary).await?;
        let inserts = !takes_files(server).await?;
        let removed = rejoin::empty(server, primary).await?;
        info!(server = self.wish.server, removed = removed.join(", "), "emptied, and copied anew");
        let load = LoadOptions {
            set_gtid: true,
            binlog: false,
            inserts,
            events_disabled: true,
            ..LoadOptions::new(server.clone())
        };
        let options = CopyOptions::new(primary.clone(), Selection::default(), load);
        Ok(copy::copy(&options, &Arc::new(Progress::default()), &CancellationToken::new()).await?)
    }

    async fn check(&self) -> anyhow::Result<Compared> {
        let options = CheckOptions::new(self.options.primary.clone(), self.options.server.clone());
        let (throttle, progress) = (Arc::new(Throttle::open()), Arc::new(Progress::default()));
        let report = check::check(&options, throttle, progress, CancellationToken::new()).await?;
        Ok(Compared::of(&report))
    }
}

/// Makes former primaries replicas by itself, as they come back, for as long as it runs. One that is refused, or differs, is left
/// to people.
///
/// Those are meant that led when this began or since, and the configured primary of a log that follows another server. They
/// answer, and replicate from nobody.
pub async fn by_itself<H: Hands + 'static>(
    config: Config,
    source: SourceConfig,
    cluster: Arc<ManagedCluster<H>>,
) {
    let mut former = BTreeSet::new();
    let configured = wiring::cluster_led_by(&config, &source, Some(&source.name));
    let mut leader = configured.map_or_else(|_| source.name.clone(), |wired| wired.primary.name);
    loop {
        tokio::time::sleep(LOOK).await;
        if !cluster.is_free() {
            continue;
        }
        let Ok(wired) = wiring::cluster_led_by(&config, &source, None) else { continue };
        if wired.primary.name != leader {
            former.insert(std::mem::replace(&mut leader, wired.primary.name.clone()));
            former.remove(&leader);
        }
        for server in
            wired.followers.iter().filter(|server| former.contains(&server.name)).collect::<Vec<_>>()
        {
            if cluster.may_hold_what_is_missing(&server.name).unwrap_or(true) {
                warn!(
                    source = source.name,
                    server = server.name,
                    "it may hold acknowledged commits that nobody else has (--allow-data-loss): it is not brought back by \
                     itself; save them, and then `tailwater rejoin`"
                );
                former.remove(&server.name);
                continue;
            }
            // Each may take long, and a run may have begun meanwhile.
            if !cluster.is_free() {
                break;
            }
            match stands_alone(&server.connect).await {
                Some(true) if !join(&config, &source, &server.name).await => {}
                Some(_) => drop(former.remove(&server.name)),
                None => {}
            }
        }
    }
}

/// Whether a server replicates from nobody; nothing if it does not answer.
async fn stands_alone(server: &ConnectOptions) -> Option<bool> {
    let mut connection = Connection::connect(server).await.ok()?;
    let channel = replication::status(&mut connection).await.ok()?;
    connection.close().await;
    Some(channel.is_none())
}

/// Brings a server back; false if it is to be tried again.
async fn join(config: &Config, source: &SourceConfig, server: &str) -> bool {
    let wish = RejoinWish { server: server.to_owned(), copy: false, check: true, window: None };
    let done = match Rejoining::new(config, source, wish) {
        Ok(rejoining) => rejoining.run().await,
        Err(error) => Err(error),
    };
    match done {
        Ok(report) if report.reads_from.is_some() => {
            info!(source = source.name, server, "the former primary is a replica");
            true
        }
        Ok(_) => {
            error!(
                source = source.name,
                server, "the former primary differs: `tailwater rejoin` says where, and how to copy it"
            );
            true
        }
        Err(error) if error.downcast_ref::<ApplyError>().is_some_and(is_refusal) => {
            error!(source = source.name, server, "the former primary is left as it is: {error:#}");
            true
        }
        Err(error) => {
            warn!(source = source.name, server, "the former primary is not brought back yet: {error:#}");
            false
        }
    }
}

/// Whether trying again will not help.
pub fn is_refusal(error: &ApplyError) -> bool {
    matches!(error, ApplyError::Irreversible { .. } | ApplyError::Rejoin { .. })
}

/// Has a server that differs replicate no more, for good if it gets through with what it has received.
async fn leave(server: &mut Connection) -> anyhow::Result<()> {
    replication::stop_receiving(server).await?;
    let begun = Instant::now();
    while let Err(error) = replication::forget(server).await {
        if begun.elapsed() > LEAVE_PATIENCE {
            return Err(error).context("it differs from the primary, and its replication cannot be ended");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Whether a server takes rows the fast way (`LOAD DATA LOCAL`).
async fn takes_files(server: &ConnectOptions) -> anyhow::Result<bool> {
    let mut connection = Connection::connect(server).await?;
    let answer = connection.query("SELECT @@GLOBAL.local_infile").await?;
    let takes = answer.scalar() == Some("1");
    connection.close().await;
    Ok(takes)
}

/// Before anything is removed.
async fn same_family(server: &ConnectOptions, primary: &ConnectOptions) -> anyhow::Result<()> {
    let (one, other) = (Connection::connect(server).await?, Connection::connect(primary).await?);
    let (ours, theirs) = (one.server().flavour, other.server().flavour);
    one.close().await;
    other.close().await;
    ensure!(ours == theirs, "the server is {ours} and the primary {theirs}");
    Ok(())
}
