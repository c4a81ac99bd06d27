//! Replays the log on a target server: in parallel, many source transactions per commit, each exactly once.
//!
//! The modules (all but `channel` and the two catalogues do no I/O and read no clock):
//! - [`transaction`]: a transaction of the source, decoded once and shared by all modules; [`mapped_table`]:
//!   its tables, mapped to those of the target; [`log_span`]: its range of the log.
//! - [`decode`]: decodes log entries into transactions; [`keys`] computes the keys of their rows for the
//!   [`writeset`].
//! - [`target`]: definitions of the target's tables; [`catalogue`] reads and caches them; [`columns`]
//!   compares them with the source's.
//! - [`source_catalogue`]: reads from the source what the binlog does not contain about its tables.
//! - [`filter`]: which tables are excluded or renamed, with numbered versions of these rules.
//! - [`scheduler`]: which transactions run together, and when.
//! - [`batch`]: merges the rows of many transactions into few groups; [`binlog`] writes groups as `BINLOG`
//!   statements; [`sql`] writes them as SQL where the target's table differs.
//! - [`progress`]: the set of transactions that a target has applied.
//! - [`channel`]: reads the log, runs the other modules, writes to the target, and stores progress there.
//! - [`error`]: errors with stable codes.

// The model of a server in the tests names this crate, because the tests of `rejoin` include it too.
#[cfg(test)]
extern crate self as tailwater_apply;

pub mod batch;
pub mod binlog;
pub mod catalogue;
pub mod channel;
pub mod columns;
pub mod decode;
pub mod error;
pub mod filter;
pub mod keys;
pub mod log_span;
pub mod mapped_table;
pub mod progress;
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
