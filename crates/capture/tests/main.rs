//! Captures of real servers, with faults of servers, links, disks and logs.

mod capture;
mod full_disk;
mod histories;
mod interruptions;
mod orders;
mod semi_sync;
// Replicas of the log, to see that they do not notice what the capture is ordered to do.
#[allow(dead_code, reason = "the tests of the binlog server use the rest")]
#[path = "../../binlog_server/tests/serve_support.rs"]
mod serve_support;
mod support;
mod torn_binlog;
