//! Where a transaction begins and ends in a stream of events.

use crate::gtid::Gtid;

/// The source's own statement of which transactions may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDependency {
    /// MySQL: may run as soon as the transaction numbered `last_committed` of the same file is done.
    Logical {
        /// The newest transaction of the file that this one may depend on; 0 for none.
        last_committed: i64,
        /// This transaction's own number in the file.
        sequence_number: i64,
    },
    /// MariaDB: transactions with the same id committed together, so they do not conflict.
    CommitGroup(u64),
    /// Nothing is known.
    None,
}

/// What the event that opens a transaction says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionStart {
    /// `None` for MySQL's anonymous transactions.
    pub gtid: Option<Gtid>,
    /// See [`SourceDependency`].
    pub dependency: SourceDependency,
    /// Microseconds since 1970 at which the originating server committed, where the event carries it (MySQL 8).
    pub commit_time_us: Option<u64>,
    /// Length of the whole transaction with its opening event, in bytes, where the event carries it (MySQL 8).
    pub transaction_bytes: Option<u64>,
}

/// What one event means for the transaction being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The event stands between transactions (format description, rotate, previous GTIDs, heartbeat, stop, ...).
    Outside,
    /// The event opens a transaction.
    Begin(TransactionStart),
    /// The event is in the middle of one.
    Inside,
    /// The event is the last of its transaction.
    End,
}
