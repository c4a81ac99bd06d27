//! `tailwater demo`: the whole chain on real servers that it starts itself.
//!
//! A primary with *reduced* durability commits only what the log has acknowledged; two native replicas read from the log.
//! A third replica does not replicate: Tailwater's applier feeds it.
//! The relay is killed and comes back; then the primary is killed, and Tailwater makes a replica the primary, to which the
//! workload connects again. What the clients were told is in the log, whole, and on all replicas; what the killed primary's own
//! disk lost is shown.

mod channel_target;
mod live_view;
mod native_replicas;
mod rejoin;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tailwater_log::AckMode;
use tailwater_sandbox::workload::{Counters, WorkloadSnapshot, prepare};
use tailwater_sandbox::{Ledger, ServerKind, Workload, WorkloadSpec};
use tailwater_wire::Flavour;

use crate::args::{DemoArgs, ServerFamily};
use crate::trial::primary_failure::{PrimaryFailure, replace};
use crate::trial::{Trial, TrialDurability, TrialFolder, TrialSpec, ensure_installed, prove};
use channel_target::ChannelTarget;
use live_view::LiveView;
use native_replicas::NativeReplicas;
use rejoin::rejoin;
use report::DemoReport;

/// Duration of each step.
struct DemoDurations {
    before_fault: Duration,
    relay_away: Duration,
    after_fault: Duration,
}

const LONG: DemoDurations = DemoDurations {
    before_fault: Duration::from_secs(6),
    relay_away: Duration::from_secs(2),
    after_fault: Duration::from_secs(6),
};
const SHORT: DemoDurations = DemoDurations {
    before_fault: Duration::from_secs(2),
    relay_away: Duration::from_millis(700),
    after_fault: Duration::from_secs(2),
};

/// Native replicas that read from Tailwater.
const REPLICAS: u32 = 2;

/// The server that a family and a release series name.
///
/// # Errors
/// If there is no such server here.
pub fn choose_server(family: ServerFamily, series: Option<&str>) -> anyhow::Result<ServerKind> {
    let flavour = match family {
        ServerFamily::Mariadb => Flavour::MariaDb,
        ServerFamily::Mysql => Flavour::MySql,
    };
    ServerKind::choose(flavour, series).with_context(|| {
        let known: Vec<_> = ServerKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("no {flavour} {}: there are {}", series.unwrap_or_default(), known.join(", "))
    })
}

/// The counters after the acknowledgements sent just before the kill have reached the clients. A load that
/// does not settle is not waited for: it shows as commits without the relay.
async fn settled(counters: &Counters) -> WorkloadSnapshot {
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

/// Runs the demo and prints its report, `as_json` or as text. Returns whether everything held.
///
/// # Errors
/// If a server or the relay fails unexpectedly. A lost transaction is no error, but a report with `ok: false`
/// and exit code 3.
pub async fn demo(arguments: &DemoArgs, as_json: bool) -> anyhow::Result<bool> {
    let kind = choose_server(arguments.server, arguments.series.as_deref())?;
    ensure_installed(kind)?;
    let pace = if arguments.short { SHORT } else { LONG };
    let folder = TrialFolder::new(arguments.keep.as_deref())?;
    let view = LiveView::new(!as_json);

    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: Vec::new(),
        ack: AckMode::Durable,
        program: std::env::current_exe()?,
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    view.say(&format!(
        "primary: {} {} on {}",
        kind.flavour(),
        trial.primary.version(),
        trial.primary.address()
    ));
    view.say("reduced durability: sync_binlog=0, innodb_flush_log_at_trx_commit=0");
    view.say("semi-sync AFTER_SYNC without fallback: no client gets an OK before the log has the commit");
    let applied = ChannelTarget::start(kind, folder.path()).await?;
    trial.add_channel(&applied.channel_config())?;
    let replicas = NativeReplicas::start(kind, REPLICAS).await?;
    trial.manage(&replicas.servers(), "automatic = true")?;
    trial.start_relay()?;
    trial.wait_captured().await?;
    view.say("tailwater captures it into a log outside the server, fdatasync before each ACK");

    replicas.follow(&trial).await?;
    view.say("two native replicas read from tailwater as if it were the primary");
    view.say("a third server replicates nothing: tailwater's applier feeds it from the log");

    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let load = WorkloadSpec { seed: rand::random(), ..WorkloadSpec::new(arguments.clients) };
    view.say(&format!("{} clients write; each records the outcome of its transactions", load.connections));
    let workload = Workload::start(trial.primary.connect_options(), &load, Arc::clone(&ledger));
    view.watch(workload.counters(), &applied, pace.before_fault).await;
    let undisturbed = workload.counters().snapshot();
    ensure!(undisturbed.acknowledged > 0, "no transaction was committed: {}", trial.relay_log_tail());

    trial.kill_relay().await?;
    view.say("SIGKILL to tailwater: from now on no commit is acknowledged");
    let before = settled(workload.counters()).await;
    view.watch(workload.counters(), &applied, pace.relay_away).await;
    let while_away = workload.counters().snapshot().acknowledged - before.acknowledged;
    trial.start_relay()?;
    trial.wait_captured().await?;
    view.say("tailwater restarted: it resumes after the last complete transaction in its log");
    view.watch(workload.counters(), &applied, pace.after_fault).await;
    let relay_memory_bytes_max = trial.relay().and_then(|relay| relay.memory_bytes_max()).unwrap_or(0);

    trial.wait_until_observed().await?;
    view.say("SIGKILL to the primary under load");
    let failing = replace(&mut trial, &replicas.servers(), &workload, PrimaryFailure::Killed).await?;
    view.say(&format!(
        "{} is primary: failure detected after {} ms, all acknowledged commits proven in the log after {} ms, writable after {} ms",
        failing.primary, failing.detected_ms, failing.proven_ms, failing.writable_ms
    ));
    view.say("the clients connect to it and continue");
    view.watch(workload.counters(), &applied, pace.after_fault).await;
    let load_report = workload.finish().await;
    ensure!(
        load_report.errors.is_empty(),
        "clients could not connect to the new primary: {}",
        load_report.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    );
    view.say("the replicas apply the rest of the log; then their tables are compared with the ledger");
    let replicated = replicas.settle(&trial.log_directory(), &ledger, &failing.primary).await?;
    let fed = applied.settle(&trial.log_directory(), &ledger, replicas.first()?).await?;
    let relay_memory_bytes_max =
        relay_memory_bytes_max.max(trial.relay().and_then(|relay| relay.memory_bytes_max()).unwrap_or(0));
    trial.stop_relay().await?;

    view.say(
        "reading the whole log against the ledger, and against the dead primary's own binlog, byte by byte",
    );
    let proof = prove(&trial.log_directory(), &ledger, kind.flavour(), trial.primary.data())?;
    trial.restart_primary_alone().await?;
    let on_primary = failing.ledger.compare_with_server(&trial.primary.connect_options()).await?;
    view.say("the old primary was started again, to see what its own disk kept");
    trial.start_relay()?;
    trial.wait_for_primary(&failing.primary).await?;
    let rejoined = rejoin(&trial, replicas.named(&failing.primary)?, &ledger).await?;
    view.say(
        "tailwater rejoin: the old primary was repaired from the log, compared with the new primary, and is its replica now",
    );
    trial.stop_relay().await?;

    let report = DemoReport {
        server: kind.flavour().to_string(),
        server_version: trial.primary.version().to_owned(),
        clients: load.connections,
        acknowledged: proof.ledger.acknowledged,
        in_log: proof.ledger.acknowledged - proof.ledger.missing_in_log.count,
        missing_in_log: proof.ledger.missing_in_log.count,
        not_whole_in_log: proof.ledger.incomplete.count + proof.ledger.altered.count,
        twice_in_log: proof.ledger.duplicated.count,
        unacknowledged_in_log: proof.ledger.unknown_but_present,
        acknowledged_while_relay_was_away: while_away,
        lost_by_primary: on_primary.missing.count,
        replicas: replicated.replicas,
        replicas_at_the_end: replicated.at_the_end,
        replicas_equal_to_ledger: replicated.equal_to_ledger,
        missing_on_replicas: replicated.missing,
        applied_transactions: fed.transactions,
        applied_commits: fed.commits,
        applied_equal: fed.equal,
        segments: proof.segments,
        segments_identical: proof.segments_identical,
        log_bytes: proof.log_bytes,
        commits_per_second: undisturbed.rate(),
        commit_p50_ms: undisturbed.latency_p50.as_secs_f64() * 1e3,
        commit_p99_ms: undisturbed.latency_p99.as_secs_f64() * 1e3,
        longest_stall_ms: load_report.snapshot.longest_gap.as_secs_f64() * 1e3,
        relay_restarts: 1,
        new_primary: failing.primary,
        failover_detected_ms: failing.detected_ms,
        failover_proven_ms: failing.proven_ms,
        failover_writable_ms: failing.writable_ms,
        failover_first_commit_ms: failing.first_commit_ms,
        acknowledged_by_new_primary: load_report.snapshot.acknowledged - failing.acknowledged_before,
        rejoin_ms: rejoined.took_ms,
        rejoin_undone: rejoined.undone,
        rejoin_redone: rejoined.redone,
        rejoin_rows_compared: rejoined.rows_compared,
        rejoined_equal: rejoined.is_equal,
        relay_memory_bytes_max,
        ok: rejoined.is_equal
            && proof.is_ok()
            && replicated.is_ok()
            && fed.equal
            && while_away == 0
            && failing.is_lossless,
    };
    replicas.stop().await?;
    applied.stop().await?;
    trial.primary.stop().await?;
    match as_json {
        false => print!("{}", report.to_text()),
        true => println!("{}", serde_json::to_string(&report)?),
    }
    if !report.ok {
        eprintln!("differences between log and ledger: {}", proof.ledger);
        for complaint in replicated.complaints.iter().chain(&fed.complaints).chain(&rejoined.complaints) {
            eprintln!("{complaint}");
        }
    }
    Ok(report.ok)
}
