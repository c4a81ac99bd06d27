//! A thread that runs work at given times, so that slow operations do not occupy the threads of the driver.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

type DelayedWork = Box<dyn FnOnce() + Send>;

/// The queue of a thread that runs work at given times. The thread ends after the last clone is dropped.
#[derive(Clone)]
pub(crate) struct DelayedReplies {
    queue: Arc<WorkQueue>,
    _owner: Arc<QueueOwner>,
}

#[derive(Default)]
struct WorkQueue {
    waiting: Mutex<WaitingWork>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitingWork {
    /// Work by time, and by number for the same time.
    heap: BinaryHeap<Reverse<DueWork>>,
    count: u64,
    ends: bool,
}

struct DueWork {
    due: (Instant, u64),
    work: DelayedWork,
}

impl PartialEq for DueWork {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for DueWork {}

impl PartialOrd for DueWork {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueWork {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

struct QueueOwner(Arc<WorkQueue>);

impl Drop for QueueOwner {
    fn drop(&mut self) {
        self.0.waiting.lock().ends = true;
        self.0.changed.notify_all();
    }
}

impl DelayedReplies {
    /// Starts the thread.
    pub(crate) fn start() -> std::io::Result<Self> {
        let queue = Arc::new(WorkQueue::default());
        let of_thread = Arc::clone(&queue);
        thread::Builder::new().name("disk-replies".into()).spawn(move || of_thread.run())?;
        Ok(Self { _owner: Arc::new(QueueOwner(Arc::clone(&queue))), queue })
    }

    /// Runs `work` at `due`; at once and on this thread if there is no time.
    pub(crate) fn run_at(&self, due: Option<Instant>, work: impl FnOnce() + Send + 'static) {
        let Some(due) = due else { return work() };
        let mut waiting = self.queue.waiting.lock();
        waiting.count += 1;
        let due = (due, waiting.count);
        waiting.heap.push(Reverse(DueWork { due, work: Box::new(work) }));
        self.queue.changed.notify_one();
    }
}

impl WorkQueue {
    fn run(&self) {
        let mut waiting = self.waiting.lock();
        while !waiting.ends {
            match waiting.heap.peek().map(|Reverse(item)| item.due.0) {
                None => self.changed.wait(&mut waiting),
                Some(due) if due > Instant::now() => {
                    self.changed.wait_until(&mut waiting, due);
                }
                Some(_) => {
                    let item = waiting.heap.pop();
                    parking_lot::MutexGuard::unlocked(&mut waiting, || {
                        if let Some(Reverse(item)) = item {
                            (item.work)();
                        }
                    });
                }
            }
        }
    }
}
