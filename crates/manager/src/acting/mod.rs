//! Does what the machines order, on real servers.
//!
//! - [`actor`]: takes acts one by one. A driver.
//! - [`setup`]: what it needs to know of the cluster.
//! - [`replication`]: makes a server a native replica of an address, by GTIDs.
//! - [`draining`]: has it execute what it has received.
//! - [`semi_sync`], [`writing`], [`identity`]: what makes a server a primary; `promoting` puts them in order.
//! - `supplying`: gives servers what they lack; `wanted`: which transactions that is.
//! - [`feed`]: servers that a channel of Tailwater feeds.
//! - [`hook`]: commands of the operator.
//! - `connections`: one stands to each server; `words`: how each family spells things.

pub mod actor;
mod connections;
pub mod draining;
pub mod feed;
pub mod hook;
pub mod identity;
mod promoting;
pub mod replication;
pub mod semi_sync;
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
