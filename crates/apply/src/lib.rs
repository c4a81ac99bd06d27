//! Replays the log on a target server: in parallel, many source transactions per commit, each exactly once.
//!
//! The map (cores are pure: no I/O, no clock):
//! - [`transaction`]: a transaction of the source, decoded once and shared by all who look at it.
//! - [`target`]: what the target's tables look like.
//! - [`writeset`]: what a transaction touches, as keys that conflict or do not.
//! - [`filter`]: what is left out and what is renamed, with versions.
//! - [`scheduler`]: which transactions run together, and when.
//! - [`progress`]: what a target has.
//! - [`control`]: what an operator asks of a channel, and what it says of itself.
//! - [`error`]: what can go wrong, with stable codes.

pub mod control;
pub mod error;
pub mod filter;
pub mod progress;
pub mod scheduler;
pub mod target;
pub mod transaction;
pub mod writeset;

pub use error::ApplyError;
pub use transaction::Transaction;
pub use writeset::Writeset;
