//! Relays that do not follow the primary are led to it, whenever they come back: one that was away when another server became primary goes on
//! with the former one, and says so to load balancers. Without end, for as long as this manager may act.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_manager::action_executor::{AckerError, ActionExecutor};
use tailwater_manager::analysis::FailureCode;
use tailwater_manager::cluster_watch::{ClusterState, RelayAssignment, WatchedRelay};
use tailwater_manager::lease::LeaseToken;
use tailwater_manager::relay_reconciliation::{PrimaryRecord, RecordedPrimary};
use tracing::{info, warn};

use super::supervisor::FOLLOWED_PAUSE;
use super::{ClusterParts, ManagedCluster, interrupted_runs};
use crate::error_chain::ErrorChain;

/// The pause behind an order that did not help, which doubles.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// That an order still does not help is told so seldom, unless the reason is another.
const TOLD_AGAIN: Duration = Duration::from_secs(3600);

/// Orders that did not help.
#[derive(Default)]
struct Trials {
    /// Of each relay that is astray.
    of: BTreeMap<String, Trial>,
    /// The leader that could not be watched.
    unwatched: Option<String>,
}

impl Trials {
    fn each(&mut self, relays: &[&str], now: Instant, change: fn(&mut Trial, Instant)) {
        for name in relays {
            change(self.of.entry((*name).to_owned()).or_insert_with(|| Trial::begin(now)), now);
        }
    }
}

struct Trial {
    next: Instant,
    pause: Duration,
    told: Option<(String, Instant)>,
}

/// Leads relays to the primary; goes on for ever.
pub(super) async fn lead<H: ActionExecutor + 'static>(cluster: Arc<ManagedCluster<H>>) {
    let mut trials = Trials::default();
    loop {
        tokio::time::sleep(FOLLOWED_PAUSE).await;
        let interrupted = cluster.interrupted();
        if !cluster.is_free() {
            continue;
        }
        // An order on its way must not overtake what a run orders: it is given up.
        tokio::select! {
            biased;
            _ = interrupted => {}
            () = cluster.lead_once(&mut trials) => {}
        }
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    async fn lead_once(&self, trials: &mut Trials) {
        let cluster_state = self.cluster_state();
        let watched = cluster_state.cluster().plan.primary.name.clone();
        let differs = |led: &RelayAssignment| led.source != watched || led.is_stopped;
        let astray = cluster_state.relays().iter().filter(|(_, look)| differs(&look.assignment));
        let astray: Vec<_> = astray.map(|(name, _)| name.as_str()).collect();
        trials.of.retain(|name, _| astray.contains(&name.as_str()));
        let now = Instant::now();
        let is_due = |name: &&str| trials.of.get(*name).is_none_or(|trial| trial.next <= now);
        if !astray.iter().any(is_due) || self.is_half_way() {
            return;
        }
        let Ok(term) = self.parts.lease.check() else { return };
        let Some(decision) = self.decision(&cluster_state, term) else {
            // Records are read for it, and it may stay so until somebody sets it right.
            trials.each(&astray, now, Trial::put_off);
            return;
        };
        if decision.server != watched {
            let is_confirmed = decision.is_confirmed(led(&cluster_state));
            if !is_confirmed || !self.watch_leader(&decision.server, trials) {
                trials.each(&astray, now, Trial::put_off);
            }
            return;
        }
        if !takes_writes(&cluster_state, &watched) || self.is_lost(&watched) {
            trials.each(&astray, now, Trial::wait);
            return;
        }
        let due = self.parts.relays.iter().filter(|relay| {
            let look = cluster_state.relays().get(&relay.name);
            look.is_some_and(|look| decision.needs_repoint(&look.assignment)) && is_due(&relay.name.as_str())
        });
        let due: Vec<_> = due.collect();
        // Stopped by hand.
        let is_ordered = |name: &&str| due.iter().any(|relay| relay.name == *name);
        let left_alone: Vec<_> =
            astray.iter().copied().filter(|name| is_due(name) && !is_ordered(name)).collect();
        trials.each(&left_alone, now, Trial::wait);
        let to = &decision;
        let orders = due.into_iter().map(|relay| async move { (relay, order(relay, to, term).await) });
        let answers = futures_util::future::join_all(orders).await;
        for (relay, answer) in answers {
            let trial = trials.of.entry(relay.name.clone()).or_insert_with(|| Trial::begin(now));
            trial.answered(&self.parts.source, &relay.name, &decision.server, answer);
        }
    }

    /// Whether another server than the one that is watched leads, for certain: then this one is nobody's to replace.
    pub(super) fn is_led_elsewhere(&self, term: LeaseToken) -> bool {
        let cluster_state = self.cluster_state();
        let Some(decision) = self.decision(&cluster_state, term) else { return false };
        decision.server != cluster_state.cluster().plan.primary.name
            && decision.is_confirmed(led(&cluster_state))
    }

    fn decision(&self, cluster_state: &ClusterState, term: LeaseToken) -> Option<PrimaryRecord> {
        let recorded = recorded(&self.parts)?;
        PrimaryRecord::of(&recorded, led(cluster_state), (self.parts.config.semi_sync_acks, term))
    }

    /// Watches the server that leads, where this manager's own log does not follow it yet; whether it can.
    fn watch_leader(&self, server: &str, trials: &mut Trials) -> bool {
        let source = &self.parts.source;
        match self.watch_primary(Some(server)) {
            Ok(()) => {
                info!(source, server, "it was made primary: it is watched as that");
                trials.unwatched = None;
                return true;
            }
            Err(_) if trials.unwatched.as_deref() == Some(server) => {}
            Err(reason) => {
                warn!(source, server, "it was made primary, and cannot be watched: {}", ErrorChain(&reason));
                trials.unwatched = Some(server.to_owned());
            }
        }
        false
    }

    /// Whether the primary is gone, or may be: it is no time to lead anybody to it, and a run may be near.
    fn is_lost(&self, server: &str) -> bool {
        let findings = self.watched().watch.findings();
        findings.borrow().iter().any(|finding| {
            finding.server == server
                && matches!(finding.code, FailureCode::DeadPrimary | FailureCode::UnreachablePrimary)
        })
    }
}

/// What relays say that they were ordered.
fn led(cluster_state: &ClusterState) -> impl Iterator<Item = &RelayAssignment> + Clone {
    cluster_state.relays().values().map(|look| &look.assignment)
}

/// Whether it was last seen as one that leads: clients write to it, and it replicates from nobody.
fn takes_writes(cluster_state: &ClusterState, server: &str) -> bool {
    cluster_state.last_state(server).is_some_and(|look| look.is_writable() && look.channels.is_empty())
}

/// What this manager's records say; nothing if they cannot be read, or those of other managers were not yet.
fn recorded<H>(parts: &ClusterParts<H>) -> Option<RecordedPrimary> {
    if !interrupted_runs::is_adopted(parts) {
        return None;
    }
    let ids = parts.records.list().ok()?;
    let mut is_whole = true;
    let recorded = RecordedPrimary::of(ids.iter().rev().map_while(|id| {
        let audit = parts.records.load(id).ok().flatten();
        is_whole &= audit.is_some();
        audit
    }));
    // Of one that cannot be read nobody knows what it decided.
    is_whole.then_some(recorded)
}

/// Has a relay follow, if it still does not: it may have been told since it was last heard of.
async fn order(relay: &WatchedRelay, decision: &PrimaryRecord, term: LeaseToken) -> Result<bool, String> {
    match relay.probe.probe().await {
        Ok(look) if decision.needs_repoint(&look.assignment) => {}
        Ok(_) => return Ok(false),
        Err(failure) => return Err(failure.to_string()),
    }
    match relay.control.follow(term, &decision.server).await {
        Ok(()) => Ok(true),
        Err(AckerError::Refused(reason) | AckerError::Unknown(reason)) => Err(reason),
    }
}

impl Trial {
    fn begin(now: Instant) -> Self {
        Self { next: now, pause: AGAIN_MIN, told: None }
    }

    fn wait(&mut self, now: Instant) {
        self.next = now + AGAIN_MIN;
    }

    fn put_off(&mut self, now: Instant) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(AGAIN_MAX);
    }

    fn answered(&mut self, source: &str, relay: &str, server: &str, answer: Result<bool, String>) {
        let now = Instant::now();
        self.put_off(now);
        match answer {
            Ok(true) => info!(source, relay, server, "it did not follow the primary, and was led there"),
            Ok(false) => {}
            Err(reason) => {
                let is_news = self
                    .told
                    .as_ref()
                    .is_none_or(|(told, at)| *told != reason || now.duration_since(*at) >= TOLD_AGAIN);
                if is_news {
                    warn!(
                        source,
                        relay, server, "it does not follow the primary, and cannot be led there: {reason}"
                    );
                    self.told = Some((reason, now));
                }
            }
        }
    }
}
