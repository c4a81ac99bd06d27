//! `tailwater bench failover`: the time without a primary after a failure, with Tailwater and with MHA.

mod mha;

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tailwater_log::AckMode;
use tailwater_sandbox::workload::prepare;
use tailwater_sandbox::{Ledger, Server, ServerKind, Workload, WorkloadSpec};
use tailwater_topology::failure_analysis::AnalysisSettings;

use self::mha::{Mha, MhaFailover};
use super::benchmark_report::{BenchReport, MachineInfo, Measurement, Peer, setting};
use crate::arguments::{FailoverBench, ServerFamily};
use crate::demo::choose_server;
use crate::fault_trial::managed_cluster::start_candidate;
use crate::fault_trial::primary_failure::{FailoverTimes, PrimaryFailure, replace};
use crate::fault_trial::{Trial, TrialDurability, TrialFolder, TrialSpec, ensure_installed};

const MEASUREMENT: &str = "from the failure of the primary";

/// Number of clients that commit continuously.
const CLIENTS: u32 = 8;

/// How long the clients commit before the primary fails.
const WARM_UP: Duration = Duration::from_secs(1);

/// The lowest sensible `unanimous_detect_after_ms`, in milliseconds, with the default heartbeat of 250 ms, of
/// which three must be missed. The headline figure is measured with the default. The lowest value is measured
/// in addition, because MHA runs with its fastest settings.
const UNANIMOUS_DETECT_AFTER_MS_MIN: u64 = 800;

/// The server version on which MHA still runs.
const MHA_SERVER: ServerKind = ServerKind::Mariadb1011;

/// Runs the benchmark for one server family, or for both.
///
/// # Errors
/// If a failover does not happen, or a commit is lost.
pub async fn failover(options: &FailoverBench) -> anyhow::Result<BenchReport> {
    let families = match options.server {
        Some(family) => vec![family],
        None => vec![ServerFamily::Mariadb, ServerFamily::Mysql],
    };
    let death = if options.silent { PrimaryFailure::Silent } else { PrimaryFailure::Killed };
    let mut measured = FamilyResult::default();
    for family in families {
        let kind = choose_server(family, None)?;
        let install = ensure_installed(kind)?;
        let mha = match kind == MHA_SERVER && !options.no_peers {
            true => Mha::find(&install)?,
            false => None,
        };
        measured.family(kind, death, options.rounds, mha.as_ref()).await?;
    }
    let folder = TrialFolder::new(None)?;
    let peers: Vec<_> = measured.mha.into_iter().collect();
    let (ours, ratio) = match (peers.first(), measured.beside_mha) {
        (Some(mha), Some(ours)) => (ours, mha.value / ours),
        _ => (measured.slowest, f64::NAN),
    };
    let notes = notes(death, !peers.is_empty(), &measured.lost_by_mha);
    let machine = MachineInfo::look(folder.path())?;
    Ok(BenchReport { name: "failover", unit: "ms", ours, peers, ratio, machine, rows: measured.rows, notes })
}

fn notes(death: PrimaryFailure, is_beside_mha: bool, lost_by_mha: &[u64]) -> Vec<String> {
    let mut notes = vec![
        format!("{CLIENTS} clients commit until the primary fails; each run uses new servers"),
        "Tailwater lost no acknowledged commit in any run: the new primary's tables were compared with the clients' ledger"
            .to_owned(),
    ];
    if death == PrimaryFailure::Silent {
        let default = AnalysisSettings::default().unanimous_detect_after_ms;
        notes.push(format!(
            "Tailwater considers a silent primary dead after unanimous_detect_after_ms = {default}, the default, and in the rows with that setting after {UNANIMOUS_DETECT_AFTER_MS_MIN}: \
             a primary that is frozen for longer is replaced, and a primary that is frozen for less time is not"
        ));
    }
    match is_beside_mha {
        true => notes.extend([
            format!(
                "MHA took turns with Tailwater on {}: its own detection with ping_interval=1, no scripts, SSH to loopback, \
                 replicas by file and position, no semi-sync; two lines of MHA are changed, because it does not run otherwise \
                 with current versions of Perl and MariaDB (no warnings 'redundant' in NodeUtil.pm; no query of \
                 super_read_only in SlaveUtil.pm)",
                MHA_SERVER.name()
            ),
            format!("acknowledged commits that MHA's new primary lacked, in each run: {lost_by_mha:?}"),
        ]),
        false => notes.push(format!(
            "without MHA, which is measured on {}: ./dev bench failover downloads it (mha4mysql-manager and mha4mysql-node of \
             Debian)",
            MHA_SERVER.name()
        )),
    }
    notes
}

const FIRST_COMMIT: &str = "first commit of a client";

/// The results of all runs with one server family.
#[derive(Default)]
struct FamilyResult {
    rows: Vec<Measurement>,
    /// The median time until the first commit on the slowest server version, in milliseconds.
    slowest: f64,
    /// The median time until the first commit on the server version with which MHA was measured, in
    /// milliseconds.
    beside_mha: Option<f64>,
    mha: Option<Peer>,
    lost_by_mha: Vec<u64>,
}

impl FamilyResult {
    async fn family(
        &mut self,
        kind: ServerKind,
        death: PrimaryFailure,
        rounds: u16,
        mha: Option<&Mha>,
    ) -> anyhow::Result<()> {
        let mut ours = vec![(None, Vec::new())];
        if death == PrimaryFailure::Silent {
            ours.push((Some(UNANIMOUS_DETECT_AFTER_MS_MIN), Vec::new()));
        }
        let mut theirs = Vec::new();
        for number in 1..=rounds {
            for (unanimous_detect_after_ms, runs) in &mut ours {
                let run = round(kind, death, *unanimous_detect_after_ms).await?;
                let row_prefix = row_prefix(*unanimous_detect_after_ms);
                eprintln!("{kind} {number}: {row_prefix}first commit after {} ms", run.first_commit_ms);
                runs.push(run);
            }
            if let Some(mha) = mha {
                let run = mha.round(kind, death).await?;
                eprintln!("{kind} {number}: first commit with MHA after {} ms", run.first_commit_ms);
                theirs.push(run);
            }
        }
        let summaries = ours
            .iter()
            .map(|(unanimous_detect_after_ms, runs)| summary(kind, death, *unanimous_detect_after_ms, runs));
        let rows: Vec<_> = summaries.flatten().collect();
        let first = rows.iter().find(|row| row.variant == FIRST_COMMIT).map_or(f64::NAN, |row| row.median);
        self.slowest = self.slowest.max(first);
        self.rows.extend(rows);
        if let Some(mha) = mha {
            let rows = summary_of_mha(kind, death, &theirs);
            let value = rows.last().map_or(f64::NAN, |row| row.median);
            self.mha = Some(Peer { name: "MHA".to_owned(), version: mha.version.clone(), value });
            self.beside_mha = Some(first);
            self.lost_by_mha.extend(theirs.iter().map(|run| run.lost));
            self.rows.extend(rows);
        }
        Ok(())
    }
}

fn row<Run>(
    kind: ServerKind,
    death: PrimaryFailure,
    variant: &str,
    runs: &[Run],
    of: fn(&Run) -> u64,
) -> Measurement {
    let failure = match death {
        PrimaryFailure::Killed => "SIGKILL",
        PrimaryFailure::Silent => "SIGSTOP",
    };
    let settings = setting(&[("server", kind.name()), ("failure", failure)]);
    Measurement::new(MEASUREMENT, settings, variant, "ms", runs.iter().map(|run| of(run) as f64).collect())
}

/// Returns the prefix of a row's name; empty with the default setting.
fn row_prefix(unanimous_detect_after_ms: Option<u64>) -> String {
    unanimous_detect_after_ms
        .map_or_else(String::new, |ms| format!("tailwater, unanimous_detect_after_ms = {ms}: "))
}

fn summary(
    kind: ServerKind,
    death: PrimaryFailure,
    unanimous_detect_after_ms: Option<u64>,
    runs: &[FailoverTimes],
) -> Vec<Measurement> {
    let row_prefix = row_prefix(unanimous_detect_after_ms);
    let row = |name: &str, of: fn(&FailoverTimes) -> u64| {
        row(kind, death, &format!("{row_prefix}{name}"), runs, of)
    };
    vec![
        row("noticed", |run| run.detected_ms),
        row("proven complete", |run| run.proven_ms),
        row("new primary writable", |run| run.writable_ms),
        row(FIRST_COMMIT, |run| run.first_commit_ms),
    ]
}

fn summary_of_mha(kind: ServerKind, death: PrimaryFailure, runs: &[MhaFailover]) -> Vec<Measurement> {
    vec![
        row(kind, death, "MHA: noticed", runs, |run| run.noticed_ms),
        row(kind, death, "MHA: first commit of a client", runs, |run| run.first_commit_ms),
    ]
}

/// Starts clients that commit continuously on a primary.
fn clients(primary: &Server, ledger: &Arc<Ledger>) -> Workload {
    let spec = WorkloadSpec { seed: rand::random(), ..WorkloadSpec::new(CLIENTS) };
    Workload::start(primary.connect_options(), &spec, Arc::clone(ledger))
}

/// Runs one failover on new servers, with this `unanimous_detect_after_ms` or the default.
async fn round(
    kind: ServerKind,
    death: PrimaryFailure,
    unanimous_detect_after_ms: Option<u64>,
) -> anyhow::Result<FailoverTimes> {
    let folder = TrialFolder::new(None)?;
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Full,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: std::env::current_exe()?,
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    let followers = [start_candidate(kind, 2).await?, start_candidate(kind, 3).await?];
    let followers: Vec<&Server> = followers.iter().collect();
    let analysis =
        unanimous_detect_after_ms.map(|ms| format!("\n[manager.analysis]\nunanimous_detect_after_ms = {ms}"));
    trial.manage(&followers, &format!("automatic = true{}", analysis.unwrap_or_default()))?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    for follower in &followers {
        follower.replicate(&trial.replica_of_relay()).await?;
    }
    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let workload = clients(&trial.primary, &ledger);
    tokio::time::sleep(WARM_UP).await;
    trial.wait_until_observed().await?;
    let replaced = replace(&mut trial, &followers, &workload, death).await?;
    ensure!(replaced.is_lossless, "the failover overrode a safety rule");
    if death == PrimaryFailure::Silent {
        // The clients of a frozen primary hang until its process has ended.
        trial.primary.kill().await?;
    }
    let report = workload.finish().await;
    ensure!(report.errors.is_empty(), "clients could not connect to the new primary: {:?}", report.errors);
    let new = followers.iter().find(|server| server.name() == replaced.primary);
    if let Some(new) = new {
        let found = ledger.compare_with_server(&new.connect_options()).await?;
        ensure!(
            found.missing.count == 0 && found.altered.count == 0,
            "the new primary lacks commits: {found:?}"
        );
    }
    trial.stop_relay().await?;
    Ok(replaced)
}
