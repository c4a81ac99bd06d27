//! What can be driven.

use crate::failover::state_machine::NumberedAction;
use crate::failover::{ActionOutcome, Audit, Failover, RunPhase};
use crate::lease::LeaseToken;
use crate::recovery::RunRecovery;
use crate::switchover::Switchover;

/// A pure machine: acts out, answers in. It is over when its record has an outcome.
pub trait RunMachine: Send + Sync {
    /// The first acts. `at_ms` here and below is the time since the beginning.
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction>;

    /// Takes the answer to an act.
    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction>;

    /// The lease was lost, or ended: nothing more is done.
    fn lease_lost(&mut self, at_ms: u64, reason: &str);

    /// Where it stands.
    fn phase(&self) -> RunPhase;

    /// The term of the lease; goes along with every act.
    fn token(&self) -> Option<LeaseToken>;

    /// The record so far.
    fn audit(&self) -> &Audit;

    /// Whether an act may be done though its record cannot be stored: what undoes, and what comes when there is only forward.
    fn must_continue(&self) -> bool;

    /// When all that is under way has to be answered; it is answered with [`ActionOutcome::Unknown`] then.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Whether clients wait for each act, so that none waits for its record to be stored: what was stored before says that
    /// this had begun.
    fn skips_audit_store(&self) -> bool {
        false
    }
}

impl RunMachine for Failover {
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> RunPhase {
        Self::phase(self)
    }

    fn token(&self) -> Option<LeaseToken> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    fn must_continue(&self) -> bool {
        self.phase() > RunPhase::MakeWritable
    }
}

impl RunMachine for RunRecovery {
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> RunPhase {
        Self::phase(self)
    }

    fn token(&self) -> Option<LeaseToken> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    /// All that it does was begun before.
    fn must_continue(&self) -> bool {
        true
    }
}

impl RunMachine for Switchover {
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> RunPhase {
        Self::phase(self)
    }

    fn token(&self) -> Option<LeaseToken> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    fn must_continue(&self) -> bool {
        Self::must_continue(self)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Self::deadline_ms(self)
    }

    fn skips_audit_store(&self) -> bool {
        Self::skips_audit_store(self)
    }
}
