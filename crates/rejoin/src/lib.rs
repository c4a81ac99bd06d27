//! Rejoin: a former primary becomes a replica again. The transactions that only it has are undone, the
//! transactions that it lost are reapplied, and its GTIDs are set to match its data.
//!
//! After a failover the former primary is in one or several of these states:
//! - *Ahead*: its binlog ends in transactions that no other server has. No client received an OK for them.
//!   They are saved to a file, and then undone from their own before images (`undo_and_reapply_rows`).
//! - *Behind*: its binlog ends before the log does, and a crash lost transactions that it had written itself.
//!   Native replication would not bring them back, because a server skips events with its own `server_id`.
//! - *Engine behind the binlog*: its binlog is complete, but its tables lack the newest transactions. With
//!   `innodb_flush_log_at_trx_commit` other than 1, a crash of the process loses the engine's newest commits,
//!   while the binlog keeps them. At startup a server resolves only transactions that its engine still has as
//!   prepared; it takes its GTIDs from the binlog.
//!
//! The last two states have the same repair. It starts at the position up to which the content of the tables
//! is certain (`reapply_range`), and ends with the last transaction that native replication would skip. The
//! row changes between these two positions are written over the existing rows (`row_change_decoder`). The
//! caller then verifies the result by a comparison with the primary.
//!
//! If a repair is impossible, `server_wipe` prepares the server for a copy.
//!
//! The modules `unreplicated_binlog_tail`, `reapply_range` and `common_gtids` plan the repair.
//! `ddl_durability_rules` decides what a DDL statement proves about earlier commits. `row_change_decoder`
//! decodes transactions, and `undo_and_reapply_rows` computes the row changes. `server_quiesce` prepares the
//! server, and `stored_rejoin_state` stores the completed steps. All steps before the undo can be repeated.
//! The undo and the record of its completion commit in one transaction. All later steps can be repeated too.

pub mod common_gtids;
mod ddl_durability_rules;
mod error;
pub mod reapply_range;
mod row_change_decoder;
#[cfg(test)]
#[path = "../../apply/src/batch/tests/server_model.rs"]
mod server_model;
mod server_quiesce;
mod server_repair;
mod server_wipe;
mod stored_rejoin_state;
#[cfg(test)]
mod tests;
mod undo_and_reapply_rows;
pub mod unreplicated_binlog_tail;

pub use error::RejoinError;
pub use server_repair::{RejoinOptions, RejoinPlan, RejoinRepair, inspect, repair};
pub use server_wipe::wipe;
pub use undo_and_reapply_rows::{EngineState, inverse, reapply};
pub use unreplicated_binlog_tail::{BinlogTail, TailReader, TailTransaction};
