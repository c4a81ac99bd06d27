//! What can be driven.

use crate::failover::run::Numbered;
use crate::failover::{Answer, Audit, Failover, Phase};
use crate::lease::Token;
use crate::recovery::Recovery;
use crate::switchover::Switchover;

/// A pure machine: acts out, answers in. It is over when its record has an outcome.
pub trait Machine: Send + Sync {
    /// The first acts. `at_ms` here and below is the time since the beginning.
    fn begin(&mut self, at_ms: u64) -> Vec<Numbered>;

    /// Takes the answer to an act.
    fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered>;

    /// The lease was lost, or ended: nothing more is done.
    fn lease_lost(&mut self, at_ms: u64, reason: &str);

    /// Where it stands.
    fn phase(&self) -> Phase;

    /// The term of the lease; goes along with every act.
    fn token(&self) -> Option<Token>;

    /// The record so far.
    fn audit(&self) -> &Audit;

    /// Whether an act may be done though its record cannot be stored: what undoes, and what comes when there is only forward.
    fn is_beyond_refusing(&self) -> bool;

    /// When all that is under way has to be answered; it is answered with [`Answer::Unknown`] then.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Whether clients wait for each act, so that none waits for its record to be stored: what was stored before says that
    /// this had begun.
    fn is_hurried(&self) -> bool {
        false
    }
}

impl Machine for Failover {
    fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> Phase {
        Self::phase(self)
    }

    fn token(&self) -> Option<Token> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    fn is_beyond_refusing(&self) -> bool {
        self.phase() > Phase::Writable
    }
}

impl Machine for Recovery {
    fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> Phase {
        Self::phase(self)
    }

    fn token(&self) -> Option<Token> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    /// All that it does was begun before.
    fn is_beyond_refusing(&self) -> bool {
        true
    }
}

impl Machine for Switchover {
    fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> Phase {
        Self::phase(self)
    }

    fn token(&self) -> Option<Token> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    fn is_beyond_refusing(&self) -> bool {
        Self::is_beyond_refusing(self)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Self::deadline_ms(self)
    }

    fn is_hurried(&self) -> bool {
        Self::is_hurried(self)
    }
}
