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

mod backfill;
pub mod channel_control;
mod connections;
mod demotion;
pub mod executor_config;
pub mod hook;
mod in_flight_actions;
mod process_list;
mod promotion;
pub mod read_only;
pub mod relay_log_drain;
pub mod replication;
mod replication_dialect;
mod required_gtids;
pub mod semi_sync;
pub mod server_executor;
mod write_pause;

pub use channel_control::{ChannelControl, ChannelFuture};
pub use executor_config::{ActionTimeouts, ExecutorConfig, ManagedServer, RelayEndpoint, ReplicaAccount};
pub use hook::{Hook, HookServer};
pub use replication::{ReplicaPosition, ReplicaTls, ReplicationSource};
pub use server_executor::ServerExecutor;
