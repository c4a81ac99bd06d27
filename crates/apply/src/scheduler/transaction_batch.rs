//! Transactions and batches, as the scheduler sees them.

use crate::writeset::Writeset;

/// The size of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionWeight {
    /// Memory, in bytes.
    pub bytes: usize,
    /// Number of changed rows.
    pub rows: usize,
}

impl TransactionWeight {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.rows = self.rows.saturating_add(other.rows);
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.rows = self.rows.saturating_sub(other.rows);
    }
}

/// A transaction that can be scheduled.
pub trait Scheduled {
    /// Its key accesses.
    fn writeset(&self) -> &Writeset;
    /// Its size.
    fn weight(&self) -> TransactionWeight;
}

/// Identifies a batch, in dispatch order. One [`Scheduler`](super::Scheduler) never reuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// Durations of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchTiming {
    /// Execution time without the wait for [`TransactionBatch::commit_after`], in microseconds.
    pub execute_us: u64,
    /// Commit time, in microseconds.
    pub commit_us: u64,
}

/// Transactions that commit together.
#[derive(Debug, PartialEq, Eq)]
pub struct TransactionBatch<T> {
    /// The ID.
    pub id: BatchId,
    /// Transactions to execute at once, in log order.
    pub first: Vec<T>,
    /// Transactions to execute after `first`, once `commit_after` has committed, in log order. No transaction
    /// in `first` conflicts with an earlier one in `rest`.
    pub rest: Vec<T>,
    /// The batch that must commit before this one, unless this one [yields](super::Scheduler::can_yield).
    pub commit_after: Option<BatchId>,
    /// Whether another batch may have to commit after this one.
    pub in_turn: bool,
    /// A barrier: the only transaction in the batch; no other batch runs at the same time.
    pub alone: bool,
}

/// Size of a batch, for the bookkeeping after it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchTotals {
    pub transactions: usize,
    pub weight: TransactionWeight,
}

impl BatchTotals {
    pub fn of<T: Scheduled>(payloads: &[T]) -> Self {
        let mut weight = TransactionWeight::default();
        payloads.iter().for_each(|payload| weight.add(payload.weight()));
        Self { transactions: payloads.len(), weight }
    }

    pub fn without(mut self, other: Self) -> Self {
        self.transactions -= other.transactions;
        self.weight.subtract(other.weight);
        self
    }
}
