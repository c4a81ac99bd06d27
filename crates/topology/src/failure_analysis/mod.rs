//! Failure analysis: turns the reports of several observers over time into failure codes with evidence. Pure:
//! the time is an input.
//!
//! - [`observer_report`]: the reports of an observer.
//! - [`observation_history`]: what is kept of the reports; bounded by the number of servers.
//! - `dead_primary_detection`: whether the primary is dead, or only unreachable for the manager.
//! - `observer_agreement`: what the other observers report about a primary that does not answer the manager.
//! - `primary_write_findings`: whether a primary that answers takes writes and waits for ACKs.
//! - `non_primary_findings`: findings about replicas, relays, and other servers that take writes.
//! - [`failover_guard`]: what follows a finding, and what holds a failover back.
//! - [`failure_finding`]: the result of the analysis; [`failover_readiness`]: whether a failover would
//!   succeed.
//! - `failure_remedies`: what an operator does about a finding.
//! - [`single_observation_analysis`]: the analysis of a single observation of each server.
//!
//! docs/reference/failure-codes.md explains each code.

mod dead_primary_detection;
pub mod failover_guard;
pub mod failover_readiness;
pub mod failure_finding;
mod failure_remedies;
mod non_primary_findings;
pub mod observation_history;
mod observer_agreement;
pub mod observer_report;
mod primary_write_findings;
pub mod single_observation_analysis;

use serde::{Deserialize, Serialize};

pub use failover_guard::{Downtime, FailoverGuard};
pub use failover_readiness::FailoverReadiness;
pub use failure_finding::{ClusterFinding, FailoverHold, FailureCode, FindingAction};
pub use observation_history::{ClusterMembers, ObservationHistory};
pub use observer_report::{Observed, Observer, ObserverReport, ServerHealth};

/// Thresholds of the analysis. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnalysisSettings {
    /// How long a server must be silent before it counts as unresponsive.
    pub detect_after_ms: u64,
    /// How long the primary must be silent before it counts as dead, if all observers agree. The old spelling
    /// is `agreed_after_ms`.
    #[serde(alias = "agreed_after_ms")]
    pub unanimous_detect_after_ms: u64,
    /// A report that is older than this is ignored.
    pub stale_after_ms: u64,
    /// How long commits must wait for an ACK before they count as blocked.
    pub blocked_after_ms: u64,
    /// A lag of a replica is reported only if it is larger than this, in seconds.
    pub lag_seconds_max: u64,
    /// How long a lag must last before it is reported.
    pub lag_after_ms: u64,
    /// How long after a failover the next automatic failover is held back. If an operator acknowledges the
    /// first failover, the next failover is not held back.
    pub cooldown_ms: u64,
    /// Whether commits must wait for ACKs. If not, a missing wait is not reported.
    pub semi_sync: bool,
}

impl Default for AnalysisSettings {
    fn default() -> Self {
        Self {
            detect_after_ms: 3_000,
            unanimous_detect_after_ms: 1_200,
            stale_after_ms: 10_000,
            blocked_after_ms: 5_000,
            lag_seconds_max: 10,
            lag_after_ms: 10_000,
            cooldown_ms: 3_600_000,
            semi_sync: true,
        }
    }
}

/// Returns the findings at `now_ms`, with the most severe first. At most one finding demands a failover.
pub fn analyse(history: &ObservationHistory, guard: &FailoverGuard, now_ms: u64) -> Vec<ClusterFinding> {
    let settings = &history.settings;
    let mut findings = Vec::new();
    let state = dead_primary_detection::judge(history, settings, now_ms);
    if state.is_answering {
        primary_write_findings::judge(history, settings, now_ms, &mut findings);
    }
    let is_dead = state.finding.as_ref().is_some_and(|finding| finding.code == FailureCode::DeadPrimary);
    findings.extend(state.finding);
    non_primary_findings::judge(history, settings, now_ms, is_dead, &mut findings);
    findings.sort_by_key(|finding| finding.code);
    guard.decide(&mut findings, settings, now_ms);
    findings
}
