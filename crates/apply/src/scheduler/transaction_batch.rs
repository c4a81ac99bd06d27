//! Transactions and batches, as the scheduler sees them.

use crate::writeset::Writeset;

/// The size of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionWeight {
    /// Memory that the transaction occupies, in bytes.
    pub bytes: usize,
    /// Number of rows that the transaction changes.
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
    /// Returns the transaction's key accesses.
    fn writeset(&self) -> &Writeset;
    /// Returns the transaction's size.
    fn weight(&self) -> TransactionWeight;
}

/// Identifies a batch. IDs are in dispatch order. One [`Scheduler`](super::Scheduler) never uses an ID twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub u64);

/// How long a batch took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchTiming {
    /// Execution time without the wait for [`TransactionBatch::commit_after`], in microseconds.
    pub execute_us: u64,
    /// How long the commit took, in microseconds.
    pub commit_us: u64,
}

/// Transactions that commit together.
#[derive(Debug, PartialEq, Eq)]
pub struct TransactionBatch<T> {
    /// The ID of the batch.
    pub id: BatchId,
    /// Transactions to execute without waiting for another batch, in log order.
    pub first: Vec<T>,
    /// Transactions to execute after `first`, in log order, once `commit_after` has committed. No transaction
    /// in `first` conflicts with an earlier transaction in `rest`.
    pub rest: Vec<T>,
    /// The batch that must commit before this batch, unless this batch [yields](super::Scheduler::can_yield).
    pub commit_after: Option<BatchId>,
    /// Whether another batch may have to commit after this batch.
    pub in_turn: bool,
    /// Whether the batch is a barrier: it has one transaction, and no other batch runs at the same time.
    pub alone: bool,
}

/// The size of a batch. The scheduler needs this size again when the batch ends.
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
