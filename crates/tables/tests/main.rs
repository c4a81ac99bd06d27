//! Integration tests on real servers: chunker, schema, throttle.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod chunker;
mod documented_error_codes;
mod schema_scripts;
mod seeded_random;
mod source_and_replica;
mod stock_client;
mod throttle;
