//! Integration tests on real servers: checks and repairs, also of loaded dumps.

// For `on_each_server!` in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod charsets;
mod check;
mod check_limits;
#[path = "../../dump/tests/dump_folders.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod dump_folders;
mod invalid_data;
mod missing_privileges;
#[path = "../../tables/tests/random.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod random;
mod repair;
#[path = "../../tables/tests/replica_pair.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod replica_pair;
#[path = "../../dump/tests/server_contents.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod server_contents;
mod server_settings;
mod single_bit_drift;
mod snapshot_consistency;
#[path = "../../tables/tests/support.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod support;
#[path = "../../dump/tests/type_edges.rs"]
#[allow(dead_code, reason = "the tests of dump and tables use the rest")]
mod type_edges;
