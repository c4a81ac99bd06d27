//! The graph of a cluster: who reads from whom, as SVG. Pure.
//!
//! On wide screens the tree grows to the right: each server is beside the one that it reads from. Leaves are
//! stacked; a parent is in the middle of its children. On phones the servers are stacked, and indented.

use tailwater_daemon::api::clusters::ClusterSnapshot;
use tailwater_topology::{NodeRole, ProblemCode, TopologyNode};

use super::display_format::{behind, element_id, lag, shortened};
use super::page_layout::Health;

const NODE_WIDTH: u32 = 200;
const NODE_HEIGHT: u32 = 62;
const GAP_X: u32 = 64;
const GAP_Y: u32 = 18;
const MARGIN: u32 = 6;
/// The indentation of each level on phones.
const INDENT: u32 = 24;
/// Characters that fit in a box.
const NAME_CHARACTERS: usize = 20;
const DETAIL_CHARACTERS: usize = 27;

/// The graph of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ClusterGraph {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) nodes: Vec<GraphNode>,
    pub(super) edges: Vec<GraphEdge>,
}

/// A server or relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphNode {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) detail: String,
    pub(super) health: Health,
    /// The id of its row in the table.
    pub(super) row: String,
    /// The server's whole name, its health and its problems.
    pub(super) description: String,
}

/// Replication from one server to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphEdge {
    /// The path of the SVG.
    pub(super) path: String,
    /// The health of the reader.
    pub(super) health: Health,
    /// Whether the reader acknowledges commits.
    pub(super) is_semi_sync: bool,
}

/// The id of a server's row in the table of its cluster.
pub(super) fn row_id(source: &str, node: &str) -> String {
    format!("server-{}-{}", element_id(source), element_id(node))
}

/// The name of a role for people.
pub(super) fn role_label(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Primary => "primary",
        NodeRole::Replica => "replica",
        NodeRole::Relay => "relay",
        NodeRole::Target => "channel target",
        NodeRole::Server => "server",
        NodeRole::Unconfigured => "not configured",
    }
}

/// Whether a server is in downtime by an operator.
pub(super) fn is_in_downtime(cluster: &ClusterSnapshot, node: &TopologyNode) -> bool {
    let Some(manager) = &cluster.manager else { return false };
    let now_ms = manager.report.now_ms;
    manager.report.guard.downtimes().iter().any(|downtime| {
        (downtime.from_ms..downtime.until_ms).contains(&now_ms)
            && downtime.server.as_ref().is_none_or(|server| *server == node.name)
    })
}

/// The health of a server or relay, by its last probe.
pub(super) fn node_health(cluster: &ClusterSnapshot, node: &TopologyNode) -> Health {
    if is_in_downtime(cluster, node) || node.role == NodeRole::Unconfigured {
        return Health::Unknown;
    }
    let worst = node.problems.iter().map(|problem| problem_health(problem.code)).max();
    match (worst, node.reached) {
        (Some(worst), true) => worst,
        (_, false) => Health::Failed,
        (None, true) => Health::Well,
    }
}

fn problem_health(code: ProblemCode) -> Health {
    match code {
        ProblemCode::NotReached
        | ProblemCode::PrimaryReadOnly
        | ProblemCode::IoStopped
        | ProblemCode::IoConnecting
        | ProblemCode::SqlStopped
        | ProblemCode::Errant
        | ProblemCode::PurgedBeforeRead
        | ProblemCode::NotReplicating
        | ProblemCode::UnknownSource
        | ProblemCode::OtherFlavour
        | ProblemCode::SameServerId
        | ProblemCode::RelayNotRunning
        | ProblemCode::RelayNotStreaming
        | ProblemCode::ChannelStopped => Health::Failed,
        ProblemCode::ReplicaWritable
        | ProblemCode::Lagging
        | ProblemCode::Ahead
        | ProblemCode::NotByGtids
        | ProblemCode::NoReplicaUpdates
        | ProblemCode::NoBinlog
        | ProblemCode::NotDurable
        | ProblemCode::NoSemiSync
        | ProblemCode::SemiSyncOff
        | ProblemCode::SemiSyncTooFew
        | ProblemCode::SemiSyncLossy
        | ProblemCode::OlderThanSource
        | ProblemCode::PrimaryReplicates
        | ProblemCode::NotAsked => Health::Degraded,
    }
}

/// The graph of a cluster for wide screens.
pub(super) fn wide_graph(cluster: &ClusterSnapshot) -> ClusterGraph {
    let mut graph = ClusterGraph::default();
    let mut next_y = MARGIN;
    for root in &cluster.view.cluster.nodes {
        place(&mut graph, cluster, root, 0, &mut next_y);
    }
    graph.sized()
}

/// The graph of a cluster for phones.
pub(super) fn tall_graph(cluster: &ClusterSnapshot) -> ClusterGraph {
    let mut graph = ClusterGraph::default();
    for root in &cluster.view.cluster.nodes {
        stack(&mut graph, cluster, root, 0);
    }
    graph.sized()
}

impl ClusterGraph {
    fn sized(mut self) -> Self {
        self.width = self.nodes.iter().map(|node| node.x + node.width + MARGIN).max().unwrap_or(0);
        self.height = self.nodes.iter().map(|node| node.y + node.height + MARGIN).max().unwrap_or(0);
        self
    }
}

/// Adds a node below all others, and everything that reads from it below that. Returns its middle.
fn stack(graph: &mut ClusterGraph, cluster: &ClusterSnapshot, node: &TopologyNode, depth: u32) -> u32 {
    let x = MARGIN + depth * INDENT;
    let y = MARGIN + graph.nodes.len() as u32 * (NODE_HEIGHT + GAP_Y / 2);
    graph.nodes.push(GraphNode { y, ..described(cluster, node, x) });
    let (from_x, from_y) = (x + INDENT / 2, y + NODE_HEIGHT);
    for child in &node.children {
        let middle = stack(graph, cluster, child, depth + 1);
        graph.edges.push(GraphEdge {
            path: format!("M{from_x} {from_y}V{middle}H{}", x + INDENT),
            health: node_health(cluster, child),
            is_semi_sync: child.acknowledges == Some(true),
        });
    }
    y + NODE_HEIGHT / 2
}

/// Adds a node with all below it, and returns the middle of its box.
fn place(
    graph: &mut ClusterGraph,
    cluster: &ClusterSnapshot,
    node: &TopologyNode,
    depth: u32,
    next_y: &mut u32,
) -> u32 {
    let x = MARGIN + depth * (NODE_WIDTH + GAP_X);
    // The nodes are in the order of the tree, so that the keyboard follows it.
    let index = graph.nodes.len();
    graph.nodes.push(described(cluster, node, x));
    let middles: Vec<u32> =
        node.children.iter().map(|child| place(graph, cluster, child, depth + 1, next_y)).collect();
    let y = match (middles.first(), middles.last()) {
        (Some(first), Some(last)) => (first + last) / 2 - NODE_HEIGHT / 2,
        _ => {
            let y = *next_y;
            *next_y += NODE_HEIGHT + GAP_Y;
            y
        }
    };
    graph.nodes[index].y = y;
    let middle = y + NODE_HEIGHT / 2;
    for (child, child_middle) in node.children.iter().zip(middles) {
        let (from, to) = (x + NODE_WIDTH, x + NODE_WIDTH + GAP_X);
        let bend = from + GAP_X / 2;
        graph.edges.push(GraphEdge {
            path: format!("M{from} {middle}C{bend} {middle} {bend} {child_middle} {to} {child_middle}"),
            health: node_health(cluster, child),
            is_semi_sync: child.acknowledges == Some(true),
        });
    }
    middle
}

fn described(cluster: &ClusterSnapshot, node: &TopologyNode, x: u32) -> GraphNode {
    let health = node_health(cluster, node);
    let detail = detail(cluster, node);
    let role = if node.role == NodeRole::Target { "target" } else { role_label(node.role) };
    let problems = node.problems.iter().map(|problem| format!(". {}: {}", problem.code, problem.text));
    GraphNode {
        x,
        y: 0,
        width: NODE_WIDTH,
        height: NODE_HEIGHT,
        name: shortened(&node.name, NAME_CHARACTERS),
        role,
        health,
        row: row_id(&cluster.source, &node.name),
        description: format!("{}: {}, {detail}{}", node.name, health.word(), problems.collect::<String>()),
        detail: shortened(&detail, DETAIL_CHARACTERS.saturating_sub(role.chars().count())),
    }
}

/// What matters most about a node, in a few words.
fn detail(cluster: &ClusterSnapshot, node: &TopologyNode) -> String {
    if is_in_downtime(cluster, node) {
        return "in downtime".to_owned();
    }
    if !node.reached && node.role != NodeRole::Unconfigured {
        return "not reached".to_owned();
    }
    let severe = |health| node.problems.iter().find(|problem| problem_health(problem.code) == health);
    if let Some(problem) = severe(Health::Failed).filter(|_| node.role != NodeRole::Primary) {
        return problem.code.to_string();
    }
    match node.role {
        NodeRole::Primary => match node.writable {
            Some(true) => "takes writes".to_owned(),
            Some(false) => "read-only".to_owned(),
            None => "write state unknown".to_owned(),
        },
        NodeRole::Relay => match &node.gtid_state {
            Some(state) if state.behind > 0 => format!("{} behind", behind(Some(state.behind))),
            Some(_) => "in step".to_owned(),
            None => "streams".to_owned(),
        },
        NodeRole::Unconfigured => "reads the stream".to_owned(),
        NodeRole::Server => "replicates from nothing".to_owned(),
        NodeRole::Replica | NodeRole::Target => match node.lag_seconds {
            Some(_) => format!("lag {}", lag(node.lag_seconds)),
            None => "lag unknown".to_owned(),
        },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use tailwater_daemon::api::captures::FollowedServer;
    use tailwater_daemon::api::clusters::ClusterView;
    use tailwater_topology::{Cluster, Promotion, TopologyProblem};

    use super::*;

    pub(crate) fn node(name: &str, role: NodeRole, children: Vec<TopologyNode>) -> TopologyNode {
        TopologyNode {
            name: name.to_owned(),
            role,
            address: format!("{name}:3306"),
            reached: true,
            version: Some("MySQL 9.7.0".to_owned()),
            server_id: Some(1),
            writable: Some(role == NodeRole::Primary),
            lag_seconds: (role == NodeRole::Replica || role == NodeRole::Target).then_some(0.25),
            gtids: None,
            gtid_state: None,
            semi_sync: None,
            acknowledges: None,
            promotion: Promotion::Neutral,
            region: None,
            notes: Vec::new(),
            problems: Vec::new(),
            children,
        }
    }

    pub(crate) fn cluster(nodes: Vec<TopologyNode>) -> ClusterSnapshot {
        ClusterSnapshot {
            source: "orders".to_owned(),
            own: "db1".to_owned(),
            followed: FollowedServer { server: "db1".to_owned(), withheld: None },
            servers: Vec::new(),
            stale_after_ms: 3_000,
            view: ClusterView {
                cluster: Cluster { name: "orders".to_owned(), nodes },
                findings: Vec::new(),
                readiness: None,
            },
            relay_silence_ms: BTreeMap::new(),
            manager: None,
        }
    }

    #[test]
    fn boxes_never_overlap_and_parents_are_in_the_middle() {
        let leaves = |names: [&str; 3]| names.map(|name| node(name, NodeRole::Replica, Vec::new())).to_vec();
        let relay = node("tailwater", NodeRole::Relay, leaves(["db2", "db3", "db4"]));
        let deep = node("db5", NodeRole::Replica, leaves(["db6", "db7", "db8"]));
        let tree = cluster(vec![
            node("db1", NodeRole::Primary, vec![relay, deep]),
            node("db9", NodeRole::Server, Vec::new()),
        ]);
        let graph = wide_graph(&tree);
        for graph in [&graph, &tall_graph(&tree)] {
            assert_eq!((graph.nodes.len(), graph.edges.len()), (10, 8));
            for (index, one) in graph.nodes.iter().enumerate() {
                assert!(one.x + one.width <= graph.width && one.y + one.height <= graph.height);
                for other in &graph.nodes[index + 1..] {
                    let apart = one.x + one.width <= other.x
                        || other.x + other.width <= one.x
                        || one.y + one.height <= other.y
                        || other.y + other.height <= one.y;
                    assert!(apart, "{} and {} overlap", one.name, other.name);
                }
            }
        }
        let y = |name: &str| graph.nodes.iter().find(|node| node.name == name).map(|node| node.y);
        assert_eq!(y("tailwater"), y("db3"));
    }

    #[test]
    fn the_worst_problem_decides_and_is_said() {
        let mut replica = node("db2", NodeRole::Replica, Vec::new());
        for (code, health) in [
            (ProblemCode::Lagging, Health::Degraded),
            (ProblemCode::SqlStopped, Health::Failed),
            (ProblemCode::NotDurable, Health::Failed),
        ] {
            replica.problems.push(TopologyProblem { code, text: "because".to_owned() });
            let tree = cluster(vec![node("db1", NodeRole::Primary, vec![replica.clone()])]);
            let graph = wide_graph(&tree);
            assert_eq!(graph.nodes[1].health, health);
        }
        let tree = cluster(vec![node("db1", NodeRole::Primary, vec![replica])]);
        let shown = &wide_graph(&tree).nodes[1];
        assert_eq!(shown.detail, "SqlStopped");
        assert!(
            shown.description.contains("SqlStopped: because"),
            "the description does not contain the problem: {}",
            shown.description
        );
    }
}
