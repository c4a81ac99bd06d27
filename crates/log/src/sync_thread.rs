//! The thread that runs syncs in the background, so that the writer can receive more data while the disk
//! writes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::LogError;
use crate::shared_log_state::LogShared;
use crate::storage::{LogFile, blocking};

/// A request to sync a segment.
#[derive(Debug, Clone)]
pub(crate) struct SyncTarget {
    pub segment: u64,
    pub file: Arc<dyn LogFile>,
    /// Every byte before this offset was written to the file.
    pub end: u64,
}

/// A range of a file that the kernel is asked to write to the disk. No thread waits until the range is
/// written.
#[derive(Debug)]
struct Writeback {
    file: Arc<dyn LogFile>,
    offset: u64,
    length: u64,
}

/// The flusher thread. It starts with the first request and ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Flusher {
    shared: Arc<LogShared>,
    queue: Arc<SyncQueue>,
    thread: Option<JoinHandle<()>>,
    /// Requests within this interval share one fdatasync.
    interval: Duration,
}

/// The pending requests of the flusher thread. Other threads can make them urgent.
#[derive(Debug, Default)]
pub(crate) struct SyncQueue {
    work: Mutex<SyncWork>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SyncWork {
    sync: Option<SyncTarget>,
    /// Whether the flusher must sync at once and not wait for its interval.
    urgent: bool,
    writeback: Option<Writeback>,
    stop: bool,
}

impl Flusher {
    pub(crate) fn new(shared: Arc<LogShared>, interval: Duration) -> Self {
        let queue = Arc::clone(&shared.sync_queue);
        Self { shared, queue, thread: None, interval }
    }

    /// Requests an fdatasync of everything up to `target.end`. With `urgent`, the flusher does not wait for
    /// its interval. The request also covers earlier requests that are pending.
    pub(crate) fn sync(&mut self, target: SyncTarget, urgent: bool) -> Result<(), LogError> {
        self.start()?;
        let mut work = self.queue.lock();
        let earlier = work.sync.replace(target);
        // If an earlier request has woken the flusher thread and is still pending, the thread takes both
        // requests together. Waking the thread for each commit would cost as much as storing the request, and
        // the thread would only wait again.
        let wake = earlier.is_none() || (urgent && !work.urgent);
        work.urgent |= urgent;
        if wake {
            self.queue.changed.notify_one();
        }
        Ok(())
    }

    /// Asks the kernel to write the pages of a range to disk soon.
    pub(crate) fn write_back(
        &mut self,
        file: Arc<dyn LogFile>,
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
        let (shared, queue, interval) = (Arc::clone(&self.shared), Arc::clone(&self.queue), self.interval);
        let thread = std::thread::Builder::new()
            .name("log-flusher".into())
            .spawn(move || run(&shared, &queue, interval))
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
            // The flusher thread ends only on request. If it panicked, the panic was already reported.
            let _ = blocking(|| thread.join());
        }
    }
}

impl SyncQueue {
    fn lock(&self) -> MutexGuard<'_, SyncWork> {
        self.work.lock()
    }

    /// Makes a pending sync request urgent.
    pub(crate) fn make_urgent(&self) {
        let mut work = self.lock();
        if work.sync.is_some() && !work.urgent {
            work.urgent = true;
            self.changed.notify_one();
        }
    }

    /// Waits for a request. Returns `None` when the thread must stop.
    fn next(&self, interval: Duration) -> Option<(Option<Writeback>, Option<SyncTarget>)> {
        let mut work = self.lock();
        loop {
            if work.stop {
                return None;
            }
            if work.sync.is_some() && !work.urgent && work.writeback.is_none() {
                // The request is not urgent, so wait for more requests. One fdatasync then covers all of
                // them.
                let idle = |work: &mut SyncWork| !work.stop && !work.urgent && work.writeback.is_none();
                self.changed.wait_while_for(&mut work, idle, interval);
                if work.stop {
                    return None;
                }
            }
            if work.writeback.is_some() || work.sync.is_some() {
                work.urgent = false;
                return Some((work.writeback.take(), work.sync.take()));
            }
            self.changed.wait(&mut work);
        }
    }
}

fn run(shared: &LogShared, queue: &SyncQueue, interval: Duration) {
    while let Some((writeback, sync)) = queue.next(interval) {
        if let Some(writeback) = writeback {
            // Ignore an error, because this request is only a hint to the kernel. The later fdatasync reports
            // any error.
            let _ = writeback.file.start_writeback(writeback.offset, writeback.length);
        }
        let Some(target) = sync else { continue };
        if shared.sync(target.segment, target.file.as_ref(), target.end).is_err() {
            return;
        }
    }
}
