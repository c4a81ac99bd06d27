//! The data that clients of the daemon see: plain serde types without logic.
//!
//! The HTTP API exchanges most of them as JSON, so the names of their fields are part of the interface
//! (docs/reference/api.md). [`crate::control_api::Control`] takes the commands and produces the answers.
//!
//! - [`daemon_requests`]: the commands of clients, and the answers.
//! - [`daemon_snapshot`]: the state of the whole daemon. [`captures`], [`channels`], [`clusters`],
//!   [`cluster_servers`]: its parts.
//! - [`daemon_status`]: the same for operators, with what is wrong.
//! - [`capture_orders`]: orders to the capture of a source, also from another machine.
//! - [`disk_backup_and_drift_snapshots`]: the log's disk, backups, and checks for drift.
//! - [`prefetches`]: replicas and targets whose pages are read ahead.
//! - [`jobs`]: long work, and requests about it.
//! - [`manager_requests`]: requests to the manager.

pub mod capture_orders;
pub mod captures;
pub mod channels;
pub mod cluster_servers;
pub mod clusters;
pub mod configuration_reloads;
pub mod daemon_requests;
pub mod daemon_snapshot;
pub mod daemon_status;
pub mod disk_backup_and_drift_snapshots;
pub mod jobs;
pub mod manager_requests;
pub mod prefetches;
