//! Tests that run the `tailwater` program against real servers.

// All test modules use the macro `on_each_server!`.
#[macro_use]
extern crate tailwater_sandbox;

mod apply;
mod capture;
mod cli;
mod crate_dependencies;
mod documentation;
mod documented_incident_tests;
mod failover;
mod monitoring_files;
mod naming_and_language;
mod openmetrics_parser;
mod package;
mod page;
mod power_cuts;
mod shell_session;
mod systemd_notify_socket;
mod tables;
mod test_s3_server;
