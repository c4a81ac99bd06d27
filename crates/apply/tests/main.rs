//! Integration tests of the applier, on real servers.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod across;
mod behind;
mod binlog_statements;
mod catalogue;
mod collations;
mod decoding;
mod documented;
mod durable_first;
mod engines;
mod error_codes;
mod faults;
mod following;
mod hollow;
mod live;
mod logged;
mod members;
mod old_times;
mod operating;
mod orders;
mod random;
mod refusals;
mod rejoining;
mod rentals;
mod scheduled_events;
mod servers;
mod settings;
mod sql_statements;
mod statements;
mod support;
mod takeover;
mod trap_workloads;
mod traps;
mod type_families;
mod types;
