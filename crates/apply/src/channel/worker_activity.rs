//! What each worker of a channel does. The channel's status shows this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// The worker has no batch.
    #[default]
    Idle,
    /// The target executes or commits the worker's batch.
    Applying,
    /// The worker's batch waits for an earlier batch, because the two batches conflict or because it must
    /// commit after the earlier batch.
    WaitingForBatch,
    /// The worker's batch waits until the log is durable.
    WaitingForLog,
}

/// What a worker does and has done since the channel started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkerStatus {
    /// What the worker does now.
    pub state: WorkerState,
    /// The number of transactions in the worker's batch; 0 if the worker has no batch.
    pub batch_transactions: u64,
    /// How long the worker has had its present batch, in seconds; 0 if the worker has no batch.
    pub batch_seconds: f64,
    /// How long the worker has had batches in total, in seconds, including its present batch.
    pub busy_seconds_total: f64,
    /// The number of transactions in the batches that the worker has finished.
    pub transactions_total: u64,
    /// How often the worker rolled a batch back and ran it again, because of a deadlock or a lock wait
    /// timeout.
    pub conflicts_total: u64,
}

/// What a worker with a batch does. The worker writes this value, and the pool of workers reads it.
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
