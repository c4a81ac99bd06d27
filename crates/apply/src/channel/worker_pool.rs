//! The workers of a run of the channel: which of them are idle, which batches run, and for how long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::log_reader::BudgetedTransaction;
use super::shared_channel_state::ChannelShared;
use super::statement_runner::StatementRunner;
use super::worker::{ApplyWorker, BatchOutcome};
use super::worker_activity::{WorkerActivity, WorkerState, WorkerStatus};
use crate::error::ApplyError;
use crate::scheduler::{BatchId, TransactionBatch};

/// The shortest time after which the oldest batch counts as stalled. A newer batch may hold a lock that the
/// oldest batch needs, while the newer batch waits for its turn. So newer batches release their locks once
/// the oldest runs eight times longer than the average, but not before this time. In source order, newer
/// batches are then rolled back and run again. If this happened often, it would slow down a busy target.
const STALL_AFTER_MIN: Duration = Duration::from_millis(250);
/// The longest time before the oldest batch counts as stalled.
const STALL_AFTER_MAX: Duration = Duration::from_secs(5);

/// How often to check for a stalled batch.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(60);

/// A batch, and the worker's result for it.
pub(super) type BatchResult = (TransactionBatch<BudgetedTransaction>, Result<BatchOutcome, ApplyError>);

/// A worker has ended unexpectedly. Contains the worker's panic, if known.
#[derive(Debug, thiserror::Error)]
#[error("a worker has ended unexpectedly{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
pub(super) struct DeadWorker(Option<JoinError>);

/// All workers of a run of the channel. Each worker is a task with its own connection to the target. The
/// workers end when the pool is dropped.
pub(super) struct WorkerPool {
    workers: Vec<PooledWorker>,
    idle: Vec<usize>,
    running: BTreeSet<BatchId>,
    oldest: OldestBatch,
    results: mpsc::Receiver<(usize, BatchResult)>,
    tasks: JoinSet<()>,
}

/// A worker, as the pool sees it.
#[derive(Debug)]
struct PooledWorker {
    batches: mpsc::Sender<TransactionBatch<BudgetedTransaction>>,
    activity: Arc<WorkerActivity>,
    /// When the worker got its batch, and the number of transactions in it.
    batch: Option<(Instant, usize)>,
    busy: Duration,
    transactions_total: u64,
}

impl PooledWorker {
    fn end_batch(&mut self, now: Instant) {
        if let Some((since, transactions)) = self.batch.take() {
            self.busy += now.saturating_duration_since(since);
            self.transactions_total += transactions as u64;
        }
    }

    fn status(&self, now: Instant) -> WorkerStatus {
        let (state, present, transactions) = match self.batch {
            None => (WorkerState::Idle, Duration::ZERO, 0),
            Some((since, transactions)) => {
                (self.activity.state(), now.saturating_duration_since(since), transactions)
            }
        };
        WorkerStatus {
            state,
            batch_transactions: transactions as u64,
            batch_seconds: present.as_secs_f64(),
            busy_seconds_total: (self.busy + present).as_secs_f64(),
            transactions_total: self.transactions_total,
            conflicts_total: self.activity.conflicts(),
        }
    }
}

impl WorkerPool {
    /// Connects all workers of the channel in parallel.
    ///
    /// # Errors
    /// [`ApplyError::Session`]; [`ApplyError::InternalFault`].
    pub(super) async fn connect(shared: &Arc<ChannelShared>) -> Result<Self, ApplyError> {
        let statements = Arc::new(StatementRunner::default());
        let mut connecting = JoinSet::new();
        for number in 0..shared.options.workers.max(1) {
            connecting.spawn(ApplyWorker::connect(number, Arc::clone(shared), Arc::clone(&statements)));
        }
        let mut workers = Vec::with_capacity(connecting.len());
        while let Some(connected) = connecting.join_next().await {
            let channel = || shared.options.name.clone();
            let dead = |error| ApplyError::InternalFault {
                channel: channel(),
                what: DeadWorker(Some(error)).to_string(),
            };
            workers.push(connected.map_err(dead)??);
        }
        let activities: Vec<_> = workers.iter().map(|worker| Arc::clone(worker.activity())).collect();
        let mut pool = Self::spawn(workers, run_worker);
        for (worker, activity) in pool.workers.iter_mut().zip(activities) {
            worker.activity = activity;
        }
        Ok(pool)
    }

    /// Starts one task per worker.
    fn spawn<W, F>(
        pool: Vec<W>,
        work: impl Fn(
            usize,
            W,
            mpsc::Receiver<TransactionBatch<BudgetedTransaction>>,
            mpsc::Sender<(usize, BatchResult)>,
        ) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, results) = mpsc::channel(pool.len());
        let mut tasks = JoinSet::new();
        let mut workers = Vec::with_capacity(pool.len());
        for (number, worker) in pool.into_iter().enumerate() {
            let (batches, received) = mpsc::channel(1);
            tasks.spawn(work(number, worker, received, sender.clone()));
            workers.push(PooledWorker {
                batches,
                activity: Arc::default(),
                batch: None,
                busy: Duration::ZERO,
                transactions_total: 0,
            });
        }
        Self {
            idle: (0..workers.len()).collect(),
            workers,
            running: BTreeSet::new(),
            oldest: OldestBatch::default(),
            results,
            tasks,
        }
    }

    /// Returns the number of workers.
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Returns whether a worker is idle.
    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Returns whether all workers are idle.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Gives a batch to a worker. Call this only if a worker [is idle](Self::has_idle).
    pub(super) async fn submit(&mut self, batch: TransactionBatch<BudgetedTransaction>) {
        let Some(worker) = self.idle.pop() else { return };
        let now = Instant::now();
        self.running.insert(batch.id);
        self.oldest.set(self.running.first().copied(), now);
        self.workers[worker].batch = Some((now, batch.first.len() + batch.rest.len()));
        // Sending cannot fail: an idle worker has room for one batch, and lives as long as the pool.
        let _ = self.workers[worker].batches.send(batch).await;
    }

    /// Waits for the next batch that ends. This future is cancel safe.
    ///
    /// # Errors
    /// [`DeadWorker`] if a worker has ended unexpectedly. The batch of this worker then has no result.
    pub(super) async fn next_result(&mut self) -> Result<BatchResult, DeadWorker> {
        let (worker, result) = tokio::select! {
            biased;
            Some(result) = self.results.recv() => result,
            // While the pool exists, a task ends only by a panic.
            ended = self.tasks.join_next() => return Err(DeadWorker(ended.and_then(Result::err))),
        };
        let now = Instant::now();
        self.workers[worker].end_batch(now);
        self.idle.push(worker);
        self.running.remove(&result.0.id);
        self.oldest.set(self.running.first().copied(), now);
        Ok(result)
    }

    /// Returns the number of transactions in the running batches.
    pub(super) fn transactions(&self) -> usize {
        self.workers.iter().filter_map(|worker| worker.batch).map(|(_, transactions)| transactions).sum()
    }

    /// Returns what each worker does.
    pub(super) fn states(&self, now: Instant) -> Vec<WorkerStatus> {
        self.workers.iter().map(|worker| worker.status(now)).collect()
    }

    /// Returns the oldest batch, if it has stalled and newer batches run that may block it.
    pub(super) fn stalled_batch(&self) -> Option<BatchId> {
        self.oldest.stalled_batch(Instant::now()).filter(|_| self.running.len() > 1)
    }

    /// Returns whether the oldest batch runs much longer than the batches before it.
    pub(super) fn has_stalled(&self) -> bool {
        self.oldest.stalled_batch(Instant::now()).is_some()
    }
}

/// The oldest running batch, and the average time for which a batch is the oldest.
#[derive(Debug, Default)]
struct OldestBatch {
    current: Option<(BatchId, Instant)>,
    /// Moving average with more weight on the newest batches; `None` before the first batch has ended.
    average: Option<Duration>,
}

impl OldestBatch {
    fn set(&mut self, id: Option<BatchId>, at: Instant) {
        if self.current.map(|(id, _)| id) == id {
            return;
        }
        if let Some((_, since)) = self.current {
            let took = at.saturating_duration_since(since);
            self.average = Some(self.average.map_or(took, |average| (average * 7 + took) / 8));
        }
        self.current = id.map(|id| (id, at));
    }

    fn stalled_batch(&self, at: Instant) -> Option<BatchId> {
        let (id, since) = self.current?;
        let limit = self
            .average
            .map_or(STALL_AFTER_MAX, |average| (average * 8).clamp(STALL_AFTER_MIN, STALL_AFTER_MAX));
        (at.saturating_duration_since(since) > limit).then_some(id)
    }
}

async fn run_worker(
    number: usize,
    mut worker: ApplyWorker,
    mut batches: mpsc::Receiver<TransactionBatch<BudgetedTransaction>>,
    results: mpsc::Sender<(usize, BatchResult)>,
) {
    while let Some(batch) = batches.recv().await {
        let result = worker.apply(&batch).await;
        if results.send((number, (batch, result))).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_panics_is_an_error() {
        let mut pool = WorkerPool::spawn(vec!["one", "two"], |_, name, mut batches, results| async move {
            while let Some(batch) = batches.recv().await {
                assert!(name == "one", "this worker panics");
                if results.send((0, (batch, Ok(BatchOutcome::Returned)))).await.is_err() {
                    return;
                }
            }
        });
        let batch = |id| TransactionBatch {
            id: BatchId(id),
            first: Vec::new(),
            rest: Vec::new(),
            commit_after: None,
            in_turn: false,
            alone: false,
        };
        pool.submit(batch(1)).await;
        let dead = pool
            .next_result()
            .await
            .expect_err("the last worker must get the first batch and panic")
            .to_string();
        assert!(
            dead.starts_with("a worker has ended unexpectedly: ") && dead.contains("this worker panics"),
            "wrong error for the dead worker: {dead}"
        );
        pool.submit(batch(2)).await;
        let states = |pool: &WorkerPool, now| -> Vec<WorkerState> {
            pool.states(now).iter().map(|worker| worker.state).collect()
        };
        let later = Instant::now() + Duration::from_secs(5);
        // The batch of the worker that panicked has no result.
        assert_eq!(states(&pool, later), [WorkerState::Applying, WorkerState::Applying]);
        assert!(
            pool.states(later)[0].batch_seconds >= 5.0 && pool.states(later)[0].busy_seconds_total >= 5.0
        );
        let (batch, _) = pool.next_result().await.expect("the other worker must still apply batches");
        assert_eq!(batch.id, BatchId(2));
        assert_eq!(states(&pool, later), [WorkerState::Idle, WorkerState::Applying]);
        assert!(pool.states(later)[0].batch_seconds == 0.0 && pool.states(later)[0].busy_seconds_total < 5.0);
    }

    #[test]
    fn batches_much_slower_than_average_count_as_stalled() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut oldest = OldestBatch::default();
        assert_eq!(oldest.stalled_batch(at(0)), None);
        oldest.set(Some(BatchId(1)), at(0));
        // No batch has ended, so there is no average yet.
        assert_eq!(
            (oldest.stalled_batch(at(4_900)), oldest.stalled_batch(at(5_100))),
            (None, Some(BatchId(1)))
        );
        oldest.set(Some(BatchId(1)), at(50));
        oldest.set(Some(BatchId(2)), at(100));
        assert_eq!((oldest.stalled_batch(at(890)), oldest.stalled_batch(at(910))), (None, Some(BatchId(2))));
        // Let many short batches lower the average.
        for id in 3..60 {
            oldest.set(Some(BatchId(id)), at(100 + id));
        }
        assert_eq!((oldest.stalled_batch(at(400)), oldest.stalled_batch(at(420))), (None, Some(BatchId(59))));
        oldest.set(None, at(1000));
        assert_eq!(oldest.stalled_batch(at(100_000)), None);
    }
}
