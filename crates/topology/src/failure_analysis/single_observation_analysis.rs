//! Analysis of a single observation of each server. Without a history, it cannot find problems that depend on
//! how long a state lasts.

use crate::probe_failure::ProbeFailure;
use crate::server_state::{Observation, PingKind};
use crate::{Cluster, ClusterPlan, NodeRole};

use super::failover_guard::FailoverGuard;
use super::failure_finding::ClusterFinding;
use super::observation_history::{ClusterMembers, ObservationHistory};
use super::observer_report::{Observed, Observer, ObserverReport, ServerHealth};
use super::{AnalysisSettings, analyse};

/// Name of the local relay in a cluster.
const RELAY: &str = "tailwater";

/// Returns the findings that a single observation of each server shows. None of them triggers an action.
pub fn analyse_snapshot(
    plan: &ClusterPlan,
    cluster: &Cluster,
    observations: &[Observation],
) -> Vec<ClusterFinding> {
    let settings = AnalysisSettings {
        detect_after_ms: 0,
        stale_after_ms: u64::MAX,
        // A single observation cannot show how long commits have waited for an ACK, and a short wait is
        // normal.
        blocked_after_ms: u64::MAX,
        lag_after_ms: 0,
        semi_sync: plan.relay.semi_sync,
        ..AnalysisSettings::default()
    };
    let primary = plan.primary.name.clone();
    let names = observations.iter().map(|observation| observation.server.clone());
    let members = ClusterMembers {
        primary: primary.clone(),
        replicas: names.filter(|name| *name != primary).collect(),
        relays: plan.relay.state.iter().map(|_| RELAY.to_owned()).collect(),
    };
    let mut history = ObservationHistory::new(members, settings);
    let mut note = |observer, about: &str, saw| {
        history.add(ObserverReport { at_ms: 0, observer, about: about.to_owned(), saw });
    };
    for observation in observations {
        let name = &observation.server;
        match &observation.outcome {
            Err(unreached) => {
                note(Observer::Manager, name, Observed::Failed(PingKind::Connect, unreached.failure))
            }
            Ok(look) => {
                let fed = is_target(cluster, plan, name);
                let vitals =
                    ServerHealth { replicates: fed || !look.channels.is_empty(), ..ServerHealth::from(look) };
                note(Observer::Manager, name, Observed::Health(Box::new(vitals)));
                let reads_from_primary = children_of_primary(cluster).any(|child| child == name);
                let observed = look
                    .channels
                    .first()
                    .filter(|_| reads_from_primary)
                    .and_then(|channel| Observed::of_channel(None, channel, 0));
                if let Some(observed) = observed {
                    note(Observer::Replica(name.clone()), &primary, observed);
                }
            }
        }
    }
    if let Some(state) = &plan.relay.state {
        let observed = match state.is_streaming {
            true => Observed::Streaming { heard_ms: None, heartbeat_ms: None },
            false => Observed::StreamLost(ProbeFailure::ConnectionLost),
        };
        note(Observer::Relay(RELAY.to_owned()), &primary, observed);
    }
    let mut guard = FailoverGuard::default();
    guard.pause();
    analyse(&history, &guard, 0)
}

fn is_target(cluster: &Cluster, plan: &ClusterPlan, name: &str) -> bool {
    let of_channel = plan.targets.iter().any(|target| format!("channel {}", target.channel) == name);
    let in_tree = || cluster.nodes.iter().flat_map(|node| node.walk());
    of_channel || in_tree().any(|node| node.role == NodeRole::Target && node.name == name)
}

fn children_of_primary(cluster: &Cluster) -> impl Iterator<Item = &str> {
    let primary = cluster.nodes.iter().filter(|node| node.role == NodeRole::Primary);
    primary.flat_map(|node| &node.children).map(|child| child.name.as_str())
}
