//! What is wrong, how that is known, and what is to be done.

use std::fmt;

use serde::Serialize;

use crate::failover_readiness::FailoverReadiness;

/// The named failures, the gravest first. docs/reference/failure-codes.md explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum FailureCode {
    /// Two servers take writes, and each has what the other lacks.
    SplitBrainSuspected,
    /// The primary's process, or its machine, is gone.
    DeadPrimary,
    /// It does not answer us, and others do not confirm that it is gone.
    UnreachablePrimary,
    /// It has lost transactions that it had.
    RewoundPrimary,
    /// It answers, and takes no writes.
    PrimaryReadOnlyOrFull,
    /// Commits wait for acknowledgements that do not come.
    SemiSyncBlocked,
    /// Commits may be, or were, told to clients before anybody else had them.
    SemiSyncDegraded,
    /// A failover would be refused if the primary died now.
    FailoverNotReady,
    /// A relay does not answer.
    DeadRelay,
    /// A relay has lost the stream of a primary that answers.
    RelayDetached,
    /// A replica does not answer.
    DeadReplica,
    /// A replica does not receive, or does not apply.
    ReplicaStopped,
    /// A replica is far behind.
    ReplicaLagging,
}

impl FailureCode {
    /// All of them.
    pub const ALL: [Self; 13] = [
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
    ];
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingAction {
    /// Another server becomes the primary, if the lossless rules allow it.
    FailOver,
    /// It would, but something holds it back.
    Held(FailoverHold),
    /// Somebody is told.
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
    /// Somebody has paused it.
    Paused,
    /// The server is down on purpose until then.
    Downtime {
        /// In milliseconds.
        until_ms: u64,
        /// As it was given.
        reason: String,
    },
    /// There was a failover a short while ago that nobody has acknowledged.
    Cooldown {
        /// In milliseconds.
        until_ms: u64,
    },
    /// Two servers lead: a third would make it worse.
    SplitBrain,
}

impl fmt::Display for FailoverHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("failover is paused"),
            Self::Downtime { until_ms, reason } => write!(f, "down on purpose until {until_ms}: {reason}"),
            Self::Cooldown { until_ms } => {
                write!(f, "the last failover is not acknowledged, and cools down until {until_ms}")
            }
            Self::SplitBrain => f.write_str("two servers take writes"),
        }
    }
}

/// A failure with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterFinding {
    /// Which.
    pub code: FailureCode,
    /// The server or relay.
    pub server: String,
    /// Since when, in milliseconds.
    pub since_ms: u64,
    /// Who said what.
    pub evidence: Vec<String>,
    /// What is to be done.
    pub action: FindingAction,
    /// Of [`FailureCode::FailoverNotReady`] the stable code of the rule that would refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl ClusterFinding {
    /// A failover of `primary` would be refused by a rule; nothing if that is not so.
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
