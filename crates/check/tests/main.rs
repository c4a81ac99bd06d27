//! Integration tests of checks and repairs on real servers, also with loaded dumps.

// All modules use the macro `on_each_server!` of this crate.
#[macro_use]
extern crate tailwater_sandbox;

mod character_sets;
#[path = "../../dump/tests/column_type_limits.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod column_type_limits;
mod dump_snapshot_consistency;
mod false_and_missed_differences;
mod global_server_settings;
mod invalid_data;
mod missing_privileges;
mod row_repair;
#[path = "../../tables/tests/seeded_random.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod seeded_random;
#[path = "../../dump/tests/server_contents.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod server_contents;
mod single_bit_drift;
#[path = "../../tables/tests/source_and_replica.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod source_and_replica;
mod table_check;
#[path = "../../tables/tests/test_connections.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod test_connections;
#[path = "../../dump/tests/test_dump_folders.rs"]
#[allow(dead_code, reason = "other test crates use the other items")]
mod test_dump_folders;
