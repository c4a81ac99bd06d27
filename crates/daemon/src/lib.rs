//! All long-running parts: the daemon that captures sources, serves their logs, applies channels and manages
//! clusters.
//!
//! - [`options_from_config`]: converts the configuration file to the options of the engines.
//! - [`daemon_lifecycle`]: starts the parts that the configuration names, and supervises them until a signal.
//! - [`control_api`]: the interface between the daemon and its front ends: snapshots, changes, commands.
//!   [`api`]: the types that clients see.
//! - [`configuration_reload`]: applies a changed configuration while the daemon runs.
//! - [`control_socket`]: the client's side of the control socket. [`bearer_token`]: the tokens of HTTP
//!   clients. The crate `http_api` has the listeners and the metrics.
//! - [`cluster_prober`]: probes the servers and relays of a cluster once for all readers.
//!   [`server_role_check`]: checks whether a server is the primary or a usable replica.
//! - [`chart_history`]: the figures of the last hour and day.
//! - [`unwritable_files`]: which of the daemon's own files cannot be written at present.
//! - `status`: what is wrong and what to do, for `tailwater status`. `monitoring`: reads what only metrics
//!   and the status show.
//! - [`jobs`]: long work of the daemon and of command lines.
//! - [`manager`]: watches each source's cluster and runs failovers, switchovers and rejoins.
//! - [`replica_prefetch`]: reads pages ahead on replicas and targets.
//! - `segment_archiver`: uploads sealed segments to the archive.
//! - [`systemd_notifications`]: reports readiness, status and watchdog to systemd.
//! - [`error_chain`]: formats errors with their causes.

pub mod api;
pub mod bearer_token;
pub mod chart_history;
pub mod cluster_prober;
pub mod configuration_reload;
pub mod control_api;
pub mod control_socket;
pub mod daemon_lifecycle;
pub mod error_chain;
pub mod jobs;
pub mod manager;
mod monitoring;
pub mod options_from_config;
pub mod replica_prefetch;
mod segment_archiver;
pub mod server_role_check;
mod status;
pub mod systemd_notifications;
pub mod unwritable_files;
