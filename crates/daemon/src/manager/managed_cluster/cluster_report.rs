//! The manager's report about a cluster.

use std::sync::Arc;

use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::lease::LeaseStatus;
use tailwater_manager::lossless_rules::{AckPolicyHistory, AckRequirement};
use tailwater_manager::model::Audit;
use tailwater_topology::failure_analysis::ClusterFinding;

use super::ManagedCluster;
use crate::api::clusters::{ClusterReport, FindingReport, LeaseState};

impl From<&ClusterFinding> for FindingReport {
    fn from(finding: &ClusterFinding) -> Self {
        Self {
            code: finding.code.to_string(),
            server: finding.server.clone(),
            since_ms: finding.since_ms,
            evidence: finding.evidence.clone(),
            action: finding.action.to_string(),
            rule: finding.rule.clone(),
        }
    }
}

impl<H: ActionExecutor + 'static> ManagedCluster<H> {
    /// Returns the report about the cluster.
    pub fn report(&self) -> ClusterReport {
        let watch = Arc::clone(&self.watched().watch);
        let cluster_state = watch.cluster_state();
        let guard = self.parts.guard.now();
        let now_ms = self.clock.now_ms();
        let (run, run_end) = self.last_run();
        let lease = self.lease_state();
        ClusterReport {
            source: self.parts.source.clone(),
            primary: cluster_state.cluster().plan.primary.name.clone(),
            lease: lease.to_string(),
            lease_state: lease,
            refusing: self.refusing(),
            records_problem: self.records_problem(),
            readiness: self.readiness(&cluster_state),
            automatic: self.parts.config.automatic,
            findings: cluster_state.findings(&guard, now_ms).iter().map(FindingReport::from).collect(),
            guard,
            guard_is_known: self.parts.guard.is_known(),
            now_ms,
            lossless: cluster_state.ack_policies().map(lossless_text),
            waits_after_restart: cluster_state.ack_policies().map(AckPolicyHistory::waits_after_restart),
            run,
            run_end,
        }
    }

    fn lease_state(&self) -> LeaseState {
        match (&*self.parts.lease.standing().borrow(), self.parts.lease.check()) {
            (LeaseStatus::HeldByOther { holder }, _) => LeaseState::HeldByOther { holder: holder.clone() },
            (LeaseStatus::Waiting(reason), _) => LeaseState::NotHeld { reason: reason.clone() },
            (LeaseStatus::Active(_), Ok(token)) => LeaseState::Held { term: token.0 },
            (LeaseStatus::Active(_), Err(error)) => LeaseState::NotHeld { reason: error.to_string() },
        }
    }

    /// Whether this manager holds the lease and may act.
    pub fn holds_lease(&self) -> bool {
        self.parts.lease.check().is_ok()
    }

    /// Returns the name of the last failover or switchover, which may be in progress, and how it ended.
    fn last_run(&self) -> (Option<String>, Option<String>) {
        let run = self.lock_run();
        let Some(run) = &*run else { return (None, None) };
        let audit = run.progress.borrow();
        let ended = audit.as_ref().filter(|audit| audit.outcome.is_some());
        (Some(run.id.clone()), ended.map(Audit::end))
    }
}

/// Describes the ack policies on which a failover would base its proof that no commit is lost.
fn lossless_text(ack_policies: &AckPolicyHistory) -> String {
    let texts = ack_policies.relevant_policies().map(|policy| match &policy.acks {
        AckRequirement::NotLossless(problems) => problems.clone(),
        AckRequirement::Required(acks) => {
            let ackers: Vec<_> = policy.ackers.iter().map(String::as_str).collect();
            let unconfigured_replicas = match policy.unconfigured_replicas {
                0 => String::new(),
                count => format!(" and {count} that are not configured"),
            };
            format!("{acks} of {}{unconfigured_replicas} must acknowledge", ackers.join(", "))
        }
    });
    texts.collect::<Vec<_>>().join("; ")
}
