//! State that every run has: its phase, its actions in flight, its lease term, and its audit record.

use std::collections::BTreeMap;

use super::action::{ActionOutcome, RunAction, RunPhase};
use super::audit::{Audit, AuditEntry, AuditEvent, RunOutcome};
use super::state_machine::NumberedAction;
use crate::lease::LeaseToken;
use crate::safety_refusal::SafetyRefusal;

/// State of a run. The order of actions is up to the state machine.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    pub phase: RunPhase,
    /// The lease term, once known.
    pub token: Option<LeaseToken>,
    next_number: u32,
    /// Actions ordered and not answered, by number.
    pub waiting: BTreeMap<u32, RunAction>,
    /// Actions of the phase that wait for earlier ones.
    pub queue: Vec<RunAction>,
    /// The audit record so far.
    pub audit: Audit,
}

impl RunState {
    /// The state of a run that has not started, with its empty record.
    pub fn new(audit: Audit) -> Self {
        let (waiting, queue) = (BTreeMap::new(), Vec::new());
        Self { phase: RunPhase::Lease, token: None, next_number: 1, waiting, queue, audit }
    }

    /// Records an event.
    pub fn note(&mut self, at_ms: u64, note: AuditEvent) {
        self.audit.steps.push(AuditEntry { at_ms, phase: self.phase, note });
    }

    /// Orders an action.
    pub fn order(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        let number = self.next_number;
        self.next_number += 1;
        self.note(at_ms, AuditEvent::ActionOrdered { number, what: act.clone() });
        self.waiting.insert(number, act.clone());
        (number, act)
    }

    /// Records an outcome, and returns its action if that was waited for.
    pub fn answered(&mut self, at_ms: u64, number: u32, answer: &ActionOutcome) -> Option<RunAction> {
        let act = self.waiting.remove(&number).filter(|_| self.audit.outcome.is_none());
        match &act {
            Some(_) => {
                let (outcome, text) = answer.summary();
                self.note(at_ms, AuditEvent::ActionAnswered { number, outcome: outcome.to_owned(), text });
            }
            None => self.note(at_ms, AuditEvent::LateAnswer { number }),
        }
        act
    }

    /// Takes the outcome of a lease check.
    ///
    /// # Errors
    /// Why the lease does not count. Another term does not either: another manager may have acted in between.
    pub fn hold(&mut self, answer: ActionOutcome) -> Result<(), String> {
        match answer {
            ActionOutcome::LeaseHeld(token) if self.token.is_none_or(|first| first == token) => {
                self.token = Some(token);
                self.audit.token = Some(token.0);
                Ok(())
            }
            ActionOutcome::LeaseHeld(_) => Err("another term of the lease has begun".to_owned()),
            ActionOutcome::Failed(reason) | ActionOutcome::Unknown(reason) => Err(reason),
            _ => Err("the lease check had an unexpected answer".to_owned()),
        }
    }

    /// Records the loss of the lease and returns the refusal that ends the run; `None` if it is finished.
    pub fn record_lease_loss(&mut self, at_ms: u64, reason: &str) -> Option<SafetyRefusal> {
        let refusal = SafetyRefusal::NoLease { reason: reason.to_owned() };
        self.audit.outcome.is_none().then(|| {
            self.note(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
            refusal
        })
    }

    /// The next action of those executed one after the other.
    pub fn next(&mut self) -> Option<RunAction> {
        (!self.queue.is_empty()).then(|| self.queue.remove(0))
    }

    /// Ends the run.
    pub fn end(&mut self, outcome: RunOutcome) {
        self.audit.outcome = Some(outcome);
        self.waiting.clear();
        self.queue.clear();
        self.phase = RunPhase::Finished;
    }
}
