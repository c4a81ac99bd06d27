//! The safety rules. Each rule is a variant with a stable code, and its message contains the remedy.

use serde::{Deserialize, Serialize};

/// A safety rule that is violated. Continuing might lose an acknowledged commit or create two primaries.
///
/// `--allow-data-loss` overrides the rules for which [`SafetyRefusal::is_overridable`] returns true.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum SafetyRefusal {
    /// The primary did not wait for ACKs as the lossless rules require, and too few ackers have caught up
    /// since.
    #[error(
        "{primary} may have acknowledged commits that no acker holds: {problems}; let the ackers catch up while the primary waits \
         for ACKs as the lossless rules require"
    )]
    NotLossless {
        /// The old primary.
        primary: String,
        /// What is wrong with the semi-sync settings of the primary.
        problems: String,
    },
    /// No manager ever observed whether the primary waited for ackers, or the last observation is too old.
    #[error(
        "it is not known whether {primary} waited for ackers: {reason}; a manager must watch it while it is alive"
    )]
    NotVerified {
        /// The old primary.
        primary: String,
        /// When a manager last observed the primary.
        reason: String,
    },
    /// Too few ackers are stopped and readable, so that completeness cannot be proven.
    #[error(
        "{stopped} of the {needed} ackers that prove what was acknowledged are stopped and readable; missing: {missing}"
    )]
    #[serde(rename = "incomplete", alias = "too_few_ackers")]
    TooFewAckers {
        /// How many ackers are stopped and readable.
        stopped: u32,
        /// How many ackers must be stopped and readable.
        needed: u32,
        /// The ackers that do not count, each with the reason.
        missing: String,
    },
    /// The old primary may acknowledge further commits.
    #[error(
        "{primary} may acknowledge further commits: {reason}; stop the server, or configure a fence hook that stops it"
    )]
    Unfenced {
        /// The old primary.
        primary: String,
        /// Why the old primary may acknowledge further commits.
        reason: String,
    },
    /// The logs of two ackers contradict each other.
    #[error(
        "the logs of {one} and {other} each hold transactions that the other log lacks: {detail}; find out which log is correct"
    )]
    Diverged {
        /// The first of the two ackers.
        one: String,
        /// The second of the two ackers.
        other: String,
        /// The transactions that only one of the two logs holds.
        detail: String,
    },
    /// No server can become primary.
    #[error("no server can be promoted: {reasons}")]
    NoCandidate {
        /// Each server with its exclusion reasons.
        reasons: String,
    },
    /// The server that the operator requested cannot become primary.
    #[error("{server} cannot be promoted: {reasons}")]
    #[serde(rename = "unfit", alias = "candidate_unfit")]
    CandidateUnfit {
        /// The requested server.
        server: String,
        /// The reasons that exclude this server.
        reasons: String,
    },
    /// The primary is alive, or only one observer reports that it is dead.
    #[error("{primary} is not known to have failed: {reason}")]
    NotConfirmed {
        /// The primary.
        primary: String,
        /// What the observers reported.
        reason: String,
    },
    /// Another manager holds the lease, or it is uncertain which manager holds the lease.
    #[error("this manager may not act: {reason}")]
    NoLease {
        /// Who holds the lease, or why this manager lost it.
        reason: String,
    },
    /// An action of the failover or switchover failed.
    #[error("{step} failed: {reason}")]
    #[serde(rename = "step", alias = "step_failed")]
    StepFailed {
        /// The action, with the server that it acts on.
        step: String,
        /// Why the action failed.
        reason: String,
    },
    /// The cluster is not ready for a switchover.
    #[error("{primary} cannot be switched over: {reasons}; correct these problems first")]
    NotReady {
        /// The primary to be replaced.
        primary: String,
        /// What prevents the switchover.
        reasons: String,
    },
    /// A switchover exceeded the time limit of the write pause.
    #[error(
        "no new primary within the {bound_ms} ms that the write pause of {primary} may last: it took too long to {step}; find out what \
         delays that, or allow more with --max-write-pause-ms"
    )]
    PauseExceeded {
        /// The old primary.
        primary: String,
        /// The time limit, in milliseconds.
        bound_ms: u64,
        /// The action that was not finished.
        step: String,
    },
    /// The manager died or lost the lease during the failover or switchover.
    #[error("the failover or switchover {run} was interrupted: {reason}")]
    Interrupted {
        /// Id of the interrupted failover or switchover.
        run: String,
        /// Why the failover or switchover was interrupted, or why it can be neither undone nor finished.
        reason: String,
    },
    /// Another manager has acted since the interrupted failover or switchover, which is therefore obsolete.
    #[error("the failover or switchover {run} was interrupted, and another manager has acted since: {by}")]
    Superseded {
        /// Id of the interrupted failover or switchover.
        run: String,
        /// Which acker got an order from the other manager, and in which lease term.
        by: String,
    },
    /// A former primary may have transactions that no other server has.
    #[error(
        "{server} may hold acknowledged commits that no other server has, so it does not rejoin automatically: {reason}; list \
         these commits (`tailwater rejoin --dry-run`), save the commits that are needed, and run `tailwater rejoin`"
    )]
    #[serde(rename = "not_brought_back", alias = "rejoin_unsafe")]
    RejoinUnsafe {
        /// The former primary.
        server: String,
        /// Why the former primary may hold such commits.
        reason: String,
    },
}

impl SafetyRefusal {
    /// The stable code, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotLossless { .. } => "TW-MGR-0030",
            Self::NotVerified { .. } => "TW-MGR-0031",
            Self::TooFewAckers { .. } => "TW-MGR-0032",
            Self::Unfenced { .. } => "TW-MGR-0033",
            Self::Diverged { .. } => "TW-MGR-0034",
            Self::NoCandidate { .. } => "TW-MGR-0040",
            Self::CandidateUnfit { .. } => "TW-MGR-0041",
            Self::NotConfirmed { .. } => "TW-MGR-0045",
            Self::NoLease { .. } => "TW-MGR-0046",
            Self::StepFailed { .. } => "TW-MGR-0047",
            Self::NotReady { .. } => "TW-MGR-0070",
            Self::PauseExceeded { .. } => "TW-MGR-0071",
            Self::Interrupted { .. } => "TW-MGR-0072",
            Self::Superseded { .. } => "TW-MGR-0073",
            Self::RejoinUnsafe { .. } => "TW-MGR-0074",
        }
    }

    /// Whether `--allow-data-loss` overrides the rule. It cannot override diverged logs, because no new
    /// primary can continue both logs. The other rules have nothing to do with data loss.
    pub fn is_overridable(&self) -> bool {
        match self {
            Self::NotLossless { .. }
            | Self::NotVerified { .. }
            | Self::TooFewAckers { .. }
            | Self::Unfenced { .. } => true,
            Self::Diverged { .. }
            | Self::NoCandidate { .. }
            | Self::CandidateUnfit { .. }
            | Self::NotConfirmed { .. }
            | Self::NoLease { .. }
            | Self::StepFailed { .. }
            | Self::NotReady { .. }
            | Self::PauseExceeded { .. }
            | Self::Interrupted { .. }
            | Self::Superseded { .. }
            | Self::RejoinUnsafe { .. } => false,
        }
    }
}
