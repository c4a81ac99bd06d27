//! Clusters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tailwater_manager::FailoverReadiness;
use tailwater_topology::Cluster;
use tailwater_topology::analysis::{ClusterFinding, FailoverGuard};

use super::captures::FollowedServer;
use super::servers::ServerSnapshot;

/// A cluster, as the daemon's log, its probes and its manager see it.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterSnapshot {
    /// The name of its source.
    pub source: String,
    /// The name of the source's own server.
    pub own: String,
    /// The server that the log follows.
    pub followed: FollowedServer,
    /// The servers and their last probes.
    pub servers: Vec<ServerSnapshot>,
    /// A probe older than this counts as none, in milliseconds.
    pub stale_after_ms: u64,
    /// The tree of the cluster.
    pub view: ClusterView,
    /// Time since each relay last received from the primary, in milliseconds; `None` if it never did.
    pub relay_silence_ms: BTreeMap<String, Option<u64>>,
    /// The report of this daemon's manager; absent without one.
    pub manager: Option<ManagerSnapshot>,
}

/// A cluster, as its manager sees it.
#[derive(Debug, Clone, Serialize)]
pub struct ManagerSnapshot {
    /// Whether this manager holds the lease and may act.
    pub holds_lease: bool,
    /// Its report.
    pub report: ClusterReport,
}

/// A cluster's tree, with its findings.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterView {
    /// The servers, and where each replicates from.
    #[serde(flatten)]
    pub cluster: Cluster,
    /// Failures that one observation of each server can prove.
    pub findings: Vec<ClusterFinding>,
    /// Whether a failover would succeed if the primary died now, by the daemon's manager; absent where none
    /// is configured.
    pub readiness: Option<FailoverReadiness>,
}

/// The report of a cluster's manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterReport {
    /// The source's name.
    pub source: String,
    /// The primary.
    pub primary: String,
    /// Whether this manager holds the lease, or why not.
    pub lease: String,
    /// Relays that refuse this manager, each with the reason.
    #[serde(default)]
    pub refusing: Vec<String>,
    /// Whether it starts failovers without an operator.
    pub automatic: bool,
    /// What holds back failovers.
    pub guard: FailoverGuard,
    /// Whether the guard that managers share was read.
    #[serde(default)]
    pub guard_is_known: bool,
    /// The present time of the manager's clock, in milliseconds; times of the guard and of findings are of
    /// that clock.
    pub now_ms: u64,
    /// Whether a failover would succeed if the primary died now.
    #[serde(default = "readiness_not_reported")]
    pub readiness: FailoverReadiness,
    /// The failures it sees.
    pub findings: Vec<FindingReport>,
    /// What a failover could prove about acknowledged commits; absent if the primary was never probed.
    pub lossless: Option<String>,
    /// Whether the primary waits for ACKs after a restart too. If not, a fence hook is needed to replace it.
    pub waits_after_restart: Option<bool>,
    /// The name of the last run, or of the present one.
    pub run: Option<String>,
    /// The end of that run, as text; absent while it is under way.
    #[serde(default)]
    pub run_end: Option<String>,
}

/// A finding.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindingReport {
    /// Its code.
    pub code: String,
    /// The server it is about.
    pub server: String,
    /// Its start, in milliseconds since 1970.
    pub since_ms: u64,
    /// The reports of the observers.
    pub evidence: Vec<String>,
    /// What the manager does about it.
    pub action: String,
    /// Of `FailoverNotReady` the code of the rule that would refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

fn readiness_not_reported() -> FailoverReadiness {
    FailoverReadiness::Unknown {
        reason: "the daemon is of an earlier version and does not report it".to_owned(),
    }
}
