//! Integration tests of the applier with real servers.

// Makes `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod binlog_fixtures;
mod binlog_statements;
mod catalogue;
mod channel_modes;
mod channel_operations;
mod collations;
mod column_type_families;
mod column_type_tables;
mod column_types;
mod commit_order;
mod cross_flavour;
mod documented_tests;
mod durable_before_commit;
mod engines;
mod enum_members;
mod error_codes;
mod faults;
mod fulltext;
mod live_binlog;
mod logged_changes;
mod missing_system_table;
mod native_comparison;
mod native_takeover;
mod old_times;
mod pitfall_workloads;
mod random_load;
mod rejected_statements;
mod rejected_transactions;
mod replica_of_target;
mod replication_pitfalls;
mod sample_application;
mod scheduled_events;
mod servers;
mod sql_statements;
mod support;
mod target_settings;
mod versioned_tables;
