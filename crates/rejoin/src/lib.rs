//! A former primary becomes a replica again: the transactions that only it has are undone, the ones that it
//! lost are reapplied, and its GTIDs are set to match.
//!
//! After a failover the former primary is in one or several of these states:
//! - *Ahead*: its binlog ends in transactions that no other server has. No client received an OK for them.
//!   They are saved to a file, then undone from their own before images (`inverse`).
//! - *Behind*: its binlog ends before the log does, and it lost transactions of its own in a crash. Native
//!   replication would not bring them back, because a server skips events with its own `server_id`.
//! - *Engine behind the binlog*: its binlog is complete, but its tables lack the newest transactions. With
//!   `innodb_flush_log_at_trx_commit` other than 1 the engine loses its newest commits in a crash of the
//!   process, while the binlog keeps them. At startup a server resolves only transactions that are prepared
//!   in both; it takes its GTIDs from the binlog.
//!
//! The latter two have the same repair: from the position up to which the tables are certain (`redo_range`),
//! row changes are written over the existing rows (`rows`), up to the last transaction that native
//! replication would skip. The caller then verifies the result by a comparison with the primary.
//!
//! Where a repair is impossible, `wipe` prepares the server for a copy.
//!
//! The map: `binlog_tail`, `redo_range` and `identity` plan the repair, and `ddl_evidence` decides what a
//! statement proves; `rows` decodes transactions and `inverse` computes the row changes; `quiesce` and
//! `record` prepare and record the steps. All steps before the undo can be repeated. The undo commits in one
//! transaction with its record. All later steps can be repeated too.

pub mod binlog_tail;
mod ddl_evidence;
mod error;
pub mod identity;
mod inverse;
#[cfg(test)]
#[allow(dead_code, missing_docs, reason = "the tests of the batch planner use the rest")]
#[path = "../../apply/src/batch/tests/model.rs"]
mod model;
mod quiesce;
mod record;
pub mod redo_range;
mod repair;
mod rows;
#[cfg(test)]
mod tests;
mod wipe;

pub use binlog_tail::{BinlogTail, TailReader, TailTransaction};
pub use error::RejoinError;
pub use inverse::{EngineState, inverse, reapply};
pub use repair::{RejoinOptions, RejoinPlan, RejoinRepair, inspect, repair};
pub use wipe::wipe;
