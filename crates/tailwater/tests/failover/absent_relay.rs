//! A relay that is down while another server becomes primary, and starts again when no manager remembers the
//! failover. The manager repoints it all the same, by what the records and the relays report. Until then it
//! follows the former primary, and reports that one to load balancers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::trial::TrialDurability;
use tailwater_lab::trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Etcd, ServerKind, Workload, WorkloadSpec, require};

use crate::cli::http::Http;
use crate::failover::two_relays::{Pair, acts, check_ledger, until};

/// Time limit of each wait; reached only on a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager has been restarted: only its records show what it did.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_manager_repoints_an_absent_relay() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_second_relay().await? else { return Ok(()) };
    pair.trial.start_relay()?;
    until(&pair.shell, "the first to act", acts).await?;
    pair.second.start()?;
    check_repointed(pair, &http).await
}

/// The relay that was down holds the lease itself after its restart, and has no record of what the other
/// manager did.
#[tokio::test(flavor = "multi_thread")]
async fn manager_with_an_absent_relay_learns_the_primary() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_second_relay().await? else { return Ok(()) };
    pair.second.start()?;
    until(&pair.second.shell, "the second to act", acts).await?;
    // No other manager can report it.
    http.until("/primary/db1", 200, |_| true)?;
    http.until("/primary/db2", 503, |body| body["reason"] == "the log follows db1")?;
    pair.trial.start_relay()?;
    check_repointed(pair, &http).await
}

/// The primary needs the ACKs of both relays, so that stopping one relay proves everything. While the second
/// relay is down, the first manager replaces the primary, which then rejoins; then the first manager is
/// stopped. No transaction is in flight when the primary dies: a transaction that only it has would keep a
/// relay that reads it from following another server.
async fn failed_over_without_second_relay() -> Result<Option<(Pair, Http)>> {
    let kind = ServerKind::Mysql97;
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(None) };
    let options = vec!["--rpl-semi-sync-source-wait-for-replica-count=2".to_owned()];
    let settings = "automatic = true\nsemi_sync_acks = 2";
    let mut pair = Pair::start(kind, &program, settings, "", TrialDurability::Reduced, options).await?;
    let http = Http { port: pair.ports.1.number() };
    pair.make_first_active().await?;
    pair.wait_for_more_commits().await?;
    let load = replace_load(&mut pair, &WorkloadSpec { transactions: Some(0), ..WorkloadSpec::new(1) });
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    pair.second.process.take().context("it runs")?.kill().await?;
    pair.trial.primary.kill().await?;
    until(&pair.shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    drop(replace_load(&mut pair, &WorkloadSpec { first_worker: 11, ..WorkloadSpec::new(4) }));
    pair.trial.kill_relay().await?;
    pair.trial.primary.start_again().await?;
    Ok(Some((pair, http)))
}

/// Replaces the load by one of the follower.
fn replace_load(pair: &mut Pair, spec: &WorkloadSpec) -> Workload {
    let load = Workload::start(pair.follower.connect_options(), spec, Arc::clone(&pair.ledger));
    std::mem::replace(&mut pair.load, load)
}

/// Both relays follow the new primary, which needs both ACKs, and nothing is lost.
async fn check_repointed(mut pair: Pair, http: &Http) -> Result<()> {
    http.until("/primary/db2", 200, |_| true)?;
    http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    until(&pair.second.shell, "the second to know", |status| status["primary"] == "db2").await?;
    let started = Instant::now();
    while pair.follower.semi_sync_status().await?.replicas < 2 {
        ensure!(started.elapsed() < PATIENCE, "{:?}", pair.follower.semi_sync_status().await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.wait_for_more_commits().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    check_ledger(&pair.ledger, &pair.follower).await?;
    pair.trial.kill_relay().await
}
