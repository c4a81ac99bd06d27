//! The relay that acknowledges the commits of a primary loses power, with the log on its disk. After each cut
//! the log opens and has every commit that a client got an OK for; then the relay continues.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::Rng;
use tailwater_lab::fault_trial::{Trial, TrialDurability, TrialFolder, TrialSpec, prove};
use tailwater_log::{AckMode, LogDir, LogOptions, LogWriter};
use tailwater_lossy_disk::{LossyDisk, NameDurability, PowerCut};
use tailwater_sandbox::workload::{TransactionMix, prepare};
use tailwater_sandbox::{BinlogCheck, Ledger, ServerKind, Workload, WorkloadSpec, require};

use super::{Plan, say};
use crate::shell_session::PROGRAM;

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_lost_power_has_every_acknowledged_commit_mysql() -> Result<()> {
    relay_loses_power(ServerKind::Mysql97).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_lost_power_has_every_acknowledged_commit_mariadb() -> Result<()> {
    relay_loses_power(ServerKind::Mariadb1011).await
}

async fn relay_loses_power(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut plan = Plan::new(0, 60);
    let cuts = plan.cuts.max(3);
    let Some(mut disk) = LossyDisk::for_test(NameDurability::FolderSync) else { return Ok(()) };
    let folder = TrialFolder::new(Some(disk.path()))?;
    let spec = TrialSpec {
        kind,
        durability: TrialDurability::Reduced,
        options: vec!["--max-binlog-size=262144".into()],
        ack: AckMode::Durable,
        program: PROGRAM.into(),
        folder: folder.path().to_owned(),
    };
    let mut trial = Trial::start(spec).await?;
    disk.sync_everything();
    trial.start_relay()?;
    trial.wait_captured().await?;
    prepare(&trial.primary.connect_options()).await?;
    let ledger = Arc::new(Ledger::new());
    let load = WorkloadSpec {
        seed: plan.random.random(),
        mix: TransactionMix::Mixed { body_bytes_max: 16 << 10 },
        ..WorkloadSpec::new(6)
    };
    let workload = Workload::start(trial.primary.connect_options(), &load, Arc::clone(&ledger));
    for number in 0..cuts {
        // The first power cut hits a new log, and takes away everything that was not synced.
        let cut = if number == 0 { PowerCut::of_everything() } else { plan.next_cut() };
        let context = || format!("TAILWATER_SEED={}: {kind}, cut {number}: {cut:?}", plan.seed);
        let wanted = workload.counters().snapshot().acknowledged + plan.random.random_range(10..300);
        let deadline = Instant::now() + PATIENCE;
        while workload.counters().snapshot().acknowledged < wanted {
            ensure!(Instant::now() < deadline, "commits do not continue: {}", trial.relay_log_tail());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        trial.relay().context("the relay is not running")?.pause()?;
        disk.cut_power(cut);
        trial.kill_relay().await?;
        disk.restore_power()?;
        // In the other cases the relay is the first that opens the log.
        if number == 0 || plan.random.random() {
            check_log(&trial.log_directory(), &ledger, kind).with_context(context)?;
        }
        trial.start_relay()?;
        trial.wait_captured().await.with_context(context)?;
    }
    let report = tokio::time::timeout(PATIENCE, workload.finish()).await.context("the clients do not end")?;
    ensure!(report.errors.is_empty(), "clients gave up with errors: {:?}", report.errors);
    trial.stop_relay().await?;
    trial.primary.stop().await?;
    let proof = prove(&trial.log_directory(), &ledger, kind.flavour(), trial.primary.data())?;
    ensure!(proof.is_ok(), "TAILWATER_SEED={}: the log differs from the ledger: {proof:?}", plan.seed);
    say(&format!(
        "{kind}: {cuts} power cuts of the relay, {} commits acknowledged, {} missing in the log, {} segments identical",
        proof.ledger.acknowledged, proof.ledger.missing_in_log.count, proof.segments_identical
    ));
    Ok(())
}

/// Checks that the log has each commit that clients got an OK for. The relay does not run, so there are no
/// further ones.
fn check_log(log: &Path, ledger: &Ledger, kind: ServerKind) -> Result<()> {
    drop(LogWriter::open(log, LogOptions::default()).context("the log does not open")?);
    let mut check = BinlogCheck::new(ledger, kind.flavour());
    for segment in LogDir::open_read_only(log)?.segments()? {
        check.file(&segment.path)?;
    }
    let found = check.finish();
    ensure!(found.is_ok(), "the log differs from the ledger of the clients: {found}");
    Ok(())
}
