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
use tailwater_apply::rejoin::{self, RejoinOptions, RejoinPlan, RejoinRepair};
use tailwater_bulk::check::{self, CheckOptions, CheckReport, TableFinding};
use tailwater_bulk::copy::{self, CopyOptions, CopyReport};
use tailwater_bulk::load::LoadOptions;
use tailwater_bulk::progress::BulkProgress;
use tailwater_bulk::schema::Selection;
use tailwater_bulk::throttle::Throttle;
use tailwater_log::LogDir;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::actions::replication::{self, ReplicationSource};
use tailwater_manager::actions::{read_only, semi_sync};
use tailwater_manager::driver::AuditFolder;
use tailwater_manager::failover::RunOutcome;
use tailwater_manager::observation::ReplicaChannel;
use tailwater_manager::probe::ProbeTarget;
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::cluster::ManagedCluster;
use super::replacement_history::Past;
use super::startup;
use crate::config::{Config, SourceConfig};
use crate::error_chain::ErrorChain;
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
    /// See [`RejoinOptions::may_undo`].
    pub may_undo: bool,
}

/// What is needed for it.
#[derive(Debug)]
pub struct Rejoining {
    wish: RejoinWish,
    primary: String,
    options: RejoinOptions,
    log: LogDir,
    read_from: ReplicationSource,
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
    pub healed: Option<RejoinRepair>,
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
        let read_from = startup::read_from(config, source)?.with_context(|| {
            format!("the log of source {} is not served: add a [[serve]] with a [[serve.user]]", source.name)
        })?;
        let folder = config.log.directory.join("rejoin");
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%SZ");
        let options = RejoinOptions {
            server: server.connect.clone(),
            primary: wired.primary.connect.clone(),
            server_id: source.server_id,
            window: wish.window,
            may_undo: wish.may_undo,
            tail_bytes_max: RejoinOptions::TAIL_BYTES_MAX,
            tail_file: folder.join(format!("{name}-{now}.binlog")),
        };
        let log = LogDir::open_read_only(&config.log.directory.join(&source.name))?;
        Ok(Self { primary: wired.primary.name, wish, options, log, read_from, folder })
    }

    /// What would be done. Nothing is changed.
    ///
    /// # Errors
    /// As [`rejoin::inspect`].
    pub async fn inspect(&self) -> Result<RejoinPlan, ApplyError> {
        rejoin::inspect(&self.options, &self.log).await
    }

    /// Does it. The server is read-only from the first moment on, and stays so.
    ///
    /// # Errors
    /// As [`rejoin::repair`]; what a copy, replication or the comparison says. If it fails, the same again goes on.
    pub async fn run(&self) -> anyhow::Result<RejoinReport> {
        let _alone = self.lock()?;
        let mut report = self.report();
        if self.wish.copy {
            report.rows_copied = Some(self.copy().await?.load.rows);
        } else {
            if !self.options.may_undo {
                // Refused it is as it was; once it stands still it is looked at again.
                self.inspect().await?;
            }
            report.healed = Some(rejoin::repair(&self.options, &self.log).await?);
        }
        // From here on it does not replicate from nobody any more, and is not done with either.
        let mark = self.mark();
        tailwater_files::create_replacing(&mark, 0o640)
            .with_context(|| format!("make {}", mark.display()))?;
        self.follow(report).await
    }

    /// Does the rest of a [`Rejoining::run`] that was interrupted when the server was told to read from the log. Nothing if none was,
    /// or it reads from elsewhere by now.
    ///
    /// # Errors
    /// What replication or the comparison says. If it fails, the same again goes on.
    async fn go_on(&self, channel: &ReplicaChannel) -> anyhow::Result<Option<RejoinReport>> {
        if !self.mark().exists() || !self.read_from.is_source_of(channel) {
            return Ok(None);
        }
        let _alone = self.lock()?;
        self.follow(self.report()).await.map(Some)
    }

    /// Has it read from the log, and compares it.
    async fn follow(&self, mut report: RejoinReport) -> anyhow::Result<RejoinReport> {
        let mut server = Connection::connect(&self.options.server).await?;
        info!(server = self.wish.server, from = self.address(), "it replicates from the log");
        replication::read_from(&mut server, &self.read_from, RECEIVE_PATIENCE).await?;
        // Not sooner: until here it is what keeps a server that restarts from acknowledging anything.
        semi_sync::disable_after_restart(&mut server).await?;
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
                self.unmark()?;
                return Ok(report);
            }
        }
        server.close().await;
        self.unmark()?;
        report.reads_from = Some(self.address());
        Ok(report)
    }

    /// There as long as a server that was told to read from the log is not known to do so rightly.
    fn mark(&self) -> PathBuf {
        self.folder.join(format!("{}.half-way", self.wish.server))
    }

    fn unmark(&self) -> anyhow::Result<()> {
        let mark = self.mark();
        std::fs::remove_file(&mark).with_context(|| format!("remove {}", mark.display()))
    }

    fn report(&self) -> RejoinReport {
        RejoinReport {
            server: self.wish.server.clone(),
            primary: self.primary.clone(),
            healed: None,
            rows_copied: None,
            reads_from: None,
            compared: None,
        }
    }

    fn address(&self) -> String {
        format!("{}:{}", self.read_from.host, self.read_from.port)
    }

    /// Only one at a time works on a server, of those that share the log's folder.
    fn lock(&self) -> anyhow::Result<File> {
        std::fs::create_dir_all(&self.folder).with_context(|| format!("make {}", self.folder.display()))?;
        let path = self.folder.join(format!("{}.lock", self.wish.server));
        let file = tailwater_files::open_or_create(&path, 0o640)
            .with_context(|| format!("open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("somebody else brings {} back: {} is locked", self.wish.server, path.display())
        })?;
        Ok(file)
    }

    async fn copy(&self) -> anyhow::Result<CopyReport> {
        let RejoinOptions { server, primary, .. } = &self.options;
        same_family(server, primary).await?;
        let inserts = !takes_files(server).await?;
        let removed = rejoin::wipe(server, primary).await?;
        info!(server = self.wish.server, removed = removed.join(", "), "emptied, and copied anew");
        let load = LoadOptions {
            set_gtid: true,
            binlog: false,
            inserts,
            events_disabled: true,
            ..LoadOptions::new(server.clone())
        };
        let options = CopyOptions::new(primary.clone(), Selection::default(), load);
        // Nothing goes on when nobody waits for it any more.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        Ok(copy::copy(&options, &Arc::new(BulkProgress::default()), &cancelled).await?)
    }

    async fn check(&self) -> anyhow::Result<Compared> {
        let options = CheckOptions::new(self.options.primary.clone(), self.options.server.clone());
        let (throttle, progress) = (Arc::new(Throttle::open()), Arc::new(BulkProgress::default()));
        // Nothing goes on when nobody waits for it any more.
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let report = check::check(&options, throttle, progress, cancelled).await?;
        Ok(Compared::of(&report))
    }
}

/// Makes former primaries replicas by itself, as they come back, for as long as it runs. One that is refused, or differs, is left
/// to people; so is one that may have acknowledged commits that nobody else has.
///
/// Those are meant that led when this began or since, that were replaced within a day before, and the configured primary of a log that
/// follows another server. They answer, and replicate from nobody. Nothing is done while it is not certain who leads: a run was left
/// half done, or whom the log follows takes no writes; the server that is to be brought back may then be the primary.
pub async fn by_itself<H: ActionExecutor + 'static>(
    config: Config,
    source: SourceConfig,
    cluster: Arc<ManagedCluster<H>>,
) {
    let began = run_began(chrono::Utc::now());
    let mut former = replaced_lately(cluster.records(), chrono::Utc::now());
    let mut replacements = Replacements::since(&began);
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
        }
        // Between two looks the lead may go to another and back again, and whoever had it meanwhile is former, too.
        former.extend(replacements.take(cluster.records()));
        former.remove(&leader);
        for server in
            wired.followers.iter().filter(|server| former.contains(&server.name)).collect::<Vec<_>>()
        {
            // It may take long, and must not get into the way of a run: whoever becomes primary is not led elsewhere by this.
            let interrupted = cluster.interrupted();
            if !cluster.is_free() || cluster.is_half_way() {
                break;
            }
            let doubt = match cluster.past_of(&server.name, &leader) {
                Past::Proven => None,
                Past::Unknown(reason) => Some(reason),
                Past::Accepted(run) => {
                    let reason = format!("that was accepted in {run} (--allow-data-loss)");
                    tell(&source.name, &server.name, reason);
                    former.remove(&server.name);
                    continue;
                }
            };
            let done = tokio::select! {
                done = bring_back(&config, &source, &wired.primary, server, doubt) => done,
                reason = interrupted => {
                    warn!(source = source.name, server = server.name, "it is brought back later: {reason}");
                    break;
                }
            };
            if done {
                former.remove(&server.name);
            }
        }
    }
}

/// Servers that were replaced within the last day, by the records of runs: their last one made another the primary. Longer ago
/// somebody may have had a reason to leave them alone.
fn replaced_lately(records: &AuditFolder, now: chrono::DateTime<chrono::Utc>) -> BTreeSet<String> {
    let (mut seen, mut replaced) = (BTreeSet::new(), BTreeSet::new());
    // Where they cannot be read, people have to ask for it.
    for id in records.list().unwrap_or_default().iter().rev() {
        let began = chrono::NaiveDateTime::parse_from_str(
            id.split('-').next().unwrap_or_default(),
            "%Y%m%dT%H%M%S%3fZ",
        );
        let Some(began) = began.ok().filter(|began| (now - began.and_utc()).num_hours() < 24) else {
            continue;
        };
        let Ok(Some(audit)) = records.load(id) else { continue };
        let Some(RunOutcome::Promoted { server, .. }) = audit.outcome else { continue };
        seen.insert(server);
        if seen.insert(audit.primary.clone()) {
            info!(id, server = audit.primary, %began, "it was replaced, and is brought back when it answers");
            replaced.insert(audit.primary);
        }
    }
    replaced
}

/// What the name of a run begins with that begins at that time.
fn run_began(at: chrono::DateTime<chrono::Utc>) -> String {
    at.format("%Y%m%dT%H%M%S%3fZ").to_string()
}

/// Whom runs replaced, each run told once.
#[derive(Debug)]
struct Replacements {
    since: String,
    told: BTreeSet<String>,
}

impl Replacements {
    /// Of runs that began since then.
    fn since(began: &str) -> Self {
        Self { since: began.to_owned(), told: BTreeSet::new() }
    }

    /// Primaries that were replaced by runs that have ended since this was asked last.
    fn take(&mut self, records: &AuditFolder) -> Vec<String> {
        let mut replaced = Vec::new();
        // Where they cannot be read, they are looked at again.
        for id in records.list().unwrap_or_default() {
            if id < self.since || self.told.contains(&id) {
                continue;
            }
            let Ok(Some(audit)) = records.load(&id) else { continue };
            // One that is under way may yet replace somebody.
            let Some(outcome) = audit.outcome else { continue };
            if matches!(outcome, RunOutcome::Promoted { .. }) {
                replaced.push(audit.primary);
            }
            self.told.insert(id);
        }
        replaced
    }
}

/// Tells that a server is not brought back, since it may have what nobody else has.
fn tell(source: &str, server: &str, reason: String) {
    let refusal = SafetyRefusal::RejoinUnsafe { server: server.to_owned(), reason };
    error!(source, server, code = refusal.code(), "{refusal}");
}

/// Brings a server back if it is there and replicates from nobody, or goes on with that where it was interrupted; and if another
/// takes writes. In doubt, for that reason, only one that has nothing alone. False if it is to be looked at again.
async fn bring_back(
    config: &Config,
    source: &SourceConfig,
    leader: &ProbeTarget,
    server: &ProbeTarget,
    doubt: Option<String>,
) -> bool {
    let Some(channel) = channel_of(&server.connect).await else { return false };
    let name = server.name.clone();
    let wish = RejoinWish { server: name, copy: false, check: true, window: None, may_undo: doubt.is_none() };
    let done = match (Rejoining::new(config, source, wish), channel) {
        // Somebody has made it a replica.
        (Err(_), Some(_)) => return true,
        (Err(error), None) => Err(error),
        (Ok(rejoining), Some(channel)) => match rejoining.go_on(&channel).await.transpose() {
            Some(done) => done,
            None => return true,
        },
        (Ok(_), None) if !takes_writes(&leader.connect).await => {
            debug!(
                source = source.name,
                server = server.name,
                leader = leader.name,
                "nobody leads for certain"
            );
            return false;
        }
        (Ok(rejoining), None) => rejoining.run().await,
    };
    match (done, doubt) {
        (Err(error), Some(doubt)) if is_alone(&error) => {
            tell(&source.name, &server.name, format!("{doubt}, and {}", ErrorChain(&error)));
            true
        }
        (done, _) => is_done_with(&source.name, &server.name, done),
    }
}

fn is_alone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ApplyError::ErrantTransactions { .. }))
}

/// Whether a server answers, and clients can write to it.
async fn takes_writes(server: &ConnectOptions) -> bool {
    let Ok(mut connection) = Connection::connect(server).await else { return false };
    let takes = read_only::is_writable(&mut connection).await.unwrap_or(false);
    connection.close().await;
    takes
}

/// Whom a server replicates from, if anybody; nothing if it does not answer.
async fn channel_of(server: &ConnectOptions) -> Option<Option<ReplicaChannel>> {
    let mut connection = Connection::connect(server).await.ok()?;
    let channel = replication::status(&mut connection).await.ok()?;
    connection.close().await;
    Some(channel)
}

/// Tells how it went; false if it is to be tried again.
fn is_done_with(source: &str, server: &str, done: anyhow::Result<RejoinReport>) -> bool {
    match done {
        Ok(report) if report.reads_from.is_some() => {
            info!(source, server, "the former primary is a replica");
            true
        }
        Ok(_) => {
            error!(
                source,
                server, "the former primary differs: `tailwater rejoin` says where, and how to copy it"
            );
            true
        }
        Err(error) if error.downcast_ref::<ApplyError>().is_some_and(is_refusal) => {
            error!(source, server, "the former primary is left as it is: {}", ErrorChain(&error));
            true
        }
        Err(error) => {
            warn!(source, server, "the former primary is not brought back yet: {}", ErrorChain(&error));
            false
        }
    }
}

/// Whether trying again will not help.
pub fn is_refusal(error: &ApplyError) -> bool {
    matches!(
        error,
        ApplyError::Irreversible { .. } | ApplyError::Rejoin { .. } | ApplyError::ErrantTransactions { .. }
    )
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tailwater_manager::driver::AuditStore;
    use tailwater_manager::failover::Audit;

    use super::*;

    #[test]
    fn whom_the_last_run_replaced_is_brought_back_after_a_restart_too() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let records = AuditFolder::new(folder.path());
        let now = chrono::Utc::now();
        let replace = |hours_ago: i64, primary: &str, server: Option<&str>| {
            let began = (now - chrono::TimeDelta::hours(hours_ago)).format("%Y%m%dT%H%M%S%3fZ");
            let outcome = server.map(|server| json!({ "end": "promoted", "server": server, "left": [] }));
            let audit: Audit = serde_json::from_value(json!({
                "id": format!("{began}-orders-failover"), "primary": primary, "dry_run": false, "allow_data_loss": false,
                "steps": [], "outcome": outcome,
            }))?;
            anyhow::Ok(records.save(&audit)?)
        };
        replace(30, "db4", Some("db1"))?;
        replace(9, "db1", Some("db2"))?;
        replace(8, "db2", Some("db3"))?;
        replace(7, "db3", Some("db1"))?;
        replace(6, "db1", None)?;
        let expected = ["db2", "db3"].map(str::to_owned);
        assert_eq!(replaced_lately(&records, now), BTreeSet::from(expected));
        Ok(())
    }

    #[test]
    fn who_led_for_a_moment_between_two_looks_is_former_too() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let records = AuditFolder::new(folder.path());
        let now = chrono::Utc::now();
        let save = |seconds: i64, primary: &str, outcome: Option<serde_json::Value>| {
            let began = run_began(now + chrono::TimeDelta::seconds(seconds));
            let audit: Audit = serde_json::from_value(json!({
                "id": format!("{began}-orders-failover"), "primary": primary, "dry_run": false, "allow_data_loss": false,
                "steps": [], "outcome": outcome,
            }))?;
            anyhow::Ok(records.save(&audit)?)
        };
        let promoted = |server: &str| Some(json!({ "end": "promoted", "server": server, "left": [] }));
        let mut replacements = Replacements::since(&run_began(now));
        save(-1, "db3", promoted("db1"))?;
        assert!(replacements.take(&records).is_empty(), "that is for the look at the beginning");
        save(1, "db1", promoted("db2"))?;
        save(2, "db2", promoted("db1"))?;
        save(3, "db1", None)?;
        assert_eq!(replacements.take(&records), ["db1", "db2"]);
        assert!(replacements.take(&records).is_empty(), "each is told once");
        save(3, "db1", promoted("db3"))?;
        assert_eq!(replacements.take(&records), ["db1"]);
        Ok(())
    }
}
