//! Counters that show the progress of bulk work.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that workers increase and other tasks read.
#[derive(Debug, Default)]
pub struct BulkProgress {
    tables: AtomicU64,
    tables_total: AtomicU64,
    rows: AtomicU64,
    rows_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    file_bytes: AtomicU64,
    chunks: AtomicU64,
    held: Mutex<WaitState>,
}

/// Why workers wait, and how many of them.
#[derive(Debug, Default)]
struct WaitState {
    reason: Option<Arc<str>>,
    waiting: usize,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgressFigures {
    /// Number of finished tables.
    pub tables: u64,
    /// Number of selected tables.
    pub tables_total: u64,
    /// Number of rows that were processed.
    pub rows: u64,
    /// Estimated number of rows in all selected tables, from the server's statistics; 0 while unknown.
    pub rows_total: u64,
    /// Size of the processed rows before compression, in bytes.
    pub bytes: u64,
    /// Estimated number of bytes that the work must process; 0 if the work measures its progress in rows.
    pub bytes_total: u64,
    /// Size of the files of finished chunks, in bytes.
    pub file_bytes: u64,
    /// Number of finished chunks.
    pub chunks: u64,
}

impl BulkProgress {
    /// Adds to the expected numbers of tables and rows.
    pub fn expect(&self, tables: u64, rows: u64) {
        self.tables_total.fetch_add(tables, Relaxed);
        self.rows_total.fetch_add(rows, Relaxed);
    }

    /// Adds to the expected size, for work that does not count rows.
    pub fn expect_bytes(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    /// Counts processed rows.
    pub fn rows(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a finished chunk.
    pub fn chunk(&self, file_bytes: u64) {
        self.chunks.fetch_add(1, Relaxed);
        self.file_bytes.fetch_add(file_bytes, Relaxed);
    }

    /// Counts a finished table.
    pub fn table(&self) {
        self.tables.fetch_add(1, Relaxed);
    }

    /// Records why a worker waits, until the returned guard is dropped.
    pub fn begin_wait(&self, reason: impl Into<Arc<str>>) -> WaitGuard<'_> {
        let mut held = self.held.lock();
        held.waiting += 1;
        held.reason = Some(reason.into());
        WaitGuard(self)
    }

    /// Returns why workers wait now; `None` if none waits.
    pub fn wait_reason(&self) -> Option<Arc<str>> {
        self.held.lock().reason.clone()
    }

    /// Returns the current counters.
    pub fn figures(&self) -> ProgressFigures {
        ProgressFigures {
            tables: self.tables.load(Relaxed),
            tables_total: self.tables_total.load(Relaxed),
            rows: self.rows.load(Relaxed),
            rows_total: self.rows_total.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_total: self.bytes_total.load(Relaxed),
            file_bytes: self.file_bytes.load(Relaxed),
            chunks: self.chunks.load(Relaxed),
        }
    }
}

/// Counts one worker as waiting until it is dropped.
pub struct WaitGuard<'a>(&'a BulkProgress);

impl WaitGuard<'_> {
    /// Replaces the reason for the wait.
    pub fn set_reason(&self, reason: Arc<str>) {
        self.0.held.lock().reason = Some(reason);
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock();
        held.waiting = held.waiting.saturating_sub(1);
        if held.waiting == 0 {
            held.reason = None;
        }
    }
}
