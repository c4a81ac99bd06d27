//! What is to be done about a finding, and what holds that back: somebody's word, downtime, and the cool-down after the last
//! failover, so that a cluster whose servers come and go is not failed over again and again.

use serde::{Deserialize, Serialize};

use super::AnalysisSettings;
use super::finding::{ClusterFinding, FailoverHold, FailureCode, FindingAction};

/// A time in which a server is down on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Downtime {
    /// Which server or relay; all of the cluster's if absent.
    #[serde(deserialize_with = "Option::deserialize")]
    pub server: Option<String>,
    /// From when, in milliseconds.
    pub from_ms: u64,
    /// Until when, in milliseconds.
    pub until_ms: u64,
    /// Why, as somebody gave it.
    pub reason: String,
}

/// What holds failovers of one cluster back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailoverGuard {
    is_paused: bool,
    /// When the last failover began, unless it was acknowledged. A field that is not there is an error, and not a failover that never was.
    #[serde(deserialize_with = "Option::deserialize")]
    last_failover_ms: Option<u64>,
    downtimes: Vec<Downtime>,
}

/// Downtimes that are kept at once; the one that ends first makes room.
const DOWNTIMES_MAX: usize = 1000;

impl FailoverGuard {
    /// Whether somebody has paused failovers.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// When the last failover began that nobody has acknowledged.
    pub fn last_failover_ms(&self) -> Option<u64> {
        self.last_failover_ms
    }

    /// What is down on purpose, or will be, or was.
    pub fn downtimes(&self) -> &[Downtime] {
        &self.downtimes
    }

    /// No failover by itself until [`FailoverGuard::resume`].
    pub fn pause(&mut self) {
        self.is_paused = true;
    }

    /// Failovers again.
    pub fn resume(&mut self) {
        self.is_paused = false;
    }

    /// A failover begins: no other by itself until it has cooled down, or [`FailoverGuard::acknowledge`].
    pub fn failed_over(&mut self, at_ms: u64) {
        self.last_failover_ms = Some(at_ms);
    }

    /// It is `now_ms`: a failover that is noted as later began by a clock that has been set back since, and would hold others
    /// until that comes round again.
    pub fn begin_at(&mut self, now_ms: u64) {
        self.last_failover_ms = self.last_failover_ms.map(|at_ms| at_ms.min(now_ms));
    }

    /// Somebody has looked at the last failover.
    pub fn acknowledge(&mut self) {
        self.last_failover_ms = None;
    }

    /// A server is, or will be, down on purpose.
    pub fn add_downtime(&mut self, downtime: Downtime) {
        self.downtimes.push(downtime);
        if self.downtimes.len() > DOWNTIMES_MAX {
            let first = self.downtimes.iter().enumerate().min_by_key(|(_, downtime)| downtime.until_ms);
            if let Some(index) = first.map(|(index, _)| index) {
                self.downtimes.remove(index);
            }
        }
    }

    /// A server is back earlier.
    pub fn end_downtime(&mut self, server: Option<&str>) {
        self.downtimes.retain(|downtime| downtime.server.as_deref() != server);
    }

    /// Decides what is to be done about each; what is down on purpose is no finding, but of the primary, which is held.
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
