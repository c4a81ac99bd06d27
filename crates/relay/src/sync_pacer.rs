//! When bytes that nobody has asked an ACK for are written, and handed to another thread to be synced, so that readers see them soon
//! and the disk is left in peace.

use std::time::{Duration, Instant};

/// At the latest this long after the first of them came.
const DELAY_MAX: Duration = Duration::from_millis(1);
/// Where that would cut a stream of hundreds of megabytes per second into small pieces, the stream is not kept pacer with.
const DELAYED_BYTES_MAX: u64 = 256 << 10;
/// So few are handed over when nothing more is at hand: what comes while they are synced shares the next sync.
const AT_ONCE_BYTES_MAX: u64 = 32 << 10;

/// What to do with bytes that were not handed over before more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncDelay {
    /// Hand them over.
    Now,
    /// Hand them over unless more is at hand.
    IfIdle,
    /// Hand them over if nothing more comes for so long.
    Wait(Duration),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SyncPacer {
    /// When it was first seen that bytes were not handed over.
    since: Option<Instant>,
    /// Whether the source waits for commits to be durable. Then what asks for an ACK comes right behind what does not, and both
    /// shall share a sync.
    acks_expected: bool,
}

impl SyncPacer {
    /// Notes that the source asks for an ACK.
    pub(crate) fn expect_acks(&mut self) {
        self.acks_expected = true;
    }

    /// Whether somebody waits for syncs, which are then not left to another thread.
    pub(crate) fn source_waits(&self) -> bool {
        self.acks_expected
    }

    /// Notes that everything was handed over.
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// What to do with so many bytes, which may end in the midst of a transaction.
    pub(crate) fn delay(&mut self, bytes: u64, in_transaction: bool, now: Instant) -> SyncDelay {
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        if waited >= DELAY_MAX && bytes <= DELAYED_BYTES_MAX {
            return SyncDelay::Now;
        }
        if !self.acks_expected && !in_transaction && bytes <= AT_ONCE_BYTES_MAX {
            return SyncDelay::IfIdle;
        }
        SyncDelay::Wait(DELAY_MAX.saturating_sub(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_stream_is_synced_at_once_and_a_fast_one_in_large_pieces() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut pacer = SyncPacer::default();
        assert_eq!(pacer.delay(1000, false, at(0)), SyncDelay::IfIdle);
        // A transaction is not cut, if it does not last.
        assert_eq!(pacer.delay(2000, true, at(400)), SyncDelay::Wait(Duration::from_micros(600)));
        assert_eq!(pacer.delay(2000, true, at(1000)), SyncDelay::Now);
        pacer.reset();
        assert_eq!(pacer.delay(1000, false, at(1100)), SyncDelay::IfIdle);
        assert_eq!(pacer.delay(60_000, false, at(1300)), SyncDelay::Wait(Duration::from_micros(800)));
        assert_eq!(pacer.delay(256 << 10, false, at(2300)), SyncDelay::Now);
        assert_eq!(pacer.delay(1 << 20, false, at(2300)), SyncDelay::Wait(Duration::ZERO));
    }

    #[test]
    fn what_asks_for_an_ack_is_waited_for() {
        let start = Instant::now();
        let mut pacer = SyncPacer::default();
        pacer.expect_acks();
        assert_eq!(pacer.delay(1000, false, start), SyncDelay::Wait(DELAY_MAX));
        assert_eq!(pacer.delay(1000, false, start + DELAY_MAX), SyncDelay::Now);
    }
}
