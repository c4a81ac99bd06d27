//! Acts on real servers.

mod cluster;
mod draining;
mod replicating;
