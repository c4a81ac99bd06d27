//! Tests of the program from the outside, with real servers.

// `on_each_server!` is used in all modules.
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
