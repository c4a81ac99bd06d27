//! Finds relays that follow another server than the primary, because they were away when the primary changed
//! or could not obey. Pure.
//!
//! The primary is determined by what survives restarts of managers and relays: the audit records, and the
//! orders that each relay has kept. The latest term counts; within a term the record does, because it
//! contains the last decision. If they contradict each other, or a run is unfinished, nothing is decided and
//! no relay gets an order.

use crate::history::{PrimaryRecord, RecordedPrimary};
use crate::model::{LeaseToken, RelayAssignment};

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
                let mut assigned = relays()
                    .filter(|assignment| assignment.assigned_term == latest && latest > LeaseToken(0));
                let server = assigned.next()?.source.clone();
                if assigned.any(|assignment| assignment.source != server) {
                    return None;
                }
                Self { term: latest, server }
            }
        };
        // A relay stopped since then belongs to an unfinished run, and may be all that fences a primary. The
        // record of its own run of that term lists which relays it stopped.
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
