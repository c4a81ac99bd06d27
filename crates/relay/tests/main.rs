//! Captures of real servers, and replicas that read from their logs, with faults of servers, links, disks and
//! logs.

mod capture;
mod full_disk;
mod fuzz_replay;
mod histories;
mod interruptions;
mod orders;
mod semi_sync;
mod serve_binlog_features;
mod serve_broken_links;
mod serve_errors;
mod serve_from_archive;
mod serve_many_clients;
mod serve_mysqlbinlog;
mod serve_replicas;
mod serve_source_change;
mod serve_support;
mod statements;
mod streams;
mod support;
mod torn_binlog;
