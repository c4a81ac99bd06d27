//! Cluster management: runs failovers and switchovers. The crate `topology` probes the servers and analyses
//! failures.
//!
//! Modules:
//! - [`actions`]: executes actions on real servers. Does I/O.
//! - [`relay_source_reconciliation`]: pure: which relays follow the wrong server.
//! - [`candidates`]: pure: ranks the servers that may become primary.
//! - [`failover_driver`]: the loop that gives the actions of a state machine to an executor and returns their
//!   outcomes.
//! - [`error`]: errors with stable codes.
//! - [`failover`]: the phases and rules of a failover.
//! - [`failover_readiness`]: pure: whether a failover would succeed now.
//! - [`action_executor`]: the interfaces through which a failover or switchover acts on servers, relays and
//!   hooks.
//! - [`audit_history`]: pure: what the audit records of earlier failovers and switchovers show.
//! - [`lease`]: the lease, which lets only one manager act at a time.
//! - [`lossless_rules`]: the proof, from stopped ackers, that no acknowledged commit is missing.
//! - [`model`]: plain types without I/O: actions, outcomes, audit records.
//! - [`failover_state_machine`]: pure: the state machine that failover, switchover and recovery share.
//! - [`interrupted_failover_recovery`]: undoes or finishes an interrupted failover or switchover.
//! - [`safety_refusals`]: the safety rules, which refuse a failover, switchover or rejoin.
//! - [`switchover`]: the phases and rules of a switchover.
//! - [`cluster_watch`]: watches a cluster: tasks that do I/O, and a pure state.

pub mod action_executor;
pub mod actions;
pub mod audit_history;
pub mod candidates;
pub mod cluster_watch;
pub mod error;
pub mod failover;
pub mod failover_driver;
pub mod failover_readiness;
pub mod failover_state_machine;
pub mod interrupted_failover_recovery;
pub mod lease;
pub mod lossless_rules;
pub mod model;
pub mod relay_source_reconciliation;
pub mod safety_refusals;
pub mod switchover;

pub use error::ManagerError;
pub use safety_refusals::SafetyRefusal;
pub use tailwater_topology::failure_analysis::FailoverReadiness;
