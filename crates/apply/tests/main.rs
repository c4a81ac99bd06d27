//! Integration tests of the applier with real servers.

// Makes `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod alternation_with_native_replication;
mod batch_plans_as_sql;
mod binlog_event_reader;
mod binlog_file_decoding;
mod binlog_statements;
mod channel_operator_commands;
mod channel_test_servers;
mod channel_under_test;
mod collation_key_conflicts;
mod column_type_boundary_values;
mod column_type_round_trip;
mod commit_order_seen_by_readers;
mod commit_orders_and_gtid_modes;
mod documented_error_codes;
mod documented_tests_exist;
mod enum_and_set_members;
mod faults;
mod fulltext_indexes;
mod live_binlog_decoding;
mod log_sync_before_commit;
mod missing_system_table;
mod mysql_to_mariadb_apply;
mod native_replica_of_target;
mod native_replication_comparison;
mod old_temporal_format;
mod random_tables_and_load;
mod rejected_statements;
mod rejected_transactions;
mod replication_pitfall_statements;
mod replication_pitfalls;
mod row_changes_from_binlog;
mod rows_updated_twice_by_one_event;
mod sample_application;
mod scheduled_events;
mod storage_engines;
mod system_versioned_tables;
mod table_definition_cache;
mod tables_of_every_column_type;
mod target_settings;
