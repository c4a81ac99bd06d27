//! Replay of a backlog by native replication.

use std::time::{Duration, Instant};

use anyhow::Context;
use tailwater_sandbox::ReplicaOf;
use tailwater_wire::Flavour;

use super::replication_variant::NativeSettings;
use super::source_backlog::{Backlog, wait_until};
use super::target_server::ReplayTarget;

/// Time limit for receiving a backlog, or for applying a slice of it.
const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the word for a replica in statements of the flavour.
fn replica(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::MySql => "REPLICA",
        Flavour::MariaDb => "SLAVE",
    }
}

/// Makes the target a replica that has received the whole backlog and has applied nothing.
///
/// # Errors
/// If a server refuses a statement, or receiving takes too long.
pub async fn receive(backlog: &Backlog, target: &mut ReplayTarget) -> anyhow::Result<()> {
    connect(backlog, target).await?;
    let flavour = target.connection.server().flavour;
    target.connection.execute(&format!("START {} IO_THREAD", replica(flavour))).await?;
    let question = match flavour {
        Flavour::MySql => "SHOW BINARY LOG STATUS",
        Flavour::MariaDb => "SHOW MASTER STATUS",
    };
    let place = backlog.source.sql(question).await?.into_iter().next().context("the source has no binlog")?;
    let mut fields = place.split('\t');
    let (file, position) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    let end = (file.to_owned(), position.parse::<u64>()?);
    let target: &ReplayTarget = target;
    wait_until("receiving the backlog", PATIENCE, async || {
        let status = target.server.replica_status().await?.context("the target is not a replica")?;
        Ok(status.received == end)
    })
    .await?;
    target.ensure_replicating().await
}

async fn connect(backlog: &Backlog, target: &mut ReplayTarget) -> anyhow::Result<()> {
    let flavour = target.connection.server().flavour;
    let change = ReplicaOf::port(backlog.source.port()).change_statement(flavour);
    target.connection.execute(&change).await?;
    Ok(())
}

/// Sets how the target applies transactions. The target must not be applying transactions at that time.
///
/// # Errors
/// If the server refuses a statement.
pub async fn set(target: &mut ReplayTarget, native: NativeSettings) -> anyhow::Result<()> {
    for statement in native.statements() {
        target.connection.execute(&statement).await.with_context(|| format!("cannot set {native}"))?;
    }
    Ok(())
}

/// Starts to apply what the target has received.
///
/// # Errors
/// If the server refuses a statement.
pub async fn apply(target: &mut ReplayTarget) -> anyhow::Result<()> {
    let flavour = target.connection.server().flavour;
    target.connection.execute(&format!("START {} SQL_THREAD", replica(flavour))).await?;
    Ok(())
}

async fn pause(target: &mut ReplayTarget) -> anyhow::Result<()> {
    let flavour = target.connection.server().flavour;
    target.connection.execute(&format!("STOP {} SQL_THREAD", replica(flavour))).await?;
    Ok(())
}

/// Starts to receive and apply what the source commits.
///
/// # Errors
/// If the server refuses a statement.
pub async fn follow(
    backlog: &Backlog,
    target: &mut ReplayTarget,
    native: NativeSettings,
) -> anyhow::Result<()> {
    connect(backlog, target).await?;
    set(target, native).await?;
    let flavour = target.connection.server().flavour;
    target.connection.execute(&format!("START {}", replica(flavour))).await?;
    Ok(())
}

/// Applies one slice of the same backlog with each setting, and returns the rate of each setting in
/// transactions per second. The slices are similar, so one replay compares all settings.
///
/// # Errors
/// If a server fails.
pub async fn screen(
    backlog: &Backlog,
    target: &mut ReplayTarget,
    all: &[NativeSettings],
) -> anyhow::Result<Vec<(NativeSettings, f64)>> {
    receive(backlog, target).await?;
    // Each setting needs two slices, because the target continues to apply until a stop takes effect. Two
    // more slices are for the warm-up.
    let slice = backlog.transactions / (2 * all.len() as u64 + 2);
    let mut rates = Vec::new();
    for (number, native) in all.first().into_iter().chain(all).enumerate() {
        set(target, *native).await?;
        let before = target.applied().await?;
        apply(target).await?;
        // The measurement of the rate begins after a fifth of the slice, because it must not include the
        // start of the workers.
        let first = (applied_from(target, before + slice / 5).await?, Instant::now());
        let last = applied_from(target, before + slice).await?;
        let seconds = first.1.elapsed().as_secs_f64();
        pause(target).await?;
        target.ensure_replicating().await?;
        if number > 0 {
            rates.push((*native, (last - first.0) as f64 / seconds));
        }
    }
    Ok(rates)
}

/// Waits until at least this number of transactions is applied, and returns how many are applied.
async fn applied_from(target: &mut ReplayTarget, wanted: u64) -> anyhow::Result<u64> {
    let mut applied = 0;
    wait_until("applying a slice of the backlog", PATIENCE, async || {
        applied = target.applied().await?;
        Ok(applied >= wanted)
    })
    .await?;
    Ok(applied)
}
