//! Tests of sessions with real servers, and with a fake server that misbehaves.

// All modules use the macro `on_each_server!` of this crate.
#[macro_use]
extern crate tailwater_sandbox;

mod binlog_dump;
mod bulk_execute;
mod client_and_server_login;
mod command_line_clients;
mod fuzz_corpus_replay;
mod hostile_clients;
mod hostile_servers;
mod load_data_local;
mod login;
mod mariadb_slave_position;
mod scripted_binlog_dump;
mod scripted_server;
mod server_binlog_stream;
mod session_settings;
mod statements_and_results;
mod test_server;
mod tls;
mod unmodified_replicas;
