//! Runs the files one after another: run, wait, compare, clean up.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use tailwater_apply::channel::GtidMode;
use tailwater_sandbox::{ServerKind, TestSuites};
use tailwater_session::{Connection, SessionError};

use super::catch_up::{ApplyStop, CatchUpFailure, CatchUpReport, StoppedFollower, catch_up};
use super::cleanup::{clean_up, roll_back_prepared};
use super::client::{self, ClientEnd, VarFolder};
use super::compare::{ContentDifference, differences};
use super::report::FileReport;
use super::server_contents::{ServerContents, ignore_refusal};
use super::settings::{FileSettings, ServerRotation};
use super::statement_proxy::{StatementAction, StatementProxy, classify};
use super::test_files::{self, KnownRefusal, TestFile};
use super::test_servers::TestServers;
use super::{mix, script};
use crate::args::SuitesArgs;
use crate::trial::TrialFolder;

/// How long one statement may take that has no client of its own.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(20);
/// After so many files servers are started from scratch, so that what one file left over does not count against many.
const FILES_PER_SERVERS: usize = 60;

/// What to run.
#[derive(Debug)]
pub enum WorkItem {
    /// A file, by the suites' own client.
    File(TestFile),
    /// The statements of a file.
    Script(PathBuf),
    /// NumberedStatements of several files, by a seed.
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

/// Servers that are ready, and the gate in front of them.
#[derive(Debug)]
struct RunServers {
    trio: TestServers,
    gate: StatementProxy,
    var: VarFolder,
    rotation: ServerRotation,
    files: usize,
    // Dropped last.
    _folder: TrialFolder,
}

/// Runs files.
#[derive(Debug)]
pub struct Runner {
    kind: ServerKind,
    seed: u64,
    file_patience: Duration,
    inject: bool,
    suites: Option<TestSuites>,
    stage: Option<RunServers>,
    stages: usize,
}

/// How long the primary may take to show what it has. A client may have locked a table.
const PRIMARY_PATIENCE: Duration = Duration::from_secs(20);

/// What is known of the file that runs.
#[derive(Debug, Default)]
struct FileProgress {
    report: FileReport,
    /// What differed already.
    seen: HashSet<String>,
    /// Something went wrong that may be the cause of what differs later.
    tainted: bool,
    planted: bool,
    /// What a channel refuses by design.
    limits: Vec<KnownRefusal>,
    /// When replicas were last compared, how long that took, and what the primary had committed then.
    compared: Option<(Instant, Duration, String)>,
}

/// The statements of a file, with the number of their connection.
pub type NumberedStatements = Vec<(u32, String)>;

impl Runner {
    /// For a server.
    pub fn new(args: &SuitesArgs, suites: Option<TestSuites>) -> Self {
        Self {
            kind: args.server,
            seed: args.seed,
            file_patience: Duration::from_secs(args.file_seconds),
            inject: args.inject_difference,
            suites,
            stage: None,
            stages: 0,
        }
    }

    /// Runs one, and says what became of it; with the GTID mode that is its turn, or with this one.
    ///
    /// # Errors
    /// If servers cannot be started. Whatever else goes wrong is in the report, and the next file gets new servers.
    pub async fn run(
        &mut self,
        work: &WorkItem,
        gtid: Option<GtidMode>,
    ) -> anyhow::Result<(FileReport, NumberedStatements)> {
        let begun = Instant::now();
        let name = work.name();
        let mut progress = FileProgress { limits: test_files::limits()?, ..FileProgress::default() };
        progress.report.server = self.kind.name();
        progress.report.seed = self.seed;
        if let WorkItem::File(TestFile { skipped: Some(reason), .. }) = work {
            progress.report.skipped = Some(reason.clone());
            progress.report.file = name;
            return Ok((progress.report, Vec::new()));
        }
        self.ready().await?;
        let mut settings = FileSettings::choose(self.kind, self.seed, &name);
        settings.gtid = gtid.unwrap_or(settings.gtid);
        progress.report.file = name;
        progress.report.settings = Some(settings.clone());
        progress.report.rotation = self.stage.as_ref().map(|stage| stage.rotation);
        let outcome = self.perform(work, &settings, &mut progress).await;
        let statements = self.stage.as_ref().map(taken).unwrap_or_default();
        progress.report.statements = statements.len();
        let cleaned = match outcome {
            Ok(()) => self.clean(&mut progress).await,
            Err(error) => Err(error),
        };
        if let Err(error) = cleaned {
            progress.report.trouble.get_or_insert(format!("new servers: {error:#}"));
            self.stage = None;
        }
        progress.report.seconds = begun.elapsed().as_secs_f64();
        Ok((progress.report, statements))
    }

    /// Has servers that are ready.
    async fn ready(&mut self) -> anyhow::Result<()> {
        if self.stage.as_ref().is_some_and(|stage| stage.files >= FILES_PER_SERVERS) {
            self.stage = None;
        }
        if let Some(stage) = &mut self.stage {
            stage.files += 1;
            return Ok(());
        }
        let rotation = ServerRotation::number(self.kind, self.stages + usize::try_from(self.seed % 3)?);
        self.stages += 1;
        let mut trio = TestServers::start(self.kind, &rotation).await.context("start servers")?;
        let folder = TrialFolder::new(None)?;
        let var = match &self.suites {
            Some(suites) => VarFolder::make(folder.path().join("var"), suites)?,
            None => VarFolder::bare(folder.path().join("var"))?,
        };
        let gate =
            StatementProxy::open(&var.socket(), trio.trial.primary.port(), trio.trial.primary.socket())
                .await?;
        let caught_up = catch_up(&mut trio).await?;
        anyhow::ensure!(
            caught_up.stops.is_empty() && caught_up.stuck.is_none(),
            "new servers: {caught_up:?}"
        );
        let (native, target) = trio.states().await?;
        let found = differences(&native, &target, None);
        anyhow::ensure!(found.is_empty(), "new servers differ: {found:?}");
        trio.baseline = native;
        self.stage = Some(RunServers { trio, gate, var, rotation, files: 1, _folder: folder });
        Ok(())
    }

    /// Runs the file, and compares at its end.
    async fn perform(
        &mut self,
        work: &WorkItem,
        settings: &FileSettings,
        progress: &mut FileProgress,
    ) -> anyhow::Result<()> {
        let inject = self.inject;
        let stage = self.stage.as_mut().context("no servers")?;
        stage.trio.set_channel(settings.edit())?;
        for (name, value) in &settings.globals {
            let connection = stage.trio.on_primary.connection().await?;
            match connection.execute(&format!("SET GLOBAL {name}={value}")).await {
                // Not every version has every variable.
                Ok(_) | Err(SessionError::Server { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match work {
            WorkItem::File(file) => {
                let suites = self.suites.as_ref().context("no suites")?;
                let ended = run_client(stage, suites, file, self.file_patience, inject, progress).await?;
                if matches!(ended, ClientEnd::Skipped(_)) && progress.report.checkpoints == 0 {
                    let ClientEnd::Skipped(words) = &ended else { return Ok(()) };
                    progress.report.skipped = Some(format!("it skips itself: {words}"));
                }
                progress.report.ended = Some(ended);
            }
            WorkItem::Script(path) => {
                let text = std::fs::read(path).with_context(|| path.display().to_string())?;
                let statements = script::statements(&String::from_utf8_lossy(&text));
                run_statements(stage, &statements, self.file_patience, inject, progress).await?;
            }
            WorkItem::Mix(seed, paths) => {
                let read = |path: &PathBuf| {
                    script::statements(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()))
                };
                let files: Vec<_> = paths.iter().map(read).collect();
                let statements = mix::mix(self.kind, *seed, &files);
                run_statements(stage, &statements, self.file_patience, inject, progress).await?;
            }
        }
        compare(&mut stage.trio, inject, true, progress).await
    }

    /// Puts the primary back, and sees that all three follow.
    async fn clean(&mut self, progress: &mut FileProgress) -> anyhow::Result<()> {
        let stage = self.stage.as_mut().context("no servers")?;
        clean_up(&mut stage.trio).await.context("clean up")?;
        let (native, target) = caught_up_contents(&mut stage.trio, progress).await?;
        note_differences(differences(&native, &target, None), progress);
        let left = differences(&stage.trio.baseline, &native, None);
        let names: Vec<_> = left.iter().map(|difference| difference.what.as_str()).collect();
        anyhow::ensure!(left.is_empty(), "the file leaves over: {}", names.join(", "));
        let report = &progress.report;
        anyhow::ensure!(report.differences.is_empty() && report.native_differs.is_empty(), "they differ");
        Ok(())
    }
}

/// All statements of the file, taken out of the gate.
fn taken(stage: &RunServers) -> NumberedStatements {
    match stage.gate.transcript.lock() {
        Ok(mut transcript) => std::mem::take(&mut *transcript),
        Err(_) => Vec::new(),
    }
}

async fn run_client(
    stage: &mut RunServers,
    suites: &TestSuites,
    file: &TestFile,
    patience: Duration,
    inject: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<ClientEnd> {
    let RunServers { trio, gate, var, .. } = stage;
    let mut running = client::start(suites, &trio.trial.primary, gate, var, &file.path)?;
    let mut deadline = tokio::time::Instant::now() + patience;
    let mut ended = None;
    while ended.is_none() {
        tokio::select! {
            result = running.ended() => ended = Some(result?),
            held = gate.held.recv() => {
                let Some(go) = held else { continue };
                let begun = Instant::now();
                compare(trio, inject, false, progress).await?;
                // The limit is for the file, not for how long the servers take to be compared.
                deadline += begun.elapsed();
                // Gone, if its client has ended.
                let _ = go.send(());
            }
            () = tokio::time::sleep_until(deadline) => {
                running.kill();
                ended = Some(ClientEnd::TimedOut);
                // What it has sent is read by now.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // A statement that still waits is of a client that has ended: it is not run.
    while gate.held.try_recv().is_ok() {}
    anyhow::ensure!(trio.trial.primary.is_running(), "the primary has ended");
    ended.context("it ended")
}

/// Runs statements on a session of their own, whatever becomes of each.
async fn run_statements(
    stage: &mut RunServers,
    statements: &[String],
    patience: Duration,
    inject: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut session: Option<Connection> = None;
    for statement in statements {
        if begun.elapsed() > patience {
            progress.report.ended = Some(ClientEnd::TimedOut);
            break;
        }
        match classify(statement.as_bytes()) {
            StatementAction::Refuse => continue,
            StatementAction::Hold => compare(&mut stage.trio, inject, false, progress).await?,
            StatementAction::Pass => {}
        }
        if session.is_none() {
            let mut fresh = Connection::connect(&stage.trio.trial.primary.socket_options()).await?;
            fresh.execute("SET SESSION lock_wait_timeout=3, innodb_lock_wait_timeout=2").await?;
            ignore_refusal(fresh.execute("USE test").await)?;
            session = Some(fresh);
        }
        let Some(connection) = &mut session else { continue };
        let answer = tokio::time::timeout(STATEMENT_PATIENCE, connection.execute(statement)).await;
        if !matches!(answer, Ok(Ok(_) | Err(SessionError::Server { .. }))) {
            session = None;
        }
        if let Ok(mut transcript) = stage.gate.transcript.lock() {
            transcript.push((0, statement.clone()));
        }
    }
    anyhow::ensure!(stage.trio.trial.primary.is_running(), "the primary has ended");
    Ok(())
}

/// Waits for both followers, and compares them; in the midst of a file only if that has not just been done.
async fn compare(
    trio: &mut TestServers,
    inject: bool,
    last: bool,
    progress: &mut FileProgress,
) -> anyhow::Result<()> {
    let committed = trio.committed().await?;
    if let Some((when, cost, at)) = &progress.compared
        && !last
        && (*at == committed || when.elapsed() < *cost + Duration::from_millis(30))
    {
        return Ok(());
    }
    let connection = trio.on_primary.connection().await?;
    if last {
        roll_back_prepared(connection).await?;
    } else if !connection.query("XA RECOVER").await?.rows.is_empty() {
        return Ok(());
    }
    let begun = Instant::now();
    let (native, mut target) = caught_up_contents(trio, progress).await?;
    if inject && !progress.planted && inject_difference(trio, &native).await? {
        progress.planted = true;
        target = trio.states().await?.1;
    }
    let found = match native == target {
        true => Vec::new(),
        false => {
            // Nothing is committed while a statement is held, so it shows who is right: unless a client has locked a table.
            let primary = tokio::time::timeout(PRIMARY_PATIENCE, trio.primary_state()).await;
            let primary = primary.ok().and_then(Result::ok);
            differences(&native, &target, primary.as_ref())
        }
    };
    note_differences(found, progress);
    progress.report.checkpoints += 1;
    progress.compared = Some((Instant::now(), begun.elapsed(), committed));
    Ok(())
}

/// What both followers hold when they have applied everything, with nothing committed meanwhile: a client that was killed may have
/// left a statement running, and others may run beside the one that waits.
async fn caught_up_contents(
    trio: &mut TestServers,
    progress: &mut FileProgress,
) -> anyhow::Result<(ServerContents, ServerContents)> {
    const TRIES_MAX: usize = 20;
    let mut tries = 0;
    loop {
        let caught_up = catch_up(trio).await?;
        note_times(&caught_up, progress);
        note_stops(caught_up.stops, progress);
        match caught_up.stuck {
            Some(CatchUpFailure::TooManyStops(text)) => {
                note(progress, "following", String::new(), text.clone());
                anyhow::bail!("{text}");
            }
            Some(CatchUpFailure::Slow(text)) => {
                progress.report.skipped =
                    Some("native replication has not applied it after 60 s either".into());
                anyhow::bail!("{text}");
            }
            Some(CatchUpFailure::Broken(text)) => {
                note_broken(progress, text.clone());
                anyhow::bail!("{text}");
            }
            None => {}
        }
        let states = trio.states().await?;
        if trio.committed().await? == caught_up.wanted {
            return Ok(states);
        }
        tries += 1;
        anyhow::ensure!(tries < TRIES_MAX, "something continues to write to the primary");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Deletes a row on the target; whether there was one.
async fn inject_difference(trio: &mut TestServers, native: &ServerContents) -> anyhow::Result<bool> {
    let tables = native.iter().filter(|(_, rows)| !rows.is_empty());
    let mut tables = tables
        .filter_map(|(name, _)| name.strip_prefix("rows of "))
        .filter(|name| !name.starts_with("`mtr`"));
    let Some(table) = tables.next() else { return Ok(false) };
    let connection = trio.on_target.connection().await?;
    connection.execute("SET SESSION sql_log_bin=0, foreign_key_checks=0").await?;
    let deleted = connection.execute(&format!("DELETE FROM {table} LIMIT 1")).await?;
    trio.on_target.forget();
    Ok(deleted.affected_rows == 1)
}

fn note_times(caught_up: &CatchUpReport, progress: &mut FileProgress) {
    progress.report.native_seconds += caught_up.native.as_secs_f64();
    progress.report.channel_seconds += caught_up.channel.as_secs_f64();
}

fn note_stops(stops: Vec<ApplyStop>, progress: &mut FileProgress) {
    for stop in stops {
        match stop.who {
            StoppedFollower::Both => progress.report.stopped_both.push(stop),
            StoppedFollower::Channel if limit_of(&stop, &progress.limits).is_some() => {
                let reason = limit_of(&stop, &progress.limits).unwrap_or_default();
                progress.report.limits.push(format!("{}: {reason}", stop.gtid));
            }
            StoppedFollower::Native => progress.report.stopped_native.push(stop),
            StoppedFollower::Channel => note(progress, "stopped: channel only", stop.native, stop.channel),
        }
        // What was left out was perhaps half done, and what comes later may need it.
        progress.tainted = true;
    }
}

/// Why a channel refuses this by design, if it does.
fn limit_of(stop: &ApplyStop, limits: &[KnownRefusal]) -> Option<String> {
    limits.iter().find(|limit| stop.channel.contains(&limit.message)).map(|limit| limit.reason.clone())
}

fn note(progress: &mut FileProgress, what: &str, native: String, target: String) {
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

/// One of them does not work any more, which counts whatever was before.
fn note_broken(progress: &mut FileProgress, text: String) {
    progress.tainted = false;
    note(progress, "following", String::new(), text);
}

fn note_differences(found: Vec<ContentDifference>, progress: &mut FileProgress) {
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
