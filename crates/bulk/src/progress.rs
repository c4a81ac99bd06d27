//! How far a dump is, for whoever watches.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Figures that workers add to while others look.
#[derive(Debug, Default)]
pub struct Progress {
    tables: AtomicU64,
    tables_total: AtomicU64,
    rows: AtomicU64,
    rows_total: AtomicU64,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    file_bytes: AtomicU64,
    chunks: AtomicU64,
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

impl Progress {
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
