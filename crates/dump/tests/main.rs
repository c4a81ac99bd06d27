//! Integration tests on real servers: dumps, loads and copies.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod binary_copy;
mod column_type_limits;
mod consistent_snapshots;
mod dump_of_busy_server;
mod dumps_of_other_tools;
mod fuzz_corpus_replay;
mod load_gtids;
mod load_into_server;
mod load_of_extreme_data;
mod load_resume;
mod manifest_files;
mod mysql_to_mariadb_load;
mod parquet_output;
mod server_contents;
mod server_copy;
mod source_of_every_column_type;
mod sql_and_csv_output;
#[path = "../../tables/tests/stock_client.rs"]
mod stock_client;
mod test_dump_folders;
mod unusual_tables;
mod users_and_roles;
