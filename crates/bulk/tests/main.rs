//! Integration tests of bulk work on real servers.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod accounts;
mod binary;
mod charsets;
mod check;
mod check_limits;
mod chunker;
mod copy;
mod cross_flavour;
mod dump;
mod dump_folders;
mod error_codes;
mod foreign_dumps;
mod formats;
mod fuzz_corpus;
mod invalid_data;
mod load;
mod load_gtids;
mod load_limits;
mod load_resume;
mod missing_privileges;
mod parquet_files;
mod repair;
mod schema;
mod server_settings;
mod single_bit_drift;
mod snapshot_consistency;
mod support;
mod throttle;
mod type_edges;
mod unusual_tables;
