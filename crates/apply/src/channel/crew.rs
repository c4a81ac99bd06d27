//! The workers of a run: who is idle, what runs, and for how long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::reader::Held;
use super::worker::{Committed, Shared, Worker};
use crate::error::ApplyError;
use crate::scheduler::{Batch, BatchId};

/// A batch whose turn it is may be held up by one behind it, which holds a lock that it needs and waits for it: those behind
/// let go if it takes eight times as long as batches did on average, but no sooner than this. In the source's order what they
/// have done is then lost, and a target that is busy must not lose it.
const PATIENCE_MIN: Duration = Duration::from_millis(250);
/// And no later than this.
const PATIENCE_MAX: Duration = Duration::from_secs(5);

/// How often it is worth looking.
pub(super) const LOOK: Duration = Duration::from_millis(60);

/// A batch, and what became of it.
pub(super) type Outcome = (Batch<Held>, Result<Committed, ApplyError>);

/// A worker that has died; with what it died of, if that is known.
#[derive(Debug, thiserror::Error)]
#[error("a worker has died{}", .0.as_ref().map(|error| format!(": {error}")).unwrap_or_default())]
pub(super) struct Dead(Option<JoinError>);

/// All workers of a run, each a task with a connection of its own. They end with it.
pub(super) struct Crew {
    workers: Vec<mpsc::Sender<Batch<Held>>>,
    idle: Vec<usize>,
    running: BTreeSet<BatchId>,
    head: Head,
    outcomes: mpsc::Receiver<(usize, Outcome)>,
    tasks: JoinSet<()>,
}

impl Crew {
    /// Connects as many as the options say, all at once.
    ///
    /// # Errors
    /// [`ApplyError::Session`]; [`ApplyError::Fault`].
    pub(super) async fn connect(shared: &Arc<Shared>) -> Result<Self, ApplyError> {
        let mut connecting = JoinSet::new();
        for number in 0..shared.options.workers.max(1) {
            connecting.spawn(Worker::connect(number, Arc::clone(shared)));
        }
        let mut workers = Vec::with_capacity(connecting.len());
        while let Some(connected) = connecting.join_next().await {
            let channel = || shared.options.name.clone();
            let dead = |error| ApplyError::Fault { channel: channel(), what: Dead(Some(error)).to_string() };
            workers.push(connected.map_err(dead)??);
        }
        Ok(Self::of(workers, work))
    }

    /// One task for each worker.
    fn of<W, F>(
        crew: Vec<W>,
        work: impl Fn(usize, W, mpsc::Receiver<Batch<Held>>, mpsc::Sender<(usize, Outcome)>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, outcomes) = mpsc::channel(crew.len());
        let mut tasks = JoinSet::new();
        let mut workers = Vec::with_capacity(crew.len());
        for (number, worker) in crew.into_iter().enumerate() {
            let (batches, received) = mpsc::channel(1);
            tasks.spawn(work(number, worker, received, sender.clone()));
            workers.push(batches);
        }
        Self {
            idle: (0..workers.len()).collect(),
            workers,
            running: BTreeSet::new(),
            head: Head::default(),
            outcomes,
            tasks,
        }
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
        self.running.insert(batch.id);
        self.head.is_now(self.running.first().copied(), Instant::now());
        // One that is idle has room for one, and lives as long as this.
        let _ = self.workers[worker].send(batch).await;
    }

    /// Waits for the next batch that has ended. Nothing is lost if it is not waited for to the end.
    ///
    /// # Errors
    /// [`Dead`] if a worker has died, and its batch with it.
    pub(super) async fn outcome(&mut self) -> Result<Outcome, Dead> {
        let (worker, outcome) = tokio::select! {
            biased;
            Some(outcome) = self.outcomes.recv() => outcome,
            // As long as this lives they end in no other way.
            ended = self.tasks.join_next() => return Err(Dead(ended.and_then(Result::err))),
        };
        self.idle.push(worker);
        self.running.remove(&outcome.0.id);
        self.head.is_now(self.running.first().copied(), Instant::now());
        Ok(outcome)
    }

    /// The oldest batch, if it takes much longer than those before it did, and others behind it may be why.
    pub(super) fn held_up(&self) -> Option<BatchId> {
        self.head.held_up(Instant::now()).filter(|_| self.running.len() > 1)
    }

    /// Whether the oldest batch takes much longer than those before it did.
    pub(super) fn is_held_up(&self) -> bool {
        self.head.held_up(Instant::now()).is_some()
    }
}

/// The oldest batch that runs, and how long batches are that.
#[derive(Debug, Default)]
struct Head {
    now: Option<(BatchId, Instant)>,
    /// On average, the last ones counting for more; `None` before the first has ended.
    average: Option<Duration>,
}

impl Head {
    fn is_now(&mut self, id: Option<BatchId>, at: Instant) {
        if self.now.map(|(id, _)| id) == id {
            return;
        }
        if let Some((_, since)) = self.now {
            let took = at.saturating_duration_since(since);
            self.average = Some(self.average.map_or(took, |average| (average * 7 + took) / 8));
        }
        self.now = id.map(|id| (id, at));
    }

    fn held_up(&self, at: Instant) -> Option<BatchId> {
        let (id, since) = self.now?;
        let patience =
            self.average.map_or(PATIENCE_MAX, |average| (average * 8).clamp(PATIENCE_MIN, PATIENCE_MAX));
        (at.saturating_duration_since(since) > patience).then_some(id)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_dies_is_told() {
        let mut crew = Crew::of(vec!["one", "two"], |_, name, mut batches, outcomes| async move {
            while let Some(batch) = batches.recv().await {
                assert!(name == "one", "cannot go on");
                if outcomes.send((0, (batch, Ok(Committed::Nothing)))).await.is_err() {
                    return;
                }
            }
        });
        let batch = |id| Batch {
            id: BatchId(id),
            first: Vec::new(),
            rest: Vec::new(),
            commit_after: None,
            in_turn: false,
            alone: false,
        };
        crew.give(batch(1)).await;
        let dead = crew.outcome().await.expect_err("the last to come is the first to work").to_string();
        assert!(dead.starts_with("a worker has died: ") && dead.contains("cannot go on"), "{dead}");
        crew.give(batch(2)).await;
        let (batch, _) = crew.outcome().await.expect("the other one lives");
        assert_eq!(batch.id, BatchId(2));
    }

    #[test]
    fn who_takes_longer_than_usual_is_held_up() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut head = Head::default();
        assert_eq!(head.held_up(at(0)), None);
        head.is_now(Some(BatchId(1)), at(0));
        // Nobody knows how long batches take.
        assert_eq!((head.held_up(at(4_900)), head.held_up(at(5_100))), (None, Some(BatchId(1))));
        head.is_now(Some(BatchId(1)), at(50));
        head.is_now(Some(BatchId(2)), at(100));
        assert_eq!((head.held_up(at(890)), head.held_up(at(910))), (None, Some(BatchId(2))));
        // Short ones.
        for id in 3..60 {
            head.is_now(Some(BatchId(id)), at(100 + id));
        }
        assert_eq!((head.held_up(at(400)), head.held_up(at(420))), (None, Some(BatchId(59))));
        head.is_now(None, at(1000));
        assert_eq!(head.held_up(at(100_000)), None);
    }
}
