//! The tree of a cluster. docs/how-to/topology.md documents its JSON form.

use std::fmt;

use serde::Serialize;

use super::cluster_config::Promotion;

/// The tree of one cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cluster {
    /// Name of the `[[source]]`.
    pub name: String,
    /// The primary with everything below it, then servers without a known source.
    pub nodes: Vec<TopologyNode>,
}

/// Role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The server that the log follows.
    Primary,
    /// A server that replicates natively.
    Replica,
    /// The log of the source.
    Relay,
    /// A server to which a channel applies the log.
    Target,
    /// A configured server that does not replicate, or was not reached.
    Server,
    /// A replica that is not configured.
    #[serde(rename = "seen", alias = "unconfigured")]
    Unconfigured,
}

/// A server, a relay, or an unconfigured replica.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopologyNode {
    /// Its name in the configuration, or what identifies it.
    pub name: String,
    /// Its role.
    pub role: NodeRole,
    /// Its address; empty if unknown.
    pub address: String,
    /// Whether it answered.
    pub reached: bool,
    /// Flavour and version.
    pub version: Option<String>,
    /// `server_id`.
    pub server_id: Option<u32>,
    /// Whether ordinary accounts can write.
    pub writable: Option<bool>,
    /// Lag in seconds.
    pub lag_seconds: Option<f64>,
    /// Transactions it has, as it reports them.
    pub gtids: Option<String>,
    /// Comparison with the primary.
    pub gtid_state: Option<GtidComparison>,
    /// Semi-sync as a source.
    pub semi_sync: Option<SemiSync>,
    /// Whether it acknowledges as a replica.
    pub acknowledges: Option<bool>,
    /// Its preference as primary.
    pub promotion: Promotion,
    /// Its region.
    pub region: Option<String>,
    /// Further information: activity of a relay, address of a reader.
    pub notes: Vec<String>,
    /// Its problems.
    pub problems: Vec<TopologyProblem>,
    /// Nodes that read from it.
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

    /// This node and all below it.
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

/// Comparison of a server's transactions with the primary's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GtidComparison {
    /// Number of transactions that it lacks; for MariaDB the most it can be.
    pub behind: u64,
    /// Errant transactions: those that the primary never had, as text.
    pub errant: Option<String>,
    /// The primary's own transactions that the primary itself lacks, as text: they wait for their ACK on the
    /// primary, or it has lost them.
    pub ahead: Option<String>,
}

/// Semi-sync of a source, as JSON shows it. Not `SemiSyncSource`, whose fields may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SemiSync {
    /// In force.
    pub active: bool,
    /// ACKs that a commit waits for.
    pub acks_needed: u32,
    /// Connected semi-sync replicas.
    pub clients: u32,
    /// Sessions that wait for ACKs.
    pub waiting_sessions: u64,
    /// Commits completed without an ACK since the server started.
    pub unacknowledged: u64,
}

/// A problem of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologyProblem {
    /// Stable code.
    pub code: ProblemCode,
    /// What is wrong, and what to do.
    pub text: String,
}

/// Codes of problems; docs/how-to/topology.md explains each.
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
    /// It has transactions that the primary never had.
    Errant,
    /// It has transactions of the primary that the primary lacks.
    Ahead,
    /// It lacks transactions that the primary has purged.
    PurgedBeforeRead,
    /// It does not replicate.
    NotReplicating,
    /// It replicates from an unknown server.
    UnknownSource,
    /// It replicates without GTIDs.
    NotByGtids,
    /// Its binlog lacks replicated transactions, so no server can replicate from it.
    NoReplicaUpdates,
    /// It writes no binlog.
    NoBinlog,
    /// A crash may lose transactions that it acknowledged.
    NotDurable,
    /// Semi-sync is not loaded and cannot be, so it cannot become primary.
    NoSemiSync,
    /// Commits do not wait for ACKs.
    SemiSyncOff,
    /// Fewer ackers are connected than needed.
    SemiSyncTooFew,
    /// Commits wait only for a time, do not wait without connected replicas, or are visible before their ACK.
    SemiSyncLossy,
    /// Two servers have the same `server_id`.
    SameServerId,
    /// Its flavour differs from the primary's.
    OtherFlavour,
    /// It is older than its source.
    OlderThanSource,
    /// The primary replicates from another server.
    PrimaryReplicates,
    /// The daemon does not answer.
    RelayNotRunning,
    /// The relay does not read the primary's stream.
    RelayNotStreaming,
    /// The channel does not apply.
    ChannelStopped,
    /// A query was refused.
    NotAsked,
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
