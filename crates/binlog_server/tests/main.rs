//! Replicas, mysqlbinlog and monitoring read the log of a capture of a real server, with faults of
//! connections, clients and logs.

mod binlog_features;
mod broken_links;
mod errors;
mod from_archive;
mod fuzz_replay;
mod many_clients;
mod mysqlbinlog;
mod replicas;
mod serve_support;
mod source_change;
mod statements;
mod streams;
// Starts real servers, and captures of them.
#[allow(dead_code, reason = "the tests of the capture use the rest")]
#[path = "../../capture/tests/support.rs"]
mod support;
