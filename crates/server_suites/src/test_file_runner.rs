//! Runs the test files one after another. For each file: runs it on the primary, waits for the native replica
//! and the channel, compares their servers, and cleans up.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tailwater_apply::channel::GtidMode;
use tailwater_lab::fault_trial::TrialFolder;
use tailwater_sandbox::{ServerKind, TestSuites};
use tailwater_session::{Connection, SessionError};

use super::mysqltest_client::{self, ClientEnd, VarFolder};
use super::primary_reset_between_files::{clean_up, roll_back_prepared};
use super::random_settings::{FileSettings, ServerRotation};
use super::replica_catch_up_wait::{ApplyStop, CatchUpFailure, CatchUpReport, StoppedFollower, catch_up};
use super::server_contents::{ServerContents, ignore_refusal};
use super::statement_proxy::{StatementAction, StatementProxy, classify};
use super::target_comparison::{ContentDifference, differences, tables_with_other_definitions};
use super::test_file_selection::{self, KnownRefusal, TestFile};
use super::test_servers::TestServers;
use super::trial_report::FileReport;
use super::{mysqltest_statements, random_statement_mix};
use crate::arguments::SuitesArgs;

/// Time limit of a statement that runs without the suites' client.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(20);
/// Number of files after which the servers are started from scratch. This limits the effect of objects and
/// settings that a file leaves on the servers.
const FILES_PER_SERVERS: usize = 60;

/// An item to run.
#[derive(Debug)]
pub enum WorkItem {
    /// A file that the suites' own client runs.
    File(TestFile),
    /// The statements of a file, without the client.
    Script(PathBuf),
    /// A mix of statements from several files. The number is the random seed.
    Mix(u64, Vec<PathBuf>),
}

impl WorkItem {
    fn name(&self) -> String {
        match self {
            Self::File(file) => file.name.clone(),
            Self::Script(path) => path.display().to_string(),
            Self::Mix(seed, _) => format!("mix/{seed}"),
        }
    }
}

/// A set of servers, and the statement proxy between the client and the primary.
#[derive(Debug)]
struct ServerSet {
    servers: TestServers,
    proxy: StatementProxy,
    var: VarFolder,
    rotation: ServerRotation,
    files: usize,
    // Declared last, so that the folder is removed after the servers and the proxy are dropped.
    _folder: TrialFolder,
}

/// Runs test files and mixes of statements on sets of servers. It starts servers when they are needed.
#[derive(Debug)]
pub struct Runner {
    kind: ServerKind,
    seed: u64,
    file_patience: Duration,
    inject: bool,
    suites: Option<TestSuites>,
    set: Option<ServerSet>,
    sets_started: usize,
}

/// Time limit for reading the primary's contents. A client may have locked a table.
const PRIMARY_PATIENCE: Duration = Duration::from_secs(20);

/// State of the current file.
#[derive(Debug, Default)]
struct FileProgress {
    report: FileReport,
    /// Names of objects that differed in an earlier comparison.
    seen: HashSet<String>,
    /// Whether a stop or difference has happened that may cause later differences.
    tainted: bool,
    is_injected: bool,
    /// Refusals of the channel that are by design.
    limits: Vec<KnownRefusal>,
    /// The last comparison: when it ended, how long it took, and the GTID set that the primary had committed.
    compared: Option<(Instant, Duration, String)>,
}

/// The statements of a file, each with the number of its connection.
pub type NumberedStatements = Vec<(u32, String)>;

impl Runner {
    /// Creates a runner. It has no servers yet.
    pub fn new(args: &SuitesArgs, suites: Option<TestSuites>) -> Self {
        Self {
            kind: args.server,
            seed: args.seed,
            file_patience: Duration::from_secs(args.file_seconds),
            inject: args.inject_difference,
            suites,
            set: None,
            sets_started: 0,
        }
    }

    /// Runs one test file or mix of statements, and returns its report and its statements. If `gtid` is
    /// `None`, the seed chooses the GTID mode of the channel.
    ///
    /// # Errors
    /// If servers cannot be started. Other failures are in the report, and the next file gets new servers.
    pub async fn run(
        &mut self,
        work: &WorkItem,
        gtid: Option<GtidMode>,
    ) -> anyhow::Result<(FileReport, NumberedStatements)> {
        let started = Instant::now();
        let name = work.name();
        let mut progress = FileProgress { limits: test_file_selection::limits()?, ..FileProgress::default() };
        progress.report.server = self.kind.name();
        progress.report.seed = self.seed;
        if let WorkItem::File(TestFile { skipped: Some(reason), .. }) = work {
            progress.report.skipped = Some(reason.clone());
            progress.report.file = name;
            return Ok((progress.report, Vec::new()));
        }
        self.ensure_servers().await?;
        let mut settings = FileSettings::choose(self.kind, self.seed, &name);
        settings.gtid = gtid.unwrap_or(settings.gtid);
        progress.report.file = name;
        progress.report.settings = Some(settings.clone());
        progress.report.rotation = self.set.as_ref().map(|set| set.rotation);
        let outcome = self.run_item(work, &settings, &mut progress).await;
        let statements = self.set.as_ref().map(take_transcript).unwrap_or_default();
        progress.report.statements = statements.len();
        let cleaned = match outcome {
            Ok(()) => self.clean(&mut progress).await,
            Err(error) => Err(error),
        };
        if let Err(error) = cleaned {
            progress.report.trouble.get_or_insert(format!("new servers cannot be started: {error:#}"));
            self.set = None;
        }
        progress.report.seconds = started.elapsed().as_secs_f64();
        Ok((progress.report, statements))
    }

    /// Starts new servers if there are none, or if the present servers have run enough files.
    async fn ensure_servers(&mut self) -> anyhow::Result<()> {
        if self.set.as_ref().is_some_and(|set| set.files >= FILES_PER_SERVERS) {
            self.set = None;
        }
        if let Some(set) = &mut self.set {
            set.files += 1;
            return Ok(());
        }
        let rotation = ServerRotation::number(self.kind, self.sets_started + usize::try_from(self.seed % 3)?);
        self.sets_started += 1;
        let mut servers =
            TestServers::start(self.kind, &rotation).await.context("cannot start the servers")?;
        let folder = TrialFolder::new(None)?;
        let var = match &self.suites {
            Some(suites) => VarFolder::make(folder.path().join("var"), suites)?,
            None => VarFolder::bare(folder.path().join("var"))?,
        };
        let proxy =
            StatementProxy::open(&var.socket(), servers.trial.primary.port(), servers.trial.primary.socket())
                .await?;
        let caught_up = catch_up(&mut servers).await?;
        anyhow::ensure!(
            caught_up.stops.is_empty() && caught_up.stuck.is_none(),
            "the native replica and the channel of new servers do not catch up: {caught_up:?}"
        );
        let (native, target) = servers.states().await?;
        let found = differences(&native, &target, None);
        anyhow::ensure!(
            found.is_empty(),
            "native replica and target already differ on new servers: {found:?}"
        );
        servers.baseline = native;
        self.set = Some(ServerSet { servers, proxy, var, rotation, files: 1, _folder: folder });
        Ok(())
    }

    /// Runs an item, and compares the followers at its end.
    async fn run_item(
        &mut self,
        work: &WorkItem,
        settings: &FileSettings,
        progress: &mut FileProgress,
    ) -> anyhow::Result<()> {
        let inject = self.inject;
        let set = self.set.as_mut().context("the runner has no servers")?;
        set.servers.set_channel(settings.edit())?;
        for (name, value) in &settings.globals {
            let connection = set.servers.on_primary.connection().await?;
            match connection.execute(&format!("SET GLOBAL {name}={value}")).await {
                // Some server versions do not have this variable.
                Ok(_) | Err(SessionError::Server { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match work {
            WorkItem::File(file) => {
                let suites = self.suites.as_ref().context("the test suites are not installed")?;
                let end = run_client(set, suites, file, self.file_patience, inject, progress).await?;
                if matches!(end, ClientEnd::Skipped(_)) && progress.report.checkpoints == 0 {
                    let ClientEnd::Skipped(words) = &end else { return Ok(()) };
                    progress.report.skipped = Some(format!("the file skips itself: {words}"));
                }
                progress.report.end = Some(end);
            }
            WorkItem::Script(path) => {
                let text = std::fs::read(path).with_context(|| path.display().to_string())?;
                let statements = mysqltest_statements::statements(&String::from_utf8_lossy(&text));
                run_statements(set, &statements, self.file_patience, inject, progress).await?;
            }
            WorkItem::Mix(seed, paths) => {
                let read = |path: &PathBuf| {
                    mysqltest_statements::statements(&String::from_utf8_lossy(
                        &std::fs::read(path).unwrap_or_default(),
                    ))
                };
                let files: Vec<_> = paths.iter().map(read).collect();
                let statements = random_statement_mix::mix(self.kind, *seed, &files);
                run_statements(set, &statements, self.file_patience, inject, progress).await?;
            }
        }
        compare(&mut set.servers, inject, true, progress).await
    }

    /// Restores the primary to its state before the file. Then checks that native replica and target have
    /// caught up, and have the same contents as before the file.
    async fn clean(&mut self, progress: &mut FileProgress) -> anyhow::Result<()> {
        let set = self.set.as_mut().context("the runner has no servers")?;
        clean_up(&mut set.servers).await.context("cannot restore the primary after the test file")?;
        let (native, target) = caught_up_contents(&mut set.servers, progress).await?;
        record_differences(differences(&native, &target, None), progress);
        let left = differences(&set.servers.baseline, &native, None);
        let names: Vec<_> = left.iter().map(|difference| difference.what.as_str()).collect();
        anyhow::ensure!(
            left.is_empty(),
            "after the cleanup, these objects differ from their state before the test file: {}",
            names.join(", ")
        );
        let report = &progress.report;
        anyhow::ensure!(
            report.differences.is_empty() && report.native_differs.is_empty(),
            "native replica and target differ after the cleanup"
        );
        Ok(())
    }
}

/// Takes the statements of the file from the proxy.
fn take_transcript(set: &ServerSet) -> NumberedStatements {
    match set.proxy.transcript.lock() {
        Ok(mut transcript) => std::mem::take(&mut *transcript),
        Err(_) => Vec::new(),
    }
}

async fn run_client(
    set: &mut ServerSet,
    suites: &TestSuites,
    file: &TestFile,
    patience: Duration,
    inject: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<ClientEnd> {
    let ServerSet { servers, proxy, var, .. } = set;
    let mut running = mysqltest_client::start(suites, &servers.trial.primary, proxy, var, &file.path)?;
    let mut deadline = tokio::time::Instant::now() + patience;
    let mut end = None;
    while end.is_none() {
        tokio::select! {
            result = running.wait() => end = Some(result?),
            held = proxy.held.recv() => {
                let Some(go) = held else { continue };
                let started = Instant::now();
                compare(servers, inject, false, progress).await?;
                // The time limit applies to the file, without the time that the comparison needs.
                deadline += started.elapsed();
                // An error is ignored: it means that the client has ended.
                let _ = go.send(());
            }
            () = tokio::time::sleep_until(deadline) => {
                running.kill();
                end = Some(ClientEnd::TimedOut);
                // Give the proxy time to read what the client has already sent.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // A statement that is still held belongs to a client that has ended. It is not executed.
    while proxy.held.try_recv().is_ok() {}
    anyhow::ensure!(servers.trial.primary.is_running(), "the primary has ended");
    end.context("the client of the test suites ended without a result")
}

/// Runs statements in one session, and ignores their errors.
async fn run_statements(
    set: &mut ServerSet,
    statements: &[String],
    patience: Duration,
    inject: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut session: Option<Connection> = None;
    for statement in statements {
        if started.elapsed() > patience {
            progress.report.end = Some(ClientEnd::TimedOut);
            break;
        }
        match classify(statement.as_bytes()) {
            StatementAction::Refuse => continue,
            StatementAction::Hold => compare(&mut set.servers, inject, false, progress).await?,
            StatementAction::Pass => {}
        }
        if session.is_none() {
            let mut fresh = Connection::connect(&set.servers.trial.primary.socket_options()).await?;
            fresh.execute("SET SESSION lock_wait_timeout=3, innodb_lock_wait_timeout=2").await?;
            ignore_refusal(fresh.execute("USE test").await)?;
            session = Some(fresh);
        }
        let Some(connection) = &mut session else { continue };
        let answer = tokio::time::timeout(STATEMENT_PATIENCE, connection.execute(statement)).await;
        if !matches!(answer, Ok(Ok(_) | Err(SessionError::Server { .. }))) {
            session = None;
        }
        if let Ok(mut transcript) = set.proxy.transcript.lock() {
            transcript.push((0, statement.clone()));
        }
    }
    anyhow::ensure!(set.servers.trial.primary.is_running(), "the primary has ended");
    Ok(())
}

/// Waits for both followers (the native replica and the channel), and compares their contents. During a file,
/// it compares only if the last comparison is not recent.
async fn compare(
    servers: &mut TestServers,
    inject: bool,
    last: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<()> {
    let committed = servers.committed().await?;
    if let Some((when, cost, at)) = &progress.compared
        && !last
        && (*at == committed || when.elapsed() < *cost + Duration::from_millis(30))
    {
        return Ok(());
    }
    let connection = servers.on_primary.connection().await?;
    if last {
        roll_back_prepared(connection).await?;
    } else if !connection.query("XA RECOVER").await?.rows.is_empty() {
        return Ok(());
    }
    let started = Instant::now();
    let (mut native, mut target) = caught_up_contents(servers, progress).await?;
    if inject && !progress.is_injected && inject_difference(servers, &native).await? {
        progress.is_injected = true;
        target = servers.states().await?.1;
    }
    // MariaDB prints the expressions in a definition as the session that opened the table understood them. So
    // the same definition is printed differently if another session with another character set opened the
    // table. Therefore tables whose definitions differ are opened again before they are compared.
    let definitions = tables_with_other_definitions(&native, &target);
    if !definitions.is_empty() && servers.close_tables(&definitions).await? {
        (native, target) = servers.states().await?;
    }
    let found = match native == target {
        true => Vec::new(),
        false => {
            // While a statement is held, nothing is committed, so the contents of the primary show which
            // follower is right. They cannot be read if a client has locked a table.
            let primary = tokio::time::timeout(PRIMARY_PATIENCE, servers.primary_state()).await;
            let primary = primary.ok().and_then(Result::ok);
            differences(&native, &target, primary.as_ref())
        }
    };
    record_differences(found, progress);
    progress.report.checkpoints += 1;
    progress.compared = Some((Instant::now(), started.elapsed(), committed));
    Ok(())
}

/// Returns the contents of native replica and target after both have applied everything. If a transaction was
/// committed on the primary in the meantime, tries again. Such commits are possible: a statement of a killed
/// client may still run, and other connections may run statements while one statement is held.
async fn caught_up_contents(
    servers: &mut TestServers,
    progress: &mut FileProgress,
) -> anyhow::Result<(ServerContents, ServerContents)> {
    const TRIES_MAX: usize = 20;
    let mut tries = 0;
    loop {
        let caught_up = catch_up(servers).await?;
        record_times(&caught_up, progress);
        record_stops(caught_up.stops, progress);
        match caught_up.stuck {
            Some(CatchUpFailure::TooManyStops(text)) => {
                record_difference(progress, "following", String::new(), text.clone());
                anyhow::bail!("{text}");
            }
            Some(CatchUpFailure::Slow(text)) => {
                progress.report.skipped =
                    Some("the native replica has not applied the transactions after 60 s either".into());
                anyhow::bail!("{text}");
            }
            Some(CatchUpFailure::Broken(text)) => {
                record_failure(progress, text.clone());
                anyhow::bail!("{text}");
            }
            None => {}
        }
        let states = servers.states().await?;
        if servers.committed().await? == caught_up.wanted {
            return Ok(states);
        }
        tries += 1;
        anyhow::ensure!(tries < TRIES_MAX, "a client still writes to the primary");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Deletes a row on the target. Returns false if no table has a row.
async fn inject_difference(servers: &mut TestServers, native: &ServerContents) -> anyhow::Result<bool> {
    let tables = native.iter().filter(|(_, rows)| !rows.is_empty());
    let mut tables = tables
        .filter_map(|(name, _)| name.strip_prefix("rows of "))
        .filter(|name| !name.starts_with("`mtr`"));
    let Some(table) = tables.next() else { return Ok(false) };
    let connection = servers.on_target.connection().await?;
    connection.execute("SET SESSION sql_log_bin=0, foreign_key_checks=0").await?;
    let deleted = connection.execute(&format!("DELETE FROM {table} LIMIT 1")).await?;
    servers.on_target.close();
    Ok(deleted.affected_rows == 1)
}

fn record_times(caught_up: &CatchUpReport, progress: &mut FileProgress) {
    progress.report.native_seconds += caught_up.native.as_secs_f64();
    progress.report.channel_seconds += caught_up.channel.as_secs_f64();
}

fn record_stops(stops: Vec<ApplyStop>, progress: &mut FileProgress) {
    for stop in stops {
        match stop.who {
            StoppedFollower::Both => progress.report.stopped_both.push(stop),
            StoppedFollower::Channel if limit_of(&stop, &progress.limits).is_some() => {
                let reason = limit_of(&stop, &progress.limits).unwrap_or_default();
                progress.report.limits.push(format!("{}: {reason}", stop.gtid));
            }
            StoppedFollower::Native => progress.report.stopped_native.push(stop),
            StoppedFollower::Channel => {
                record_difference(progress, "stopped: channel only", stop.native, stop.channel)
            }
        }
        // Later transactions may depend on the skipped transaction.
        progress.tainted = true;
    }
}

/// Returns why the channel refuses this transaction by design; `None` if the refusal is a fault.
fn limit_of(stop: &ApplyStop, limits: &[KnownRefusal]) -> Option<String> {
    limits.iter().find(|limit| limit.matches(&stop.channel)).map(|limit| limit.reason.clone())
}

fn record_difference(progress: &mut FileProgress, what: &str, native: String, target: String) {
    let secondary = progress.tainted;
    let difference = ContentDifference {
        what: what.to_owned(),
        native: vec![native],
        target: vec![target],
        primary: None,
        secondary,
        native_only: false,
    };
    progress.report.differences.push(difference);
    progress.tainted = true;
}

/// Records that the native replica or the channel does not work any more. This always counts as a difference,
/// even after a skipped transaction.
fn record_failure(progress: &mut FileProgress, text: String) {
    progress.tainted = false;
    record_difference(progress, "following", String::new(), text);
}

fn record_differences(found: Vec<ContentDifference>, progress: &mut FileProgress) {
    let tainted = progress.tainted;
    for mut difference in found {
        if difference.native_only {
            progress.report.native_differs.insert(difference.what);
        } else if progress.seen.insert(difference.what.clone()) {
            difference.secondary = tainted;
            progress.report.differences.push(difference);
            progress.tainted = true;
        }
    }
}
