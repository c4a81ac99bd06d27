//! Captures of real servers, with faults of servers, connections, disks and logs.

mod capture;
mod full_disk;
mod histories;
mod interruptions;
mod orders;
mod semi_sync;
// Helpers for replicas of the log, with which tests check that orders to the capture do not disturb replicas.
#[allow(dead_code, reason = "the tests of the binlog server use the rest")]
#[path = "../../binlog_server/tests/serve_support.rs"]
mod serve_support;
mod support;
mod torn_binlog;
