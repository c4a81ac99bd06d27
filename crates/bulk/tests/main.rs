//! Integration tests of dump and load, on real servers.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod accounts;
mod as_it_is;
mod asked_and_seen;
mod at_the_snapshot;
mod binary;
mod carried;
mod charsets;
mod checked;
mod checked_limits;
mod copying;
mod dumping;
mod error_codes;
mod foreign;
mod formats;
mod fuzzed;
mod loaded;
mod loaded_again;
mod loaded_gtids;
mod loaded_limits;
mod odd_settings;
mod parquet_files;
mod planted;
mod repaired;
mod schema;
mod support;
mod throttled;
mod types;
mod unusual;
mod walking;
mod written;
