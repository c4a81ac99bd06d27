//! Actions on real servers.

mod channel_target_promotion;
mod hook_commands;
mod manager_death_recovery;
mod primary_promotion;
mod relay_log_drain;
mod relay_log_drain_model;
mod replication_setup;
mod switchover;
mod test_cluster;
