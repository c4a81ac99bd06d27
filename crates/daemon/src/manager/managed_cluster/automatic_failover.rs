//! Acts without an operator: recovers interrupted failovers, watches the server that the log follows, and
//! replaces a dead primary.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::action_executor::ActionExecutor;
use tailwater_topology::failure_analysis::{ClusterFinding, FailureCode, FindingAction};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::ManagedCluster;
use super::interrupted_failover_recovery::{self, Leftovers};
use crate::api::manager_requests::FailoverOptions;
use crate::error_chain::ErrorChain;

/// The first pause after an automatic failover that promoted no server, in milliseconds. The pause doubles
/// each time.
const RETRY_PAUSE_MS_MIN: u64 = 10_000;
/// The longest pause after an automatic failover that promoted no server, in milliseconds.
const RETRY_PAUSE_MS_MAX: u64 = 300_000;

/// The interval at which the manager checks which server the log follows.
pub(super) const FOLLOWED_PAUSE: Duration = Duration::from_millis(100);

/// Interval between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);

/// Starts automatic failovers, without end.
pub(super) async fn supervise<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let mut primary_changes = cluster.primary_changes.subscribe();
    let mut retry_pause_ms = RETRY_PAUSE_MS_MIN;
    let mut followed = (cluster.parts.followed)();
    let mut left = Leftovers::default();
    let mut checkpointed = Instant::now();
    loop {
        interrupted_failover_recovery::look(&cluster, &mut left).await;
        interrupted_failover_recovery::recover(&cluster, &mut left).await;
        primary_changes.mark_unchanged();
        let mut findings = cluster.watched().watch.findings();
        tokio::select! {
            () = dead_primary(&mut findings) => {}
            _ = primary_changes.changed() => continue,
            () = tokio::time::sleep(FOLLOWED_PAUSE) => {
                cluster.watch_followed_server(&mut followed);
                if checkpointed.elapsed() >= CHECKPOINT_INTERVAL {
                    checkpointed = Instant::now();
                    cluster.write_checkpoint();
                }
                continue;
            }
        }
        let term = cluster.parts.lease.check().ok();
        let is_primary_watched = term.is_some_and(|term| !cluster.has_other_primary(term));
        let may_act = is_primary_watched && !left.wait(term) && cluster.parts.guard.is_known();
        if !cluster.parts.config.automatic || !may_act {
            // During this pause another manager may acquire the lease, or the primary may return.
            tokio::time::sleep(Duration::from_millis(cluster.parts.config.pace.ping_ms)).await;
            continue;
        }
        let options = FailoverOptions { is_automatic: true, ..FailoverOptions::default() };
        let promoted = match cluster.begin_failover(&options) {
            Ok((_, run)) => run.await.unwrap_or(false),
            Err(reason) => {
                warn!(
                    source = cluster.parts.source,
                    "the automatic failover did not start: {}",
                    ErrorChain(&reason)
                );
                false
            }
        };
        let pause_ms = if promoted { 0 } else { retry_pause_ms };
        retry_pause_ms =
            if promoted { RETRY_PAUSE_MS_MIN } else { (retry_pause_ms * 2).min(RETRY_PAUSE_MS_MAX) };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            _ = primary_changes.changed() => {}
        }
    }
}

/// Completes when the primary is dead and nothing holds a failover back.
async fn dead_primary(findings: &mut watch::Receiver<Vec<ClusterFinding>>) {
    let is_reason = |finding: &ClusterFinding| {
        finding.code == FailureCode::DeadPrimary && finding.action == FindingAction::FailOver
    };
    if findings.wait_for(|findings| findings.iter().any(is_reason)).await.is_err() {
        // The watch has ended, so this future never completes. It is dropped when another watch starts, or
        // when the daemon stops.
        std::future::pending::<()>().await;
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// If the log no longer follows the server `last`, starts to watch the server that the log follows now,
    /// because that server is the primary. The manager with the lease, or an operator, has repointed the log.
    /// A failover or switchover of this manager selects the watched server itself, and may promote a server
    /// long before the log follows it. So only a change of the followed server counts.
    fn watch_followed_server(&self, last: &mut Option<String>) {
        let followed = (self.parts.followed)();
        if followed == *last {
            return;
        }
        last.clone_from(&followed);
        if self.is_busy() {
            return;
        }
        let (primary, watched) = {
            let watched = self.watched();
            let primary = followed.unwrap_or_else(|| watched.wiring.own.clone());
            (primary, watched.wiring.primary.name.clone())
        };
        if primary == watched {
            return;
        }
        let source = &self.parts.source;
        info!(
            source,
            server = primary,
            "the log now follows another server: the manager watches that server as the primary"
        );
        if let Err(reason) = self.watch_primary(Some(&primary)) {
            error!(
                source,
                server = primary,
                "the server that the log follows cannot be watched: {}",
                ErrorChain(&reason)
            );
        }
    }

    /// Writes a checkpoint for the next manager process.
    fn write_checkpoint(&self) {
        let watch = Arc::clone(&self.watched().watch);
        if let Some((checkpoint, ago_ms)) = watch.checkpoint() {
            self.parts.checkpoint.write(checkpoint, ago_ms);
        }
    }
}
