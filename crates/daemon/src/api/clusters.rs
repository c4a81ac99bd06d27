//! Clusters.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_manager::FailoverReadiness;
use tailwater_topology::failure_analysis::{ClusterFinding, FailoverGuard};
use tailwater_topology::{Cluster, TopologyNode};

use super::captures::FollowedServer;
use super::cluster_servers::ServerSnapshot;
use crate::status::{is_own_relay, nodes};

/// A cluster, as the daemon sees it: from its log, its probes and its manager.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterSnapshot {
    /// The name of the cluster's source.
    pub source: String,
    /// The name of the source's own server.
    pub own: String,
    /// The server that the log follows.
    pub followed: FollowedServer,
    /// The servers and the results of their last probes.
    pub servers: Vec<ServerSnapshot>,
    /// The age in milliseconds above which the result of a probe is ignored.
    pub stale_after_ms: u64,
    /// The topology tree of the cluster, with its findings.
    pub view: ClusterView,
    /// Time since each relay last received a message from the primary, in milliseconds; `None` if a relay
    /// never received one.
    pub relay_silence_ms: BTreeMap<String, Option<u64>>,
    /// The report of this daemon's manager; absent if it has no manager.
    pub manager: Option<ManagerSnapshot>,
}

/// A cluster, as its manager sees it.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ManagerSnapshot {
    /// Whether this manager holds the lease and may act.
    pub holds_lease: bool,
    /// The manager's report about the cluster.
    pub report: ClusterReport,
}

/// The topology tree of a cluster, with its findings.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterView {
    /// The servers, and which server each of them replicates from.
    #[serde(flatten)]
    pub cluster: Cluster,
    /// The failures that can be found with a single observation of each server.
    pub findings: Vec<ClusterFinding>,
    /// Whether a failover would succeed if the primary died now, according to the daemon's manager; absent if
    /// no manager is configured.
    pub readiness: Option<FailoverReadiness>,
}

/// The report of the manager about a cluster.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterReport {
    /// The source's name.
    pub source: String,
    /// The name of the primary.
    pub primary: String,
    /// `lease_state` as text.
    pub lease: String,
    /// Whether this manager holds the lease; if another manager holds the lease, its name.
    #[serde(default)]
    pub lease_state: LeaseState,
    /// Relays that refuse orders of this manager, each with the reason.
    #[serde(default)]
    pub refusing: Vec<String>,
    /// Why a failover could not store its audit record in etcd; absent if it could, or with one manager.
    #[serde(default)]
    pub records_problem: Option<String>,
    /// Whether the manager starts failovers without an operator.
    pub automatic: bool,
    /// What prevents failovers now: pauses, downtimes, the cool-down.
    #[schema(value_type = Object)]
    pub guard: FailoverGuard,
    /// Whether the manager has read the value of `guard` that all managers share.
    #[serde(default)]
    pub guard_is_known: bool,
    /// The present time of the manager's clock, in milliseconds since 1970. The times in `guard` and
    /// `findings` come from the same clock.
    pub now_ms: u64,
    /// Whether a failover would succeed if the primary died now.
    #[serde(default = "readiness_not_reported")]
    #[schema(value_type = Object)]
    pub readiness: FailoverReadiness,
    /// The failures that the manager sees.
    pub findings: Vec<FindingReport>,
    /// What a failover could prove about acknowledged commits, as text; absent if the primary was never
    /// probed.
    pub lossless: Option<String>,
    /// Whether commits on the primary also wait for ACKs after a restart of the primary. If commits do not
    /// wait then, only a fence hook makes it safe to replace the primary.
    pub waits_after_restart: Option<bool>,
    /// The name of the failover or switchover that is in progress. If none is in progress, the name of the
    /// last failover or switchover.
    pub run: Option<String>,
    /// How the failover or switchover `run` ended, as text; absent while it is in progress.
    #[serde(default)]
    pub run_end: Option<String>,
}

impl ClusterView {
    /// Returns the nodes of the tree, each with the node that it reads from. A node comes after the node that
    /// it reads from.
    pub fn nodes(&self) -> impl Iterator<Item = (Option<&TopologyNode>, &TopologyNode)> {
        nodes(&self.cluster)
    }

    /// Whether a node is the relay of this process.
    pub fn is_own_relay(node: &TopologyNode) -> bool {
        is_own_relay(node)
    }
}

/// The lease of a cluster, as one of its managers sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LeaseState {
    /// This manager holds the lease and may act.
    Held {
        /// The lease term.
        term: u64,
    },
    /// Another manager holds the lease.
    HeldByOther {
        /// The name of that manager.
        holder: String,
    },
    /// This manager does not hold the lease, and does not know of another manager that holds it.
    NotHeld {
        /// Why this manager does not hold the lease.
        reason: String,
    },
    /// The daemon is of an earlier version and does not report the state of the lease.
    #[default]
    Unreported,
}

impl fmt::Display for LeaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { term } => write!(f, "held, lease term {term}"),
            Self::HeldByOther { holder } => write!(f, "not held: {holder} holds the lease"),
            Self::NotHeld { reason } => write!(f, "not held: {reason}"),
            Self::Unreported => f.write_str("not reported: the daemon is of an earlier version"),
        }
    }
}

/// A finding of the manager about a server.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FindingReport {
    /// The failure code.
    pub code: String,
    /// The server that the finding is about.
    pub server: String,
    /// When the finding began, in milliseconds since 1970.
    pub since_ms: u64,
    /// What the observers report, as text.
    pub evidence: Vec<String>,
    /// What the manager does about the finding.
    pub action: String,
    /// For `FailoverNotReady`: the code of the safety rule that would refuse the failover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

fn readiness_not_reported() -> FailoverReadiness {
    FailoverReadiness::Unknown {
        reason: "the daemon is of an earlier version and does not report the lease".to_owned(),
    }
}
