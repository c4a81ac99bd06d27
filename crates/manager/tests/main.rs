//! Integration tests of the manager, on real servers.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod actions;
mod analysis;
mod analysis_properties;
mod candidates;
mod cluster_watch;
mod driver;
mod error_codes;
mod failover;
mod failover_readiness;
mod history;
mod lease;
mod lossless;
mod lossless_model;
mod probe;
mod recovery;
mod relay_reconciliation;
mod switchover;
mod topology;
mod wire_format;
