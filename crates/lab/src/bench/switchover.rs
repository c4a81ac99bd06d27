//! `tailwater bench switchover`: the time without writes during a switchover.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tailwater_log::AckMode;
use tailwater_manager::model::{Audit, RunOutcome, RunPhase};
use tailwater_sandbox::{Server, ServerKind};
use tailwater_wire::Flavour;

use super::benchmark_report::{BenchReport, MachineInfo, Measurement, setting};
use super::cluster_writers::{ClusterWriters, PAUSE, prepare_writers};
use crate::arguments::{ServerFamily, SwitchoverBench};
use crate::demo::choose_server;
use crate::fault_trial::managed_cluster::{PRIMARY_NAME, start_candidate};
use crate::fault_trial::{SOURCE_NAME, Trial, TrialDurability, TrialFolder, TrialSpec, ensure_installed};

const MEASUREMENT: &str = "time without writes";
const BY_CLIENTS: &str = "as measured by the clients";
const BY_RECORD: &str = "according to the audit record";

/// Number of clients that commit continuously.
const CLIENTS: u32 = 8;
/// How long the clients commit before and after each switchover.
const LOAD_AROUND_SWITCHOVER: Duration = Duration::from_millis(500);
/// The server that becomes primary, and then a replica again.
const CANDIDATE: &str = "db2";
/// Number of transactions that a replica applies at the same time; MySQL's default. One worker cannot keep up
/// with clients that commit in groups.
const APPLIERS: u32 = 4;
/// Maximum number of attempts to switch over, if the attempts are rolled back.
const TRIES_MAX: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(60);
/// The phases of the write pause, with their names in the report.
const PHASES: [(RunPhase, &str); 4] = [
    (RunPhase::Pause, "hold_ms"),
    (RunPhase::Fence, "fence_ms"),
    (RunPhase::RepointAckers, "follow_ms"),
    (RunPhase::MakeWritable, "writable_ms"),
];

/// The result of one switchover: times in milliseconds, and commits per second before it.
#[derive(Debug, Clone)]
struct WritePause {
    seen_by_clients: f64,
    from_the_record: Option<f64>,
    commits_per_second: f64,
    /// The duration of each phase, from the audit record.
    phases: Vec<(&'static str, f64)>,
    /// Whether the switchover was rolled back, because it exceeded the time limit of the write pause.
    is_undone: bool,
}

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a switchover does not happen, or a commit is lost.
pub async fn switchover(options: &SwitchoverBench) -> anyhow::Result<BenchReport> {
    let families = match options.server {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    };
    let rounds = if options.quick { 2 } else { options.rounds };
    let mut rows = Vec::new();
    for family in families {
        let kind = choose_server(family, None)?;
        ensure_installed(kind)?;
        let pauses = round_trips(kind, rounds).await?;
        rows.push(row(kind, BY_CLIENTS, &pauses, |pause| Some(pause.seen_by_clients)));
        rows.push(row(kind, BY_RECORD, &pauses, |pause| pause.from_the_record));
    }
    let folder = TrialFolder::new(None)?;
    let ours = rows.iter().filter(|row| row.variant == BY_CLIENTS).map(|row| row.median);
    Ok(BenchReport {
        name: "switchover",
        unit: "ms",
        ours: ours.fold(0.0, f64::max),
        peers: Vec::new(),
        ratio: f64::NAN,
        machine: MachineInfo::look(folder.path())?,
        rows,
        notes: vec![
            format!(
                "{CLIENTS} clients insert one row per transaction, with a pause of {} ms between two \
                 transactions; a client whose server refuses a row tries the next server; the write pause \
                 is the longest time around the switchover in which no client committed; {rounds} \
                 switchovers there and back on the same three servers; sync_binlog=0 on all servers (the \
                 log is synced), replicas with {APPLIERS} appliers",
                PAUSE.as_millis()
            ),
            "a switchover that took longer than one second (--max-write-pause-ms) was rolled back; it \
             counts as `undone`, with the write pause that the clients measured, and was tried again"
                .to_owned(),
            "at the end, every commit that was acknowledged to a client was on the last primary".to_owned(),
        ],
    })
}

fn row(
    kind: ServerKind,
    variant: &str,
    pauses: &[WritePause],
    of: fn(&WritePause) -> Option<f64>,
) -> Measurement {
    let settings = setting(&[("server", kind.name()), ("clients", &CLIENTS.to_string())]);
    let mut rates: Vec<f64> = pauses.iter().map(|pause| pause.commits_per_second).collect();
    rates.sort_by(f64::total_cmp);
    let mut row =
        Measurement::new(MEASUREMENT, settings, variant, "ms", pauses.iter().filter_map(of).collect());
    let undone = pauses.iter().filter(|pause| pause.is_undone).count();
    row.also.insert("undone", undone as f64);
    for (_, key) in PHASES.into_iter().filter(|_| variant == BY_RECORD) {
        let took = |pause: &WritePause| pause.phases.iter().find(|(name, _)| *name == key).map(|(_, ms)| *ms);
        let mut each: Vec<f64> = pauses.iter().filter_map(took).collect();
        each.sort_by(f64::total_cmp);
        row.also.extend(each.get(each.len() / 2).map(|ms| (key, *ms)));
    }
    row.also.extend(rates.get(rates.len() / 2).map(|rate| ("commits_per_second", *rate)));
    row
}

/// Switches over to another server and back repeatedly, on the same servers.
async fn round_trips(kind: ServerKind, rounds: u16) -> anyhow::Result<Vec<WritePause>> {
    let folder = TrialFolder::new(None)?;
    let mut spec = TrialSpec {
        kind,
        // Durability is reduced, as on the replicas: Tailwater syncs the log before a commit is acknowledged,
        // and all servers share one disk.
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: std::env::current_exe()?,
        folder: folder.path().to_owned(),
    };
    if kind.flavour() == Flavour::MariaDb {
        // Between the two switchovers of each round trip, the first primary is a replica.
        spec.options
            .extend(["--log-slave-updates=1".to_owned(), format!("--slave-parallel-threads={APPLIERS}")]);
    }
    let mut trial = Trial::start(spec).await?;
    let followers = [start_candidate(kind, 2).await?, start_candidate(kind, 3).await?];
    trial.manage(&[&followers[0], &followers[1]], "")?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    for follower in &followers {
        if kind.flavour() == Flavour::MariaDb {
            follower.sql(&format!("SET GLOBAL slave_parallel_threads = {APPLIERS}")).await?;
        }
        follower.replicate(&trial.replica_of_relay()).await?;
    }
    prepare_writers(&trial.primary).await?;
    wait_for_account(&followers).await?;
    wait_seen(&trial, PRIMARY_NAME).await?;
    let writers = ClusterWriters::start(&[&trial.primary, &followers[0], &followers[1]], CLIENTS);
    let config = folder.path().join("tailwater.toml");
    let mut pauses = Vec::new();
    for number in 1..=rounds {
        for (from, to) in [(PRIMARY_NAME, CANDIDATE), (CANDIDATE, PRIMARY_NAME)] {
            for tries in 1.. {
                let pause = switch(&writers, &config, to).await?;
                eprintln!("{kind} {number}, to {to}: {pause}");
                let is_undone = pause.is_undone;
                pauses.push(pause);
                if !is_undone {
                    break;
                }
                ensure!(tries < TRIES_MAX, "{to} did not become primary in {tries} switchovers");
                wait_seen(&trial, from).await?;
            }
            wait_seen(&trial, to).await?;
        }
    }
    writers.finish(&trial.primary).await?;
    trial.stop_relay().await?;
    Ok(pauses)
}

/// Runs one switchover while clients write.
async fn switch(writers: &ClusterWriters, config: &Path, to: &'static str) -> anyhow::Result<WritePause> {
    let before = writers.commits();
    tokio::time::sleep(LOAD_AROUND_SWITCHOVER).await;
    let commits_per_second = (writers.commits() - before) as f64 / LOAD_AROUND_SWITCHOVER.as_secs_f64();
    let started = Instant::now();
    let config = config.to_owned();
    let audit = tokio::task::spawn_blocking(move || run_switchover(config, to)).await??;
    tokio::time::sleep(LOAD_AROUND_SWITCHOVER).await;
    let is_undone = match &audit.outcome {
        Some(RunOutcome::Promoted { server, left }) if server == to && left.is_empty() => false,
        Some(RunOutcome::Undone { .. }) => true,
        _ => bail!("{to} did not become primary: {audit}"),
    };
    let seen_by_clients = writers.longest_pause(started, Instant::now())?.as_secs_f64() * 1e3;
    let from_the_record = audit.pause_ms.map(|ms| ms as f64);
    Ok(WritePause { seen_by_clients, from_the_record, commits_per_second, phases: phases(&audit), is_undone })
}

/// Returns the duration of each phase of the write pause.
fn phases(audit: &Audit) -> Vec<(&'static str, f64)> {
    let took = PHASES.into_iter().filter_map(|(phase, key)| {
        let mut of_phase = audit.steps.iter().filter(|step| step.phase == phase);
        let began = of_phase.next()?;
        let last = of_phase.next_back()?;
        Some((key, last.at_ms.saturating_sub(began.at_ms) as f64))
    });
    took.collect()
}

impl std::fmt::Display for WritePause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no commit for {:.0} ms", self.seen_by_clients)?;
        if let Some(recorded) = self.from_the_record {
            write!(f, ", {recorded:.0} ms according to the audit record")?;
        }
        for (key, ms) in &self.phases {
            write!(f, ", {key} {ms:.0}")?;
        }
        f.write_str(if self.is_undone { ", and rolled back" } else { "" })
    }
}

/// Runs `tailwater switchover`, and returns the audit record.
fn run_switchover(config: PathBuf, to: &str) -> anyhow::Result<Audit> {
    let ran = std::process::Command::new(std::env::current_exe()?)
        .args(["switchover", SOURCE_NAME, "--to", to, "--output", "json", "-c"])
        .arg(config)
        .output()?;
    let errors = String::from_utf8_lossy(&ran.stderr);
    serde_json::from_slice(&ran.stdout).with_context(|| {
        format!("`tailwater switchover` to {to} printed no audit record ({}): {errors}", ran.status)
    })
}

/// Waits until the replicas have the account of the clients.
async fn wait_for_account(followers: &[Server]) -> anyhow::Result<()> {
    let started = Instant::now();
    for follower in followers {
        while follower.sql("SELECT COUNT(*) FROM mysql.user WHERE user = 'app'").await? != ["1"] {
            ensure!(
                started.elapsed() < PATIENCE,
                "{} did not replicate the account of the clients",
                follower.name()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Waits until the manager reports the new primary and is ready for another switchover.
async fn wait_seen(trial: &Trial, name: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let cluster = trial.cluster();
        if cluster.as_ref().is_some_and(|cluster| cluster.primary == name && cluster.lossless.is_some()) {
            return Ok(());
        }
        ensure!(
            started.elapsed() < PATIENCE,
            "the manager does not report {name} as primary: {cluster:?}: {}",
            trial.relay_log_tail()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
