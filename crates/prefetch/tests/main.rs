//! Tests of the prefetch beside native replicas, on real servers.

#[macro_use]
extern crate tailwater_sandbox;

mod broken_servers;
mod cold_replica;
mod documented_error_codes;
mod pages_read_ahead;
mod self_stop;
