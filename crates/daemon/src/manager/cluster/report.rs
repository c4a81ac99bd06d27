//! How a cluster is, for people and programs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tailwater_manager::FailoverReadiness;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::analysis::{ClusterFinding, FailoverGuard};
use tailwater_manager::failover::Audit;
use tailwater_manager::lease::LeaseStatus;
use tailwater_manager::lossless::{AckPolicyHistory, AckRequirement};

use super::ManagedCluster;
use crate::metrics::ClusterMetrics;

/// How a cluster is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterReport {
    /// The source's name.
    pub source: String,
    /// The primary.
    pub primary: String,
    /// Whether this manager may act, or why not.
    pub lease: String,
    /// Relays that refuse this manager, each with why.
    #[serde(default)]
    pub refusing: Vec<String>,
    /// Whether it acts by itself.
    pub automatic: bool,
    /// What holds failovers back.
    pub guard: FailoverGuard,
    /// Whether that is known: what other managers were told has been read.
    #[serde(default)]
    pub guard_is_known: bool,
    /// Now, on the manager's clock, in milliseconds: moments of the guard and of findings are of that clock.
    pub now_ms: u64,
    /// Whether a failover would go through if the primary died now.
    #[serde(default = "not_told")]
    pub readiness: FailoverReadiness,
    /// What is wrong.
    pub findings: Vec<FindingReport>,
    /// What a failover would rest on; nothing if the primary was never looked at.
    pub lossless: Option<String>,
    /// Whether the primary waits for ackers after a restart, too; if not, it takes a fence hook to replace it.
    pub waits_after_restart: Option<bool>,
    /// The last run, or the one that is under way.
    pub run: Option<String>,
    /// How it ended, in words; nothing while it is under way.
    #[serde(default)]
    pub run_end: Option<String>,
}

/// A finding, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindingReport {
    /// Its code.
    pub code: String,
    /// Of whom.
    pub server: String,
    /// Since when, in milliseconds.
    pub since_ms: u64,
    /// Who said what.
    pub evidence: Vec<String>,
    /// What is to be done.
    pub action: String,
    /// Of `FailoverNotReady` the code of the rule that would refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// Of a daemon of an earlier version.
fn not_told() -> FailoverReadiness {
    FailoverReadiness::Unknown {
        reason: "the daemon is of an earlier version and does not report it".to_owned(),
    }
}

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
    /// How the cluster is.
    pub fn report(&self) -> ClusterReport {
        let watch = Arc::clone(&self.watched().watch);
        let cluster_state = watch.cluster_state();
        let guard = self.parts.guard.now();
        let now_ms = self.clock.now_ms();
        let (run, run_end) = self.last_run();
        ClusterReport {
            source: self.parts.source.clone(),
            primary: cluster_state.cluster().plan.primary.name.clone(),
            lease: match (&*self.parts.lease.standing().borrow(), self.parts.lease.check()) {
                (LeaseStatus::Waiting(reason), _) => format!("not held: {reason}"),
                (_, Ok(token)) => format!("held, term {token}"),
                (_, Err(reason)) => format!("not held: {reason}"),
            },
            refusing: self.refusing(),
            readiness: self.readiness(&cluster_state),
            automatic: self.parts.config.automatic,
            findings: cluster_state.findings(&guard, now_ms).iter().map(FindingReport::from).collect(),
            guard,
            guard_is_known: self.parts.guard.is_known(),
            now_ms,
            lossless: cluster_state.ack_policies().map(lossless_words),
            waits_after_restart: cluster_state.ack_policies().map(AckPolicyHistory::waits_after_restart),
            run,
            run_end,
        }
    }

    /// How the cluster is, for monitoring.
    pub fn metrics(&self) -> ClusterMetrics {
        let cluster_state = self.cluster_state();
        let findings = cluster_state.findings(&self.parts.guard.now(), self.clock.now_ms());
        ClusterMetrics {
            cluster: self.parts.source.clone(),
            holds_lease: self.parts.lease.check().is_ok(),
            readiness: self.readiness(&cluster_state),
            findings: findings.into_iter().map(|finding| (finding.code, finding.server)).collect(),
        }
    }

    /// The name of the run that is under way, or was the last, and how it ended.
    fn last_run(&self) -> (Option<String>, Option<String>) {
        let run = self.lock_run();
        let Some(run) = &*run else { return (None, None) };
        let audit = run.progress.borrow();
        let ended = audit.as_ref().filter(|audit| audit.outcome.is_some());
        (Some(run.id.clone()), ended.map(Audit::end))
    }
}

/// What a failover of a primary in that state would rest on.
fn lossless_words(ack_policies: &AckPolicyHistory) -> String {
    let words = ack_policies.relevant_policies().map(|regime| match &regime.acks {
        AckRequirement::NotLossless(problems) => problems.clone(),
        AckRequirement::Required(acks) => {
            let ackers: Vec<_> = regime.ackers.iter().map(String::as_str).collect();
            let unconfigured_replicas = match regime.unconfigured_replicas {
                0 => String::new(),
                count => format!(" and {count} that are not configured"),
            };
            format!("{acks} of {}{unconfigured_replicas} must acknowledge", ackers.join(", "))
        }
    });
    words.collect::<Vec<_>>().join("; ")
}
