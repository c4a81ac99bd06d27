//! A relay that is away while another server becomes primary, and comes back when nobody remembers that: it is led there all the same, by
//! what the records and the relays say. Until then it goes on with the former primary, and names it to load balancers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tailwater_lab::trial::TrialDurability;
use tailwater_lab::trial::managed_cluster::PRIMARY_NAME;
use tailwater_sandbox::{Etcd, ServerKind, Workload, WorkloadSpec, require};

use crate::cli::http::Http;
use crate::failover::two_relays::{Pair, acts, nothing_is_missing, until};

/// Only reached when something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The manager has been started anew: what it did stands in its records only.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_manager_repoints_an_absent_relay() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_the_second().await? else { return Ok(()) };
    pair.trial.start_relay()?;
    until(&pair.shell, "the first to act", acts).await?;
    pair.second.start()?;
    is_led(pair, &http).await
}

/// The one that was away holds the lease itself when it is back, and has no record of what the other has done.
#[tokio::test(flavor = "multi_thread")]
async fn manager_with_an_absent_relay_learns_the_primary() -> Result<()> {
    let Some((mut pair, http)) = failed_over_without_the_second().await? else { return Ok(()) };
    pair.second.start()?;
    until(&pair.second.shell, "the second to act", acts).await?;
    // Nobody can tell it.
    http.until("/primary/db1", 200, |_| true)?;
    http.until("/primary/db2", 503, |body| body["reason"] == "the log follows db1")?;
    pair.trial.start_relay()?;
    is_led(pair, &http).await
}

/// Two ACKs of two relays are needed, so that one that is stopped proves everything. While the second is away the first manager
/// replaces the primary, which comes back; then it is ended. Nothing is under way when the primary dies: what it has alone would keep a
/// relay that reads it from following another.
async fn failed_over_without_the_second() -> Result<Option<(Pair, Http)>> {
    let kind = ServerKind::Mysql97;
    let (Some(_), Some(program)) = (require(kind), Etcd::require()) else { return Ok(None) };
    let options = vec!["--rpl-semi-sync-source-wait-for-replica-count=2".to_owned()];
    let settings = "automatic = true\nsemi_sync_acks = 2";
    let mut pair = Pair::start(kind, &program, settings, "", TrialDurability::Reduced, options).await?;
    let http = Http { port: pair.ports.1.number() };
    pair.first_acts().await?;
    pair.commits_go_on().await?;
    let load = load_anew(&mut pair, &WorkloadSpec { transactions: Some(0), ..WorkloadSpec::new(1) });
    let report = load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    pair.second.process.take().context("it runs")?.kill().await?;
    pair.trial.primary.kill().await?;
    until(&pair.shell, "a new primary", |status| status["primary"] != PRIMARY_NAME).await?;
    drop(load_anew(&mut pair, &WorkloadSpec { first_worker: 11, ..WorkloadSpec::new(4) }));
    pair.trial.kill_relay().await?;
    pair.trial.primary.start_again().await?;
    Ok(Some((pair, http)))
}

/// Another load, of the follower, in the place of the last.
fn load_anew(pair: &mut Pair, spec: &WorkloadSpec) -> Workload {
    let load = Workload::start(pair.follower.connect_options(), spec, Arc::clone(&pair.ledger));
    std::mem::replace(&mut pair.load, load)
}

/// Both relays follow the new primary, which needs both; and nothing is lost.
async fn is_led(mut pair: Pair, http: &Http) -> Result<()> {
    http.until("/primary/db2", 200, |_| true)?;
    http.until("/primary/db1", 503, |body| body["reason"] == "the log follows db2")?;
    until(&pair.second.shell, "the second to know", |status| status["primary"] == "db2").await?;
    let begun = Instant::now();
    while pair.follower.semi_sync_status().await?.replicas < 2 {
        ensure!(begun.elapsed() < PATIENCE, "{:?}", pair.follower.semi_sync_status().await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    pair.commits_go_on().await?;
    let report = pair.load.finish().await;
    ensure!(report.errors.is_empty(), "{:?}", report.errors);
    nothing_is_missing(&pair.ledger, &pair.follower).await?;
    pair.trial.kill_relay().await
}
