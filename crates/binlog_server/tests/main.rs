//! Tests in which replicas, mysqlbinlog and monitoring read the log that a capture writes from a real server.
//! Connections, clients and logs also fail.

mod binlog_server_with_replicas;
mod broken_network_links;
mod capture_source_change;
mod client_errors;
mod client_statements;
mod fuzz_corpus_replay;
mod many_clients;
mod mysqlbinlog;
mod native_replicas;
mod replica_test_helpers;
mod replicas_of_archived_segments;
mod replication_of_all_binlog_features;
mod shared_tail;
mod stream_comparison_with_source;
// Logs of a source that exists only in the test.
#[path = "../../log/tests/support"]
#[allow(dead_code)]
mod support {
    pub mod binlog_generator;
    pub mod synthetic_capture;
}
// Real servers, and captures of them.
#[path = "../../capture/tests/capture_test_source.rs"]
mod capture_test_source;
