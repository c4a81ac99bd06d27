//! Acts on real servers.

mod cluster;
mod draining;
mod promoting;
mod replicating;
