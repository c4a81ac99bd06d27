//! Limits how often the readers that wait at the end of the log are woken.
//!
//! A commit wakes every reader that waits for new events. A few readers are woken immediately. With many
//! readers, waking each of them at each commit would take CPU time from the source and from the capture. The
//! source's commits wait for the ACK of the capture, so they would become slower. MySQL servers with many
//! dump threads have this problem. So all readers together are woken a limited number of times per second.
//! Each reader then gets all new events at once.

use std::time::Duration;

use tailwater_log::DurableState;
use tokio::sync::watch;

use super::shared_tail::TailEncoder;

/// Up to this many readers are woken immediately at every commit.
const PROMPT_READERS_MAX: u32 = 2;

/// The number of wake-ups per second and processor for all readers together. It applies if there are more
/// than [`PROMPT_READERS_MAX`] readers.
const WAKE_UPS_PER_PROCESSOR: u32 = 500;

/// The longest time that a reader has to wait for events that are already in the log.
const INTERVAL_MAX: Duration = Duration::from_millis(40);

/// The minimum time between two wake-ups of all readers.
pub(crate) fn wakeup_interval(readers: usize, processors: usize) -> Duration {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let beyond = number(readers).saturating_sub(PROMPT_READERS_MAX);
    let per_second = WAKE_UPS_PER_PROCESSOR.saturating_mul(number(processors).max(1));
    Duration::from_secs(1).saturating_mul(beyond).min(INTERVAL_MAX.saturating_mul(per_second)) / per_second
}

/// The channel through which the readers are woken at limited intervals.
#[derive(Debug, Clone)]
pub(crate) struct WakeupPacer {
    durable: watch::Sender<DurableState>,
    processors: usize,
}

impl WakeupPacer {
    /// Starts with the current durable position of the log.
    pub(crate) fn new(durable: &watch::Receiver<DurableState>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { durable: watch::Sender::new(*durable.borrow()), processors }
    }

    /// Returns a receiver for a reader that has reached the end of the log.
    pub(crate) fn subscribe(&self) -> watch::Receiver<DurableState> {
        self.durable.subscribe()
    }

    /// Forwards changes of the durable position `durable` to the readers, until the log's writer ends. Before
    /// that, fills the tail that the readers share.
    pub(crate) async fn keep(self, mut durable: watch::Receiver<DurableState>, mut encoder: TailEncoder) {
        while durable.changed().await.is_ok() {
            let now = *durable.borrow_and_update();
            // This may take more than `now`. Then the next change has nothing new.
            let filled = encoder.follow(self.durable.receiver_count(), now.position).await;
            if !filled && encoder.is_running() && now.state == self.durable.borrow().state {
                continue;
            }
            self.durable.send_replace(now);
            let interval = wakeup_interval(self.durable.receiver_count(), self.processors);
            if !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
        }
        encoder.stop();
        self.durable.send_modify(|_| ());
        // The log's writer has ended. Wait forever, so that readers can continue to read the log.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tailwater_log::{LogOptions, LogPosition, LogState, LogWriter};

    use super::*;
    use crate::shared_tail::SharedTail;

    #[test]
    fn the_total_number_of_wakeups_is_bounded() {
        for processors in [1, 2, 64, usize::MAX] {
            assert_eq!(wakeup_interval(0, processors), Duration::ZERO);
            assert_eq!(wakeup_interval(2, processors), Duration::ZERO);
            assert!(wakeup_interval(usize::MAX, processors) <= INTERVAL_MAX);
        }
        for readers in 3..=40_usize {
            let per_second = (readers - 2) as f64 / wakeup_interval(readers, 2).as_secs_f64();
            assert!(per_second < 1_001.0, "{readers} readers cause {per_second} wake-ups per second");
        }
        assert_eq!(wakeup_interval(10, 2), Duration::from_millis(8));
        assert_eq!(wakeup_interval(10, 16), Duration::from_millis(1));
        assert_eq!(wakeup_interval(1_000, 2), INTERVAL_MAX);
        assert_eq!(wakeup_interval(5, 0), wakeup_interval(5, 1));
    }

    #[tokio::test]
    async fn changes_during_the_pause_are_forwarded_right_after_the_pause() {
        let durable =
            |offset| DurableState { position: LogPosition { segment: 1, offset }, state: LogState::Open };
        let (source, receiver) = watch::channel(durable(4));
        let pace = WakeupPacer::new(&receiver);
        let mut readers: Vec<_> = (0..50).map(|_| pace.subscribe()).collect();
        let directory = tempfile::tempdir().unwrap();
        let log = LogWriter::open(directory.path(), LogOptions::default()).unwrap().handle();
        let encoder = TailEncoder::new(log, Arc::new(SharedTail::new(1 << 20)));
        let task = tokio::spawn(pace.clone().keep(receiver, encoder));
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
