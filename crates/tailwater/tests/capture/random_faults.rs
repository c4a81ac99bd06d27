//! Injects random faults on real servers under load: SIGKILL and SIGSTOP of relay and primary, alone and
//! together; a network link between them that loses all bytes or is reset; rotation of the binlog.
//!
//! The clients keep a ledger of the server's answers. After all faults, the log has each acknowledged
//! transaction completely and exactly once. The log equals the primary's binlog byte for byte.
//!
//! The test prints its random seed. `TAILWATER_SEED=n` repeats the random choices of that seed, but not the
//! timing of the servers, so the outcome may differ. CI runs the test with a few kills. With
//! `TAILWATER_LONG=1` there are at least sixty kills.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tailwater_lab::fault_trial::{
    Trial, TrialDurability, TrialFolder, TrialSpec, compare_with_source, prove,
};
use tailwater_log::{AckMode, LogDir};
use tailwater_sandbox::network_link::{Direction, Link};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{BinlogCheck, Ledger, ServerKind, Workload, WorkloadSpec, require};
use tailwater_wire::Flavour;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tailwater");

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

/// A fault that is injected under load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    KillRelay,
    /// The relay is killed, and is killed again while it recovers its position.
    KillRelayTwice,
    /// The primary is killed and restarts on its data with semi-sync. The relay keeps running.
    KillPrimary,
    /// Primary and relay are killed at the same moment. They restart in random order.
    KillBoth,
    /// The relay is frozen while the primary is killed. The bytes that the primary has sent wait in the
    /// relay's socket, and the relay reads them later.
    KillPrimaryBehindRelay,
    PauseRelay,
    PausePrimary,
    /// The network link loses all bytes in one direction or in both, without an error.
    CutLink,
    ResetLink,
    /// The primary starts a new binlog file: FLUSH BINARY LOGS.
    Rotate,
}

impl Fault {
    fn kills(self) -> Kills {
        match self {
            Self::KillRelay => Kills { relay: 1, primary: 0 },
            Self::KillRelayTwice => Kills { relay: 2, primary: 0 },
            Self::KillPrimary | Self::KillPrimaryBehindRelay => Kills { relay: 0, primary: 1 },
            Self::KillBoth => Kills { relay: 1, primary: 1 },
            Self::PauseRelay | Self::PausePrimary | Self::CutLink | Self::ResetLink | Self::Rotate => {
                Kills::default()
            }
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Kills {
    relay: u32,
    primary: u32,
}

impl Kills {
    fn add(&mut self, other: Self) {
        self.relay += other.relay;
        self.primary += other.primary;
    }

    fn total(self) -> u32 {
        self.relay + self.primary
    }
}

/// The server, the workload and the faults of one round.
#[derive(Debug)]
struct Plan {
    kind: ServerKind,
    durability: TrialDurability,
    options: Vec<String>,
    clients: u32,
    /// Maximum length of a text in a row. If the primary is killed during a big transaction, the binlog
    /// probably has only half of that transaction.
    body_bytes_max: usize,
    workload_seed: u64,
    faults: Vec<Fault>,
}

impl Plan {
    /// Draws a plan with this number of kills. With reduced durability, a killed primary restarts with tables
    /// that are older than its binlog. The clients' next changes would not match these tables. So in a plan
    /// with reduced durability, the kill of the primary is the last fault.
    fn random(
        random: &mut StdRng,
        kind: ServerKind,
        durability: TrialDurability,
        kills: u32,
        body_bytes_max: usize,
    ) -> Self {
        const WITHOUT_KILL: [Fault; 5] =
            [Fault::PauseRelay, Fault::PausePrimary, Fault::CutLink, Fault::ResetLink, Fault::Rotate];
        const RELAY: [Fault; 2] = [Fault::KillRelay, Fault::KillRelayTwice];
        const PRIMARY: [Fault; 3] = [Fault::KillPrimary, Fault::KillPrimaryBehindRelay, Fault::KillBoth];
        let mut faults = Vec::new();
        let mut planned = Kills::default();
        let last = match durability {
            TrialDurability::Full => None,
            TrialDurability::Reduced => PRIMARY.choose(random).copied(),
        };
        planned.add(last.map(Fault::kills).unwrap_or_default());
        while planned.total() < kills {
            if random.random_bool(0.4) {
                faults.extend(WITHOUT_KILL.choose(random));
            }
            let of_primary = durability == TrialDurability::Full && random.random_bool(0.6);
            if let Some(fault) = if of_primary { PRIMARY.choose(random) } else { RELAY.choose(random) } {
                planned.add(fault.kills());
                faults.push(*fault);
            }
        }
        faults.extend(last);
        Self {
            kind,
            durability,
            options: random_options(random, kind),
            clients: random.random_range(2..=12),
            body_bytes_max,
            workload_seed: random.random(),
            faults,
        }
    }
}

/// Draws server options that change the contents of the binlog.
fn random_options(random: &mut StdRng, kind: ServerKind) -> Vec<String> {
    let compression = match kind.flavour() {
        Flavour::MySql => "--binlog-transaction-compression=ON",
        Flavour::MariaDb => "--log-bin-compress=ON",
    };
    let size = format!("--max-binlog-size={}", 4096 << random.random_range(2..9));
    let all = [
        (0.6, size.as_str()),
        (0.25, compression),
        (0.2, "--binlog-checksum=NONE"),
        (0.2, "--binlog-row-image=MINIMAL"),
    ];
    all.into_iter()
        .filter(|(chance, _)| random.random_bool(*chance))
        .map(|(_, option)| option.to_owned())
        .collect()
}

/// Counts of the faults and results of all rounds.
#[derive(Debug, Default)]
struct Summary {
    rounds: u32,
    kills: Kills,
    acknowledged: u64,
    missing: u64,
    kept_in_flight: u64,
    log_bytes: u64,
    segments: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} kills ({} of the relay, {} of the primary), {} acknowledged, {} missing, {} in flight at a kill \
             and kept, {} segments with {} bytes compared",
            self.rounds,
            self.kills.total(),
            self.kills.relay,
            self.kills.primary,
            self.acknowledged,
            self.missing,
            self.kept_in_flight,
            self.segments,
            self.log_bytes,
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_commit_is_lost_by_kills() -> Result<()> {
    let long = std::env::var_os("TAILWATER_LONG").is_some();
    let seed: u64 = match std::env::var("TAILWATER_SEED") {
        Ok(text) => text.parse().context("TAILWATER_SEED is not a number")?,
        Err(_) => rand::random(),
    };
    say(&format!("TAILWATER_SEED={seed} repeats this run"));
    let mut random = StdRng::seed_from_u64(seed);
    let kinds: Vec<_> = ServerKind::ALL.into_iter().filter(|kind| require(*kind).is_some()).collect();
    if kinds.is_empty() {
        return Ok(());
    }
    let (kills_wanted, kills_per_round) = if long { (60, 6) } else { (6, 3) };
    let mut summary = Summary::default();
    let second_reduced: bool = random.random();
    while summary.kills.total() < kills_wanted {
        let round = summary.rounds as usize;
        let kind = match long || round == 0 {
            true => kinds[round % kinds.len()],
            // The short test has two rounds, one for each server family.
            false => *kinds[1..].choose(&mut random).unwrap_or(&kinds[0]),
        };
        // In the long test, every third round of each server version has reduced durability. In the short
        // test, one of the two rounds has it.
        let reduced = if long { round / kinds.len() % 3 == 1 } else { (round % 2 == 1) == second_reduced };
        let durability = if reduced { TrialDurability::Reduced } else { TrialDurability::Full };
        let sizes: &[usize] = if long { &[8 << 10, 256 << 10, 3 << 20] } else { &[8 << 10, 256 << 10] };
        let body_bytes_max = *sizes.choose(&mut random).context("no sizes to choose from")?;
        let plan = Plan::random(&mut random, kind, durability, kills_per_round, body_bytes_max);
        say(&format!("round {round}: {plan:?}"));
        let mut faults = StdRng::seed_from_u64(random.random());
        let result = Round::run(&plan, &mut faults, &mut summary).await;
        result.with_context(|| format!("TAILWATER_SEED={seed}, round {round}: {plan:?}"))?;
        summary.rounds += 1;
        say(&format!("so far: {summary}"));
    }
    say(&format!("faults: {summary}"));
    ensure!(
        summary.missing == 0 && summary.acknowledged > 0,
        "acknowledged commits are missing, or no commit was acknowledged: {summary}"
    );
    Ok(())
}

/// Prints to standard error directly. The test harness hides the output of passing tests, but a test that
/// takes minutes should show its progress.
fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

struct Round<'a> {
    random: &'a mut StdRng,
    trial: Trial,
    /// The network link between the relay and the primary.
    link: Link,
    ledger: Arc<Ledger>,
    /// The clients. `None` if the cluster failed after the last fault of a round with reduced durability.
    workload: Option<Workload>,
    /// Binlog files of the primary that may end with a torn write, because the primary was killed while they
    /// were open.
    torn: BTreeSet<String>,
}

impl Round<'_> {
    async fn run(plan: &Plan, random: &mut StdRng, summary: &mut Summary) -> Result<()> {
        let folder = TrialFolder::new(None)?;
        let spec = TrialSpec {
            kind: plan.kind,
            durability: plan.durability,
            options: plan.options.clone(),
            ack: AckMode::Durable,
            program: PathBuf::from(PROGRAM),
            folder: folder.path().to_owned(),
        };
        let mut trial = Trial::start(spec).await?;
        let link = Link::open(trial.primary.address()).await?;
        trial.write_config("127.0.0.1", link.port())?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        prepare(&trial.primary.connect_options()).await?;
        let ledger = Arc::new(Ledger::new());
        let load = WorkloadSpec {
            seed: plan.workload_seed,
            mix: TransactionMix::Mixed { body_bytes_max: plan.body_bytes_max },
            reconnect: PATIENCE,
            ..WorkloadSpec::new(plan.clients)
        };
        let workload = Workload::start(trial.primary.connect_options(), &load, Arc::clone(&ledger));
        let mut round = Round {
            random,
            trial,
            link,
            ledger: Arc::clone(&ledger),
            workload: Some(workload),
            torn: BTreeSet::new(),
        };
        let result = round.faults(plan, summary).await;
        if let Err(error) = result {
            let words = round.trial.relay_log_tail();
            let server = tail(round.trial.primary.error_log());
            return Err(error.context(format!(
                "the end of the relay's log: {words}\nthe end of the primary's log: {server}"
            )));
        }
        let finished = round.end(plan, summary).await;
        finished.with_context(|| format!("the end of the relay's log: {}", round.trial.relay_log_tail()))
    }

    async fn faults(&mut self, plan: &Plan, summary: &mut Summary) -> Result<()> {
        for (number, fault) in plan.faults.iter().enumerate() {
            self.progress()
                .await
                .with_context(|| format!("the cluster failed before fault {number}, {fault:?}"))?;
            let last = number + 1 == plan.faults.len();
            let stop_load = last && plan.durability == TrialDurability::Reduced;
            self.fault(*fault, stop_load)
                .await
                .with_context(|| format!("the cluster failed during fault {number}, {fault:?}"))?;
            summary.kills.add(fault.kills());
        }
        if self.workload.is_some() {
            self.progress().await.context("the cluster failed after the last fault")?;
        }
        Ok(())
    }

    /// Waits until some further commits are acknowledged, and then for a short time, so that faults hit
    /// random moments.
    async fn progress(&mut self) -> Result<()> {
        let Some(workload) = &mut self.workload else { return Ok(()) };
        let counters = Arc::clone(workload.counters());
        let wanted = counters.snapshot().acknowledged + self.random.random_range(20..300);
        let deadline = Instant::now() + PATIENCE;
        while counters.snapshot().acknowledged < wanted {
            ensure!(!workload.is_over(), "the clients gave up");
            ensure!(Instant::now() < deadline, "commits do not continue: {:?}", counters.snapshot());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.pause(0..50).await;
        Ok(())
    }

    async fn pause(&mut self, milliseconds: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.random.random_range(milliseconds))).await;
    }

    async fn fault(&mut self, fault: Fault, stop_load: bool) -> Result<()> {
        match fault {
            Fault::KillRelay => {
                self.trial.kill_relay().await?;
                self.nothing_is_acknowledged().await?;
                self.pause(0..1000).await;
                self.trial.start_relay()?;
                self.trial.wait_captured().await?;
            }
            Fault::KillRelayTwice => {
                self.trial.kill_relay().await?;
                self.trial.start_relay()?;
                self.pause(0..200).await;
                self.trial.kill_relay().await?;
                self.trial.start_relay()?;
                self.trial.wait_captured().await?;
            }
            Fault::KillPrimary => {
                self.kill_primary().await?;
                self.stop_load(stop_load).await;
                if stop_load || self.random.random() {
                    self.log_is_complete_without_primary().await?;
                }
                self.pause(0..1500).await;
                self.trial.primary.start_again().await?;
                self.trial.wait_captured().await?;
            }
            Fault::KillPrimaryBehindRelay => {
                self.trial.relay().context("the relay is not running")?.pause()?;
                self.pause(0..300).await;
                self.kill_primary().await?;
                self.stop_load(stop_load).await;
                self.pause(0..500).await;
                if stop_load || self.random.random() {
                    self.trial.relay().context("the relay is not running")?.resume()?;
                    self.log_is_complete_without_primary().await?;
                    self.trial.primary.start_again().await?;
                } else {
                    self.trial.primary.start_again().await?;
                    self.trial.relay().context("the relay is not running")?.resume()?;
                }
                self.trial.wait_captured().await?;
            }
            Fault::KillBoth => {
                self.trial.relay().context("the relay is not running")?.pause()?;
                self.kill_primary().await?;
                self.trial.kill_relay().await?;
                self.stop_load(stop_load).await;
                self.pause(0..500).await;
                if stop_load || self.random.random() {
                    self.log_is_complete_without_primary().await?;
                    self.pause(0..500).await;
                    self.trial.primary.start_again().await?;
                } else {
                    self.trial.primary.start_again().await?;
                    self.trial.start_relay()?;
                }
                self.trial.wait_captured().await?;
            }
            Fault::PauseRelay => {
                self.trial.relay().context("the relay is not running")?.pause()?;
                self.nothing_is_acknowledged().await?;
                self.pause(0..2500).await;
                self.trial.relay().context("the relay is not running")?.resume()?;
            }
            Fault::PausePrimary => {
                self.trial.primary.pause()?;
                // The pause may be shorter or longer than the three heartbeats after which the relay treats
                // the link as broken.
                self.pause(0..3000).await;
                self.trial.primary.resume()?;
            }
            Fault::CutLink => {
                match self.random.random_range(0..3) {
                    0 => self.link.cut(Direction::ToServer),
                    1 => self.link.cut(Direction::ToClient),
                    _ => self.link.cut_both(),
                }
                self.pause(0..3000).await;
                self.link.restore();
            }
            Fault::ResetLink => self.link.reset(),
            Fault::Rotate => {
                let rotation = self.trial.primary.sql("FLUSH BINARY LOGS");
                tokio::time::timeout(PATIENCE, rotation).await.context("FLUSH BINARY LOGS is stuck")??;
            }
        }
        Ok(())
    }

    async fn kill_primary(&mut self) -> Result<()> {
        self.trial.primary.kill().await?;
        self.torn.extend(binlog_files(self.trial.primary.data())?.pop());
        Ok(())
    }

    async fn stop_load(&mut self, stop: bool) {
        if stop && let Some(workload) = self.workload.take() {
            // The report is ignored, because it contains the errors of clients that could not reach a server
            // any more.
            let _ = workload.abort().await;
        }
    }

    /// The primary is dead and might never restart. So the log must already contain every acknowledged
    /// commit, before the primary restarts and sends its binlog again.
    async fn log_is_complete_without_primary(&mut self) -> Result<()> {
        self.nothing_is_acknowledged().await?;
        if self.trial.relay().is_none() {
            let begin = self.relay_log().len();
            self.trial.start_relay()?;
            // At its start, the relay recovers the log from what it received before it was killed. Then it
            // tries to connect to the primary in vain.
            let deadline = Instant::now() + PATIENCE;
            while !self.relay_log().get(begin..).is_some_and(|words| words.contains("capture interrupted")) {
                ensure!(Instant::now() < deadline, "the relay does not start");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        self.trial.stop_relay().await?;
        let mut check = BinlogCheck::new(&self.ledger, self.trial.primary.kind().flavour());
        for segment in LogDir::open_read_only(&self.trial.log_directory())?.segments()? {
            check.file(&segment.path)?;
        }
        let found = check.finish();
        ensure!(found.is_ok(), "while the primary is dead, the log is incomplete: {found:?}");
        self.trial.start_relay()
    }

    fn relay_log(&self) -> String {
        std::fs::read_to_string(self.trial.relay_output()).unwrap_or_default()
    }

    /// Checks that the primary acknowledges no commit to a client while the relay is down.
    async fn nothing_is_acknowledged(&self) -> Result<()> {
        let Some(workload) = &self.workload else { return Ok(()) };
        let acknowledged = || workload.counters().snapshot().acknowledged;
        // Answers to earlier commits may still be on their way to the clients, so the counter may still grow
        // for a moment. If new commits were acknowledged, the counter would not stop growing.
        let deadline = Instant::now() + PATIENCE;
        let mut before = acknowledged();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = acknowledged();
            if now == before {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the primary still acknowledges commits although the relay is down"
            );
            before = now;
        }
    }

    async fn end(&mut self, plan: &Plan, summary: &mut Summary) -> Result<()> {
        if let Some(workload) = self.workload.take() {
            let report =
                tokio::time::timeout(PATIENCE, workload.finish()).await.context("the clients do not end")?;
            ensure!(report.errors.is_empty(), "clients gave up with errors: {:?}", report.errors);
        }
        // The last commit may have filled its binlog file. Then the relay must still receive the name of the
        // next file.
        self.catch_up().await?;
        self.trial.stop_relay().await?;
        if plan.durability == TrialDurability::Full {
            // The primary itself must have each acknowledged commit. If it lacks one, the test's assumptions
            // about the server are wrong, and the relay is not the cause.
            let on_server = self.ledger.compare_with_server(&self.trial.primary.connect_options()).await?;
            ensure!(
                on_server.missing.is_empty() && on_server.altered.is_empty(),
                "the primary lacks acknowledged commits: {on_server:?}"
            );
        }
        self.trial.primary.stop().await?;

        let log = self.trial.log_directory();
        let proof = prove(&log, &self.ledger, plan.kind.flavour(), self.trial.primary.data())?;
        summary.acknowledged += proof.ledger.acknowledged;
        summary.missing += proof.ledger.missing_in_log.count;
        summary.kept_in_flight += proof.ledger.unknown_but_present;
        summary.log_bytes += proof.log_bytes;
        summary.segments += proof.segments;
        ensure!(proof.is_ok(), "the log differs from the ledger of the clients: {proof:?}");
        self.compare_files(&log)?;
        let verify = Command::new(PROGRAM).args(["log", "verify"]).arg(&log).output()?;
        ensure!(
            verify.status.code() == Some(0),
            "log verify: {}{}",
            String::from_utf8_lossy(&verify.stdout),
            String::from_utf8_lossy(&verify.stderr)
        );
        Ok(())
    }

    /// Waits until the log has everything that the restarted primary has.
    async fn catch_up(&self) -> Result<()> {
        let files = binlog_files(self.trial.primary.data())?;
        let newest = files.last().context("SHOW BINARY LOGS lists no file")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // The restarted primary began a new binlog file, and no client writes. So the log is complete
            // when it has a segment for that file.
            let segments = LogDir::open_read_only(&self.trial.log_directory())?.segments()?;
            if segments.last().is_some_and(|segment| segment.source_file == *newest) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the log does not reach the binlog file {newest}: {segments:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that each binlog file of the primary is a segment of the log, from the first file to the last
    /// byte of the newest file. The primary's file may have more bytes in two cases: after the last complete
    /// transaction of a torn file, and in the newest file, which was closed after the relay ended.
    fn compare_files(&self, log: &Path) -> Result<()> {
        let data = self.trial.primary.data();
        let segments = LogDir::open_read_only(log)?.segments()?;
        let captured: Vec<_> = segments.iter().map(|segment| segment.source_file.as_str()).collect();
        let first = captured.first().context("the log has no segments")?;
        let files: Vec<_> = binlog_files(data)?.into_iter().skip_while(|file| file != first).collect();
        ensure!(captured == files, "the log has the files {captured:?}, the primary has {files:?}");
        for segment in &segments {
            if let Some(offset) = compare_with_source(segment, data)? {
                bail!("{} differs from the segment in the log at offset {offset}", segment.source_file);
            }
            let size = std::fs::metadata(data.join(&segment.source_file))?.len();
            let open_end =
                self.torn.contains(&segment.source_file) || Some(&segment.source_file) == files.last();
            ensure!(
                segment.bytes == size || open_end,
                "the primary's file {} has {size} bytes, the segment in the log is {segment:?}",
                segment.source_file
            );
        }
        Ok(())
    }
}

/// Returns the names of the binlog files in a data directory, oldest first.
fn binlog_files(data: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("binlog.").unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(12).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
