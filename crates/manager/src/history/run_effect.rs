//! What one run changed, from its audit record.

use super::interrupted_run::InterruptedRun;
use crate::model::{Audit, LeaseToken, RunOutcome};
use crate::safety_refusal::SafetyRefusal;

/// What a run changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEffect {
    /// Nothing.
    None,
    /// A server became primary: by this run, or by the run that it recovered.
    Promoted {
        /// The server.
        server: String,
    },
    /// Everything was undone.
    Undone,
    /// An action is not undone, and is left to an operator.
    Incomplete,
    /// Its manager ended during the run: it is to be undone or finished.
    Interrupted(Box<InterruptedRun>),
    /// It was a recovery, and there is nothing left to recover: the run is undone, or another manager has
    /// acted since.
    Recovered {
        /// Id of the interrupted run.
        run: String,
    },
    /// It was a recovery, and the run is still to be recovered.
    RecoveryFailed {
        /// Id of the interrupted run.
        run: String,
        /// The term of this recovery: orders of that term are no sign of another manager.
        term: u64,
    },
}

impl RunEffect {
    /// Reads a record.
    pub fn of(audit: &Audit) -> Self {
        if audit.dry_run {
            return Self::None;
        }
        match (&audit.outcome, &audit.resumes) {
            (Some(RunOutcome::Promoted { server, .. }), _) => Self::Promoted { server: server.clone() },
            (Some(RunOutcome::Undone { .. }), Some(run))
            | (Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Superseded { .. } }), Some(run)) => {
                Self::Recovered { run: run.clone() }
            }
            (None | Some(RunOutcome::Unchanged { .. } | RunOutcome::Incomplete { .. }), Some(run)) => {
                Self::RecoveryFailed { run: run.clone(), term: audit.token.unwrap_or_default() }
            }
            (Some(RunOutcome::Undone { .. }), None) => Self::Undone,
            (Some(RunOutcome::Unchanged { .. }), None) | (Some(RunOutcome::Planned { .. }), _) => Self::None,
            (Some(RunOutcome::Incomplete { .. }), None) => {
                InterruptedRun::of(audit).map_or(Self::Incomplete, |run| Self::Interrupted(Box::new(run)))
            }
            (None, None) => {
                InterruptedRun::of(audit).map_or(Self::None, |run| Self::Interrupted(Box::new(run)))
            }
        }
    }
}

/// The term of a record; 0 if its manager never held the lease.
pub(super) fn term(audit: &Audit) -> LeaseToken {
    LeaseToken(audit.token.unwrap_or_default())
}
