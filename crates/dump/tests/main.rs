//! Integration tests on real servers: dumps, loads and copies.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod accounts;
mod binary;
mod copy;
mod cross_flavour;
mod dump;
mod dump_folders;
mod foreign_dumps;
mod formats;
mod fuzz_corpus;
mod load;
mod load_gtids;
mod load_limits;
mod load_resume;
mod parquet_files;
mod server_contents;
#[path = "../../tables/tests/support.rs"]
#[allow(dead_code)]
mod support;
mod type_edges;
mod unusual_tables;
