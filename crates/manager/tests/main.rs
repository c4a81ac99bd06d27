//! Integration tests of the manager, on real servers.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod acting;
mod analysis;
mod analysis_properties;
mod astray;
mod choice;
mod driving;
mod error_codes;
mod failover;
mod failover_readiness;
mod lease;
mod lossless;
mod lossless_model;
mod observing;
mod recovery;
mod switchover;
mod topology;
mod watching;
mod wire_format;
