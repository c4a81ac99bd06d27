//! Remembers which index entries were read for transactions that are not applied yet.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

/// The entries of transactions that are not applied yet, as hashes. The memory is bounded: beyond the limit,
/// the oldest entries are forgotten, and may be read again.
#[derive(Debug)]
pub struct PendingKeys {
    entries_max: usize,
    hashes: FxHashSet<u64>,
    /// The hashes in the order of the binlog, each with the end of its transaction in bytes of the stream.
    order: VecDeque<(u64, u64)>,
}

impl PendingKeys {
    /// Returns an empty set that holds at most `entries_max` entries.
    pub fn new(entries_max: usize) -> Self {
        Self { entries_max: entries_max.max(1), hashes: FxHashSet::default(), order: VecDeque::new() }
    }

    /// Adds an entry of a transaction that ends at `end_bytes` of the stream. Returns false if the entry is
    /// pending already.
    pub fn insert(&mut self, hash: u64, end_bytes: u64) -> bool {
        if !self.hashes.insert(hash) {
            return false;
        }
        self.order.push_back((hash, end_bytes));
        while self.order.len() > self.entries_max {
            self.forget_oldest();
        }
        true
    }

    /// Forgets the entries of transactions that end at or before `applied_bytes`. An entry that a later
    /// transaction touches again is then read again, because the page may have left the buffer pool.
    pub fn applied(&mut self, applied_bytes: u64) {
        while self.order.front().is_some_and(|(_, end)| *end <= applied_bytes) {
            self.forget_oldest();
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no entry is pending.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn forget_oldest(&mut self) {
        if let Some((hash, _)) = self.order.pop_front() {
            self.hashes.remove(&hash);
        }
    }
}
