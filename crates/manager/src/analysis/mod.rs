//! What several observers said over time becomes a named failure with its evidence. Pure: time is an input.
//!
//! - [`sighting`]: what an observer says, and when.
//! - [`record`]: what is kept of it: bounded by the number of servers, whatever is said.
//! - `primary`: is the primary dead, or is it only we who do not see it?
//! - `voices`: what the others say of it then.
//! - `writing`: it lives; does it take writes, and does it still keep its promises?
//! - `others`: replicas, relays, and servers that lead beside the primary.
//! - [`guard`]: what is to be done about it, and what holds that back.
//! - [`finding`]: the result.
//! - [`one_look`]: what a single look at everybody can tell.
//!
//! docs/reference/failure-codes.md explains each code.

pub mod failover_guard;
pub mod finding;
pub mod history;
mod observer_reports;
mod other_members;
mod primary;
mod primary_writes;
pub mod report;
pub mod snapshot;

use serde::{Deserialize, Serialize};

pub use failover_guard::{Downtime, FailoverGuard};
pub use finding::{ClusterFinding, FailoverHold, FailureCode, FindingAction};
pub use history::{ClusterMembers, ObservationHistory};
pub use report::{Observed, Observer, ObserverReport, ServerHealth};

/// What counts as long. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnalysisSettings {
    /// Silence of a server is none before it has lasted so long.
    pub detect_after_ms: u64,
    /// Silence of the primary on which all observers agree is none before it has lasted so long.
    #[serde(alias = "agreed_after_ms")]
    pub unanimous_detect_after_ms: u64,
    /// What an observer said longer ago is not what it would say now.
    pub stale_after_ms: u64,
    /// Commits that wait longer for an acknowledgement are blocked.
    pub blocked_after_ms: u64,
    /// A replica further behind than this, in seconds, lags ...
    pub lag_seconds_max: u64,
    /// ... once it has been so for so long.
    pub lag_after_ms: u64,
    /// No second failover by itself sooner than this after the first, unless somebody has acknowledged the first.
    pub cooldown_ms: u64,
    /// Whether commits are to wait for acknowledgements; if not, that they do not is nothing to tell.
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

/// What is wrong at `now_ms`, the primary's state first. At most one finding says to fail over.
pub fn analyse(history: &ObservationHistory, guard: &FailoverGuard, now_ms: u64) -> Vec<ClusterFinding> {
    let settings = &history.settings;
    let mut findings = Vec::new();
    let state = primary::judge(history, settings, now_ms);
    if state.is_answering {
        primary_writes::judge(history, settings, now_ms, &mut findings);
    }
    let is_dead = state.finding.as_ref().is_some_and(|finding| finding.code == FailureCode::DeadPrimary);
    findings.extend(state.finding);
    other_members::judge(history, settings, now_ms, is_dead, &mut findings);
    findings.sort_by_key(|finding| finding.code);
    guard.decide(&mut findings, settings, now_ms);
    findings
}
