//! Applies the transactions of the log to a target server in parallel. Each commit contains many source
//! transactions. Each transaction is applied exactly once.
//!
//! The modules (only `channel`, `table_definition_cache` and `source_table_columns` do I/O or read a clock):
//! - [`source_transaction`]: a transaction of the source, decoded once and shared by all modules;
//!   [`source_to_target_table`]: its tables, mapped to those of the target; [`log_position_range`]: its range
//!   of the log.
//! - [`transaction_decoder`]: decodes log entries into transactions; [`row_writeset_keys`] computes the keys
//!   of the changed rows for the [`writeset`].
//! - [`target_table`]: definitions of the target's tables; [`table_definition_cache`] reads and caches them;
//!   [`column_matching`] compares them with the source's.
//! - [`source_table_columns`]: reads from the source the details of its tables that the binlog does not
//!   contain.
//! - [`replication_filter`]: which tables are excluded or renamed, with numbered versions of these rules.
//! - [`scheduler`]: which transactions run together, and when.
//! - [`batch`]: merges the rows of many transactions into few groups; [`binlog_statement`] writes groups as
//!   `BINLOG` statements; [`dml_statement`] writes them as SQL where the target's table differs.
//! - [`applied_transactions`]: the set of transactions that a target has applied.
//! - [`channel`]: reads the log, runs the other modules, writes to the target, and stores progress there.
//! - [`trace_span_record`]: spans of finished work, for traces.
//! - [`error`]: errors with stable codes.

// The server model of the tests uses this crate's name in its paths, because the crate `rejoin` includes the
// same file in its tests.
#[cfg(test)]
extern crate self as tailwater_apply;

pub mod applied_transactions;
pub mod batch;
pub mod binlog_statement;
pub mod channel;
pub mod column_matching;
pub mod dml_statement;
pub mod error;
pub mod log_position_range;
pub mod replication_filter;
pub mod row_writeset_keys;
pub mod scheduler;
pub mod source_table_columns;
pub mod source_to_target_table;
pub mod source_transaction;
pub mod table_definition_cache;
pub mod target_table;
pub mod trace_span_record;
pub mod transaction_decoder;
pub mod writeset;

pub use channel::{Channel, ChannelOptions, ChannelStatus};
pub use error::ApplyError;
pub use source_transaction::Transaction;
pub use writeset::Writeset;
