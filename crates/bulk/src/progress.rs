//! How far a dump is, for whoever watches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Figures that workers add to while others look.
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

/// What holds work back, and how many wait for it.
#[derive(Debug, Default)]
struct WaitState {
    reason: Option<Arc<str>>,
    waiting: usize,
}

/// The figures at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgressFigures {
    /// Tables that are finished.
    pub tables: u64,
    /// Tables that are wanted.
    pub tables_total: u64,
    /// Rows that went through.
    pub rows: u64,
    /// How many there are about, by the server's own estimate; 0 while that is not known.
    pub rows_total: u64,
    /// Their bytes before compression.
    pub bytes: u64,
    /// How many bytes there are about, where only bytes are known; else 0.
    pub bytes_total: u64,
    /// Bytes of the files of finished chunks.
    pub file_bytes: u64,
    /// Finished chunks.
    pub chunks: u64,
}

impl BulkProgress {
    /// What there is to be done.
    pub fn expect(&self, tables: u64, rows: u64) {
        self.tables_total.fetch_add(tables, Relaxed);
        self.rows_total.fetch_add(rows, Relaxed);
    }

    /// What there is to be done, where nobody counts rows.
    pub fn expect_bytes(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Relaxed);
    }

    /// Rows went through.
    pub fn rows(&self, rows: u64, bytes: u64) {
        self.rows.fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// A chunk is finished.
    pub fn chunk(&self, file_bytes: u64) {
        self.chunks.fetch_add(1, Relaxed);
        self.file_bytes.fetch_add(file_bytes, Relaxed);
    }

    /// A table is finished.
    pub fn table(&self) {
        self.tables.fetch_add(1, Relaxed);
    }

    /// Somebody is held back for a reason, until what is given here is dropped.
    pub(crate) fn waits(&self, reason: impl Into<Arc<str>>) -> WaitGuard<'_> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.waiting += 1;
        held.reason = Some(reason.into());
        WaitGuard(self)
    }

    /// Why work is held back now, if it is.
    pub fn held(&self) -> Option<Arc<str>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).reason.clone()
    }

    /// The figures now.
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

/// Somebody who is held back.
pub(crate) struct WaitGuard<'a>(&'a BulkProgress);

impl WaitGuard<'_> {
    /// The reason is another now.
    pub(crate) fn because(&self, reason: Arc<str>) {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner).reason = Some(reason);
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.waiting = held.waiting.saturating_sub(1);
        if held.waiting == 0 {
            held.reason = None;
        }
    }
}
