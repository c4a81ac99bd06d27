//! Tests with former primaries on real servers: ahead of the log, behind the log, or with tables older than
//! their binlog.

#[path = "../../apply/tests/channel_test_servers.rs"]
mod channel_test_servers;
#[path = "../../apply/tests/column_type_boundary_values.rs"]
mod column_type_boundary_values;
mod former_primary_rejoin;
mod tables_behind_binlog_after_crash;
#[path = "../../apply/tests/tables_of_every_column_type.rs"]
mod tables_of_every_column_type;
