//! The manager in the daemon: watches the cluster of each source, and runs failovers, switchovers and
//! rejoins.
//!
//! - [`client_requests`]: the clusters of this daemon, and the requests of its clients. [`manager_startup`]:
//!   starts the manager.
//! - [`managed_cluster`]: one source's cluster: its watch, and its failovers and switchovers, one at a time.
//! - [`local_relay_acker`], [`remote_relay_acker`]: relays of this process, of this machine and of other
//!   machines, as ackers that take orders.
//! - [`relay_probes`]: the state of relays, for the watch and for other readers.
//! - [`promotable_channel_targets`]: channels whose targets may become primary.
//! - [`persisted_failover_guard`]: the guard that holds failovers back, also after a restart.
//! - [`lease_from_config`]: the lease of the configuration.
//! - [`failover_request_builder`]: builds the requests for failovers, switchovers and recoveries.
//! - [`automatic_rejoin`]: rejoins former primaries without an operator. [`former_primary_rejoin`]: makes a
//!   former primary a replica again. `rejoin_jobs`: lists automatic rejoins as jobs.
//! - [`watch_checkpoint_file`]: a file with what a manager process knows, for the next manager process.
//! - [`etcd_audit_records`]: audit records in etcd, for all managers. `failover_trace_span`: an audit record
//!   as a span, for traces.

pub mod automatic_rejoin;
pub mod client_requests;
pub mod etcd_audit_records;
pub mod failover_request_builder;
pub mod failover_run_id;
mod failover_trace_span;
pub mod former_primary_rejoin;
pub mod lease_from_config;
pub mod local_relay_acker;
pub mod managed_cluster;
pub mod manager_startup;
pub mod persisted_failover_guard;
pub mod promotable_channel_targets;
mod rejoin_jobs;
pub mod relay_probes;
pub mod remote_relay_acker;
pub mod watch_checkpoint_file;
