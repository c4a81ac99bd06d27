//! A former primary becomes a replica again: what only it has is undone, what it has lost is done again, and its GTIDs say so.
//!
//! After a failover the former primary is in one of three ways, or in several of them:
//! - *Ahead*: its binlog ends in transactions that nobody else has. No client was told that they committed. They are undone from
//!   their own before images (`inverse`), having been kept in a file.
//! - *Behind*: its binlog ends before the log does, with transactions that it had committed and lost in a crash. Native
//!   replication would not bring them back, because a server passes over what has its own `server_id`.
//! - *Hollow*: its binlog is whole, and its tables lack what it says. With `innodb_flush_log_at_trx_commit` other than 1 the
//!   engine loses its newest commits in a crash of the process, while the binlog keeps them. At its start a server only
//!   compares what both have half done; it counts the GTIDs of its binlog.
//!
//! The latter two are cured alike: from where the tables are certain to stand (`stretch`), row changes are written over
//! whatever is there (`rows`), up to the last transaction that native replication would pass over. Whether all is
//! well then, a comparison with the primary says: it belongs to the caller.
//!
//! Where that cannot be done, `emptying` makes room for a copy.
//!
//! The map: `tail`, `stretch`, `identity` say what is to be done, and `definition` what a statement proves; `inverse` how; `rows`,
//! `still` and `record` do it and note it.
//! Everything up to the undoing can be repeated, the undoing is in one transaction with its note, and all behind it can be
//! repeated again.

pub mod binlog_tail;
mod ddl_evidence;
pub mod identity;
mod inverse;
mod quiesce;
mod record;
pub mod redo_range;
mod repair;
mod rows;
#[cfg(test)]
mod tests;
mod wipe;

pub use binlog_tail::{BinlogTail, TailReader, TailTransaction};
pub use inverse::{EngineState, again, inverse};
pub use repair::{RejoinOptions, RejoinPlan, RejoinRepair, inspect, repair};
pub use wipe::wipe;
