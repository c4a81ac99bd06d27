//! Acts on real servers.

mod cluster;
mod draining;
mod draining_model;
mod hooks;
mod promoting;
mod replicating;
