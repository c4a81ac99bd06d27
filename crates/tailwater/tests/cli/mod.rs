//! The command line, and what the daemon answers over HTTP.

pub mod demo_and_sandbox;
pub mod http;
mod metrics;
mod special_files;
mod topology;
mod usage;
