//! Executes the actions of a failover or switchover on real servers.
//!
//! - [`server_action_executor`]: executes the actions. Does I/O.
//! - [`executor_config`]: its configuration.
//! - [`replication_setup`]: makes a server a native replica by GTIDs.
//! - [`relay_log_drain`]: makes a replica execute everything that it received.
//! - [`semi_sync_source`], [`read_only_switch`]: the settings of a primary; `primary_promotion` applies them
//!   in order.
//! - `write_pause`: stops writes on a primary; `process_list`: finds the sessions that delay the pause;
//!   `primary_demotion`: makes a former primary a replica.
//! - `transaction_backfill`: sends missing transactions to servers; `required_gtids`: which transactions a
//!   server must have.
//! - [`channel_control`]: targets of Tailwater channels.
//! - [`hook_command`]: runs hooks, the commands of the operator.
//! - `in_flight_actions`: makes an undo action take effect after the actions in flight.
//! - `server_connections`: one open connection to each server; `replication_sql_dialect`: the replication
//!   statements of each flavour.

pub mod channel_control;
pub mod executor_config;
pub mod hook_command;
mod in_flight_actions;
mod primary_demotion;
mod primary_promotion;
mod process_list;
pub mod read_only_switch;
pub mod relay_log_drain;
pub mod replication_setup;
mod replication_sql_dialect;
mod required_gtids;
pub mod semi_sync_source;
pub mod server_action_executor;
mod server_connections;
mod transaction_backfill;
mod write_pause;

pub use channel_control::{ChannelControl, ChannelFuture};
pub use executor_config::{ActionTimeouts, ExecutorConfig, ManagedServer, RelayEndpoint, ReplicaAccount};
pub use hook_command::{Hook, HookServer};
pub use replication_setup::{ReplicaPosition, ReplicaTls, ReplicationSource};
pub use server_action_executor::ServerExecutor;
