//! The two daemons of a cluster are upgraded one after the other, from an earlier build to this one.
//! Meanwhile the two builds share the audit records in etcd, the orders to relays, and the cluster itself.
//! The manager of each build replaces a primary.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::TrialDurability;
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Etcd, Server, ServerKind, require};
use tailwater_wire::Flavour;

use crate::failover::two_relays_and_managers::{Pair, check_ledger, has_lease, until};
use crate::shell_session::{EARLIER_BUILD, PROGRAM};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn daemons_are_upgraded_one_by_one_mariadb() -> Result<()> {
    daemons_are_upgraded_one_by_one(ServerKind::Mariadb1011).await
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_are_upgraded_one_by_one_mysql() -> Result<()> {
    daemons_are_upgraded_one_by_one(ServerKind::Mysql97).await
}

async fn daemons_are_upgraded_one_by_one(kind: ServerKind) -> Result<()> {
    let Some(earlier) = std::env::var_os(EARLIER_BUILD).map(PathBuf::from) else {
        eprintln!(
            "SKIPPED daemons_are_upgraded_one_by_one: set {EARLIER_BUILD} to the path of an earlier build"
        );
        return Ok(());
    };
    let (Some(_), Some(etcd)) = (require(kind), Etcd::require()) else { return Ok(()) };
    let settings = "automatic = true\nrejoin = true\nanalysis = { cooldown_ms = 0 }";
    let durability = TrialDurability::Full;
    let mut pair = Pair::start_program(&earlier, kind, &etcd, settings, "", durability, Vec::new()).await?;
    pair.wait_for_more_commits().await?;

    // The second daemon is upgraded. The first daemon, of the earlier build, replaces the primary.
    pair.second.process.take().context("the second daemon is not running")?.kill().await?;
    until(&pair.shell, "the manager of the earlier build to act", has_lease).await?;
    pair.second.program = PROGRAM.into();
    pair.second.start()?;
    pair.wait_until_observed().await?;
    pair.wait_for_more_commits().await?;
    pair.trial.primary.kill().await?;
    until(&pair.second.shell, "db2 to be primary", |status| status["primary"] == "db2").await?;
    pair.load.redirect(pair.follower.connect_options());
    pair.wait_for_more_commits().await?;
    pair.trial.primary.start_again().await?;
    wait_until_replica(&pair.trial.primary).await?;

    // The manager of the upgraded daemon becomes the acting manager. It uses the audit records of the earlier
    // build, and orders the relay of that build to stop and start.
    pair.trial.kill_relay().await?;
    until(&pair.second.shell, "the manager of the new build to act", has_lease).await?;
    pair.trial.start_relay()?;
    pair.wait_until_observed().await?;
    pair.wait_for_more_commits().await?;
    // MariaDB waits for ACKs after a restart only if its option file says so. The option file of db2 does
    // not, so a failover from db2 is refused (TW-MGR-0033).
    let fails_back = kind.flavour() == Flavour::MySql;
    if fails_back {
        pair.follower.kill().await?;
        until(&pair.shell, "db1 to be primary", |status| status["primary"] == PRIMARY_NAME).await?;
        pair.load.redirect(pair.trial.primary.connect_options());
        pair.wait_for_more_commits().await?;
        pair.follower.start_again().await?;
        wait_until_replica(&pair.follower).await?;
    }

    // The first daemon is upgraded too.
    pair.trial.kill_relay().await?;
    pair.trial.set_program(Path::new(PROGRAM));
    pair.trial.start_relay()?;
    pair.wait_until_observed().await?;
    pair.wait_for_more_commits().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    let primary = if fails_back { &pair.trial.primary } else { &pair.follower };
    check_ledger(&pair.ledger, primary).await?;
    let verify = pair.shell.run("log verify log/primary")?;
    verify.exits(0);
    drop(pair.second);
    pair.trial.kill_relay().await
}

/// Waits until a former primary replicates again.
async fn wait_until_replica(server: &Server) -> Result<()> {
    let started = Instant::now();
    while server.sql("SHOW REPLICA STATUS").await?.is_empty() {
        ensure!(started.elapsed() < PATIENCE, "{} does not become a replica", server.name());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
