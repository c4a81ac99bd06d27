//! Interface of the state machines.

use crate::model::{ActionOutcome, Audit, LeaseToken, NumberedAction, RunPhase};

/// A pure state machine: actions out, outcomes in. It is finished when its audit record has an outcome.
pub trait RunMachine: Send + Sync {
    /// Returns the first actions. `at_ms` here and below counts from the start of the run.
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction>;

    /// Takes the outcome of an action, and returns the next actions.
    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction>;

    /// Ends the run because the lease is lost. No further action follows.
    fn lease_lost(&mut self, at_ms: u64, reason: &str);

    /// The present phase.
    fn phase(&self) -> RunPhase;

    /// The lease term, passed with every action.
    fn token(&self) -> Option<LeaseToken>;

    /// The audit record so far.
    fn audit(&self) -> &Audit;

    /// Whether actions are executed even if the record cannot be stored: undo actions, and those after the
    /// point of no return.
    fn must_continue(&self) -> bool;

    /// When all actions in flight must be answered. Those that are not get [`ActionOutcome::Unknown`].
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Whether clients wait for each action, so that records are not stored in between. The record stored
    /// before shows that this part may have begun.
    fn skips_audit_store(&self) -> bool {
        false
    }
}
