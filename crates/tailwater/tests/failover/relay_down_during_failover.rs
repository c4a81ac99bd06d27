//! A relay is down while another server becomes primary. When the relay starts again, no manager remembers
//! the failover. The manager finds the new primary by the audit records and by the reports of the relays, and
//! repoints the relay. Until then the relay follows the former primary, and reports that server as the
//! primary to load balancers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::fault_trial::TrialDurability;
use tailwater_lab::fault_trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Etcd, ServerKind, Workload, WorkloadSpec, require};

use crate::cli::http_listener::Http;
use crate::failover::two_relays_and_managers::{Pair, check_ledger, has_lease, until};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager was restarted after the failover. It knows of the failover only from its audit records.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_manager_repoints_a_relay_that_was_down() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_second_relay().await? else { return Ok(()) };
    pair.trial.start_relay()?;
    until(&pair.shell, "the first manager to act", has_lease).await?;
    pair.second.start()?;
    check_repointed(pair, &http).await
}

/// The relay that was down restarts, and its manager gets the lease. This manager has no audit record of the
/// failover that the other manager did.
#[tokio::test(flavor = "multi_thread")]
async fn the_manager_of_a_relay_that_was_down_finds_the_new_primary() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_second_relay().await? else { return Ok(()) };
    pair.second.start()?;
    until(&pair.second.shell, "the second manager to act", has_lease).await?;
    // No other manager runs that could report the new primary.
    http.until("/primary/db1", 200, |_| true)?;
    http.until("/primary/db2", 503, |body| body["reason"] == "the log follows db1")?;
    pair.trial.start_relay()?;
    check_repointed(pair, &http).await
}

/// Runs a failover while the second relay is down. The primary needs the ACKs of both relays, so stopping one
/// relay suffices for fencing.
///
/// The first manager replaces the primary. Then the former primary rejoins, and the first manager is stopped.
/// No transaction is in flight when the primary dies. Otherwise a relay could have read a transaction that
/// only the former primary has, and such a relay cannot follow another server.
async fn failed_over_without_second_relay() -> Result<Option<(Pair, Http)>> {
    let kind = ServerKind::Mysql97;
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(None) };
    let options = vec!["--rpl-semi-sync-source-wait-for-replica-count=2".to_owned()];
    let settings = "automatic = true\nsemi_sync_acks = 2";
    let mut pair = Pair::start(kind, &program, settings, "", TrialDurability::Reduced, options).await?;
    let http = Http { port: pair.ports.1.number() };
    pair.make_first_active().await?;
    // The manager must see the connection of the second relay to the primary before that relay dies. If the
    // manager sees the connection for the first time in a probe after the death, it counts the relay as an
    // unknown semi-sync replica.
    tokio::time::sleep(Duration::from_secs(3)).await;
    pair.wait_for_more_commits().await?;
    let load = replace_load(&mut pair, &WorkloadSpec { transactions: Some(0), ..WorkloadSpec::new(1) });
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    pair.second.process.take().context("the second daemon is not running")?.kill().await?;
    pair.trial.primary.kill().await?;
    until(&pair.shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    drop(replace_load(&mut pair, &WorkloadSpec { first_worker: 11, ..WorkloadSpec::new(4) }));
    pair.trial.kill_relay().await?;
    pair.trial.primary.start_again().await?;
    Ok(Some((pair, http)))
}

/// Stops the test workload on the primary, and starts a test workload on the follower.
fn replace_load(pair: &mut Pair, spec: &WorkloadSpec) -> Workload {
    let load = Workload::start(pair.follower.connect_options(), spec, Arc::clone(&pair.ledger));
    std::mem::replace(&mut pair.load, load)
}

/// Checks that both relays follow the new primary, that the new primary requires the ACKs of both, and that
/// no transaction is lost.
async fn check_repointed(mut pair: Pair, http: &Http) -> Result<()> {
    http.until("/primary/db2", 200, |_| true)?;
    http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    until(&pair.second.shell, "the second manager to know the new primary", |status| {
        status["primary"] == "db2"
    })
    .await?;
    let started = Instant::now();
    while pair.follower.semi_sync_status().await?.replicas < 2 {
        ensure!(
            started.elapsed() < PATIENCE,
            "the new primary does not require two ACKs: {:?}",
            pair.follower.semi_sync_status().await?
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.wait_for_more_commits().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "clients of the test workload failed: {:?}", report.errors);
    check_ledger(&pair.ledger, &pair.follower).await?;
    pair.trial.kill_relay().await
}
