//! The outcomes of actions.

use tailwater_wire::gtid::GtidSet;

#[cfg(doc)]
use super::RunAction;
use super::{LeaseToken, PrimaryStatus};
use crate::candidates::CandidateServer;
use crate::lossless_rules::AckerEvidence;

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionOutcome {
    /// Outcome of [`RunAction::CheckLease`]: this manager holds the lease.
    LeaseHeld(LeaseToken),
    /// Outcome of [`RunAction::ConfirmFailure`]: the primary has failed; with the evidence.
    FailureConfirmed(String),
    /// Outcome of [`RunAction::StopAcker`] and [`RunAction::ReadAcker`].
    AckerState {
        /// State of the acker. In the answer to an order to stop, this is the state after the acker has
        /// stopped.
        acker: AckerEvidence,
        /// Transactions before the beginning of the acker's log.
        before: GtidSet,
    },
    /// Outcome of [`RunAction::ProbeCandidates`]: the probed servers.
    Candidates(Vec<CandidateServer>),
    /// Outcome of [`RunAction::ProbePrimary`] and [`RunAction::ProbeServer`].
    ServerStatus(PrimaryStatus),
    /// Outcome of [`RunAction::PauseWrites`]: all transactions that the primary has executed.
    WritesPaused(GtidSet),
    /// Outcome of [`RunAction::CheckAckerTerm`]: the acker has accepted an order in a later lease term.
    LaterTerm {
        /// The later lease term.
        term: LeaseToken,
        /// Whether the later order stopped the acker.
        stopped: bool,
    },
    /// The action certainly took effect. For [`RunAction::CheckAckerTerm`]: the acker got no order in a later
    /// lease term.
    Done,
    /// The action certainly took effect; with a note for the audit record.
    DoneWithNote(String),
    /// The action certainly had no effect. For [`RunAction::CheckLease`]: this manager does not hold the
    /// lease. For [`RunAction::ConfirmFailure`]: the failure is not confirmed.
    Failed(String),
    /// The action may have taken effect.
    Unknown(String),
}

impl ActionOutcome {
    /// Returns the result (`done`, `failed` or `unknown`) and a description for the audit record.
    pub fn summary(&self) -> (&'static str, String) {
        match self {
            Self::LeaseHeld(token) => ("done", format!("term {token}")),
            Self::FailureConfirmed(evidence) => ("done", evidence.clone()),
            Self::AckerState { acker, .. } => {
                let holds =
                    acker.holds.as_ref().map_or_else(|| "nothing readable".to_owned(), ToString::to_string);
                ("done", format!("{}, holds {holds}", acker.stop))
            }
            Self::Candidates(servers) => ("done", format!("{} servers", servers.len())),
            Self::ServerStatus(primary) => ("done", format!("has executed {}", primary.executed)),
            Self::WritesPaused(position) => ("done", format!("has executed {position}")),
            Self::LaterTerm { term, stopped: false } => ("done", format!("was repointed in term {term}")),
            Self::LaterTerm { term, stopped: true } => ("done", format!("was stopped in term {term}")),
            Self::Done => ("done", String::new()),
            Self::DoneWithNote(note) => ("done", note.clone()),
            Self::Failed(reason) => ("failed", reason.clone()),
            Self::Unknown(reason) => ("unknown", reason.clone()),
        }
    }
}
