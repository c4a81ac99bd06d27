//! The interface between a state machine and its driver.

use crate::model::{ActionOutcome, Audit, LeaseToken, NumberedAction, RunPhase};

/// A pure state machine: it returns actions and takes their outcomes. The failover or switchover is finished
/// when its audit record contains an outcome.
pub trait RunMachine: Send + Sync {
    /// Returns the first actions. `at_ms` is the time since the start of the failover or switchover, in this
    /// method and in the other methods.
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction>;

    /// Takes the outcome of an action, and returns the next actions.
    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction>;

    /// Ends the failover or switchover because the lease is lost. No further action follows.
    fn lease_lost(&mut self, at_ms: u64, reason: &str);

    /// Returns the present phase.
    fn phase(&self) -> RunPhase;

    /// Returns the lease term, which is passed with every action.
    fn token(&self) -> Option<LeaseToken>;

    /// Returns the audit record so far.
    fn audit(&self) -> &Audit;

    /// Whether actions are executed even if the audit record cannot be stored. This is true for undo actions,
    /// and for actions after the point of no return.
    fn must_continue(&self) -> bool;

    /// Returns when all actions in flight must be answered. Actions without an answer at that time get
    /// [`ActionOutcome::Unknown`].
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Whether clients wait for the actions of this phase, so that no audit record is stored between them.
    /// The last record that was stored shows that these actions may have started.
    fn skips_audit_store(&self) -> bool {
        false
    }
}
