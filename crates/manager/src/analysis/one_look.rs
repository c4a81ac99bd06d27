//! What a single look at everybody can tell: no history, so nothing that depends on how long something lasts.

use super::finding::Finding;
use super::guard::Guard;
use super::record::{Cast, Record};
use super::sighting::{Observer, Saw, Sighting, Vitals};
use super::{Settings, analyse};
use crate::failure::Failure;
use crate::observation::{IoState, Observation, ReplicaChannel};
use crate::observing::ping::PingKind;
use crate::topology::{Cluster, ClusterPlan, Role};

/// The relay's name in a cluster.
const RELAY: &str = "tailwater";

/// What is wrong in a cluster, as far as one look at it can tell. Nothing of it is a reason to act.
pub fn of_one_look(plan: &ClusterPlan, cluster: &Cluster, observations: &[Observation]) -> Vec<Finding> {
    let settings = Settings {
        detect_after_ms: 0,
        stale_after_ms: u64::MAX,
        // A commit that waits when it is looked at is no news.
        blocked_after_ms: u64::MAX,
        lag_after_ms: 0,
        ..Settings::default()
    };
    let primary = plan.primary.name.clone();
    let names = observations.iter().map(|observation| observation.server.clone());
    let cast = Cast {
        primary: primary.clone(),
        replicas: names.filter(|name| *name != primary).collect(),
        relays: plan.relay.state.iter().map(|_| RELAY.to_owned()).collect(),
    };
    let mut record = Record::new(cast, settings);
    let mut note = |observer, about: &str, saw| {
        record.note(Sighting { at_ms: 0, observer, about: about.to_owned(), saw });
    };
    for observation in observations {
        let name = &observation.server;
        match &observation.outcome {
            Err(unreached) => {
                note(Observer::Manager, name, Saw::Failed(PingKind::Connect, unreached.failure))
            }
            Ok(look) => {
                let fed = is_target(cluster, plan, name);
                let vitals = Vitals { replicates: fed || !look.channels.is_empty(), ..Vitals::from(look) };
                note(Observer::Manager, name, Saw::Vitals(Box::new(vitals)));
                let reads_from_primary = children_of_primary(cluster).any(|child| child == name);
                let said = look.channels.first().filter(|_| reads_from_primary).and_then(stream);
                if let Some(saw) = said {
                    note(Observer::Replica(name.clone()), &primary, saw);
                }
            }
        }
    }
    if let Some(state) = &plan.relay.state {
        let saw =
            if state.is_streaming { Saw::Streaming { heard_ms: None } } else { Saw::Lost(Failure::Broken) };
        note(Observer::Relay(RELAY.to_owned()), &primary, saw);
    }
    let mut guard = Guard::default();
    guard.pause();
    analyse(&record, &guard, 0)
}

fn is_target(cluster: &Cluster, plan: &ClusterPlan, name: &str) -> bool {
    let of_channel = plan.targets.iter().any(|target| format!("channel {}", target.channel) == name);
    let in_tree = || cluster.nodes.iter().flat_map(|node| node.walk());
    of_channel || in_tree().any(|node| node.role == Role::Target && node.name == name)
}

fn children_of_primary(cluster: &Cluster) -> impl Iterator<Item = &str> {
    let primary = cluster.nodes.iter().filter(|node| node.role == Role::Primary);
    primary.flat_map(|node| &node.children).map(|child| child.name.as_str())
}

/// What a replica's receiving side says of its source; nothing if it was told to stop.
pub fn stream(channel: &ReplicaChannel) -> Option<Saw> {
    /// CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR: the system's own number stands in the text; 111 is ECONNREFUSED.
    const NO_CONNECTION: [u16; 2] = [2002, 2003];
    match (channel.io, &channel.io_error) {
        (IoState::Running, _) => Some(Saw::Streaming { heard_ms: None }),
        (IoState::Stopped, _) => None,
        (IoState::Connecting, Some(error)) if NO_CONNECTION.contains(&error.number) => {
            let is_refused = error.message.contains("(111");
            Some(Saw::Lost(if is_refused { Failure::Refused } else { Failure::NoRoute }))
        }
        // The server's own errors are below the client library's.
        (IoState::Connecting, Some(error)) if error.number < 2000 => {
            Some(Saw::Lost(Failure::of_number(error.number, &error.message)))
        }
        (IoState::Connecting, _) => Some(Saw::Lost(Failure::Broken)),
    }
}
