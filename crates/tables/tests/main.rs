//! Integration tests on real servers: chunker, schema, throttle.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod chunker;
mod error_codes;
mod random;
mod replica_pair;
mod schema;
mod support;
mod throttle;
