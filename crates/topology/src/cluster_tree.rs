//! The topology tree of a cluster. docs/how-to/topology.md documents its JSON form.

use std::fmt;

use serde::Serialize;

use super::cluster_config::Promotion;

/// The topology tree of one cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cluster {
    /// Name of the `[[source]]`.
    pub name: String,
    /// The primary with all nodes below it, followed by servers without a known source.
    pub nodes: Vec<TopologyNode>,
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The server from which the log is captured.
    Primary,
    /// A server that replicates natively.
    Replica,
    /// A relay, with its log of the source.
    Relay,
    /// A server to which a channel applies the log.
    Target,
    /// A configured server that does not replicate, or that could not be reached.
    Server,
    /// A replica that is not configured.
    #[serde(rename = "seen", alias = "unconfigured")]
    Unconfigured,
}

/// A node of the tree: a server, a relay, or an unconfigured replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopologyNode {
    /// Name of the node in the configuration, or a description that identifies it.
    pub name: String,
    /// Role of the node.
    pub role: NodeRole,
    /// Address of the node; empty if unknown.
    pub address: String,
    /// Whether the node answered.
    pub reached: bool,
    /// Flavour and version of the server.
    pub version: Option<String>,
    /// The `server_id` of the node.
    pub server_id: Option<u32>,
    /// Whether ordinary accounts can write.
    pub writable: Option<bool>,
    /// Lag of the node, in seconds.
    pub lag_seconds: Option<f64>,
    /// The transactions of the node, as it reports them.
    pub gtids: Option<String>,
    /// Comparison of the node's transactions with those of the primary.
    pub gtid_state: Option<GtidComparison>,
    /// State of semi-sync for the node as a source.
    pub semi_sync: Option<SemiSync>,
    /// Whether the node sends ACKs as a replica.
    pub acknowledges: Option<bool>,
    /// Preference for the node as the new primary.
    pub promotion: Promotion,
    /// Region of the node, if configured.
    pub region: Option<String>,
    /// Further information, such as the activity of a relay or the address of a reader.
    pub notes: Vec<String>,
    /// Problems of the node.
    pub problems: Vec<TopologyProblem>,
    /// Nodes that read from this node.
    pub children: Vec<TopologyNode>,
}

impl TopologyNode {
    pub(super) fn new(name: impl Into<String>, role: NodeRole, address: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            role,
            address: address.into(),
            reached: false,
            version: None,
            server_id: None,
            writable: None,
            lag_seconds: None,
            gtids: None,
            gtid_state: None,
            semi_sync: None,
            acknowledges: None,
            promotion: Promotion::Neutral,
            region: None,
            notes: Vec::new(),
            problems: Vec::new(),
            children: Vec::new(),
        }
    }

    pub(super) fn problem(&mut self, code: ProblemCode, text: impl Into<String>) {
        self.problems.push(TopologyProblem { code, text: text.into() });
    }

    /// Returns this node and all nodes below it.
    pub fn walk(&self) -> Vec<&TopologyNode> {
        let mut all = vec![self];
        let mut next = 0;
        while let Some(node) = all.get(next).copied() {
            all.extend(&node.children);
            next += 1;
        }
        all
    }
}

/// Comparison of a server's transactions with those of the primary.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GtidComparison {
    /// Number of transactions that the server lacks; for MariaDB the highest possible number.
    pub behind: u64,
    /// Errant transactions as text: those that the server has and the primary never had.
    pub errant: Option<String>,
    /// Transactions that the primary wrote and this server has, but that the primary itself lacks, as text.
    /// They still wait for their ACK on the primary, or the primary has lost them.
    pub ahead: Option<String>,
}

/// State of semi-sync for a source, as JSON shows it. `SemiSyncSource` is not used here, because its fields
/// may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SemiSync {
    /// Whether semi-sync is in force.
    pub active: bool,
    /// Number of ACKs that a commit waits for.
    pub acks_needed: u32,
    /// Number of connected semi-sync replicas.
    pub clients: u32,
    /// Number of sessions that wait for ACKs.
    pub waiting_sessions: u64,
    /// Number of commits that completed without an ACK since the server started.
    pub unacknowledged: u64,
}

/// A problem of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologyProblem {
    /// Stable code of the problem.
    pub code: ProblemCode,
    /// What is wrong, and what to do.
    pub text: String,
}

/// Codes of problems. docs/how-to/topology.md explains each code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ProblemCode {
    /// The server did not answer.
    NotReached,
    /// The primary takes no writes.
    PrimaryReadOnly,
    /// Ordinary accounts can write to a replica.
    ReplicaWritable,
    /// The receiver is stopped.
    IoStopped,
    /// The receiver cannot reach its source.
    IoConnecting,
    /// The applier is stopped.
    SqlStopped,
    /// The replica lags.
    Lagging,
    /// The server has transactions that the primary never had.
    Errant,
    /// The server has transactions that the primary wrote and no longer has.
    Ahead,
    /// The server lacks transactions that the primary has purged.
    PurgedBeforeRead,
    /// The server does not replicate.
    NotReplicating,
    /// The server replicates from an unknown server.
    UnknownSource,
    /// The server replicates without GTIDs.
    NotByGtids,
    /// The server's binlog lacks replicated transactions, so no server can replicate from it.
    NoReplicaUpdates,
    /// The server writes no binlog.
    NoBinlog,
    /// A crash may lose transactions that the server acknowledged.
    NotDurable,
    /// Semi-sync is not loaded and cannot be loaded, so the server cannot become primary.
    NoSemiSync,
    /// Commits do not wait for ACKs.
    SemiSyncOff,
    /// Fewer ackers are connected than a commit needs.
    SemiSyncTooFew,
    /// Commits wait only for a limited time, do not wait without connected replicas, or are visible before
    /// their ACK.
    SemiSyncLossy,
    /// Two servers have the same `server_id`.
    SameServerId,
    /// The flavour of the server differs from that of the primary.
    OtherFlavour,
    /// The server is older than its source.
    OlderThanSource,
    /// The primary replicates from another server.
    PrimaryReplicates,
    /// The daemon does not answer.
    RelayNotRunning,
    /// The relay does not read the primary's stream.
    RelayNotStreaming,
    /// The channel does not apply.
    ChannelStopped,
    /// The server refused a query.
    NotAsked,
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
