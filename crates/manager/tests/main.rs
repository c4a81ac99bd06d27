//! Integration tests of the manager, on real servers.

// Makes the macro `on_each_server!` available in all modules.
#[macro_use]
extern crate tailwater_sandbox;

mod actions_on_servers;
mod audit_history;
mod candidate_ranking;
mod cluster_watch;
mod documented_error_codes;
mod failover_driver;
mod failover_readiness;
mod failover_state_machine;
mod failure_analysis_cases;
mod failure_analysis_properties;
mod interrupted_failover_recovery;
mod json_compatibility_between_versions;
mod lease_exclusivity;
mod lossless_rules;
mod lossless_rules_model;
mod relay_source_reconciliation;
mod server_probe;
mod switchover_state_machine;
mod topology_tree;
