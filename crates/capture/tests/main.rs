//! Captures of real servers, with faults of servers, connections, disks and logs.

mod capture_without_faults;
mod full_disk;
mod manager_orders;
mod purged_or_rewritten_source_binlogs;
mod semi_sync;
mod source_restarts_and_broken_links;
// Helpers for replicas that read from the log. Tests use them to check that orders to the capture do not
// disturb replicas.
#[path = "../../binlog_server/tests/binlog_server_with_replicas.rs"]
mod binlog_server_with_replicas;
mod capture_test_helpers;
mod capture_test_source;
mod torn_source_binlog;
