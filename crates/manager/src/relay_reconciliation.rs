//! Finds relays that follow another server than the primary, because they were away when the primary changed
//! or could not obey. Pure.
//!
//! The primary is determined by what survives restarts of managers and relays: the audit records, and the
//! orders that each relay has kept. The latest term counts; within a term the record does, because it
//! contains the last decision. If they contradict each other, or a run is unfinished, nothing is decided and
//! no relay gets an order.

use std::collections::BTreeSet;

use crate::SafetyRefusal;
use crate::cluster_watch::RelayAssignment;
use crate::failover::{Audit, RunOutcome};
use crate::lease::LeaseToken;
use crate::recovery::InterruptedRun;

/// The last change of primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryRecord {
    /// The term of the change.
    pub term: LeaseToken,
    /// The new primary.
    pub server: String,
}

/// What the audit records say, this manager's own and shared ones of other managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedPrimary {
    /// No run has changed the primary.
    NeverChanged,
    /// The last run that changed it.
    Known(PrimaryRecord),
    /// A run changed something and was neither undone nor finished.
    Unfinished {
        /// The term.
        term: LeaseToken,
    },
}

impl RecordedPrimary {
    /// Reads records, the newest first. A run that changed nothing, or was undone, is skipped.
    pub fn of(newest_first: impl IntoIterator<Item = Audit>) -> Self {
        let mut over = BTreeSet::new();
        for audit in newest_first.into_iter().filter(|audit| !audit.dry_run) {
            let term = LeaseToken(audit.token.unwrap_or_default());
            match (&audit.outcome, &audit.resumes) {
                (Some(RunOutcome::Promoted { server, .. }), _) => {
                    return Self::Known(PrimaryRecord { term, server: server.clone() });
                }
                (Some(RunOutcome::Undone { .. }), Some(run))
                | (Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Superseded { .. } }), Some(run)) => {
                    over.insert(run.clone());
                }
                // The interrupted run decides.
                (None | Some(RunOutcome::Incomplete { .. }), Some(_)) => {}
                (None | Some(RunOutcome::Incomplete { .. }), None) if over.contains(&audit.id) => {}
                (None, None) if InterruptedRun::of(&audit).is_none() => {}
                (None | Some(RunOutcome::Incomplete { .. }), None) => return Self::Unfinished { term },
                (
                    Some(
                        RunOutcome::Unchanged { .. } | RunOutcome::Undone { .. } | RunOutcome::Planned { .. },
                    ),
                    _,
                ) => {}
            }
        }
        Self::NeverChanged
    }
}

impl PrimaryRecord {
    /// The present primary by the records and by all relays that answer; `None` if it is uncertain in the
    /// term `now`. A commit needs `acks` ACKs. A failover stops so many relays that any `acks` of them
    /// include one that knows of it; fewer may not.
    pub fn of<'a>(
        recorded: &RecordedPrimary,
        relays: impl IntoIterator<Item = &'a RelayAssignment> + Clone,
        (acks, now): (u32, LeaseToken),
    ) -> Option<Self> {
        let relays = || relays.clone().into_iter();
        let are_few = relays().count() < usize::try_from(acks).unwrap_or(usize::MAX);
        // Another manager holds a later lease, or an operator gave orders by hand.
        if are_few || relays().any(|assignment| assignment.term > now) {
            return None;
        }
        let recorded_in = match recorded {
            RecordedPrimary::NeverChanged => LeaseToken(0),
            RecordedPrimary::Known(PrimaryRecord { term, .. }) | RecordedPrimary::Unfinished { term } => {
                *term
            }
        };
        let latest = relays().map(|assignment| assignment.assigned_term).max().unwrap_or(LeaseToken(0));
        let decision = match recorded {
            RecordedPrimary::Known(decision) if recorded_in >= latest => decision.clone(),
            RecordedPrimary::Unfinished { .. } if recorded_in >= latest => return None,
            _ => {
                let mut told = relays()
                    .filter(|assignment| assignment.assigned_term == latest && latest > LeaseToken(0));
                let server = told.next()?.source.clone();
                if told.any(|assignment| assignment.source != server) {
                    return None;
                }
                Self { term: latest, server }
            }
        };
        // A relay stopped since then belongs to an unfinished run, and may be all that fences a primary. The
        // record of the own run of that term tells which relays it stopped.
        let is_recorded = matches!(recorded, RecordedPrimary::Known(recorded) if *recorded == decision);
        let is_begun = relays().any(|assignment| {
            let in_that = assignment.term == decision.term && !is_recorded;
            assignment.is_stopped && (assignment.term > decision.term || in_that)
        });
        (!is_begun && decision.term <= now).then_some(decision)
    }

    /// Whether a relay must be repointed. A relay that follows the primary is left alone, whatever its term,
    /// because an order would interrupt its stream. So is a relay that follows the primary and was stopped by
    /// hand since, on which an operator relies.
    pub fn needs_repoint(&self, assignment: &RelayAssignment) -> bool {
        let was_left =
            assignment.is_stopped && (LeaseToken(1)..self.term).contains(&assignment.assigned_term);
        assignment.source != self.server || was_left
    }

    /// Whether at least one relay was repointed to that server in that term. Records alone may be outdated if
    /// other managers have acted since, and their relays do not report terms or use another name for the
    /// server.
    pub fn is_confirmed<'a>(&self, relays: impl IntoIterator<Item = &'a RelayAssignment>) -> bool {
        relays
            .into_iter()
            .any(|assignment| assignment.source == self.server && assignment.assigned_term == self.term)
    }
}
