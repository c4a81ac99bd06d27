//! Everything that runs long: the daemon that captures sources, serves their logs, applies channels and manages clusters.
//!
//! The map:
//! - [`config`]: the configuration file. [`wiring`]: turns it into the options of the engines.
//! - [`run`]: starts what the configuration names and supervises it until a signal.
//! - [`control`]: the control socket: requests, answers, the daemon's and the client's side.
//! - [`http`]: the health checks and the relay endpoint over HTTP.
//! - [`metrics`]: what Prometheus scrapes over HTTP.
//! - [`manager`]: watches each source's cluster and runs failovers, switchovers and rejoins.
//! - [`object_archive`], [`object_files`]: an archive and a dump in a directory or in S3; `archiver` uploads segments in the background.
//! - [`error_chain`]: errors with their causes. [`cluster_view`]: a cluster as it is shown.

mod archiver;
pub mod cluster_view;
pub mod config;
pub mod control;
pub mod error_chain;
pub mod http;
pub mod manager;
pub mod metrics;
pub mod object_archive;
pub mod object_files;
pub mod run;
pub mod wiring;
