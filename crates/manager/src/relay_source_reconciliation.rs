//! Finds relays that follow another server than the primary. Such a relay was unreachable when the primary
//! changed, or could not execute the order to follow the new primary. Pure.
//!
//! The primary is determined from data that survives restarts of managers and relays: the audit records, and
//! the last order that each relay has stored. The audit record or order with the latest lease term decides.
//! If an audit record and an order have the same lease term, the audit record decides, because it contains
//! the final decision. If orders contradict each other, or a failover or switchover is unfinished, the
//! primary counts as uncertain and no relay gets an order.

use crate::audit_history::{PrimaryRecord, RecordedPrimary};
use crate::model::{LeaseToken, RelayAssignment};

impl PrimaryRecord {
    /// Determines the present primary from the audit records and from all relays that answer. Returns `None`
    /// if the primary is uncertain in the lease term `now`.
    ///
    /// `acks` is the number of ACKs that a commit needs. A failover stops so many relays that any group of
    /// `acks` relays contains a relay that knows of the failover. Fewer than `acks` relays therefore prove
    /// nothing.
    pub fn of<'a>(
        recorded: &RecordedPrimary,
        relays: impl IntoIterator<Item = &'a RelayAssignment> + Clone,
        (acks, now): (u32, LeaseToken),
    ) -> Option<Self> {
        let relays = || relays.clone().into_iter();
        let are_few = relays().count() < usize::try_from(acks).unwrap_or(usize::MAX);
        // A relay has an order of a later lease term: another manager holds a later lease, or an operator
        // gave the order by hand.
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
        // A relay that was stopped after this decision belongs to an unfinished failover or switchover.
        // Without this stopped relay, a primary may no longer be fenced. If the decision comes from the audit
        // record of a failover or switchover, that record lists the relays which were stopped in the same
        // lease term.
        let is_recorded = matches!(recorded, RecordedPrimary::Known(recorded) if *recorded == decision);
        let is_begun = relays().any(|assignment| {
            let in_that = assignment.term == decision.term && !is_recorded;
            assignment.is_stopped && (assignment.term > decision.term || in_that)
        });
        (!is_begun && decision.term <= now).then_some(decision)
    }

    /// Whether a relay must be repointed. A relay that follows the primary gets no order, whatever its lease
    /// term, because an order would interrupt its stream. If an operator has stopped a relay that follows the
    /// primary, the relay gets no order either, because the operator may rely on the stop.
    pub fn needs_repoint(&self, assignment: &RelayAssignment) -> bool {
        let was_left =
            assignment.is_stopped && (LeaseToken(1)..self.term).contains(&assignment.assigned_term);
        assignment.source != self.server || was_left
    }

    /// Whether at least one relay was repointed to this server in this lease term. Without such a relay the
    /// audit records may be outdated: other managers may have acted since, and the relays may be of a version
    /// that does not report lease terms, or may use another name for the server.
    pub fn is_confirmed<'a>(&self, relays: impl IntoIterator<Item = &'a RelayAssignment>) -> bool {
        relays
            .into_iter()
            .any(|assignment| assignment.source == self.server && assignment.assigned_term == self.term)
    }
}
