//! Determines from an audit record what the failover or switchover changed.

use super::interrupted_failover::InterruptedRun;
use crate::model::{Audit, LeaseToken, RunOutcome};
use crate::safety_refusals::SafetyRefusal;

/// What a failover or switchover changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEffect {
    /// The failover or switchover changed nothing.
    None,
    /// A server became primary. Either this failover or switchover promoted it, or this recovery finished the
    /// failover or switchover that had promoted it.
    Promoted {
        /// The server that became primary.
        server: String,
    },
    /// The failover or switchover was undone completely.
    Undone,
    /// At least one action was not undone, and an operator must act.
    Incomplete,
    /// The manager died or lost the lease during the failover or switchover. The failover or switchover must
    /// be undone or finished.
    Interrupted(Box<InterruptedRun>),
    /// The audit record is that of a recovery, and there is nothing left to recover: the interrupted failover
    /// or switchover is undone, or another manager has acted since.
    Recovered {
        /// Id of the interrupted failover or switchover.
        run: String,
    },
    /// The audit record is that of a recovery that failed: the interrupted failover or switchover must still
    /// be recovered.
    RecoveryFailed {
        /// Id of the interrupted failover or switchover.
        run: String,
        /// The lease term of this recovery. An order to a relay in this term does not show that another
        /// manager has acted.
        term: u64,
    },
}

impl RunEffect {
    /// Reads an audit record.
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

/// Returns the lease term of an audit record; 0 if its manager never held the lease.
pub(super) fn term(audit: &Audit) -> LeaseToken {
    LeaseToken(audit.token.unwrap_or_default())
}
