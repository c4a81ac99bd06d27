//! Relays that follow another server than the primary: they were away when it became that, or could not obey. Pure.
//!
//! Who leads is told by what lasts over restarts of managers and relays: the records of runs, and what each relay says that it was
//! ordered. Of both the latest term counts; within one a record does, as it tells what came last. What contradicts itself, or what a
//! run has begun and not ended, decides nothing: then nobody is ordered about.

use std::collections::BTreeSet;

use crate::SafetyRefusal;
use crate::cluster_watch::RelayAssignment;
use crate::failover::{Audit, RunOutcome};
use crate::lease::LeaseToken;
use crate::recovery::InterruptedRun;

/// Who was made primary last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryRecord {
    /// The term in which that was done.
    pub term: LeaseToken,
    /// The server's name.
    pub server: String,
}

/// What the records of runs say: one's own, and those of other managers as far as they are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedPrimary {
    /// No run has made anybody primary.
    NeverChanged,
    /// That one did.
    Known(PrimaryRecord),
    /// One that changed something was neither undone nor finished.
    Unfinished {
        /// Its term.
        term: LeaseToken,
    },
}

impl RecordedPrimary {
    /// What records say, the newest first. What changed nothing, or was undone, leaves it at what was before.
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
                // The run that it was to undo or finish tells.
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
    /// Who leads, by the records of runs and by all relays that tell; nothing if that is not certain in the term `now`. A commit needs
    /// `acks` ACKs: a failover has stopped so many relays that it is known to one of any `acks` of them, and to fewer perhaps not.
    pub fn of<'a>(
        recorded: &RecordedPrimary,
        relays: impl IntoIterator<Item = &'a RelayAssignment> + Clone,
        (acks, now): (u32, LeaseToken),
    ) -> Option<Self> {
        let relays = || relays.clone().into_iter();
        let are_few = relays().count() < usize::try_from(acks).unwrap_or(usize::MAX);
        // Somebody holds the lease behind us, or has given orders by hand.
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
        // One that was stopped since belongs to a run that has not ended: it may be all that fences a primary. What one's own run of that
        // term has stopped its record tells of.
        let is_recorded = matches!(recorded, RecordedPrimary::Known(recorded) if *recorded == decision);
        let is_begun = relays().any(|assignment| {
            let in_that = assignment.term == decision.term && !is_recorded;
            assignment.is_stopped && (assignment.term > decision.term || in_that)
        });
        (!is_begun && decision.term <= now).then_some(decision)
    }

    /// Whether a relay is to be told whom to follow. One that follows the primary, by whatever term, is left alone: an order would
    /// interrupt its stream. So is one that stands still though it was led there since, or to begin with: somebody has stopped it by hand,
    /// and counts on that.
    pub fn needs_repoint(&self, assignment: &RelayAssignment) -> bool {
        let was_left =
            assignment.is_stopped && (LeaseToken(1)..self.term).contains(&assignment.assigned_term);
        assignment.source != self.server || was_left
    }

    /// Whether a relay was led so, too. Records alone may be outdated where others have led since whose relays do not say when, or call the
    /// server by another name.
    pub fn is_confirmed<'a>(&self, relays: impl IntoIterator<Item = &'a RelayAssignment>) -> bool {
        relays
            .into_iter()
            .any(|assignment| assignment.source == self.server && assignment.assigned_term == self.term)
    }
}
