//! Replays the log on a target server: in parallel, many source transactions per commit, each exactly once.
//!
//! The map (cores are pure: no I/O, no clock):
//! - [`transaction`]: a transaction of the source, decoded once and shared by all who look at it.
//! - [`target`]: what the target's tables look like.
//! - [`writeset`]: what a transaction touches, as keys that conflict or do not.
//! - [`batch`]: the rows of many transactions as few groups.
//! - [`binlog`]: groups as `BINLOG` statements.
//! - [`sql`]: groups as SQL, where the target's table differs.
//! - [`error`]: what can go wrong, with stable codes.

pub mod batch;
pub mod binlog;
pub mod error;
pub mod sql;
pub mod target;
pub mod transaction;
pub mod writeset;

pub use error::ApplyError;
pub use transaction::Transaction;
pub use writeset::Writeset;
