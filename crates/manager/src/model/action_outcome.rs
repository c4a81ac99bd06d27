//! Outcomes of actions.

use tailwater_wire::gtid::GtidSet;

#[cfg(doc)]
use super::RunAction;
use super::{LeaseToken, PrimaryStatus};
use crate::candidates::CandidateServer;
use crate::lossless::AckerEvidence;

/// Outcome of an action.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionOutcome {
    /// Of [`RunAction::CheckLease`]: the lease is held.
    LeaseHeld(LeaseToken),
    /// Of [`RunAction::ConfirmFailure`]: the primary has failed, with the evidence.
    FailureConfirmed(String),
    /// Of [`RunAction::StopAcker`] and [`RunAction::ReadAcker`].
    AckerState {
        /// Its state; after a stop, read once it has stopped.
        acker: AckerEvidence,
        /// Transactions before the beginning of its log.
        before: GtidSet,
    },
    /// Of [`RunAction::ProbeCandidates`].
    Candidates(Vec<CandidateServer>),
    /// Of [`RunAction::ProbePrimary`] and [`RunAction::ProbeServer`].
    ServerStatus(PrimaryStatus),
    /// Of [`RunAction::PauseWrites`]: all transactions that the primary executed.
    WritesPaused(GtidSet),
    /// Of [`RunAction::CheckAckerTerm`]: the acker accepted an order in that later term.
    LaterTerm {
        /// The term.
        term: LeaseToken,
        /// Whether that order stopped it.
        stopped: bool,
    },
    /// It certainly took effect. Of [`RunAction::CheckAckerTerm`]: there was no later order.
    Done,
    /// It certainly took effect, with a note for the audit record.
    DoneWithNote(String),
    /// It certainly had no effect. Of [`RunAction::CheckLease`] and [`RunAction::ConfirmFailure`]: no.
    Failed(String),
    /// It may have taken effect.
    Unknown(String),
}

impl ActionOutcome {
    /// The result (`done`, `failed` or `unknown`) and a text for the audit record.
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
