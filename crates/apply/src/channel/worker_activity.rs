//! What each worker of a channel does, for the channel's status.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It has no batch.
    #[default]
    Idle,
    /// The target executes or commits its batch.
    Applying,
    /// Its batch waits for an earlier batch: it conflicts with that batch, or commits after it.
    WaitingForBatch,
    /// Its batch waits until the log is durable.
    WaitingForLog,
}

/// What a worker does and has done since the channel started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerStatus {
    /// What it does now.
    pub state: WorkerState,
    /// The number of transactions in its batch; 0 if it has none.
    pub batch_transactions: u64,
    /// How long it has had its batch, in seconds; 0 if it has none.
    pub batch_seconds: f64,
    /// How long it had a batch, in seconds, the present one included.
    pub busy_seconds_total: f64,
    /// The transactions of the batches that it has finished.
    pub transactions_total: u64,
    /// How often it rolled a batch back and ran it again, because of a deadlock or a lock wait timeout.
    pub conflicts_total: u64,
}

/// What a worker with a batch does. The worker writes it, and the pool of workers reads it.
#[derive(Debug, Default)]
pub(super) struct WorkerActivity {
    wait: AtomicU8,
    conflicts: AtomicU64,
}

/// What a batch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum BatchWait {
    /// For an earlier batch.
    Batch = 1,
    /// For the log.
    Log = 2,
}

/// A wait that ends when this value is dropped.
#[derive(Debug)]
pub(super) struct BatchWaitGuard(Arc<WorkerActivity>);

impl Drop for BatchWaitGuard {
    fn drop(&mut self) {
        self.0.wait.store(0, Ordering::Relaxed);
    }
}

impl WorkerActivity {
    /// Records that the batch waits.
    pub(super) fn wait(self: &Arc<Self>, wait: BatchWait) -> BatchWaitGuard {
        self.wait.store(wait as u8, Ordering::Relaxed);
        BatchWaitGuard(Arc::clone(self))
    }

    /// Counts a batch that is rolled back and runs again.
    pub(super) fn count_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often batches were rolled back and ran again.
    pub(super) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Returns what a worker with a batch does.
    pub(super) fn state(&self) -> WorkerState {
        match self.wait.load(Ordering::Relaxed) {
            wait if wait == BatchWait::Batch as u8 => WorkerState::WaitingForBatch,
            wait if wait == BatchWait::Log as u8 => WorkerState::WaitingForLog,
            _ => WorkerState::Applying,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_guard() {
        let activity = Arc::new(WorkerActivity::default());
        assert_eq!((activity.state(), activity.conflicts()), (WorkerState::Applying, 0));
        for (wait, state) in
            [(BatchWait::Batch, WorkerState::WaitingForBatch), (BatchWait::Log, WorkerState::WaitingForLog)]
        {
            let guard = activity.wait(wait);
            assert_eq!(activity.state(), state);
            drop(guard);
            assert_eq!(activity.state(), WorkerState::Applying);
        }
        activity.count_conflict();
        assert_eq!(activity.conflicts(), 1);
    }
}
