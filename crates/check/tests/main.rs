//! Integration tests of checks and repairs on real servers. Some tests also load dumps.

// All modules use the macro `on_each_server!` of this crate.
#[macro_use]
extern crate tailwater_sandbox;

mod character_sets;
#[path = "../../dump/tests/column_type_limits.rs"]
mod column_type_limits;
mod dump_snapshot_consistency;
mod false_and_missed_differences;
mod global_server_settings;
mod invalid_data;
mod missing_privileges;
mod row_repair;
#[path = "../../tables/tests/seeded_random.rs"]
mod seeded_random;
#[path = "../../dump/tests/server_contents.rs"]
mod server_contents;
mod single_bit_drift;
#[path = "../../tables/tests/source_and_replica.rs"]
mod source_and_replica;
#[path = "../../tables/tests/stock_client.rs"]
mod stock_client;
mod table_check;
#[path = "../../dump/tests/test_dump_folders.rs"]
mod test_dump_folders;
