//! What runs leave: acts behind a promotion that failed, and records that never ended.

use std::sync::Arc;
use std::time::Duration;

use tailwater_manager::failover::{Act, Answer};
use tailwater_manager::hands::Hands;
use tailwater_manager::lease::Token;
use tracing::{error, info, warn};

use super::{ClusterParts, ManagedCluster};

/// How often what was left behind a promotion is tried, and the pause before each time.
const FINISH_TRIES_MAX: u32 = 300;
const FINISH_PAUSE: Duration = Duration::from_secs(1);

/// Tells of a run that this manager, or the one before it, did not end.
pub(super) fn tell_unfinished<H>(parts: &ClusterParts<H>) {
    let last = parts.records.list().ok().and_then(|names| names.into_iter().next_back());
    let audit = last.and_then(|id| parts.records.load(&id).ok().flatten());
    if let Some(audit) = audit.filter(|audit| audit.outcome.is_none() && !audit.dry_run) {
        warn!(
            source = parts.source,
            id = audit.id,
            "this run was begun and never ended; its record tells how far it came: begin it again, or undo it"
        );
    }
}

/// Does what a run left to be done behind a promotion, until it is done, another run has begun, or the lease was in other hands:
/// an acker that another run has stopped must not be led back by this one. Hooks are not repeated: what they have done nobody
/// knows.
pub(super) async fn finish<H: Hands + 'static>(
    cluster: Arc<ManagedCluster<H>>,
    (id, token): (String, Option<Token>),
    hands: Arc<H>,
    mut left: Vec<Act>,
) {
    left.retain(|act| matches!(act, Act::Follow { .. } | Act::Repoint { .. }));
    for _ in 0..FINISH_TRIES_MAX {
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(FINISH_PAUSE).await;
        let mut still = Vec::new();
        for act in left {
            let is_last = cluster.lock_run().as_ref().is_some_and(|run| run.id == id);
            if !is_last {
                return;
            }
            let answer = match cluster.parts.lease.check() {
                Ok(now) if Some(now) != token => return,
                Ok(now) => hands.perform(&act, now).await,
                Err(reason) => Answer::Failed(reason.to_string()),
            };
            match answer {
                Answer::Done | Answer::Noted(_) => info!(id, "what was left is done: {act}"),
                other => {
                    warn!(id, "still to be done: {act}: {other:?}");
                    still.push(act);
                }
            }
        }
        left = still;
    }
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    error!(id, "given up: {}", left.join("; "));
}
