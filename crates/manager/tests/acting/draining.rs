//! Replicas execute what they have received, however they stand, and nothing is dropped.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_manager::ManagerError;
use tailwater_manager::acting::draining::drain;
use tailwater_manager::acting::replication::{self, read_from};
use tailwater_sandbox::{ServerKind, require};

use super::cluster::{Cluster, PATIENCE, address, connect, on_both_families, rows, statement};

on_both_families!(nothing_received_is_dropped);

async fn nothing_received_is_dropped(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = Cluster::start(kind).await?;
    let mut connection = connect(&cluster.replica).await?;
    // Whatever is drained, nobody can be asked for it once more.
    cluster.receive_only(1).await?;
    cluster.primary.pause()?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1", "with the applier stopped");
    let channel = replication::status(&mut connection).await?.context("no channel")?;
    ensure!(!channel.sql_running && channel.by_gtids, "{channel:?}");
    // Once more, it changes nothing.
    drain(&mut connection, PATIENCE).await?;

    // Stopped whole.
    resume(&mut cluster, &mut connection).await?;
    cluster.receive_only(2).await?;
    cluster.primary.pause()?;
    cluster.replica.sql(statement(kind, "STOP REPLICA", "STOP SLAVE")).await?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1,2", "stopped whole");
    let channel = replication::status(&mut connection).await?.context("no channel")?;
    ensure!(!channel.sql_running && channel.by_gtids, "{channel:?}");

    // Told to stay behind, receiving and not.
    for (id, stop) in [(3, ""), (4, statement(kind, "STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD"))] {
        resume(&mut cluster, &mut connection).await?;
        delay(&cluster).await?;
        cluster.receive(id).await?;
        cluster.primary.pause()?;
        if !stop.is_empty() {
            cluster.replica.sql(stop).await?;
        }
        ensure!(!rows(&cluster.replica).await?.ends_with(&id.to_string()), "the delay does not hold");
        drain(&mut connection, PATIENCE).await?;
        ensure!(rows(&cluster.replica).await?.ends_with(&id.to_string()), "with a delay, {stop:?}");
        let channel = replication::status(&mut connection).await?.context("no channel")?;
        ensure!(channel.delay_seconds == 3600 && channel.by_gtids, "{channel:?}");
    }

    // An applier that cannot go on: told with its error, and nothing is lost.
    cluster.replica.sql(&change(kind, 0)).await?;
    cluster.replica.sql("INSERT INTO shop.t VALUES (5)").await?;
    resume(&mut cluster, &mut connection).await?;
    cluster.receive(5).await?;
    cluster.primary.pause()?;
    let error = drain(&mut connection, PATIENCE).await.err().context("drained over a duplicate")?;
    ensure!(matches!(&error, ManagerError::Act { reason, .. } if reason.contains("1062")), "{error}");
    cluster.replica.sql("SET SESSION sql_log_bin = 0; DELETE FROM shop.t WHERE id = 5").await?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1,2,3,4,5");

    // What takes too long is told so, and goes on.
    resume(&mut cluster, &mut connection).await?;
    let mut locker = connect(&cluster.replica).await?;
    locker.execute("FLUSH TABLES WITH READ LOCK").await?;
    cluster.receive(6).await?;
    let error = drain(&mut connection, Duration::from_millis(200)).await.err().context("too fast")?;
    ensure!(matches!(&error, ManagerError::TooLong { .. }), "{error}");
    locker.execute("UNLOCK TABLES").await?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1,2,3,4,5,6");
    Ok(())
}

/// The primary runs again, and the replica reads from it.
async fn resume(cluster: &mut Cluster, connection: &mut tailwater_session::Connection) -> Result<()> {
    cluster.primary.resume()?;
    read_from(connection, &address(&cluster.primary), PATIENCE).await?;
    Ok(())
}

fn change(kind: ServerKind, seconds: u32) -> String {
    match statement(kind, "SOURCE", "MASTER") {
        "SOURCE" => format!("STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_DELAY={seconds}"),
        _ => format!("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY={seconds}"),
    }
}

async fn delay(cluster: &Cluster) -> Result<()> {
    let start = statement(cluster.kind, "START REPLICA", "START SLAVE");
    cluster.replica.sql(&format!("{}; {start}", change(cluster.kind, 3600))).await?;
    Ok(())
}
