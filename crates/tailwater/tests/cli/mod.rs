//! The command line and the daemon's HTTP listener.

pub mod demo_and_sandbox;
pub mod http;
mod metrics;
mod special_files;
mod topology;
mod usage;
