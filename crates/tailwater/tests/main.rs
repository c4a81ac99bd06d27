//! Tests that run the `tailwater` program against real servers.

// All test modules use the macro `on_each_server!`.
#[macro_use]
extern crate tailwater_sandbox;

mod apply;
mod capture;
mod cli;
mod failover;
mod incident_coverage;
mod open_metrics;
mod rooms;
mod s3_server;
mod shell;
mod tables;
mod words;
