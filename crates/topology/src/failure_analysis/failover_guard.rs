//! Decides whether a finding causes a failover, or what holds the failover back: a pause, downtime, or the
//! cool-down after the last failover. Without a cool-down, servers that fail and return repeatedly could
//! cause one failover after another.

use serde::{Deserialize, Serialize};

use super::AnalysisSettings;
use super::failure_finding::{ClusterFinding, FailoverHold, FailureCode, FindingAction};

/// Planned downtime of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Downtime {
    /// The server or relay in downtime. `None` if the whole cluster is in downtime.
    #[serde(deserialize_with = "Option::deserialize")]
    pub server: Option<String>,
    /// Start of the downtime, in milliseconds since 1970.
    pub from_ms: u64,
    /// End of the downtime, in milliseconds since 1970.
    pub until_ms: u64,
    /// The reason that the operator gave.
    pub reason: String,
}

/// What holds back the failovers of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverGuard {
    is_paused: bool,
    /// When the last failover began; `None` if an operator acknowledged that failover. The stored file must
    /// contain this field: without it, the manager would not hold back the next failover.
    #[serde(deserialize_with = "Option::deserialize")]
    last_failover_ms: Option<u64>,
    downtimes: Vec<Downtime>,
}

/// The maximum number of stored downtimes. If there are more, the downtime that ends first is dropped.
const DOWNTIMES_MAX: usize = 1000;

impl FailoverGuard {
    /// Whether failovers are paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns when the last failover began, if it is not acknowledged.
    pub fn last_failover_ms(&self) -> Option<u64> {
        self.last_failover_ms
    }

    /// Returns all stored downtimes: planned, present and past ones.
    pub fn downtimes(&self) -> &[Downtime] {
        &self.downtimes
    }

    /// Pauses automatic failovers until [`FailoverGuard::resume`] is called.
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Resumes automatic failovers.
    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    /// Records the start of a failover. The next automatic failover is held back until the cool-down is over
    /// or [`FailoverGuard::acknowledge`] is called.
    pub fn failed_over(&mut self, at_ms: u64) {
        self.last_failover_ms = Some(at_ms);
    }

    /// Corrects the time of the last failover if that time is later than `now_ms`. The clock was then set
    /// back after the failover. Without the correction, the cool-down would last too long.
    pub fn begin_at(&mut self, now_ms: u64) {
        self.last_failover_ms = self.last_failover_ms.map(|at_ms| at_ms.min(now_ms));
    }

    /// Acknowledges the last failover, which ends its cool-down.
    pub fn acknowledge(&mut self) {
        self.last_failover_ms = None;
    }

    /// Adds a downtime.
    pub fn add_downtime(&mut self, downtime: Downtime) {
        self.downtimes.push(downtime);
        if self.downtimes.len() > DOWNTIMES_MAX {
            let first = self.downtimes.iter().enumerate().min_by_key(|(_, downtime)| downtime.until_ms);
            if let Some(index) = first.map(|(index, _)| index) {
                self.downtimes.remove(index);
            }
        }
    }

    /// Ends the downtimes of a server before their planned end.
    pub fn end_downtime(&mut self, server: Option<&str>) {
        self.downtimes.retain(|downtime| downtime.server.as_deref() != server);
    }

    /// Sets the action of each finding. If a server is in downtime, its expected findings are removed, and a
    /// failover of the primary is held back.
    pub(super) fn decide(
        &self,
        findings: &mut Vec<ClusterFinding>,
        settings: &AnalysisSettings,
        now_ms: u64,
    ) {
        let splits = findings.iter().any(|finding| finding.code == FailureCode::SplitBrainSuspected);
        findings.retain(|finding| {
            let is_expected = matches!(
                finding.code,
                FailureCode::DeadReplica
                    | FailureCode::DeadRelay
                    | FailureCode::ReplicaStopped
                    | FailureCode::ReplicaLagging
                    | FailureCode::RelayDetached
                    | FailureCode::UnreachablePrimary
                    | FailureCode::PrimaryReadOnlyOrFull
            );
            !(is_expected && self.downtime_of(&finding.server, now_ms).is_some())
        });
        for finding in findings.iter_mut().filter(|finding| finding.action == FindingAction::FailOver) {
            if let Some(hold) = self.hold(&finding.server, splits, settings, now_ms) {
                finding.action = FindingAction::Held(hold);
            }
        }
    }

    fn hold(
        &self,
        server: &str,
        splits: bool,
        settings: &AnalysisSettings,
        now_ms: u64,
    ) -> Option<FailoverHold> {
        if self.is_paused {
            return Some(FailoverHold::Paused);
        }
        if let Some(downtime) = self.downtime_of(server, now_ms) {
            let Downtime { until_ms, reason, .. } = downtime.clone();
            return Some(FailoverHold::Downtime { until_ms, reason });
        }
        if splits {
            return Some(FailoverHold::SplitBrain);
        }
        let until_ms = self.last_failover_ms?.saturating_add(settings.cooldown_ms);
        (now_ms < until_ms).then_some(FailoverHold::Cooldown { until_ms })
    }

    fn downtime_of(&self, server: &str, now_ms: u64) -> Option<&Downtime> {
        self.downtimes.iter().find(|downtime| {
            let is_its = downtime.server.as_deref().is_none_or(|of| of == server);
            is_its && (downtime.from_ms..downtime.until_ms).contains(&now_ms)
        })
    }
}
