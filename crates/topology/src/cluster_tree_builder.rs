//! Builds the topology tree of a cluster.

use super::cluster_config::{
    ClusterPlan, Member, Promotion, RelayPlan, RelayReader, RemoteRelayPlan, TargetPlan,
};
use super::cluster_tree::{Cluster, NodeRole, ProblemCode, SemiSync, TopologyNode};
use super::server_identity::{ServerIdentity, address_of, is_listed_as, source_of};
use super::server_problem_checks::{
    gtid_text, is_older, judge_against_primary, judge_channel, judge_follower, judge_primary,
};
use crate::gtid_comparison::missing;
use crate::server_state::{ConnectedReplica, Observation, OptionalQuery, ServerState};

/// A configured server or relay, before it is placed in the tree.
struct TreeEntry<'a> {
    node: TopologyNode,
    identity: ServerIdentity,
    look: Option<&'a ServerState>,
    /// The observed state of the server, if the entry is a server that was probed.
    observation: Option<&'a Observation>,
    /// The relay's configuration and state, if the entry is a local or remote relay.
    relay: Option<&'a RelayPlan>,
    /// Index of the entry from which this entry reads.
    parent: Option<usize>,
}

const PRIMARY: usize = 0;
const RELAY: usize = 1;

/// Builds the tree of a cluster. Observations of the primary and the other servers are found by the name of
/// the server. Observations of targets are found by the name `channel NAME`.
pub fn build_tree(plan: &ClusterPlan, observations: &[Observation]) -> Cluster {
    let mut places = vec![server(&plan.primary, observations, NodeRole::Primary), own_relay(plan)];
    for member in &plan.servers {
        // A `[[server]]` of the configuration may have the primary's address, to give the primary a promotion
        // preference and a region.
        let mut place = server(member, observations, NodeRole::Server);
        if is_same(&place, &places[PRIMARY]) {
            let primary = &mut places[PRIMARY].node;
            primary.name.clone_from(&member.name);
            (primary.promotion, primary.region) = (member.promotion, member.region.clone());
            continue;
        }
        place.parent = None;
        places.push(place);
    }
    places.extend(plan.others.iter().map(other_relay));
    for target in &plan.targets {
        add_target(&mut places, target, observations);
    }
    attach_to_sources(&mut places);
    judge(plan, &mut places);
    add_seen(&mut places);
    Cluster { name: plan.name.clone(), nodes: hang(places) }
}

fn is_same(place: &TreeEntry<'_>, other: &TreeEntry<'_>) -> bool {
    place.node.address == other.node.address
        || matches!((place.look, other.look), (Some(a), Some(b)) if a.uuid.is_some() && a.uuid == b.uuid)
        || place.identity.addresses.iter().any(|address| other.identity.addresses.contains(address))
}

fn server<'a>(member: &Member, observations: &'a [Observation], role: NodeRole) -> TreeEntry<'a> {
    let seen = observations.iter().find(|observation| observation.server == member.name);
    let look = seen.and_then(Observation::state);
    let mut node = TopologyNode::new(&member.name, role, &member.address);
    node.promotion = member.promotion;
    node.region = member.region.clone();
    if let Some(Err(unreached)) = seen.map(|observation| &observation.outcome) {
        node.problem(ProblemCode::NotReached, format!("{}: {}", unreached.failure, unreached.message));
    }
    if let Some(look) = look {
        describe(&mut node, look);
    }
    TreeEntry {
        node,
        identity: ServerIdentity::of_server(&member.address, look),
        look,
        observation: seen,
        relay: None,
        parent: None,
    }
}

fn describe(node: &mut TopologyNode, look: &ServerState) {
    node.reached = true;
    node.version = Some(format!("{} {}", look.flavour, look.version));
    node.server_id = Some(look.server_id);
    node.writable = Some(look.is_writable());
    node.gtids = Some(gtid_text(&look.executed));
    // If one of several lags is unknown, it may be the largest, so the total lag is unknown.
    let lags: Option<Vec<u64>> = look.channels.iter().map(|channel| channel.lag_seconds).collect();
    node.lag_seconds = lags.and_then(|lags| lags.into_iter().max()).map(|lag| lag as f64);
    node.semi_sync =
        look.semi_sync_source.as_ref().filter(|semi_sync| semi_sync.enabled).map(|semi_sync| SemiSync {
            active: semi_sync.active,
            acks_needed: semi_sync.acks_needed,
            clients: semi_sync.clients,
            waiting_sessions: semi_sync.waiting_sessions,
            unacknowledged: semi_sync.unacknowledged,
        });
    node.acknowledges = look.semi_sync_replica.map(|semi_sync| semi_sync.enabled && semi_sync.active);
    let unregistered = look.dump_hosts.len().saturating_sub(look.replicas.len());
    if unregistered > 0 && look.was_answered(OptionalQuery::Replicas) {
        node.notes.push(format!("{unregistered} more connections read its binlog"));
    }
}

/// Adds to a node the queries that its server refused. A refused query is a problem only if Tailwater needs
/// its result from this server. The other refused queries become notes of the node.
fn tell_unasked(node: &mut TopologyNode, look: &ServerState, acknowledges: bool) {
    for unanswered in &look.unanswered {
        let matters = match (unanswered.question, node.role) {
            (OptionalQuery::Replication, NodeRole::Server | NodeRole::Replica) => true,
            (OptionalQuery::SemiSyncPersistence, NodeRole::Primary) => acknowledges,
            _ => false,
        };
        if matters {
            node.problem(ProblemCode::NotAsked, unanswered.to_string());
        } else {
            node.notes.push(format!("not known: {} (needs {})", unanswered.question, unanswered.privilege));
        }
    }
}

fn own_relay(plan: &ClusterPlan) -> TreeEntry<'_> {
    let mut place = relay("tailwater", &plan.relay);
    if plan.relay.state.is_none() {
        place.node.problem(
            ProblemCode::RelayNotRunning,
            "no daemon answers on this machine: is `tailwater run` running here, with this configuration?",
        );
    }
    place
}

fn other_relay(other: &RemoteRelayPlan) -> TreeEntry<'_> {
    let mut place = relay(&other.name, &other.relay);
    if let Some(reason) = &other.silent {
        place.node.problem(ProblemCode::RelayNotRunning, reason.clone());
    }
    place
}

fn relay<'a>(name: &str, relay: &'a RelayPlan) -> TreeEntry<'a> {
    let listeners: Vec<_> = relay.listeners.iter().map(|listen| listen.address.clone()).collect();
    let mut node = TopologyNode::new(name, NodeRole::Relay, listeners.join(", "));
    node.server_id = Some(relay.server_id);
    if let Some(state) = &relay.state {
        node.reached = true;
        node.gtids = state.gtids.as_ref().map(gtid_text);
        if !state.durable.is_empty() {
            node.notes.push(format!("durable to {}", state.durable));
        }
        node.notes.extend(state.heard_ago_ms.map(|ago| format!("received from the primary {ago} ms ago")));
        if !state.is_streaming {
            node.problem(ProblemCode::RelayNotStreaming, state.doing.clone());
        }
        for alarm in &state.alarms {
            node.problem(ProblemCode::SemiSyncLossy, alarm.clone());
        }
    }
    TreeEntry {
        node,
        identity: ServerIdentity::of_relay(relay),
        look: None,
        observation: None,
        relay: Some(relay),
        parent: Some(PRIMARY),
    }
}

fn add_target(places: &mut Vec<TreeEntry<'_>>, target: &TargetPlan, observations: &[Observation]) {
    let name = format!("channel {}", target.channel);
    let identity = ServerIdentity::of_server(&target.address, None);
    // The target of a channel may also be configured as a [[server]].
    let known = places.iter().skip(RELAY + 1).position(|place| {
        place.node.address == target.address
            || place.identity.addresses.iter().any(|address| identity.addresses.contains(address))
    });
    let index = match known {
        Some(found) => found + RELAY + 1,
        None => {
            let seen = observations.iter().find(|observation| observation.server == name);
            let mut node = TopologyNode::new(&target.channel, NodeRole::Target, &target.address);
            if let Some(Err(unreached)) = seen.map(|observation| &observation.outcome) {
                node.problem(
                    ProblemCode::NotReached,
                    format!("{}: {}", unreached.failure, unreached.message),
                );
            }
            if let Some(look) = seen.and_then(Observation::state) {
                describe(&mut node, look);
                tell_unasked(&mut node, look, false);
            }
            places.push(TreeEntry {
                node,
                identity,
                look: None,
                observation: None,
                relay: None,
                parent: None,
            });
            places.len() - 1
        }
    };
    let Some(place) = places.get_mut(index) else { return };
    place.parent = Some(RELAY);
    let node = &mut place.node;
    node.role = NodeRole::Target;
    let Some(state) = &target.state else { return };
    // The lag comes from the channel. The lag that the target itself reports as a replica does not include
    // the transactions that the channel applies.
    node.lag_seconds = state.lag_seconds;
    node.notes.push(format!("channel {} {}", target.channel, state.doing));
    if !state.is_running || state.fault.is_some() {
        let reason = state.fault.as_deref().or(state.stopped_because.as_deref());
        let reason = reason.unwrap_or("the channel has not started yet");
        node.problem(
            ProblemCode::ChannelStopped,
            format!("channel {}: {}: {reason}", target.channel, state.doing),
        );
    }
}

/// Finds the source of each server.
fn attach_to_sources(places: &mut [TreeEntry<'_>]) {
    let identities: Vec<_> = places.iter().map(|place| place.identity.clone()).collect();
    for (index, place) in places.iter_mut().enumerate().skip(RELAY + 1) {
        let Some(look) = place.look else { continue };
        for channel in &look.channels {
            let source = source_of(channel, &identities).filter(|source| *source != index);
            if place.parent.is_none() {
                place.parent = source;
            }
            if source.is_none() {
                place.node.problem(
                    ProblemCode::UnknownSource,
                    format!(
                        "the server replicates from {}:{}, which the configuration does not know",
                        channel.source_host, channel.source_port
                    ),
                );
            }
        }
        if !look.channels.is_empty() && place.node.role == NodeRole::Server {
            place.node.role = NodeRole::Replica;
        }
    }
}

fn judge(plan: &ClusterPlan, places: &mut [TreeEntry<'_>]) {
    let primary = places.get(PRIMARY).and_then(|place| place.look);
    let primary_began_ms =
        places.get(PRIMARY).and_then(|place| place.observation).map(|observation| observation.began_ms);
    let relays = places.iter().filter_map(|place| Some((place.relay?.server_id, place.node.name.clone())));
    let mut ids: Vec<(u32, String)> = relays.collect();
    let versions: Vec<_> = places.iter().map(|place| place.look.map(|look| look.version.clone())).collect();
    for (index, place) in places.iter_mut().enumerate() {
        if let Some(relay) = place.relay {
            judge_relay(relay, &mut place.node, primary);
        }
        let Some(look) = place.look else { continue };
        let node = &mut place.node;
        let same = ids.iter().find(|(id, _)| *id == look.server_id).map(|(_, name)| name.clone());
        ids.push((look.server_id, node.name.clone()));
        if let Some(other) = same {
            node.problem(
                ProblemCode::SameServerId,
                format!(
                    "server_id {} is also that of {other}: when both connect to one source, the source disconnects one of them",
                    look.server_id
                ),
            );
        }
        tell_unasked(node, look, plan.relay.semi_sync);
        if index == PRIMARY {
            judge_primary(node, look, plan.relay.semi_sync);
            continue;
        }
        // A target has its own GTIDs and replicates through Tailwater, so the checks of a replica do not
        // apply.
        if node.role == NodeRole::Target {
            continue;
        }
        judge_follower(node, look);
        let is_candidate = plan.relay.semi_sync && node.promotion != Promotion::MustNot;
        if let Some(lack) = look.semi_sync_unavailable.as_ref().filter(|_| is_candidate) {
            node.problem(
                ProblemCode::NoSemiSync,
                format!("semi-sync is not loaded, so the server cannot become the primary: {lack}"),
            );
        }
        if look.channels.is_empty() && look.is_replication_known() {
            node.problem(
                ProblemCode::NotReplicating,
                "the server does not replicate: no source is configured on it",
            );
        }
        for channel in &look.channels {
            judge_channel(node, channel);
        }
        if let Some(primary) = primary {
            let before = place
                .observation
                .zip(primary_began_ms)
                .and_then(|(observation, began_ms)| observation.gtids_before(began_ms));
            judge_against_primary(node, look, before.as_ref(), primary);
        }
        let source = place.parent.and_then(|parent| versions.get(parent)?.clone());
        if let Some(source) = source.filter(|source| is_older(&look.version, source)) {
            node.problem(
                ProblemCode::OlderThanSource,
                format!(
                    "the server has version {} and its source has version {source}: the server may not understand the events of its source",
                    look.version
                ),
            );
        }
    }
}

fn judge_relay(relay: &RelayPlan, node: &mut TopologyNode, primary: Option<&ServerState>) {
    let Some(primary) = primary else { return };
    let has = relay.state.as_ref().and_then(|state| state.gtids.as_ref());
    if let Some(behind) = has.and_then(|has| missing(has, &primary.executed)) {
        node.gtid_state = Some(super::cluster_tree::GtidComparison { behind, ..Default::default() });
    }
    let is_listed = primary.replicas.iter().any(|replica| replica.server_id == relay.server_id);
    match &relay.state {
        None if is_listed => node.notes.push("connected to the primary".to_owned()),
        None => {}
        // A relay that is configured to send ACKs sends them whenever it streams, because it does not stream
        // from a source without semi-sync.
        Some(state) => node.acknowledges = Some(relay.semi_sync && state.is_streaming),
    }
}

/// Adds replicas that are not configured, each below the node from which it reads.
fn add_seen(places: &mut Vec<TreeEntry<'_>>) {
    let mut found: Vec<(usize, TopologyNode)> = Vec::new();
    let is_known = |places: &[TreeEntry<'_>], server_id: u32, uuid: Option<&str>| {
        places.iter().any(|place| is_listed_as(&place.identity, server_id, uuid))
    };
    for (index, place) in places.iter().enumerate() {
        for replica in place.look.map(|look| look.replicas.as_slice()).unwrap_or_default() {
            // A relay that reads from another relay sends no UUID.
            let is_relay = places
                .iter()
                .any(|place| place.relay.is_some_and(|relay| relay.server_id == replica.server_id));
            if !is_relay && !is_known(places, replica.server_id, replica.uuid.as_deref()) {
                found.push((index, seen_replica(replica)));
            }
        }
        let state = place.relay.and_then(|relay| relay.state.as_ref());
        for reader in state.map(|state| state.readers.as_slice()).unwrap_or_default() {
            if !is_known(places, reader.server_id, reader.uuid.as_deref()) {
                found.push((index, seen_reader(reader)));
            }
        }
    }
    // Unconfigured replicas come after all configured ones.
    for (parent, node) in found {
        places.push(TreeEntry {
            node,
            identity: ServerIdentity::default(),
            look: None,
            observation: None,
            relay: None,
            parent: Some(parent),
        });
    }
}

fn seen_replica(replica: &ConnectedReplica) -> TopologyNode {
    let mut node = TopologyNode::new(
        format!("server_id {}", replica.server_id),
        NodeRole::Unconfigured,
        address_of(replica),
    );
    node.server_id = Some(replica.server_id);
    node
}

fn seen_reader(reader: &RelayReader) -> TopologyNode {
    let name = match reader.server_id {
        0 => "a program that reads the log".to_owned(),
        id => format!("server_id {id}"),
    };
    let mut node = TopologyNode::new(name, NodeRole::Unconfigured, "");
    node.server_id = Some(reader.server_id).filter(|id| *id != 0);
    node.notes.push(format!("from {}, sent to {}", reader.peer, reader.sent));
    node
}

/// Places each entry below its parent. Entries without a parent, and the first entry of a cycle, become
/// roots.
fn hang(places: Vec<TreeEntry<'_>>) -> Vec<TopologyNode> {
    let mut parents: Vec<Option<usize>> = places.iter().map(|place| place.parent).collect();
    for index in 0..parents.len() {
        if depth(index, &parents) > parents.len() {
            parents[index] = None;
        }
    }
    let mut nodes: Vec<Option<TopologyNode>> = places.into_iter().map(|place| Some(place.node)).collect();
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    // The deepest nodes are moved first, so that each node has all its children before it is moved.
    order.sort_by_key(|index| std::cmp::Reverse(depth(*index, &parents)));
    let mut roots = Vec::new();
    let mut children: Vec<Vec<(usize, TopologyNode)>> = (0..nodes.len()).map(|_| Vec::new()).collect();
    for index in order {
        let Some(mut node) = nodes.get_mut(index).and_then(Option::take) else { continue };
        let mut own = std::mem::take(&mut children[index]);
        own.sort_by_key(|(index, _)| *index);
        node.children = own.into_iter().map(|(_, node)| node).collect();
        match parents[index] {
            Some(parent) => children[parent].push((index, node)),
            None => roots.push((index, node)),
        }
    }
    roots.sort_by_key(|(index, _)| *index);
    roots.into_iter().map(|(_, node)| node).collect()
}

/// Returns the distance of an entry from its root. In a cycle, returns more than the number of entries.
fn depth(mut index: usize, parents: &[Option<usize>]) -> usize {
    let mut depth = 0;
    while let Some(parent) = parents.get(index).copied().flatten() {
        (index, depth) = (parent, depth + 1);
        if depth > parents.len() {
            break;
        }
    }
    depth
}
