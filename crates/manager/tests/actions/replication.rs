//! Servers become replicas of another address, and are not if that would drop anything.

use anyhow::{Context, Result, ensure};
use tailwater_manager::ManagerError;
use tailwater_manager::actions::relay_log_drain::{drain, wait_executed};
use tailwater_manager::actions::replication::{
    ReplicaPosition, ReplicationSource, executed, forget, read_from, status,
};

use super::cluster::{Cluster, PATIENCE, address, connect, rows};

pub async fn a_replica_reads_from_elsewhere(cluster: &Cluster) -> Result<()> {
    let log = address(&cluster.log);
    let mut replica = connect(&cluster.replica).await?;

    // It holds what it has not executed: nothing is changed, and it goes on receiving.
    cluster.receive_only(11).await?;
    let error = read_from(&mut replica, &log, PATIENCE).await.err().context("changed its source")?;
    ensure!(
        matches!(&error, ManagerError::ActionFailed { reason, .. } if reason.contains("drain it first")),
        "{error}"
    );
    cluster.receive(12).await?;
    drain(&mut replica, PATIENCE).await?;
    // What it has not received yet comes from there.
    cluster.insert(13).await?;
    for _ in 0..2 {
        read_from(&mut replica, &log, PATIENCE).await?;
        let channel = status(&mut replica).await?.context("no channel")?;
        ensure!(log.is_source_of(&channel), "{channel:?}");
    }
    let has = executed(&mut connect(&cluster.primary).await?).await?;
    wait_executed(&mut replica, &has, PATIENCE).await?;
    ensure!(rows(&cluster.replica).await?.ends_with("11,12,13"));

    // A source that does not let it in.
    let closed = ReplicationSource { password: "another".into(), ..log.clone() };
    let closed = ReplicationSource { host: "localhost".into(), ..closed };
    let error = read_from(&mut replica, &closed, std::time::Duration::from_millis(500)).await.err();
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    ensure!(text.contains("1045") || text.contains("Access denied"), "{text}");

    // It forgets, and becomes a primary; the old one becomes its replica, with what it wrote itself behind
    // it.
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
