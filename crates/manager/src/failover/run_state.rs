//! What every run has, whatever it orders: where it stands, what it waits for, its term of the lease, and its record.

use std::collections::BTreeMap;

use super::action::{ActionOutcome, RunAction, RunPhase};
use super::audit::{Audit, AuditEntry, AuditEvent, RunOutcome};
use super::state_machine::NumberedAction;
use crate::lease::LeaseToken;
use crate::safety_refusal::SafetyRefusal;

/// The course of a run. What comes after what is for the machine to say.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    /// Where it stands.
    pub phase: RunPhase,
    /// The term of the lease, once it was asked for.
    pub token: Option<LeaseToken>,
    next_number: u32,
    /// What was ordered and is not answered.
    pub waiting: BTreeMap<u32, RunAction>,
    /// Acts of the phase that wait for those before them.
    pub queue: Vec<RunAction>,
    /// The record so far.
    pub audit: Audit,
}

impl RunState {
    /// One that has not begun, with its record, which is empty.
    pub fn new(audit: Audit) -> Self {
        let (waiting, queue) = (BTreeMap::new(), Vec::new());
        Self { phase: RunPhase::Lease, token: None, next_number: 1, waiting, queue, audit }
    }

    /// Notes what happened.
    pub fn note(&mut self, at_ms: u64, note: AuditEvent) {
        self.audit.steps.push(AuditEntry { at_ms, phase: self.phase, note });
    }

    /// Orders an act, and waits for its answer.
    pub fn order(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        let number = self.next_number;
        self.next_number += 1;
        self.note(at_ms, AuditEvent::ActionOrdered { number, what: act.clone() });
        self.waiting.insert(number, act.clone());
        (number, act)
    }

    /// Notes an answer and gives its act, if that is waited for.
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

    /// Takes the answer to the question for the lease.
    ///
    /// # Errors
    /// Why it does not hold; so it is in another term, too: between the two somebody else may have acted.
    pub fn hold(&mut self, answer: ActionOutcome) -> Result<(), String> {
        match answer {
            ActionOutcome::LeaseHeld(token) if self.token.is_none_or(|first| first == token) => {
                self.token = Some(token);
                self.audit.token = Some(token.0);
                Ok(())
            }
            ActionOutcome::LeaseHeld(_) => Err("another term of the lease has begun".to_owned()),
            ActionOutcome::Failed(reason) | ActionOutcome::Unknown(reason) => Err(reason),
            _ => Err("the question for the lease was answered with something else".to_owned()),
        }
    }

    /// Notes that the lease is lost, and gives the refusal that ends the run; nothing if it is over.
    pub fn record_lease_loss(&mut self, at_ms: u64, reason: &str) -> Option<SafetyRefusal> {
        let refusal = SafetyRefusal::NoLease { reason: reason.to_owned() };
        self.audit.outcome.is_none().then(|| {
            self.note(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
            refusal
        })
    }

    /// The next of the acts that come one after the other.
    pub fn next(&mut self) -> Option<RunAction> {
        (!self.queue.is_empty()).then(|| self.queue.remove(0))
    }

    /// It is over.
    pub fn end(&mut self, outcome: RunOutcome) {
        self.audit.outcome = Some(outcome);
        self.waiting.clear();
        self.queue.clear();
        self.phase = RunPhase::Finished;
    }
}
