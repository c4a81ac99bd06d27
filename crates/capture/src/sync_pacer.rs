//! Decides when bytes without an ACK request are written and handed to another thread for syncing, so that
//! readers see them soon and the disk is not busy for nothing.

use std::time::{Duration, Instant};

/// The longest delay after the first of the bytes came.
const DELAY_MAX: Duration = Duration::from_millis(1);
/// Beyond this many bytes the delay is not enforced: it would cut a stream of hundreds of megabytes per
/// second into small pieces.
const DELAYED_BYTES_MAX: u64 = 256 << 10;
/// Up to this many bytes are handed over as soon as nothing more is available. Bytes that come during their
/// sync share the next one.
const AT_ONCE_BYTES_MAX: u64 = 32 << 10;

/// What to do with pending bytes before more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncDelay {
    /// Hand them over.
    Now,
    /// Hand them over unless more is available.
    IfIdle,
    /// Hand them over if nothing more comes for this long.
    Wait(Duration),
}

/// Paces the syncs of a stream.
#[derive(Debug, Default)]
pub(crate) struct SyncPacer {
    /// When pending bytes were first seen.
    since: Option<Instant>,
    /// Whether the source waits for commits to be durable. An event that requests an ACK then comes right
    /// after one that does not, and both must share a sync.
    acks_expected: bool,
}

impl SyncPacer {
    /// Records that the source requests ACKs.
    pub(crate) fn expect_acks(&mut self) {
        self.acks_expected = true;
    }

    /// Whether commits wait for syncs, which are then not left to another thread.
    pub(crate) fn source_waits(&self) -> bool {
        self.acks_expected
    }

    /// Records that all bytes were handed over.
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// What to do with this many pending bytes, which may end inside a transaction.
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
    fn slow_stream_is_synced_at_once_and_fast_one_in_large_pieces() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut pacer = SyncPacer::default();
        assert_eq!(pacer.delay(1000, false, at(0)), SyncDelay::IfIdle);
        // A transaction is not cut unless it takes long.
        assert_eq!(pacer.delay(2000, true, at(400)), SyncDelay::Wait(Duration::from_micros(600)));
        assert_eq!(pacer.delay(2000, true, at(1000)), SyncDelay::Now);
        pacer.reset();
        assert_eq!(pacer.delay(1000, false, at(1100)), SyncDelay::IfIdle);
        assert_eq!(pacer.delay(60_000, false, at(1300)), SyncDelay::Wait(Duration::from_micros(800)));
        assert_eq!(pacer.delay(256 << 10, false, at(2300)), SyncDelay::Now);
        assert_eq!(pacer.delay(1 << 20, false, at(2300)), SyncDelay::Wait(Duration::ZERO));
    }

    #[test]
    fn event_with_an_ack_request_is_awaited() {
        let start = Instant::now();
        let mut pacer = SyncPacer::default();
        pacer.expect_acks();
        assert_eq!(pacer.delay(1000, false, start), SyncDelay::Wait(DELAY_MAX));
        assert_eq!(pacer.delay(1000, false, start + DELAY_MAX), SyncDelay::Now);
    }
}
