//! One cluster as `tailwater topology` and `/status` show it.

use serde::Serialize;
use tailwater_manager::FailoverReadiness;
use tailwater_manager::analysis::ClusterFinding;
use tailwater_manager::analysis::snapshot::analyse_snapshot;
use tailwater_manager::observation::Observation;
use tailwater_manager::topology::{Cluster, build_tree};

use crate::wiring::ClusterWiring;

/// A cluster's tree with what is wrong in it.
#[derive(Debug, Serialize)]
pub struct ClusterView {
    /// The servers and who replicates from whom.
    #[serde(flatten)]
    pub cluster: Cluster,
    /// Failures that one observation of each server can prove.
    pub findings: Vec<ClusterFinding>,
    /// Whether a failover would succeed if the primary died now, according to the daemon's manager; absent where none is configured.
    pub readiness: Option<FailoverReadiness>,
}

impl ClusterView {
    /// Builds the view from one observation of each server.
    pub fn of(wired: &ClusterWiring, seen: &[Observation], readiness: Option<FailoverReadiness>) -> Self {
        let cluster = build_tree(&wired.plan, seen);
        let mut findings = analyse_snapshot(&wired.plan, &cluster, seen);
        let primary = &wired.plan.primary.name;
        // As in the manager: without semi-sync, nothing is promised that a failover could break.
        let promised = readiness.as_ref().filter(|_| wired.plan.relay.semi_sync);
        findings.extend(promised.and_then(|readiness| ClusterFinding::not_ready(primary, readiness, 0)));
        findings.sort_by_key(|finding| finding.code);
        Self { cluster, findings, readiness }
    }
}
