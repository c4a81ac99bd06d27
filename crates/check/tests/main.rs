//! Integration tests of checks and repairs on real servers, also with loaded dumps.

// All modules use the macro `on_each_server!` of this crate.
#[macro_use]
extern crate tailwater_sandbox;

mod charsets;
mod check;
mod check_limits;
#[path = "../../dump/tests/dump_folders.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod dump_folders;
mod invalid_data;
mod missing_privileges;
#[path = "../../tables/tests/random.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod random;
mod repair;
#[path = "../../tables/tests/replica_pair.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod replica_pair;
#[path = "../../dump/tests/server_contents.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod server_contents;
mod single_bit_drift;
mod snapshot_consistency;
#[path = "../../tables/tests/support.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod support;
#[path = "../../dump/tests/type_edges.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod type_edges;
