//! Tests that a server becomes a replica of another address, and that this change is refused if it would drop
//! received transactions.

use anyhow::{Context, Result, ensure};
use tailwater_manager::ManagerError;
use tailwater_manager::actions::relay_log_drain::{drain, wait_executed};
use tailwater_manager::actions::replication_setup::{
    ReplicaPosition, ReplicationSource, executed, forget, read_from, status,
};

use super::test_cluster::{Cluster, PATIENCE, address, connect, rows};

pub async fn a_replica_changes_its_source(cluster: &Cluster) -> Result<()> {
    let log = address(&cluster.log);
    let mut replica = connect(&cluster.replica).await?;

    // The replica has received a transaction that it has not executed. Nothing may be changed, and the
    // replica continues to receive.
    cluster.receive_only(11).await?;
    let error = read_from(&mut replica, &log, PATIENCE)
        .await
        .err()
        .context("the change of source was not refused")?;
    ensure!(
        matches!(&error, ManagerError::ActionFailed { reason, .. } if reason.contains("drain the server first")),
        "the action failed with the wrong error: {error}"
    );
    cluster.receive(12).await?;
    drain(&mut replica, PATIENCE).await?;
    // The replica gets from the log what it has not received yet.
    cluster.insert(13).await?;
    for _ in 0..2 {
        read_from(&mut replica, &log, PATIENCE).await?;
        let channel = status(&mut replica).await?.context("the server has no replication channel")?;
        ensure!(log.is_source_of(&channel), "the server has the wrong replication status: {channel:?}");
    }
    let has = executed(&mut connect(&cluster.primary).await?).await?;
    wait_executed(&mut replica, &has, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await?.ends_with("11,12,13"));

    // The source refuses the login of the replica.
    let closed = ReplicationSource { password: "another".into(), ..log.clone() };
    let closed = ReplicationSource { host: "localhost".into(), ..closed };
    let error = read_from(&mut replica, &closed, std::time::Duration::from_millis(500)).await.err();
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    ensure!(
        text.contains("1045") || text.contains("Access denied"),
        "the refused login has the wrong error: {text}"
    );

    // The replica's source is removed, and the replica becomes a primary. The old primary becomes its
    // replica, and continues after the transactions that it wrote itself.
    forget(&mut replica).await?;
    ensure!(status(&mut replica).await?.is_none());
    cluster.replica.sql("INSERT INTO shop.t VALUES (14)").await?;
    let mut old = connect(&cluster.primary).await?;
    let new = ReplicationSource { position: ReplicaPosition::WithOwnWrites, ..address(&cluster.replica) };
    read_from(&mut old, &new, PATIENCE).await?;
    wait_executed(&mut old, &executed(&mut replica).await?, PATIENCE).await?;
    ensure!(rows(&cluster.primary).await?.ends_with("11,12,13,14"));
    Ok(())
}
