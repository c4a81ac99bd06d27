//! `tailwater demo`: shows capture, apply, failover and rejoin on real servers that it starts itself.
//!
//! A primary with *reduced* durability acknowledges only commits that Tailwater's log has. Two native
//! replicas read from the log; a third server is the target of a channel. The relay is killed and started
//! again. Then the primary is killed, Tailwater promotes a replica, and the clients connect to it.
//!
//! The report shows that every acknowledged transaction is in the log and on all replicas. It also shows
//! which transactions the killed primary's own disk lost.

mod channel_target;
mod live_view;
mod native_replicas;
mod rejoin;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tailwater_log::AckMode;
use tailwater_sandbox::ledger::ServerReport;
use tailwater_sandbox::workload::{Counters, WorkloadReport, WorkloadSnapshot, prepare};
use tailwater_sandbox::{Ledger, ServerKind, Workload, WorkloadSpec};
use tailwater_wire::Flavour;

use crate::arguments::{DemoArgs, ServerFamily};
use crate::fault_trial::primary_failure::{FailoverTimes, PrimaryFailure, replace};
use crate::fault_trial::{Proof, Trial, TrialDurability, TrialFolder, TrialSpec, ensure_installed, prove};
use channel_target::{ChannelTarget, ChannelTargetOutcome};
use live_view::LiveView;
use native_replicas::{NativeReplicas, ReplicaOutcome};
use rejoin::{RejoinOutcome, rejoin};
use report::DemoReport;

/// The duration of each step.
struct DemoDurations {
    before_fault: Duration,
    relay_down: Duration,
    after_fault: Duration,
}

const LONG: DemoDurations = DemoDurations {
    before_fault: Duration::from_secs(6),
    relay_down: Duration::from_secs(2),
    after_fault: Duration::from_secs(6),
};
const SHORT: DemoDurations = DemoDurations {
    before_fault: Duration::from_secs(2),
    relay_down: Duration::from_millis(700),
    after_fault: Duration::from_secs(2),
};

/// Number of native replicas that read from Tailwater.
const REPLICAS: u32 = 2;

/// Returns the server of a family and a release series.
///
/// # Errors
/// If the sandbox has no such server.
pub fn choose_server(family: ServerFamily, series: Option<&str>) -> anyhow::Result<ServerKind> {
    let flavour = match family {
        ServerFamily::Mariadb => Flavour::MariaDb,
        ServerFamily::Mysql => Flavour::MySql,
    };
    ServerKind::choose(flavour, series).with_context(|| {
        let known: Vec<_> = ServerKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("there is no {flavour} {}: available are {}", series.unwrap_or_default(), known.join(", "))
    })
}

/// Returns the counters after the clients have received the acknowledgements that were sent just before the
/// kill. Waits at most two seconds. Commits that are acknowledged later count as acknowledged without the
/// relay.
async fn wait_for_last_acknowledgements(counters: &Counters) -> WorkloadSnapshot {
    let mut before = counters.snapshot();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = counters.snapshot();
        if now.acknowledged == before.acknowledged {
            return now;
        }
        before = now;
    }
    before
}

/// The servers and the relay of the demo.
struct DemoCluster {
    kind: ServerKind,
    trial: Trial,
    replicas: NativeReplicas,
    applied: ChannelTarget,
}

/// What happened while the clients were writing.
struct DemoLoadOutcome {
    /// The counters of the workload before the first fault.
    undisturbed: WorkloadSnapshot,
    /// Number of commits that were acknowledged while the relay was down.
    acknowledged_without_relay: u64,
    failover: FailoverTimes,
    workload: WorkloadReport,
    /// The peak memory of the relay process that was killed with the primary, in bytes.
    relay_memory_bytes_max: u64,
}

/// The results of all comparisons after the load.
struct DemoVerification {
    replicas: ReplicaOutcome,
    applied: ChannelTargetOutcome,
    proof: Proof,
    /// What the killed primary's disk has kept.
    former_primary: ServerReport,
    rejoin: RejoinOutcome,
    relay_memory_bytes_max: u64,
}

/// Runs the demo and prints its report, as JSON if `as_json` is true, otherwise as text. Returns whether
/// every check succeeded.
///
/// # Errors
/// If a server or the relay fails unexpectedly. A lost transaction is not an error: the report has `ok:
/// false`, and the exit code is 3.
pub async fn demo(arguments: &DemoArgs, as_json: bool) -> anyhow::Result<bool> {
    let kind = choose_server(arguments.server, arguments.series.as_deref())?;
    ensure_installed(kind)?;
    let durations = if arguments.short { SHORT } else { LONG };
    let folder = TrialFolder::new(arguments.keep.as_deref())?;
    let view = LiveView::new(!as_json);

    let mut cluster = DemoCluster::start(kind, &folder, &view).await?;
    let ledger = Arc::new(Ledger::new());
    let load = cluster.run_load(arguments.clients, &ledger, &durations, &view).await?;
    let verification = cluster.verify(&ledger, &load.failover, &view).await?;
    let server_version = cluster.trial.primary.version().to_owned();
    cluster.stop().await?;

    let complaints = verification.complaints();
    let differences = verification.proof.ledger.to_string();
    let report = report(kind, server_version, arguments.clients, load, verification);
    match as_json {
        false => print!("{}", report.to_text()),
        true => println!("{}", serde_json::to_string(&report)?),
    }
    if !report.ok {
        eprintln!("differences between log and ledger: {differences}");
        complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    }
    Ok(report.ok)
}

impl DemoCluster {
    /// Starts the primary, the relay, two native replicas and the target of a channel.
    async fn start(kind: ServerKind, folder: &TrialFolder, view: &LiveView) -> anyhow::Result<Self> {
        let spec = TrialSpec {
            kind,
            durability: TrialDurability::Reduced,
            options: Vec::new(),
            ack: AckMode::Durable,
            program: std::env::current_exe()?,
            folder: folder.path().to_owned(),
        };
        let mut trial = Trial::start(spec).await?;
        let (version, address) = (trial.primary.version(), trial.primary.address());
        view.print_step(&format!("primary: {} {version} on {address}", kind.flavour()));
        view.print_step("reduced durability: sync_binlog=0, innodb_flush_log_at_trx_commit=0");
        view.print_step(
            "semi-sync AFTER_SYNC without fallback: no client gets an OK before the log has the commit",
        );
        let applied = ChannelTarget::start(kind, folder.path()).await?;
        trial.add_channel(&applied.channel_config())?;
        let replicas = NativeReplicas::start(kind, REPLICAS).await?;
        trial.manage(&replicas.servers(), "automatic = true")?;
        trial.start_relay()?;
        trial.wait_captured().await?;
        view.print_step("tailwater captures it into a log outside the server, fdatasync before each ACK");

        replicas.follow(&trial).await?;
        view.print_step("two native replicas read from tailwater as if it were the primary");
        view.print_step("a third server replicates nothing: tailwater's applier feeds it from the log");
        Ok(Self { kind, trial, replicas, applied })
    }

    /// Runs the workload. During the workload it first kills the relay and then the primary.
    async fn run_load(
        &mut self,
        clients: u32,
        ledger: &Arc<Ledger>,
        durations: &DemoDurations,
        view: &LiveView,
    ) -> anyhow::Result<DemoLoadOutcome> {
        let Self { trial, replicas, applied, .. } = self;
        prepare(&trial.primary.connect_options()).await?;
        let spec = WorkloadSpec { seed: rand::random(), ..WorkloadSpec::new(clients) };
        view.print_step(&format!("{clients} clients write; each records the outcome of its transactions"));
        let workload = Workload::start(trial.primary.connect_options(), &spec, Arc::clone(ledger));
        view.watch(workload.counters(), applied, durations.before_fault).await;
        let undisturbed = workload.counters().snapshot();
        ensure!(undisturbed.acknowledged > 0, "no transaction was committed: {}", trial.relay_log_tail());

        trial.kill_relay().await?;
        view.print_step("SIGKILL to tailwater: from now on no commit is acknowledged");
        let before = wait_for_last_acknowledgements(workload.counters()).await;
        view.watch(workload.counters(), applied, durations.relay_down).await;
        let acknowledged_without_relay = workload.counters().snapshot().acknowledged - before.acknowledged;
        trial.start_relay()?;
        trial.wait_captured().await?;
        view.print_step("tailwater restarted: it resumes after the last complete transaction in its log");
        view.watch(workload.counters(), applied, durations.after_fault).await;
        let relay_memory_bytes_max = relay_memory(trial);

        trial.wait_until_observed().await?;
        view.print_step("SIGKILL to the primary under load");
        let failover = replace(trial, &replicas.servers(), &workload, PrimaryFailure::Killed).await?;
        view.print_step(&format!(
            "{} is primary: failure detected after {} ms, all acknowledged commits proven in the log after {} ms, \
             writable after {} ms",
            failover.primary, failover.detected_ms, failover.proven_ms, failover.writable_ms
        ));
        view.print_step("the clients connect to it and continue");
        view.watch(workload.counters(), applied, durations.after_fault).await;
        let workload = workload.finish().await;
        ensure!(
            workload.errors.is_empty(),
            "clients could not connect to the new primary: {}",
            workload.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        );
        Ok(DemoLoadOutcome {
            undisturbed,
            acknowledged_without_relay,
            failover,
            workload,
            relay_memory_bytes_max,
        })
    }

    /// Compares replicas, log and former primary with the ledger, and makes the former primary a replica.
    async fn verify(
        &mut self,
        ledger: &Ledger,
        failover: &FailoverTimes,
        view: &LiveView,
    ) -> anyhow::Result<DemoVerification> {
        let Self { kind, trial, replicas: native, applied: target } = self;
        let log = trial.log_directory();
        view.print_step(
            "the replicas apply the rest of the log; then their tables are compared with the ledger",
        );
        let replicas = native.compare_at_end(&log, ledger, &failover.primary).await?;
        let applied = target.compare_at_end(&log, ledger, native.first()?).await?;
        let relay_memory_bytes_max = relay_memory(trial);
        trial.stop_relay().await?;

        view.print_step(
            "comparing the whole log with the ledger, and byte by byte with the dead primary's own binlog",
        );
        let proof = prove(&log, ledger, kind.flavour(), trial.primary.data())?;
        trial.restart_primary_alone().await?;
        let former_primary = failover.ledger.compare_with_server(&trial.primary.connect_options()).await?;
        view.print_step("the old primary was started again, to read what its own disk has kept");
        trial.start_relay()?;
        trial.wait_for_primary(&failover.primary).await?;
        let rejoin = rejoin(trial, native.named(&failover.primary)?, ledger).await?;
        view.print_step(
            "tailwater rejoin: the old primary was repaired from the log, compared with the new primary, and is \
             its replica now",
        );
        trial.stop_relay().await?;
        Ok(DemoVerification { replicas, applied, proof, former_primary, rejoin, relay_memory_bytes_max })
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.replicas.stop().await?;
        self.applied.stop().await?;
        Ok(self.trial.primary.stop().await?)
    }
}

impl DemoVerification {
    /// Returns all problems that were found, as text.
    fn complaints(&self) -> Vec<String> {
        let Self { replicas, applied, rejoin, .. } = self;
        let all = replicas.complaints.iter().chain(&applied.complaints).chain(&rejoin.complaints);
        all.cloned().collect()
    }
}

/// Returns the peak memory of the running relay, in bytes; 0 if the relay is not running.
fn relay_memory(trial: &mut Trial) -> u64 {
    trial.relay().and_then(|relay| relay.memory_bytes_max()).unwrap_or(0)
}

fn report(
    kind: ServerKind,
    server_version: String,
    clients: u32,
    load: DemoLoadOutcome,
    verification: DemoVerification,
) -> DemoReport {
    let DemoLoadOutcome { undisturbed, failover, workload, .. } = load;
    let DemoVerification { replicas, applied, proof, former_primary, rejoin, .. } = verification;
    DemoReport {
        ok: rejoin.is_equal
            && proof.is_ok()
            && replicas.is_ok()
            && applied.equal
            && load.acknowledged_without_relay == 0
            && failover.is_lossless,
        server: kind.flavour().to_string(),
        server_version,
        clients,
        acknowledged: proof.ledger.acknowledged,
        in_log: proof.ledger.acknowledged - proof.ledger.missing_in_log.count,
        missing_in_log: proof.ledger.missing_in_log.count,
        not_whole_in_log: proof.ledger.incomplete.count + proof.ledger.altered.count,
        twice_in_log: proof.ledger.duplicated.count,
        unacknowledged_in_log: proof.ledger.unknown_but_present,
        acknowledged_while_relay_was_away: load.acknowledged_without_relay,
        lost_by_primary: former_primary.missing.count,
        replicas: replicas.replicas,
        replicas_at_the_end: replicas.at_the_end,
        replicas_equal_to_ledger: replicas.equal_to_ledger,
        missing_on_replicas: replicas.missing,
        applied_transactions: applied.transactions,
        applied_commits: applied.commits,
        applied_equal: applied.equal,
        segments: proof.segments,
        segments_identical: proof.segments_identical,
        log_bytes: proof.log_bytes,
        commits_per_second: undisturbed.rate(),
        commit_p50_ms: undisturbed.latency_p50.as_secs_f64() * 1e3,
        commit_p99_ms: undisturbed.latency_p99.as_secs_f64() * 1e3,
        longest_stall_ms: workload.snapshot.longest_gap.as_secs_f64() * 1e3,
        relay_restarts: 1,
        new_primary: failover.primary,
        failover_detected_ms: failover.detected_ms,
        failover_proven_ms: failover.proven_ms,
        failover_writable_ms: failover.writable_ms,
        failover_first_commit_ms: failover.first_commit_ms,
        acknowledged_by_new_primary: workload.snapshot.acknowledged - failover.acknowledged_before,
        rejoin_ms: rejoin.took_ms,
        rejoin_undone: rejoin.undone,
        rejoin_redone: rejoin.redone,
        rejoin_rows_compared: rejoin.rows_compared,
        rejoined_equal: rejoin.is_equal,
        relay_memory_bytes_max: load.relay_memory_bytes_max.max(verification.relay_memory_bytes_max),
    }
}
