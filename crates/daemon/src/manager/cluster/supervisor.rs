//! What a manager does by itself: it goes on with what was left, follows the log, and replaces a dead primary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::analysis::{ClusterFinding, FailureCode, FindingAction};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::super::run_requests::FailoverWish;
use super::ManagedCluster;
use super::interrupted_runs::{self, Leftovers};
use crate::error_chain::ErrorChain;

/// A failover that the manager began by itself and that did not lead to a new primary is not tried again sooner, in milliseconds.
const AGAIN_MS_MIN: u64 = 10_000;
/// Nor later.
const AGAIN_MS_MAX: u64 = 300_000;

/// Between two questions whom the log follows.
pub(super) const FOLLOWED_PAUSE: Duration = Duration::from_millis(100);

/// Between two times that what is known is kept.
const REMEMBERED_PAUSE: Duration = Duration::from_secs(1);

/// Begins failovers by itself.
pub(super) async fn supervise<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let mut recast = cluster.recast.subscribe();
    let mut again_ms = AGAIN_MS_MIN;
    let mut followed = (cluster.parts.followed)();
    let mut left = Leftovers::default();
    let mut remembered = Instant::now();
    loop {
        interrupted_runs::look(&cluster, &mut left).await;
        interrupted_runs::recover(&cluster, &mut left).await;
        recast.mark_unchanged();
        let mut findings = cluster.watched().watch.findings();
        tokio::select! {
            () = dead_primary(&mut findings) => {}
            _ = recast.changed() => continue,
            () = tokio::time::sleep(FOLLOWED_PAUSE) => {
                cluster.watch_whom_the_log_follows(&mut followed);
                if remembered.elapsed() >= REMEMBERED_PAUSE {
                    remembered = Instant::now();
                    cluster.keep_memory();
                }
                continue;
            }
        }
        let term = cluster.parts.lease.check().ok();
        let is_led_here = term.is_some_and(|term| !cluster.is_led_elsewhere(term));
        let may_act = is_led_here && !left.wait(term) && cluster.parts.guard.is_known();
        if !cluster.parts.config.automatic || !may_act {
            // Somebody may take the lease, or it may come back, as long as this lasts.
            tokio::time::sleep(Duration::from_millis(cluster.parts.config.pace.ping_ms)).await;
            continue;
        }
        let wish = FailoverWish { is_automatic: true, ..FailoverWish::default() };
        let promoted = match cluster.begin_failover(&wish) {
            Ok((_, run)) => run.await.unwrap_or(false),
            Err(reason) => {
                warn!(source = cluster.parts.source, "no failover: {}", ErrorChain(&reason));
                false
            }
        };
        let pause_ms = if promoted { 0 } else { again_ms };
        again_ms = if promoted { AGAIN_MS_MIN } else { (again_ms * 2).min(AGAIN_MS_MAX) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            _ = recast.changed() => {}
        }
    }
}

/// Is back when the primary is dead and nothing holds a failover back.
async fn dead_primary(findings: &mut watch::Receiver<Vec<ClusterFinding>>) {
    let is_reason = |finding: &ClusterFinding| {
        finding.code == FailureCode::DeadPrimary && finding.action == FindingAction::FailOver
    };
    if findings.wait_for(|findings| findings.iter().any(is_reason)).await.is_err() {
        // The watch has ended; another follows it, or the daemon ends.
        std::future::pending::<()>().await;
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Watches whom the log follows, when that has become another than in `last`: the manager that holds the lease has led it
    /// there, or somebody did so by hand. A run of this manager's own sees to that itself, and may promote a server long before
    /// the log follows it: so what counts is the change.
    fn watch_whom_the_log_follows(&self, last: &mut Option<String>) {
        let followed = (self.parts.followed)();
        if followed == *last {
            return;
        }
        last.clone_from(&followed);
        if self.is_busy() {
            return;
        }
        let (leader, watched) = {
            let watched = self.watched();
            let leader = followed.unwrap_or_else(|| watched.wiring.own.clone());
            (leader, watched.wiring.primary.name.clone())
        };
        if leader == watched {
            return;
        }
        let source = &self.parts.source;
        info!(source, server = leader, "the log follows another server: it is watched as the primary");
        if let Err(reason) = self.watch_primary(Some(&leader)) {
            error!(source, server = leader, "it cannot be watched: {}", ErrorChain(&reason));
        }
    }

    /// For the manager that comes behind this one.
    fn keep_memory(&self) {
        let watch = Arc::clone(&self.watched().watch);
        if let Some((memory, ago_ms)) = watch.checkpoint() {
            self.parts.memory.write(memory, ago_ms);
        }
    }
}
