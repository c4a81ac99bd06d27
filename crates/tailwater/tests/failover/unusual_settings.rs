//! Unusual global settings on all servers. None of them may prevent a failover or a switchover, or cause the
//! loss of a commit.

use anyhow::{Result, ensure};
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::unusual_settings::{apply_odd_settings, reset_odd_settings};
use tailwater_sandbox::{ServerKind, require};
use tailwater_wire::Flavour;

use crate::failover::automatic_failover::{GONE, Led, more_commits};

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
    let mut led = Led::start(kind, GONE).await?;
    let load = led.load(&led.trial.primary, 1);
    more_commits(&load, 50).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the load failed: {:?}", report.errors);
    led.compare(&led.trial.primary, &led.followers.iter().collect::<Vec<_>>()).await?;

    apply_odd_settings(&led.trial.primary).await?;
    for follower in &led.followers {
        apply_odd_settings(follower).await?;
    }
    led.trial.primary.kill().await?;
    led.tailwater("failover primary --to db2")?.exits(0).says(&["db2"]);
    led.trial.wait_failed_over(PRIMARY_NAME).await?;
    // The sessions of the clients need ordinary settings, because this test is not about client sessions.
    commit_as_usual(&led, "db2", 11).await?;
    led.tailwater("switchover primary --to db3 --max-write-pause-ms 20000")?.exits(0).says(&["db3"]);
    commit_as_usual(&led, "db3", 21).await?;
    for follower in &led.followers {
        reset_odd_settings(follower).await?;
    }
    // The replication threads of the servers use the global settings for read-only transactions and memory
    // limits. They are restarted to use the reset values.
    let again = match kind.flavour() {
        Flavour::MySql => "STOP REPLICA; START REPLICA",
        Flavour::MariaDb => "STOP SLAVE; START SLAVE",
    };
    led.follower("db2")?.sql(again).await?;
    led.compare(led.follower("db3")?, &led.followers.iter().collect::<Vec<_>>()).await?;
    led.trial.stop_relay().await
}

/// Resets the settings of a server, commits some transactions, and applies the unusual settings again.
async fn commit_as_usual(led: &Led, server: &str, first_worker: u32) -> Result<()> {
    let server = led.follower(server)?;
    reset_odd_settings(server).await?;
    let load = led.load(server, first_worker);
    more_commits(&load, 30).await?;
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the load failed: {:?}", report.errors);
    Ok(apply_odd_settings(server).await?)
}
