//! A primary with lossless semi-sync loses power; the relay that acknowledges its commits is another machine.
//! The log has every commit that a client got an OK for, whatever the primary's disk has lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::Rng;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialFolder, TrialSpec};
use tailwater_log::{AckMode, LogDir};
use tailwater_lossy_disk::{LossyDisk, NameDurability, PowerCut};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{BinlogCheck, Ledger, ServerKind, Workload, WorkloadSpec, require};

use super::{Durability, Plan, cut_power, say};
use crate::shell_session::PROGRAM;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_every_acknowledged_commit_of_a_primary_that_lost_power_mysql() -> Result<()> {
    primary_loses_power(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_every_acknowledged_commit_of_a_primary_that_lost_power_mariadb() -> Result<()> {
    primary_loses_power(ServerKind::Mariadb1011).await
}

/// What a power cut, or several, did at one setting.
#[derive(Debug, Default)]
struct PrimaryLosses {
    cuts: u32,
    acknowledged: u64,
    /// Acknowledged commits that the log lacks.
    missing_in_log: u64,
    /// Acknowledged commits that the restarted primary lacks.
    missing_on_primary: u64,
    cuts_with_loss: u32,
    /// Times that the primary did not start again.
    not_started: u32,
}

async fn primary_loses_power(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut plan = Plan::new(2, 8);
    let mut rows = Vec::new();
    for durability in plan.settings.clone() {
        let mut losses = PrimaryLosses::default();
        for number in 0..plan.cuts {
            let cut = plan.next_cut();
            let load_seed = plan.random.random();
            let Some(disk) = LossyDisk::for_test(NameDurability::Journal) else { return Ok(()) };
            cut_once(kind, durability, disk, cut, load_seed, &mut losses).await.with_context(|| {
                format!("TAILWATER_SEED={}: {kind} {durability}, cut {number}: {cut:?}", plan.seed)
            })?;
        }
        rows.push((durability, losses));
    }
    let mut table = "| primary | sync_binlog | trx_commit | power cuts | acknowledged | missing in the log | missing on the \
                     primary | cuts with a loss there |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (Durability { sync_binlog, trx_commit }, losses) in &rows {
        let PrimaryLosses { cuts, acknowledged, missing_in_log, missing_on_primary, cuts_with_loss, .. } =
            losses;
        table += &format!(
            "| {kind} | {sync_binlog} | {trx_commit} | {cuts} | {acknowledged} | {missing_in_log} | {missing_on_primary} | \
             {cuts_with_loss}{} |\n",
            match losses.not_started {
                0 => String::new(),
                count => format!(" (and {count} did not start)"),
            }
        );
    }
    say(&table);
    ensure!(rows.iter().all(|(_, losses)| losses.acknowledged > 0), "no commit was acknowledged");
    Ok(())
}

async fn cut_once(
    kind: ServerKind,
    durability: Durability,
    mut disk: LossyDisk,
    cut: PowerCut,
    load_seed: u64,
    losses: &mut PrimaryLosses,
) -> Result<()> {
    let folder = TrialFolder::new(None)?;
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Full,
        options: durability.options(),
        ack: AckMode::Durable,
        program: PROGRAM.into(),
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start_with_data(spec, &disk.path().join("data")).await?;
    disk.sync_everything();
    trial.start_relay()?;
    trial.wait_captured().await?;
    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let load = WorkloadSpec {
        seed: load_seed,
        mix: TransactionMix::Mixed { body_bytes_max: 4 << 10 },
        reconnect: Duration::ZERO,
        ..WorkloadSpec::new(4)
    };
    let workload = Workload::start(trial.primary.connect_options(), &load, Arc::clone(&ledger));
    let wanted = 50 + load_seed % 300;
    let deadline = Instant::now() + PATIENCE;
    while workload.counters().snapshot().acknowledged < wanted {
        ensure!(Instant::now() < deadline, "commits do not continue: {:?}", workload.counters().snapshot());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    cut_power(&mut disk, &mut [&mut trial.primary], cut).await?;
    // Answers that the primary sent before may still arrive, so the clients end by themselves.
    tokio::time::timeout(PATIENCE, workload.wait()).await.context("the clients do not end")?;
    trial.stop_relay().await?;

    let mut check = BinlogCheck::new(&ledger, kind.flavour());
    for segment in LogDir::open_read_only(&trial.log_directory())?.segments()? {
        check.file(&segment.path)?;
    }
    let found = check.finish();
    ensure!(found.is_ok(), "the log differs from the ledger of the clients: {found:?}");
    losses.cuts += 1;
    losses.acknowledged += ledger.totals().acknowledged;
    losses.missing_in_log += found.missing_in_log.count;
    match trial.restart_primary_alone().await {
        Ok(()) => {
            let report = ledger.compare_with_server(&trial.primary.connect_options()).await?;
            losses.missing_on_primary += report.missing.count;
            losses.cuts_with_loss += u32::from(!report.missing.is_empty());
            if durability == (Durability { sync_binlog: 1, trx_commit: 1 }) {
                ensure!(report.missing.is_empty(), "the disk lost commits that the primary synced: {report}");
            }
        }
        Err(error) => {
            say(&format!("{kind} {durability}: the primary does not start after {cut:?}: {error:#}"));
            ensure!(
                durability != (Durability { sync_binlog: 1, trx_commit: 1 }),
                "a primary that syncs everything does not start: {error:#}"
            );
            losses.not_started += 1;
        }
    }
    Ok(())
}
