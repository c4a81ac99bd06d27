//! Decides when another thread syncs the bytes for which the source requested no ACK. Readers should see the
//! bytes soon, but unnecessary syncs should not keep the disk busy.

use std::time::{Duration, Instant};

/// The longest time from the arrival of the first pending byte to the sync.
const DELAY_MAX: Duration = Duration::from_millis(1);
/// With more pending bytes than this, a sync may come later than [`DELAY_MAX`]. Otherwise a stream of
/// hundreds of megabytes per second would be synced in small pieces.
const DELAYED_BYTES_MAX: u64 = 256 << 10;
/// Up to this many pending bytes are synced as soon as the stream has no more bytes available. Bytes that
/// arrive during this sync share the next sync.
const AT_ONCE_BYTES_MAX: u64 = 32 << 10;

/// What to do with the pending bytes before the capture reads more of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncDelay {
    /// Sync the pending bytes.
    Now,
    /// Sync the pending bytes unless the stream has more bytes available.
    IfIdle,
    /// Sync the pending bytes if no more bytes arrive within this time.
    Wait(Duration),
}

/// Decides when to sync the pending bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct SyncPacer {
    /// When the pacer first saw the pending bytes.
    since: Option<Instant>,
    /// Whether the source requests ACKs. If so, an event without an ACK request is soon followed by an event
    /// with one, and both must share one sync.
    acks_expected: bool,
}

impl SyncPacer {
    /// Records that the source requests ACKs.
    pub(crate) fn expect_acks(&mut self) {
        self.acks_expected = true;
    }

    /// Whether commits on the source wait for syncs. In this case the syncs run on the capture's own thread.
    pub(crate) fn source_waits(&self) -> bool {
        self.acks_expected
    }

    /// Records that no bytes are pending.
    pub(crate) fn reset(&mut self) {
        self.since = None;
    }

    /// Decides what to do with this many pending bytes. The pending bytes may end inside a transaction.
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
    fn a_slow_stream_is_synced_immediately_and_a_fast_one_in_large_pieces() {
        let start = Instant::now();
        let at = |us| start + Duration::from_micros(us);
        let mut pacer = SyncPacer::default();
        assert_eq!(pacer.delay(1000, false, at(0)), SyncDelay::IfIdle);
        // A sync waits for the end of the transaction, but at most for `DELAY_MAX`.
        assert_eq!(pacer.delay(2000, true, at(400)), SyncDelay::Wait(Duration::from_micros(600)));
        assert_eq!(pacer.delay(2000, true, at(1000)), SyncDelay::Now);
        pacer.reset();
        assert_eq!(pacer.delay(1000, false, at(1100)), SyncDelay::IfIdle);
        assert_eq!(pacer.delay(60_000, false, at(1300)), SyncDelay::Wait(Duration::from_micros(800)));
        assert_eq!(pacer.delay(256 << 10, false, at(2300)), SyncDelay::Now);
        assert_eq!(pacer.delay(1 << 20, false, at(2300)), SyncDelay::Wait(Duration::ZERO));
    }

    #[test]
    fn the_sync_waits_for_the_event_with_the_ack_request() {
        let start = Instant::now();
        let mut pacer = SyncPacer::default();
        pacer.expect_acks();
        assert_eq!(pacer.delay(1000, false, start), SyncDelay::Wait(DELAY_MAX));
        assert_eq!(pacer.delay(1000, false, start + DELAY_MAX), SyncDelay::Now);
    }
}
