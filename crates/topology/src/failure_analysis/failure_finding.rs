//! Findings of the failure analysis: a failure code, its evidence, and the action of the manager.

use std::fmt;

use serde::Serialize;

use super::failover_readiness::FailoverReadiness;

/// Failure codes, with the most severe first. docs/reference/failure-codes.md explains each code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum FailureCode {
    /// Two servers take writes, and each has transactions that the other lacks.
    SplitBrainSuspected,
    /// The primary's process, or its host, is dead.
    DeadPrimary,
    /// The primary does not answer the manager, and other observers do not confirm that it is dead.
    UnreachablePrimary,
    /// The primary lost transactions that it had.
    RewoundPrimary,
    /// The primary answers, but takes no writes.
    PrimaryReadOnlyOrFull,
    /// The primary answers, and all its connections are in use.
    OutOfConnections,
    /// Commits wait for semi-sync ACKs that do not arrive.
    SemiSyncBlocked,
    /// Commits are, or were, reported to clients before another server had them.
    SemiSyncDegraded,
    /// A failover would be refused if the primary died now.
    FailoverNotReady,
    /// A relay does not answer.
    DeadRelay,
    /// A relay lost the stream of a primary that answers.
    RelayDetached,
    /// A replica does not answer.
    DeadReplica,
    /// A replica does not receive, or does not apply.
    ReplicaStopped,
    /// The lag of a replica is too large.
    ReplicaLagging,
}

impl FailureCode {
    /// All failure codes.
    pub const ALL: [Self; 14] = [
        Self::SplitBrainSuspected,
        Self::DeadPrimary,
        Self::UnreachablePrimary,
        Self::RewoundPrimary,
        Self::PrimaryReadOnlyOrFull,
        Self::SemiSyncBlocked,
        Self::SemiSyncDegraded,
        Self::FailoverNotReady,
        Self::DeadRelay,
        Self::RelayDetached,
        Self::DeadReplica,
        Self::ReplicaStopped,
        Self::ReplicaLagging,
        Self::OutOfConnections,
    ];
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the manager does about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingAction {
    /// Fail over, if the rules of lossless failover allow it.
    FailOver,
    /// A failover is due, but something holds it back.
    Held(FailoverHold),
    /// Only report the finding.
    Alarm,
}

impl fmt::Display for FindingAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailOver => f.write_str("fail over"),
            Self::Alarm => f.write_str("alarm"),
            Self::Held(hold) => write!(f, "held: {hold}"),
        }
    }
}

/// What holds a failover back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailoverHold {
    /// An operator has paused failovers.
    Paused,
    /// The server is in planned downtime.
    Downtime {
        /// End of the downtime, in milliseconds since 1970.
        until_ms: u64,
        /// The reason that the operator gave.
        reason: String,
    },
    /// The last failover is recent and not acknowledged.
    Cooldown {
        /// End of the cool-down, in milliseconds since 1970.
        until_ms: u64,
    },
    /// Two servers take writes. Promoting a third server would make this worse.
    SplitBrain,
}

impl fmt::Display for FailoverHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("failover is paused"),
            Self::Downtime { until_ms, reason } => {
                write!(f, "in planned downtime until {until_ms}: {reason}")
            }
            Self::Cooldown { until_ms } => {
                write!(f, "the last failover is not acknowledged, and its cool-down lasts until {until_ms}")
            }
            Self::SplitBrain => f.write_str("two servers take writes"),
        }
    }
}

/// A failure with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterFinding {
    /// The failure code.
    pub code: FailureCode,
    /// The server or relay that has failed.
    pub server: String,
    /// Since when the failure exists, in milliseconds of the caller's clock.
    pub since_ms: u64,
    /// What each observer reported.
    pub evidence: Vec<String>,
    /// What the manager does about the finding.
    pub action: FindingAction,
    /// For [`FailureCode::FailoverNotReady`]: the code of the safety rule that would refuse the failover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl ClusterFinding {
    /// Returns the finding [`FailureCode::FailoverNotReady`] if a safety rule would refuse a failover of
    /// `primary`; `None` if no rule would refuse it.
    pub fn not_ready(primary: &str, readiness: &FailoverReadiness, since_ms: u64) -> Option<Self> {
        let FailoverReadiness::NotReady { rule, reason } = readiness else { return None };
        let evidence = vec![format!("every failover would be refused: {rule} {reason}")];
        let finding = Self::new(FailureCode::FailoverNotReady, primary, since_ms, evidence);
        Some(Self { rule: Some(rule.clone()), ..finding })
    }

    pub(super) fn new(code: FailureCode, server: &str, since_ms: u64, evidence: Vec<String>) -> Self {
        let action =
            if code == FailureCode::DeadPrimary { FindingAction::FailOver } else { FindingAction::Alarm };
        Self { code, server: server.to_owned(), since_ms, evidence, action, rule: None }
    }
}
