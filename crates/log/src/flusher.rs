//! The thread that syncs behind the writer's back, so that network reads and the disk overlap.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::LogError;
use crate::progress::Shared;
use crate::storage::{File, blocking};

/// What is to be synced.
#[derive(Debug, Clone)]
pub(crate) struct SyncTarget {
    pub segment: u64,
    pub file: Arc<dyn File>,
    /// Everything before it was written.
    pub end: u64,
}

/// What is to be written back without waiting.
#[derive(Debug)]
struct Writeback {
    file: Arc<dyn File>,
    offset: u64,
    length: u64,
}

/// A thread that starts with the first piece of work and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    /// Collects the work of this long into one fdatasync.
    pace: Duration,
}

/// What the thread is to do, which others may hurry.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    sync: Option<SyncTarget>,
    /// The sync is wanted at once, not at the flusher's pace.
    urgent: bool,
    writeback: Option<Writeback>,
    stop: bool,
}

impl Flusher {
    pub(crate) fn new(shared: Arc<Shared>, pace: Duration) -> Self {
        let queue = Arc::clone(&shared.flushes);
        Self { shared, queue, thread: None, pace }
    }

    /// Asks for an fdatasync of everything up to `target.end`; `urgent` means now. What an earlier call asked for and
    /// has not got is covered.
    pub(crate) fn sync(&mut self, target: SyncTarget, urgent: bool) -> Result<(), LogError> {
        self.start()?;
        let mut work = self.queue.lock();
        let earlier = work.sync.replace(target);
        // Who was told before, and has not taken it, will find this. To wake somebody at each commit, who would only wait on, costs
        // as much as to hand the commit on.
        let tell = earlier.is_none() || (urgent && !work.urgent);
        work.urgent |= urgent;
        if tell {
            self.queue.changed.notify_one();
        }
        Ok(())
    }

    /// Asks for the pages of a range to be written soon.
    pub(crate) fn write_back(
        &mut self,
        file: Arc<dyn File>,
        offset: u64,
        length: u64,
    ) -> Result<(), LogError> {
        self.start()?;
        let mut work = self.queue.lock();
        let (offset, length) = match &work.writeback {
            Some(earlier) if earlier.offset + earlier.length == offset => {
                (earlier.offset, earlier.length + length)
            }
            _ => (offset, length),
        };
        work.writeback = Some(Writeback { file, offset, length });
        self.queue.changed.notify_one();
        Ok(())
    }

    fn start(&mut self) -> Result<(), LogError> {
        if self.thread.is_some() {
            return Ok(());
        }
        let (shared, queue, pace) = (Arc::clone(&self.shared), Arc::clone(&self.queue), self.pace);
        let thread = std::thread::Builder::new()
            .name("log-flusher".into())
            .spawn(move || run(&shared, &queue, pace))
            .map_err(|error| LogError::io("start the flusher thread of", self.shared.path(), error))?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.queue.lock().stop = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It only ends by being told to; if it panicked, that was reported by the panic itself.
            let _ = blocking(|| thread.join());
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a sync that was asked for be made now.
    pub(crate) fn make_urgent(&self) {
        let mut work = self.lock();
        if work.sync.is_some() && !work.urgent {
            work.urgent = true;
            self.changed.notify_one();
        }
    }

    /// Waits until there is something to do; `None` when told to stop.
    fn next(&self, pace: Duration) -> Option<(Option<Writeback>, Option<SyncTarget>)> {
        let mut work = self.lock();
        loop {
            if work.stop {
                return None;
            }
            if work.sync.is_some() && !work.urgent && work.writeback.is_none() {
                // Not urgent: let more come before the one fdatasync that covers all of it.
                let idle = |work: &mut Work| !work.stop && !work.urgent && work.writeback.is_none();
                work = self
                    .changed
                    .wait_timeout_while(work, pace, idle)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                if work.stop {
                    return None;
                }
            }
            if work.writeback.is_some() || work.sync.is_some() {
                work.urgent = false;
                return Some((work.writeback.take(), work.sync.take()));
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn run(shared: &Shared, queue: &Queue, pace: Duration) {
    while let Some((writeback, sync)) = queue.next(pace) {
        if let Some(writeback) = writeback {
            // Only a hint: what matters fails in the fdatasync.
            let _ = writeback.file.start_writeback(writeback.offset, writeback.length);
        }
        let Some(target) = sync else { continue };
        if shared.sync(target.segment, target.file.as_ref(), target.end).is_err() {
            return;
        }
    }
}
