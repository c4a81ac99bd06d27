//! When bytes that nobody has asked an ACK for are written, and handed to another thread to be synced, so that readers see them soon
//! and the disk is left in peace.

use std::time::{Duration, Instant};

/// At the latest this long after the first of them came.
const DELAY_MAX: Duration = Duration::from_millis(1);
/// Where that would cut a stream of hundreds of megabytes per second into small pieces, the stream is not kept pace with.
const DELAYED_BYTES_MAX: u64 = 256 << 10;
/// So few are handed over when nothing more is at hand: what comes while they are synced shares the next sync.
const AT_ONCE_BYTES_MAX: u64 = 32 << 10;

/// What to do with bytes that were not handed over before more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Hand them over.
    None,
    /// Hand them over unless more is at hand.
    Look,
    /// Hand them over if nothing more comes for so long.
    Wait(Duration),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When it was first seen that bytes were not handed over.
    since: Option<Instant>,
    /// Whether the source waits for commits to be durable. Then what asks for an ACK comes right behind what does not, and both
    /// shall share a sync.
    acks: bool,
}

impl Pace {
    /// Notes that the source asks for an ACK.
    pub(crate) fn acks(&mut self) {
        self.acks = true;
    }

    /// Whether somebody waits for syncs, which are then not left to another thread.
    pub(crate) fn is_awaited(&self) -> bool {
        self.acks
    }

    /// Notes that everything was handed over.
    pub(crate) fn handed_over(&mut self) {
        self.since = None;
    }

    /// What to do with so many bytes, which may end in the midst of a transaction.
    pub(crate) fn patience(&mut self, bytes: u64, in_transaction: bool, now: Instant) -> Patience {
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        if waited >= DELAY_MAX && bytes <= DELAYED_BYTES_MAX {
            return Patience::None;
        }
        if !self.acks && !in_transaction && bytes <= AT_ONCE_BYTES_MAX {
            return Patience::Look;
        }
        Patience::Wait(DELAY_MAX.saturating_sub(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_stream_is_synced_at_once_and_a_fast_one_in_large_pieces() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut pace = Pace::default();
        assert_eq!(pace.patience(1000, false, at(0)), Patience::Look);
        // A transaction is not cut, if it does not last.
        assert_eq!(pace.patience(2000, true, at(400)), Patience::Wait(Duration::from_micros(600)));
        assert_eq!(pace.patience(2000, true, at(1000)), Patience::None);
        pace.handed_over();
        assert_eq!(pace.patience(1000, false, at(1100)), Patience::Look);
        assert_eq!(pace.patience(60_000, false, at(1300)), Patience::Wait(Duration::from_micros(800)));
        assert_eq!(pace.patience(256 << 10, false, at(2300)), Patience::None);
        assert_eq!(pace.patience(1 << 20, false, at(2300)), Patience::Wait(Duration::ZERO));
    }

    #[test]
    fn what_asks_for_an_ack_is_waited_for() {
        let start = Instant::now();
        let mut pace = Pace::default();
        pace.acks();
        assert_eq!(pace.patience(1000, false, start), Patience::Wait(DELAY_MAX));
        assert_eq!(pace.patience(1000, false, start + DELAY_MAX), Patience::None);
    }
}
