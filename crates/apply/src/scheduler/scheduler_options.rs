//! Options of a scheduler.

/// The order in which transactions become visible on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CommitOrder {
    /// The order of the source: a client that sees a transaction on the target also sees all earlier
    /// transactions.
    Source,
    /// Any order in which transactions that share a key keep their order.
    Independent,
}

/// Options of a [`Scheduler`](super::Scheduler). A limit of 0 counts as 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// The order in which transactions commit on the target.
    pub commit_order: CommitOrder,
    /// Number of batches that run at the same time.
    pub workers: usize,
    /// The maximum number of source transactions in one batch.
    pub batch_transactions_max: usize,
    /// The maximum number of bytes in one batch. A larger transaction is alone in its batch.
    pub batch_bytes_max: usize,
    /// The maximum number of transactions in the window. The window contains the transactions that were
    /// offered to the scheduler and have not ended, including running transactions.
    pub window_transactions_max: usize,
    /// The maximum number of bytes of the transactions in the window. A single transaction may exceed it.
    pub window_bytes_max: usize,
}
