//! Tests that a replica in any state executes everything it has received, and that nothing is dropped.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tailwater_manager::ManagerError;
use tailwater_manager::actions::relay_log_drain::drain;
use tailwater_manager::actions::replication_setup::{self, read_from};
use tailwater_sandbox::{ServerKind, require};
use tailwater_session::Connection;

use super::channel_target_promotion::a_channel_target_becomes_primary;
use super::replication_setup::a_replica_changes_its_source;
use super::test_cluster::{Cluster, PATIENCE, address, connect, on_both_families, rows, statement};

on_both_families!(no_drain_or_change_of_source_drops_received_transactions);

async fn no_drain_or_change_of_source_drops_received_transactions(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = Cluster::start(kind).await?;
    replicas_are_drained(&mut cluster).await?;
    // The same servers are used again, because starting them takes most of the time.
    a_replica_changes_its_source(&cluster).await?;
    a_channel_target_becomes_primary(&mut cluster).await
}

async fn replicas_are_drained(cluster: &mut Cluster) -> Result<()> {
    let kind = cluster.kind;
    let mut connection = connect(&cluster.replica).await?;
    // While a replica is drained the primary is paused, so the replica cannot request a transaction again.
    cluster.receive_only(1).await?;
    cluster.primary.pause()?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1", "a replica with a stopped applier was not drained");
    let channel =
        replication_setup::status(&mut connection).await?.context("the server has no replication channel")?;
    ensure!(
        !channel.sql_running && channel.uses_gtids,
        "the server has the wrong replication status: {channel:?}"
    );
    // A second drain changes nothing.
    drain(&mut connection, PATIENCE).await?;

    // In this case, both replication threads are stopped.
    resume(cluster, &mut connection).await?;
    cluster.receive_only(2).await?;
    cluster.primary.pause()?;
    cluster.replica.sql(statement(kind, "STOP REPLICA", "STOP SLAVE")).await?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1,2", "a replica with both threads stopped was not drained");
    let channel =
        replication_setup::status(&mut connection).await?.context("the server has no replication channel")?;
    ensure!(
        !channel.sql_running && channel.uses_gtids,
        "the server has the wrong replication status: {channel:?}"
    );

    // The replica has a configured delay. In the first case its receiver runs; in the second case its
    // receiver is stopped.
    for (id, stop) in [(3, ""), (4, statement(kind, "STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD"))] {
        resume(cluster, &mut connection).await?;
        delay(cluster).await?;
        cluster.receive(id).await?;
        cluster.primary.pause()?;
        if !stop.is_empty() {
            cluster.replica.sql(stop).await?;
        }
        ensure!(
            !rows(&cluster.replica).await?.ends_with(&id.to_string()),
            "the replica does not wait for its configured delay"
        );
        drain(&mut connection, PATIENCE).await?;
        ensure!(
            rows(&cluster.replica).await?.ends_with(&id.to_string()),
            "a replica with a delay was not drained after {stop:?}"
        );
        let channel = replication_setup::status(&mut connection)
            .await?
            .context("the server has no replication channel")?;
        ensure!(
            channel.delay_seconds == 3600 && channel.uses_gtids,
            "the server has the wrong replication status: {channel:?}"
        );
    }

    // The applier stops with an error, first on a replica without a configured delay, then on a replica with
    // a configured delay. The drain reports the error, and no transaction is lost.
    for (id, seconds) in [(5, 0), (6, 3600)] {
        resume(cluster, &mut connection).await?;
        let start = statement(kind, "START REPLICA", "START SLAVE");
        cluster.replica.sql(&format!("{}; {start}", change(kind, seconds))).await?;
        cluster
            .replica
            .sql(&format!("SET SESSION sql_log_bin = 0; INSERT INTO shop.t VALUES ({id})"))
            .await?;
        cluster.receive(id).await?;
        cluster.primary.pause()?;
        for _ in 0..2 {
            let error = drain(&mut connection, PATIENCE)
                .await
                .err()
                .context("the drain did not report the duplicate key")?;
            ensure!(
                matches!(&error, ManagerError::ActionFailed { reason, .. } if reason.contains("1062")),
                "the action failed with the wrong error: {error}"
            );
        }
        cluster
            .replica
            .sql(&format!("SET SESSION sql_log_bin = 0; DELETE FROM shop.t WHERE id = {id}"))
            .await?;
        drain(&mut connection, PATIENCE).await?;
        ensure!(
            rows(&cluster.replica).await?.ends_with(&id.to_string()),
            "the replica lacks the transaction with this row: {id}"
        );
    }
    cluster.replica.sql(&change(kind, 0)).await?;

    // A drain that exceeds its time limit reports the time limit, and a later drain completes.
    resume(cluster, &mut connection).await?;
    let mut locker = Connection::connect(&cluster.replica.connect_options()).await?;
    locker.execute("LOCK TABLES shop.t WRITE").await?;
    cluster.receive(7).await?;
    let error = drain(&mut connection, Duration::from_millis(200))
        .await
        .err()
        .context("the drain did not exceed its time limit")?;
    ensure!(
        matches!(&error, ManagerError::ActionTimeout { .. }),
        "the action failed with the wrong error: {error}"
    );
    locker.execute("UNLOCK TABLES").await?;
    let mut connection = connect(&cluster.replica).await?;
    drain(&mut connection, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await? == "1,2,3,4,5,6,7");
    resume(cluster, &mut connection).await?;
    cluster.in_step().await
}

/// Resumes the primary, and makes the replica read from it.
async fn resume(cluster: &mut Cluster, connection: &mut Connection) -> Result<()> {
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
