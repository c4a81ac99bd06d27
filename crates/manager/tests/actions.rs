//! Tests of actions on real servers.

mod channel_target;
mod cluster;
mod drain_model;
mod hooks;
mod promotion;
mod recovery;
mod relay_log_drain;
mod replication;
mod switchover;
