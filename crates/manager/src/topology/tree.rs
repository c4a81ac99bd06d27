//! The tree. Its JSON form is documented in docs/how-to/topology.md.

use std::fmt;

use serde::Serialize;

use super::plan::Promotion;

/// One cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cluster {
    /// The `[[source]]`'s name.
    pub name: String,
    /// The primary with everything below it; behind it what hangs on nothing that is known.
    pub nodes: Vec<TopologyNode>,
}

/// What somebody is in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The server that the log follows.
    Primary,
    /// A server that replicates by itself.
    Replica,
    /// Tailwater: the log of the source.
    Relay,
    /// A server to which Tailwater applies the log.
    Target,
    /// A server of the configuration that replicates from nothing, or was not reached.
    Server,
    /// A replica that the configuration does not name.
    #[serde(rename = "seen", alias = "unconfigured")]
    Unconfigured,
}

/// A server, a relay, or somebody who was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopologyNode {
    /// Its name in the configuration, or what is known of it.
    pub name: String,
    /// What it is.
    pub role: NodeRole,
    /// Where it is; empty if that is not known.
    pub address: String,
    /// Whether it answered.
    pub reached: bool,
    /// `mysql` or `mariadb`, and its version.
    pub version: Option<String>,
    /// Its `server_id`.
    pub server_id: Option<u32>,
    /// Whether ordinary accounts can write.
    pub writable: Option<bool>,
    /// How far it is behind, in seconds.
    pub lag_seconds: Option<f64>,
    /// What it has; the primary's, a relay's and a server's own view.
    pub gtids: Option<String>,
    /// Compared with the primary.
    pub gtid_state: Option<GtidComparison>,
    /// As a source.
    pub semi_sync: Option<SemiSync>,
    /// Whether it acknowledges as a replica.
    pub acknowledges: Option<bool>,
    /// Whether it may become the primary.
    pub promotion: Promotion,
    /// Where it stands.
    pub region: Option<String>,
    /// What else is worth a line: what a relay does, from where somebody reads.
    pub notes: Vec<String>,
    /// What is wrong.
    pub problems: Vec<TopologyProblem>,
    /// Who reads from it.
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

    /// It, and all below it.
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

/// How a server's transactions compare with the primary's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GtidComparison {
    /// Transactions that the primary has and it has not; on MariaDB the most that it may be.
    pub behind: u64,
    /// Transactions that it has and the primary never had, by name: errant.
    pub errant: Option<String>,
    /// Transactions of the primary's own that it has and the primary has not, by name: they wait for their acknowledgement
    /// on the primary, or it has lost them.
    pub ahead: Option<String>,
}

/// A source's semi-sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SemiSync {
    /// In force.
    pub active: bool,
    /// How many acknowledgements a commit waits for.
    pub acks_needed: u32,
    /// How many replicas that acknowledge are connected.
    pub clients: u32,
    /// Sessions that wait now.
    pub waiting_sessions: u64,
    /// Commits that went out without an acknowledgement since the server started.
    pub unacknowledged: u64,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologyProblem {
    /// Stable.
    pub code: ProblemCode,
    /// For people: what, and what to do.
    pub text: String,
}

/// The kinds of problems; each stands in docs/how-to/topology.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum ProblemCode {
    /// It did not answer.
    NotReached,
    /// The primary takes no writes.
    PrimaryReadOnly,
    /// A replica takes writes from ordinary accounts.
    ReplicaWritable,
    /// It does not receive.
    IoStopped,
    /// It cannot reach its source.
    IoConnecting,
    /// It does not apply.
    SqlStopped,
    /// It is far behind.
    Lagging,
    /// It has transactions that the primary never had.
    Errant,
    /// It has transactions of the primary that the primary has not.
    Ahead,
    /// What it lacks is no longer in the primary's binlogs.
    PurgedBeforeRead,
    /// It replicates from nothing.
    NotReplicating,
    /// It replicates from something that is not known.
    UnknownSource,
    /// It does not use GTIDs.
    NotByGtids,
    /// It writes no binlog of what it replicates: others cannot follow it.
    NoReplicaUpdates,
    /// It writes no binlog.
    NoBinlog,
    /// A crash may cost it what it has acknowledged.
    NotDurable,
    /// Semi-sync is not loaded, and may not be: it cannot become the primary.
    NoSemiSync,
    /// Commits do not wait for acknowledgements.
    SemiSyncOff,
    /// Fewer acknowledge than have to.
    SemiSyncTooFew,
    /// Commits wait only for a time, or not if nobody is connected, or are seen before they are acknowledged.
    SemiSyncLossy,
    /// Two servers have the same `server_id`.
    SameServerId,
    /// It belongs to the other family.
    OtherFlavour,
    /// It is older than the server that it reads from.
    OlderThanSource,
    /// The primary replicates from a server of the cluster.
    PrimaryReplicates,
    /// No daemon answers.
    RelayNotRunning,
    /// It does not read the primary's stream.
    RelayNotStreaming,
    /// Its channel does not apply.
    ChannelStopped,
    /// Something could not be asked.
    NotAsked,
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
