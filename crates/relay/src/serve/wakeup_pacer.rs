//! How often readers at the log's end are told that it has grown.
//!
//! A commit wakes whoever follows the log. With a few readers they are woken at once. With many, waking each for each
//! commit would take the machine away from the source and from the capture, whose ACK the source's clients wait for: that
//! is how a server with many dump threads gets slow. So all of them together are woken a bounded number of times per
//! second, and each then gets what has come meanwhile in one piece.

use std::time::Duration;

use tailwater_log::DurableState;
use tokio::sync::watch;

/// Readers that are told at once, however often.
const PROMPT_READERS_MAX: u32 = 2;

/// So often per second, and for each processor of the machine, readers beyond those are woken, all of them together.
const WAKE_UPS_PER_PROCESSOR: u32 = 500;

/// No reader waits longer for what is there.
const INTERVAL_MAX: Duration = Duration::from_millis(40);

/// The least time between two wake-ups of all readers.
pub(crate) fn wakeup_interval(readers: usize, processors: usize) -> Duration {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let beyond = number(readers).saturating_sub(PROMPT_READERS_MAX);
    let per_second = WAKE_UPS_PER_PROCESSOR.saturating_mul(number(processors).max(1));
    Duration::from_secs(1).saturating_mul(beyond).min(INTERVAL_MAX.saturating_mul(per_second)) / per_second
}

/// What paced readers wait on.
#[derive(Debug, Clone)]
pub(crate) struct WakeupPacer {
    told: watch::Sender<DurableState>,
    processors: usize,
}

impl WakeupPacer {
    /// Begins with what is durable now.
    pub(crate) fn new(durable: &watch::Receiver<DurableState>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { told: watch::Sender::new(*durable.borrow()), processors }
    }

    /// For a reader, from when it has come to the log's end.
    pub(crate) fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.told.subscribe()
    }

    /// Tells the readers what `durable` tells, for as long as it does.
    pub(crate) async fn keep(self, mut durable: watch::Receiver<DurableState>) {
        while durable.changed().await.is_ok() {
            let now = *durable.borrow_and_update();
            self.told.send_replace(now);
            let interval = wakeup_interval(self.told.receiver_count(), self.processors);
            if !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
        }
        // The writer is gone: readers go on from what is there.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use tailwater_log::{LogPosition, LogState};

    use super::*;

    #[test]
    fn all_readers_together_are_woken_a_bounded_number_of_times() {
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
    async fn what_comes_during_the_pause_is_told_after_it_at_once() {
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
