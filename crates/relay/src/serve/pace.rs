//! How often readers at the log's end are told that it has grown.
//!
//! A commit wakes whoever follows the log. With a few readers they are woken at once. With many, waking each for each
//! commit would take the machine away from the source and from the capture, whose ACK the source's clients wait for: that
//! is how a server with many dump threads gets slow. So all of them together are woken a bounded number of times per
//! second, and each then gets what has come meanwhile in one piece.

use std::time::Duration;

use tailwater_log::Durable;
use tokio::sync::watch;

/// Readers that are told at once, however often.
const PROMPT_READERS_MAX: u32 = 2;

/// Each reader beyond those makes everybody's pause between two wake-ups longer by this: about 4,000 wake-ups per second
/// for all readers together.
const GAP_PER_READER: Duration = Duration::from_micros(250);

/// No reader waits longer for what is there.
const GAP_MAX: Duration = Duration::from_millis(20);

/// The least time between two wake-ups.
pub(crate) fn gap(readers: usize) -> Duration {
    let beyond = u32::try_from(readers).unwrap_or(u32::MAX).saturating_sub(PROMPT_READERS_MAX);
    GAP_PER_READER.saturating_mul(beyond).min(GAP_MAX)
}

/// What paced readers wait on.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    told: watch::Sender<Durable>,
}

impl Pace {
    /// Begins with what is durable now.
    pub(crate) fn new(durable: &watch::Receiver<Durable>) -> Self {
        Self { told: watch::Sender::new(*durable.borrow()) }
    }

    /// For a reader, from when it has come to the log's end.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Durable> {
        self.told.subscribe()
    }

    /// Tells the readers what `durable` tells, for as long as it does.
    pub(crate) async fn keep(self, mut durable: watch::Receiver<Durable>) {
        while durable.changed().await.is_ok() {
            let now = *durable.borrow_and_update();
            self.told.send_replace(now);
            let gap = gap(self.told.receiver_count());
            if !gap.is_zero() {
                tokio::time::sleep(gap).await;
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
        assert_eq!(gap(0), Duration::ZERO);
        assert_eq!(gap(2), Duration::ZERO);
        assert_eq!(gap(usize::MAX), GAP_MAX);
        for readers in 3..80_usize {
            let per_second = readers as f64 / gap(readers).as_secs_f64();
            assert!(per_second <= 12_000.0, "{readers} readers: {per_second}");
        }
        assert!(50.0 / gap(50).as_secs_f64() < 4_500.0);
    }

    #[tokio::test]
    async fn what_comes_during_the_pause_is_told_after_it_at_once() {
        let durable =
            |offset| Durable { position: LogPosition { segment: 1, offset }, state: LogState::Open };
        let (source, receiver) = watch::channel(durable(4));
        let pace = Pace::new(&receiver);
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
