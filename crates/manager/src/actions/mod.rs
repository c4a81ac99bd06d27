//! Executes the actions of a run on real servers.
//!
//! - [`server_executor`]: executes the actions. Does I/O.
//! - [`executor_config`]: its configuration.
//! - [`replication`]: makes a server a native replica by GTIDs.
//! - [`relay_log_drain`]: makes a replica execute everything that it received.
//! - [`semi_sync`], [`read_only`]: the settings of a primary; `promotion` applies them in order.
//! - `write_pause`: stops writes on a primary; `process_list`: finds the sessions that delay the pause;
//!   `demotion`: makes a former primary a replica.
//! - `backfill`: sends missing transactions to servers; `required_gtids`: which transactions a server must
//!   have.
//! - [`channel_control`]: targets of Tailwater channels.
//! - [`hook`]: runs hooks, the commands of the operator.
//! - `in_flight_actions`: makes an undo action take effect after the actions in flight.
//! - `connections`: one open connection to each server; `replication_dialect`: the replication statements of
//!   each flavour.

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
