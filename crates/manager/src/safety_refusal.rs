//! The rules that refuse: each is a variant with a stable code, and says what would make it hold.

use serde::{Deserialize, Serialize};

/// A rule that does not hold, so that going on might lose an acknowledged commit or leave two primaries.
///
/// Which of them `--allow-data-loss` overrides: [`SafetyRefusal::is_overridable`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum SafetyRefusal {
    /// The primary did not wait for ackers as it must, at some time since which too few ackers have caught up.
    #[error(
        "{primary} may have acknowledged commits that no acker holds: {problems}; let the ackers catch up while it waits \
         as it must"
    )]
    NotLossless {
        /// The old primary.
        primary: String,
        /// What was wrong with its settings, in words.
        problems: String,
    },
    /// Nobody has looked whether the primary waits, or too long ago.
    #[error(
        "nobody knows whether {primary} waited for ackers: {reason}; a manager has to watch it while it is alive"
    )]
    NotVerified {
        /// The old primary.
        primary: String,
        /// When it was last looked at.
        reason: String,
    },
    /// Too few ackers are stopped that can be read.
    #[error(
        "{stopped} of the {needed} ackers that prove what was acknowledged are stopped and readable; missing: {missing}"
    )]
    #[serde(rename = "incomplete", alias = "too_few_ackers")]
    TooFewAckers {
        /// How many count.
        stopped: u32,
        /// How many must.
        needed: u32,
        /// The others, each with why it does not count.
        missing: String,
    },
    /// The old primary may go on acknowledging commits.
    #[error(
        "{primary} may go on acknowledging commits: {reason}; stop it, or configure a fence hook that does"
    )]
    Unfenced {
        /// The old primary.
        primary: String,
        /// What lets it.
        reason: String,
    },
    /// Logs of ackers contradict each other.
    #[error(
        "the logs of {one} and {other} each hold what the other lacks: {detail}; find out which history is the right one"
    )]
    Diverged {
        /// An acker.
        one: String,
        /// Another.
        other: String,
        /// What each has alone.
        detail: String,
    },
    /// No server can become primary.
    #[error("no server can be promoted: {reasons}")]
    NoCandidate {
        /// Each server with what stands against it.
        reasons: String,
    },
    /// The server that was asked for cannot become primary.
    #[error("{server} cannot be promoted: {reasons}")]
    #[serde(rename = "unfit", alias = "candidate_unfit")]
    CandidateUnfit {
        /// Which.
        server: String,
        /// What stands against it.
        reasons: String,
    },
    /// The primary is not dead, or nobody but one observer says so.
    #[error("{primary} is not known to have failed: {reason}")]
    NotConfirmed {
        /// The primary.
        primary: String,
        /// What was seen.
        reason: String,
    },
    /// Another manager acts, or may.
    #[error("this manager may not act: {reason}")]
    NoLease {
        /// Who holds the lease, or why it was lost.
        reason: String,
    },
    /// A step of a failover failed.
    #[error("{step} failed: {reason}")]
    #[serde(rename = "step", alias = "step_failed")]
    StepFailed {
        /// Which step, with the server.
        step: String,
        /// Why.
        reason: String,
    },
    /// The cluster is not as a switchover needs it.
    #[error("{primary} cannot be switched over: {reasons}; mend that first")]
    NotReady {
        /// The primary.
        primary: String,
        /// What is wrong.
        reasons: String,
    },
    /// A switchover did not get through while no writes may be taken.
    #[error(
        "no new primary within the {bound_ms} ms that {primary} may go without writes: it took too long to {step}; find out what \
         holds that up, or allow more with --max-write-pause-ms"
    )]
    PauseExceeded {
        /// The primary.
        primary: String,
        /// The bound, in milliseconds.
        bound_ms: u64,
        /// What was not done in time.
        step: String,
    },
    /// The manager ended in the midst of a failover or a switchover.
    #[error("{run} was left half done: {reason}")]
    Interrupted {
        /// The run.
        run: String,
        /// Why it was, or why it cannot be undone or finished.
        reason: String,
    },
    /// Another manager has led the cluster since: what was left is not to be undone or finished any more.
    #[error("{run} was left half done, and somebody has acted since: {by}")]
    Superseded {
        /// The run.
        run: String,
        /// Whom somebody has led, and in which term.
        by: String,
    },
    /// A former primary that may have what nobody else has.
    #[error(
        "{server} may hold acknowledged commits that nobody else has, and is not brought back by itself: {reason}; see what only it has \
         (`tailwater rejoin --dry-run`), save what is needed of it, and then `tailwater rejoin`"
    )]
    #[serde(rename = "not_brought_back", alias = "rejoin_unsafe")]
    RejoinUnsafe {
        /// The former primary.
        server: String,
        /// Why it may.
        reason: String,
    },
}

impl SafetyRefusal {
    /// The stable code of this rule, as documented in docs/reference/errors.md.
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

    /// Whether an operator who says `--allow-data-loss` may go on. Logs that contradict each other cannot be followed
    /// whatever may be lost, and the rest has nothing to do with loss.
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
