//! Options of a scheduler.

/// The order in which transactions become visible on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitOrder {
    /// The order of the source: a reader that sees a transaction sees all earlier ones.
    Source,
    /// Only transactions that share a key keep their order.
    Independent,
}

/// Options of a [`Scheduler`](super::Scheduler). A limit of 0 counts as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// The commit order.
    pub commit_order: CommitOrder,
    /// Number of batches that the driver runs concurrently.
    pub workers: usize,
    /// Limit of source transactions in one batch.
    pub batch_transactions_max: usize,
    /// Limit of bytes in one batch. A larger transaction is alone in its batch.
    pub batch_bytes_max: usize,
    /// Limit of outstanding transactions, including running ones.
    pub window_transactions_max: usize,
    /// Limit of their bytes. One transaction may exceed it.
    pub window_bytes_max: usize,
}
