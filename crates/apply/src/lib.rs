//! Replays the log on a target server: in parallel, many source transactions per commit, each exactly once.
//!
//! The map (cores are pure: no I/O, no clock):
//! - [`transaction`]: a transaction of the source, decoded once and shared by all who look at it.
//! - [`decode`]: an entry of the log becomes a transaction; [`keys`]: what a row touches, as [`writeset`] has it.
//! - [`target`]: what the target's tables look like; [`catalogue`] asks for them and keeps them; [`columns`]: whether
//!   they are as the source's.
//! - [`source_catalogue`]: what the source is asked about its tables, because the binlog does not hold it.
//! - [`filter`]: what is left out and what is renamed, with versions.
//! - [`scheduler`]: which transactions run together, and when.
//! - [`batch`]: the rows of many transactions as few groups; [`binlog`]: groups as `BINLOG` statements; [`sql`]: as SQL,
//!   where the target's table differs.
//! - [`progress`]: what a target has.
//! - [`channel`]: the driver: log, cores and target joined; progress on the target.
//! - [`rejoin`]: a former primary is made what the log says: its own end undone, what it lost done again.
//! - [`error`]: what can go wrong, with stable codes.

pub mod batch;
pub mod binlog;
pub mod catalogue;
pub mod channel;
pub mod columns;
pub mod decode;
pub mod error;
pub mod filter;
pub mod keys;
pub mod progress;
pub mod rejoin;
pub mod scheduler;
pub mod source_catalogue;
pub mod sql;
pub mod target;
pub mod transaction;
pub mod writeset;

pub use channel::{Channel, ChannelOptions, ChannelStatus};
pub use error::ApplyError;
pub use transaction::Transaction;
pub use writeset::Writeset;
