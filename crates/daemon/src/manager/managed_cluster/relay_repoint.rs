//! Repoints relays that do not follow the primary when they become reachable again. A relay that was
//! unreachable when another server became primary still follows the former primary, and reports that server
//! to load balancers. The task runs while this manager may act.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::audit_history::{PrimaryRecord, RecordedPrimary};
use tailwater_manager::cluster_watch::{ClusterState, WatchedRelay};
use tailwater_manager::model::{LeaseToken, RelayAssignment};
use tailwater_topology::failure_analysis::FailureCode;
use tracing::{info, warn};

use super::automatic_failover::FOLLOWED_PAUSE;
use super::{ManagedCluster, interrupted_failover_recovery};
use crate::error_chain::ErrorChain;

/// The first pause after an order without effect, and the longest pause. The pause doubles each time.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Interval of log messages about a relay that still cannot be repointed for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);

/// The unsuccessful attempts to repoint relays.
#[derive(Default)]
struct RepointAttempts {
    /// The attempts to repoint each relay that does not follow the primary.
    of: BTreeMap<String, RepointAttempt>,
    /// The primary that could not be watched.
    unwatched: Option<String>,
}

impl RepointAttempts {
    fn each(&mut self, relays: &[&str], now: Instant, change: fn(&mut RepointAttempt, Instant)) {
        for name in relays {
            change(self.of.entry((*name).to_owned()).or_insert_with(|| RepointAttempt::begin(now)), now);
        }
    }
}

struct RepointAttempt {
    next: Instant,
    pause: Duration,
    logged: Option<(String, Instant)>,
}

/// Repoints relays to the primary, without end.
pub(super) async fn repoint_forever<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let mut attempts = RepointAttempts::default();
    loop {
        tokio::time::sleep(FOLLOWED_PAUSE).await;
        let interrupted = cluster.interrupted();
        if !cluster.is_free() {
            continue;
        }
        // When a failover or switchover begins, an order in progress is cancelled, so that it cannot arrive
        // after the orders of that failover or switchover.
        tokio::select! {
            biased;
            _ = interrupted => {}
            () = cluster.repoint_once(&mut attempts) => {}
        }
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    async fn repoint_once(&self, attempts: &mut RepointAttempts) {
        let run = *self.runs_begun.borrow();
        let cluster_state = self.cluster_state();
        let watched = cluster_state.cluster().plan.primary.name.clone();
        let differs = |assignment: &RelayAssignment| assignment.source != watched || assignment.is_stopped;
        let others = cluster_state.relays().iter().filter(|(_, result)| differs(&result.assignment));
        let others: Vec<_> = others.map(|(name, _)| name.as_str()).collect();
        attempts.of.retain(|name, _| others.contains(&name.as_str()));
        let now = Instant::now();
        let is_due = |name: &&str| attempts.of.get(*name).is_none_or(|attempt| attempt.next <= now);
        if !others.iter().any(is_due) || self.is_half_way() {
            return;
        }
        let Ok(term) = self.parts.lease.check() else { return };
        let Some(decision) = self.decision(&cluster_state, term) else {
            // It is uncertain which server is the primary, perhaps until an operator acts. The next try comes
            // after a pause, because each try reads the audit records.
            attempts.each(&others, now, RepointAttempt::put_off);
            return;
        };
        if decision.server != watched {
            let is_confirmed = decision.is_confirmed(assignments(&cluster_state));
            if !is_confirmed || !self.watch_recorded_primary(&decision.server, attempts) {
                attempts.each(&others, now, RepointAttempt::put_off);
            }
            return;
        }
        if !takes_writes(&cluster_state, &watched) || self.is_lost(&watched) {
            attempts.each(&others, now, RepointAttempt::wait);
            return;
        }
        let due = self.parts.relays.iter().filter(|relay| {
            let result = cluster_state.relays().get(&relay.name);
            result.is_some_and(|result| decision.needs_repoint(&result.assignment))
                && is_due(&relay.name.as_str())
        });
        let due: Vec<_> = due.collect();
        // A relay that follows the primary and was stopped by an operator gets no order.
        let is_ordered = |name: &&str| due.iter().any(|relay| relay.name == *name);
        let left_alone: Vec<_> =
            others.iter().copied().filter(|name| is_due(name) && !is_ordered(name)).collect();
        attempts.each(&left_alone, now, RepointAttempt::wait);
        let to = &decision;
        let orders = due.into_iter().map(|relay| async move { (relay, order(relay, to, (term, run)).await) });
        let answers = futures_util::future::join_all(orders).await;
        for (relay, answer) in answers {
            let attempt = attempts.of.entry(relay.name.clone()).or_insert_with(|| RepointAttempt::begin(now));
            attempt.record_answer(&self.parts.source, &relay.name, &decision.server, answer);
        }
    }

    /// Whether a server other than the watched server is certainly the primary. If so, a failover must not
    /// replace the watched server.
    pub(super) fn has_other_primary(&self, term: LeaseToken) -> bool {
        let cluster_state = self.cluster_state();
        let Some(decision) = self.decision(&cluster_state, term) else { return false };
        decision.server != cluster_state.cluster().plan.primary.name
            && decision.is_confirmed(assignments(&cluster_state))
    }

    fn decision(&self, cluster_state: &ClusterState, term: LeaseToken) -> Option<PrimaryRecord> {
        let recorded = recorded(self)?;
        PrimaryRecord::of(&recorded, assignments(cluster_state), (self.parts.config.semi_sync_acks, term))
    }

    /// Watches the primary that the audit records name, although this manager's own log does not follow it
    /// yet. Returns whether it can be watched.
    fn watch_recorded_primary(&self, server: &str, attempts: &mut RepointAttempts) -> bool {
        let source = &self.parts.source;
        match self.watch_primary(Some(server)) {
            Ok(()) => {
                info!(
                    source,
                    server, "watching another server as primary, because the audit records name it"
                );
                attempts.unwatched = None;
                return true;
            }
            Err(_) if attempts.unwatched.as_deref() == Some(server) => {}
            Err(reason) => {
                warn!(
                    source,
                    server,
                    "the primary that the audit records name cannot be watched: {}",
                    ErrorChain(&reason)
                );
                attempts.unwatched = Some(server.to_owned());
            }
        }
        false
    }

    /// Whether the primary is dead, or may be dead. Then no relay is repointed to it, and a failover may
    /// begin soon.
    fn is_lost(&self, server: &str) -> bool {
        let findings = self.watched().watch.findings();
        findings.borrow().iter().any(|finding| {
            finding.server == server
                && matches!(finding.code, FailureCode::DeadPrimary | FailureCode::UnreachablePrimary)
        })
    }
}

/// Returns the servers that the relays report to follow.
fn assignments(cluster_state: &ClusterState) -> impl Iterator<Item = &RelayAssignment> + Clone {
    cluster_state.relays().values().map(|result| &result.assignment)
}

/// Whether the last probe of the server saw a primary: a server that is writable and does not replicate.
fn takes_writes(cluster_state: &ClusterState, server: &str) -> bool {
    cluster_state.last_state(server).is_some_and(|state| state.is_writable() && state.channels.is_empty())
}

/// Returns the primary according to this manager's audit records. Returns `None` if the records cannot be
/// read, or if the records of other managers are not read yet.
fn recorded<H: ActionExecutor + 'static>(cluster: &ManagedCluster<H>) -> Option<RecordedPrimary> {
    if !interrupted_failover_recovery::is_adopted(&cluster.parts) {
        return None;
    }
    let ids = cluster.parts.records.list_newest_first().ok()?;
    let mut is_complete = true;
    let recorded = RecordedPrimary::of(ids.iter().map_while(|id| {
        let audit = cluster.load_record(id).ok().flatten();
        is_complete &= audit.is_some();
        audit
    }));
    // If an audit record cannot be read, the primary is unknown, because that record may name another
    // primary.
    is_complete.then_some(recorded)
}

/// Repoints a relay if it still follows another server. It may have received an order since its last probe,
/// so it is probed again.
async fn order(
    relay: &WatchedRelay,
    decision: &PrimaryRecord,
    (term, run): (LeaseToken, u64),
) -> Result<bool, String> {
    match relay.probe.probe().await {
        Ok(result) if decision.needs_repoint(&result.assignment) => {}
        Ok(_) => return Ok(false),
        Err(failure) => return Err(failure.to_string()),
    }
    // If a failover or switchover begins meanwhile, the relay refuses this order after the orders of that
    // one.
    match relay.control.in_run(run).follow(term, &decision.server).await {
        Ok(()) => Ok(true),
        Err(AckerError::Refused(reason) | AckerError::Unknown(reason)) => Err(reason),
    }
}

impl RepointAttempt {
    fn begin(now: Instant) -> Self {
        Self { next: now, pause: RETRY_PAUSE_MIN, logged: None }
    }

    fn wait(&mut self, now: Instant) {
        self.next = now + RETRY_PAUSE_MIN;
    }

    fn put_off(&mut self, now: Instant) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
    }

    fn record_answer(&mut self, source: &str, relay: &str, server: &str, answer: Result<bool, String>) {
        let now = Instant::now();
        self.put_off(now);
        match answer {
            Ok(true) => info!(source, relay, server, "repointed a relay that did not follow the primary"),
            Ok(false) => {}
            Err(reason) => {
                let is_new = self
                    .logged
                    .as_ref()
                    .is_none_or(|(logged, at)| *logged != reason || now.duration_since(*at) >= LOG_INTERVAL);
                if is_new {
                    warn!(
                        source,
                        relay,
                        server,
                        "the relay does not follow the primary, and cannot be repointed: {reason}"
                    );
                    self.logged = Some((reason, now));
                }
            }
        }
    }
}
