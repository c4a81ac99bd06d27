//! The state that every failover, switchover and recovery has.

use std::collections::BTreeMap;

use super::undo_actions::UndoLog;
use crate::model::{
    ActionOutcome, Audit, AuditEntry, AuditEvent, LeaseToken, NumberedAction, RunAction, RunOutcome, RunPhase,
};
use crate::safety_refusals::SafetyRefusal;

/// State of a failover or switchover.
#[derive(Debug, Clone)]
pub struct RunState {
    pub(crate) phase: RunPhase,
    /// The lease term of the failover or switchover. `None` until it is known.
    pub(crate) token: Option<LeaseToken>,
    next_number: u32,
    /// Actions that are ordered and not yet answered, by number.
    pub(crate) in_flight: BTreeMap<u32, RunAction>,
    /// Actions of the present phase that wait until earlier actions are answered.
    pub(crate) queue: Vec<RunAction>,
    /// How to undo the actions that the failover or switchover has executed.
    pub(crate) undo: UndoLog,
    /// Whether the new primary takes writes. If it does, the failover or switchover continues after failures
    /// and is not undone.
    pub(crate) promoted: bool,
    /// Actions after the promotion that failed.
    pub(crate) remaining: Vec<RunAction>,
    /// Why the failover or switchover does not continue; `None` while it continues.
    pub(crate) refusal: Option<SafetyRefusal>,
    /// The audit record so far.
    pub(crate) audit: Audit,
}

impl RunState {
    /// Creates the state of a failover or switchover that has not started.
    pub(crate) fn new(audit: Audit, undo: UndoLog) -> Self {
        Self {
            phase: RunPhase::Lease,
            token: None,
            next_number: 1,
            in_flight: BTreeMap::new(),
            queue: Vec::new(),
            undo,
            promoted: false,
            remaining: Vec::new(),
            refusal: None,
            audit,
        }
    }

    /// Records an event in the audit record.
    pub(crate) fn record(&mut self, at_ms: u64, note: AuditEvent) {
        self.audit.steps.push(AuditEntry { at_ms, phase: self.phase, note });
    }

    /// Records that an action is ordered, and gives it a number.
    pub(super) fn order(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        let number = self.next_number;
        self.next_number += 1;
        self.record(at_ms, AuditEvent::ActionOrdered { number, what: act.clone() });
        self.in_flight.insert(number, act.clone());
        (number, act)
    }

    /// Records an outcome. Returns the action if it was in flight.
    pub(super) fn answered(&mut self, at_ms: u64, number: u32, answer: &ActionOutcome) -> Option<RunAction> {
        let act = self.in_flight.remove(&number).filter(|_| self.audit.outcome.is_none());
        match &act {
            Some(_) => {
                let (outcome, text) = answer.summary();
                self.record(at_ms, AuditEvent::ActionAnswered { number, outcome: outcome.to_owned(), text });
            }
            None => self.record(at_ms, AuditEvent::LateAnswer { number }),
        }
        act
    }

    /// Takes the outcome of a lease check.
    ///
    /// # Errors
    /// Why the failover or switchover must not continue. A lease in another lease term is not enough,
    /// because another manager may have acted in between.
    pub(super) fn take_lease(&mut self, answer: ActionOutcome) -> Result<(), String> {
        match answer {
            ActionOutcome::LeaseHeld(token) if self.token.is_none_or(|first| first == token) => {
                self.token = Some(token);
                self.audit.token = Some(token.0);
                Ok(())
            }
            ActionOutcome::LeaseHeld(_) => {
                Err("this manager holds the lease, but in a new lease term".to_owned())
            }
            ActionOutcome::Failed(reason) | ActionOutcome::Unknown(reason) => Err(reason),
            _ => Err("the lease check had an unexpected answer".to_owned()),
        }
    }

    /// Returns the next action, in a phase whose actions run one after the other.
    pub(super) fn next_queued(&mut self) -> Option<RunAction> {
        (!self.queue.is_empty()).then(|| self.queue.remove(0))
    }

    /// Drops the actions that still wait, and ignores the outcomes of the actions in flight.
    pub(crate) fn abandon_phase(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
    }

    /// Finishes the failover or switchover, and records its outcome.
    pub(super) fn finish(&mut self, outcome: RunOutcome) {
        self.audit.outcome = Some(outcome);
        self.abandon_phase();
        self.phase = RunPhase::Finished;
    }
}
