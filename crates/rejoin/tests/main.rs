//! Tests with former primaries on real servers: ahead of the log, behind the log, or with tables older than
//! their binlog.

#[allow(dead_code, reason = "the tests of the applier use the rest")]
#[path = "../../apply/tests/column_type_families.rs"]
mod column_type_families;
#[allow(dead_code, reason = "the tests of the applier use the rest")]
#[path = "../../apply/tests/column_type_tables.rs"]
mod column_type_tables;
mod engine_behind_binlog;
mod former_primaries;
#[allow(dead_code, reason = "the tests of the applier use the rest")]
#[path = "../../apply/tests/support.rs"]
mod support;
