//! Tests of sessions with real servers, and with a fake server that misbehaves.

// All modules use the macro `on_each_server!` of this crate.
#[macro_use]
extern crate tailwater_sandbox;

mod bulk;
mod dump;
mod fake;
mod fake_dump;
mod fuzzed;
mod hostile_servers;
mod load_data;
mod login;
mod served;
mod served_clients;
mod served_events;
mod served_hostile;
mod served_login;
mod served_replicas;
mod session_settings;
mod statements;
mod tls;
