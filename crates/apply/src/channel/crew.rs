//! The workers of a run: who is idle, what runs, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::reader::Held;
use super::worker::{Shared, Worker};
use crate::error::ApplyError;
use crate::scheduler::{Batch, BatchId, Timing};

/// What became of a batch; `None` if it was not begun, because the run is to end.
pub(super) type Outcome = (Batch<Held>, Result<Option<Timing>, ApplyError>);

/// All workers of a run, each a task with a connection of its own. They end with it.
pub(super) struct Crew {
    workers: Vec<mpsc::Sender<Batch<Held>>>,
    idle: Vec<usize>,
    running: BTreeMap<BatchId, Instant>,
    outcomes: mpsc::Receiver<(usize, Outcome)>,
    _tasks: JoinSet<()>,
}

impl Crew {
    /// Connects as many as the options say.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn connect(shared: &Arc<Shared>) -> Result<Self, ApplyError> {
        let count = shared.options.workers.max(1);
        let (sender, outcomes) = mpsc::channel(count);
        let mut tasks = JoinSet::new();
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let worker = Worker::connect(number, Arc::clone(shared)).await?;
            let (batches, received) = mpsc::channel(1);
            tasks.spawn(work(number, worker, received, sender.clone()));
            workers.push(batches);
        }
        Ok(Self { idle: (0..count).collect(), workers, running: BTreeMap::new(), outcomes, _tasks: tasks })
    }

    /// How many they are.
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Whether one of them has nothing to do.
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Whether none of them has anything to do.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Gives a batch to one that [is idle](Self::has_idle).
    pub(super) async fn give(&mut self, batch: Batch<Held>) {
        let Some(worker) = self.idle.pop() else { return };
        self.running.insert(batch.id, Instant::now());
        // One that is idle has room for one, and lives as long as this.
        let _ = self.workers[worker].send(batch).await;
    }

    /// Waits for the next batch that has ended. Nothing is lost if it is not waited for to the end.
    pub(super) async fn outcome(&mut self) -> Option<Outcome> {
        let (worker, outcome) = self.outcomes.recv().await?;
        self.idle.push(worker);
        self.running.remove(&outcome.0.id);
        Some(outcome)
    }

    /// The oldest batch, if it has run for longer than `patience` with others behind it.
    pub(super) fn held_up(&self, patience: Duration) -> Option<BatchId> {
        let (id, begun) = self.running.first_key_value()?;
        (self.running.len() > 1 && begun.elapsed() > patience).then_some(*id)
    }
}

async fn work(
    number: usize,
    mut worker: Worker,
    mut batches: mpsc::Receiver<Batch<Held>>,
    outcomes: mpsc::Sender<(usize, Outcome)>,
) {
    while let Some(batch) = batches.recv().await {
        let result = worker.apply(&batch).await;
        if outcomes.send((number, (batch, result))).await.is_err() {
            return;
        }
    }
}
