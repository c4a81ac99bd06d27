//! Limits how often readers at the log's end are woken.
//!
//! A commit wakes every reader that follows the log. With a few readers they are woken at once. With many,
//! waking each for each commit would take the CPU from the source and from the capture, whose ACK the
//! source's clients wait for: servers with many dump threads get slow that way. All readers together are
//! therefore woken a bounded number of times per second, and each then gets everything new in one piece.

use std::time::Duration;

use tailwater_log::DurableState;
use tokio::sync::watch;

/// Number of readers that are woken at once, however often.
const PROMPT_READERS_MAX: u32 = 2;

/// Wake-ups per second and processor of all readers beyond those, together.
const WAKE_UPS_PER_PROCESSOR: u32 = 500;

/// The longest wait of a reader for available events.
const INTERVAL_MAX: Duration = Duration::from_millis(40);

/// The minimum time between two wake-ups of all readers.
pub(crate) fn wakeup_interval(readers: usize, processors: usize) -> Duration {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let beyond = number(readers).saturating_sub(PROMPT_READERS_MAX);
    let per_second = WAKE_UPS_PER_PROCESSOR.saturating_mul(number(processors).max(1));
    Duration::from_secs(1).saturating_mul(beyond).min(INTERVAL_MAX.saturating_mul(per_second)) / per_second
}

/// The channel that paced readers wait on.
#[derive(Debug, Clone)]
pub(crate) struct WakeupPacer {
    durable: watch::Sender<DurableState>,
    processors: usize,
}

impl WakeupPacer {
    /// Starts with the current durable position.
    pub(crate) fn new(durable: &watch::Receiver<DurableState>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { durable: watch::Sender::new(*durable.borrow()), processors }
    }

    /// A receiver for a reader that has reached the log's end.
    pub(crate) fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.durable.subscribe()
    }

    /// Forwards changes of `durable` to the readers, for as long as it changes.
    pub(crate) async fn keep(self, mut durable: watch::Receiver<DurableState>) {
        while durable.changed().await.is_ok() {
            let now = *durable.borrow_and_update();
            self.durable.send_replace(now);
            let interval = wakeup_interval(self.durable.receiver_count(), self.processors);
            if !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
        }
        // The writer has ended: readers continue to serve from the log.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tailwater_log::{LogPosition, LogState};

    use super::*;

    #[test]
    fn total_wakeups_are_bounded() {
        for processors in [1, 2, 64, usize::MAX] {
            assert_eq!(wakeup_interval(0, processors), Duration::ZERO);
            assert_eq!(wakeup_interval(2, processors), Duration::ZERO);
            assert!(wakeup_interval(usize::MAX, processors) <= INTERVAL_MAX);
        }
        for readers in 3..=40_usize {
            let per_second = (readers - 2) as f64 / wakeup_interval(readers, 2).as_secs_f64();
            assert!(per_second < 1_001.0, "{readers} readers: {per_second}");
        }
        assert_eq!(wakeup_interval(10, 2), Duration::from_millis(8));
        assert_eq!(wakeup_interval(10, 16), Duration::from_millis(1));
        assert_eq!(wakeup_interval(1_000, 2), INTERVAL_MAX);
        assert_eq!(wakeup_interval(5, 0), wakeup_interval(5, 1));
    }

    #[tokio::test]
    async fn changes_during_the_pause_are_forwarded_right_after_it() {
        let durable =
            |offset| DurableState { position: LogPosition { segment: 1, offset }, state: LogState::Open };
        let (source, receiver) = watch::channel(durable(4));
        let pace = WakeupPacer::new(&receiver);
        let mut readers: Vec<_> = (0..50).map(|_| pace.subscribe()).collect();
        let task = tokio::spawn(pace.clone().keep(receiver));
        source.send_replace(durable(10));
        for reader in &mut readers {
            reader.changed().await.unwrap();
            assert_eq!(*reader.borrow_and_update(), durable(10));
        }
        for offset in 11..=20 {
            source.send_replace(durable(offset));
        }
        for reader in &mut readers {
            reader.changed().await.unwrap();
            assert_eq!(*reader.borrow_and_update(), durable(20));
        }
        task.abort();
    }
}
