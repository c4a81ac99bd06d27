//! Acts on real servers.

mod cluster;
mod draining;
mod draining_model;
mod fed;
mod hooks;
mod promoting;
mod recovering;
mod replicating;
mod switching;
