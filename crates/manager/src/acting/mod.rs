//! Does what the machines order, on real servers.
//!
//! - [`actor`]: takes acts one by one. A driver.
//! - [`setup`]: what it needs to know of the cluster.
//! - [`replication`]: makes a server a native replica of an address, by GTIDs.
//! - [`draining`]: has it execute what it has received.
//! - [`semi_sync`], [`writing`]: what makes a server a primary; `promoting` puts that in order.
//! - `pausing`: a primary takes no more writes; `sessions`: who holds on; `demoting`: it becomes a replica.
//! - `supplying`: gives servers what they lack; `wanted`: which transactions that is.
//! - [`feed`]: servers that a channel of Tailwater feeds.
//! - [`hook`]: commands of the operator.
//! - `begun`: what was begun and may go on, so that what undoes it comes behind it.
//! - `connections`: one stands to each server; `words`: how each family spells things.

pub mod actor;
mod begun;
mod connections;
mod demoting;
pub mod draining;
pub mod feed;
pub mod hook;
mod pausing;
mod promoting;
pub mod replication;
pub mod semi_sync;
mod sessions;
pub mod setup;
mod supplying;
mod wanted;
mod words;
pub mod writing;

pub use actor::Actor;
pub use feed::{FeedAnswer, FeedPort};
pub use hook::{Hook, Party};
pub use replication::{Position, ReadFrom, ReplicaTls};
pub use setup::{Limits, Log, Participant, ReplicaAccount, Setup};
