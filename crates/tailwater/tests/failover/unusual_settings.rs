//! Unusual global settings on all servers. None of them may prevent a failover or a switchover, or cause the
//! loss of a commit.

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::unusual_settings::{apply_odd_settings, reset_odd_settings};
use tailwater_sandbox::{ServerKind, require};
use tailwater_wire::Flavour;

use crate::failover::automatic_failover::{ManagedCluster, OLD_PRIMARY_DOWN_HOOK, more_commits};

#[tokio::test(flavor = "multi_thread")]
async fn primaries_are_replaced_under_unusual_global_settings_mariadb() -> Result<()> {
    primaries_are_replaced_under_odd_settings(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn primaries_are_replaced_under_unusual_global_settings_mysql() -> Result<()> {
    primaries_are_replaced_under_odd_settings(ServerKind::Mysql97).await
}

async fn primaries_are_replaced_under_odd_settings(kind: ServerKind) -> Result<()> {
    if require(kind).is_none() {
        return Ok(());
    }
    let mut cluster = ManagedCluster::start(kind, OLD_PRIMARY_DOWN_HOOK).await?;
    let load = cluster.load(&cluster.trial.primary, 1);
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    cluster.compare(&cluster.trial.primary, &cluster.followers.iter().collect::<Vec<_>>()).await?;

    apply_odd_settings(&cluster.trial.primary).await?;
    for follower in &cluster.followers {
        apply_odd_settings(follower).await?;
    }
    cluster.trial.primary.kill().await?;
    cluster.tailwater("failover primary --to db2")?.exits(0).says(&["db2"]);
    cluster.trial.wait_failed_over(PRIMARY_NAME).await?;
    // The sessions of the clients need ordinary settings, because this test is not about client sessions.
    commit_as_usual(&cluster, "db2", 11).await?;
    cluster.tailwater("switchover primary --to db3 --max-write-pause-ms 20000")?.exits(0).says(&["db3"]);
    commit_as_usual(&cluster, "db3", 21).await?;
    for follower in &cluster.followers {
        reset_odd_settings(follower).await?;
    }
    // The replication threads of the servers use the global settings for read-only transactions and memory
    // limits. They are restarted to use the reset values.
    let again = match kind.flavour() {
        Flavour::MySql => "STOP REPLICA; START REPLICA",
        Flavour::MariaDb => "STOP SLAVE; START SLAVE",
    };
    cluster.follower("db2")?.sql(again).await?;
    cluster.compare(cluster.follower("db3")?, &cluster.followers.iter().collect::<Vec<_>>()).await?;
    cluster.trial.stop_relay().await
}

/// Resets the settings of a server, commits some transactions, and applies the unusual settings again.
async fn commit_as_usual(cluster: &ManagedCluster, server: &str, first_worker: u32) -> Result<()> {
    let server = cluster.follower(server)?;
    reset_odd_settings(server).await?;
    let load = cluster.load(server, first_worker);
    more_commits(&load, 30).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    Ok(apply_odd_settings(server).await?)
}
