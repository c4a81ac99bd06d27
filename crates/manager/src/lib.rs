//! Cluster management: runs failovers and switchovers. The crate `topology` probes the
//! servers and analyses failures.
//!
//! The map:
//! - [`actions`]: executes actions on real servers. A driver.
//! - [`relay_reconciliation`]: pure: which relays follow the wrong server.
//! - [`candidates`]: pure: ranks the servers that may become primary.
//! - [`driver`]: executes the actions of a state machine.
//! - [`error`]: errors with stable codes.
//! - [`failover`]: the phases and rules of a failover.
//! - [`failover_readiness`]: pure: whether a failover would succeed now.
//! - [`action_executor`]: the interfaces through which runs act.
//! - [`history`]: pure: what the audit records say.
//! - [`lease`]: one manager acts at a time.
//! - [`lossless`]: what the stopped ackers prove.
//! - [`model`]: plain types that no driver owns: actions, outcomes, audit records.
//! - [`phase_machine`]: pure: the state machine that failover, switchover and recovery share.
//! - [`recovery`]: undoes or finishes an interrupted run.
//! - [`safety_refusal`]: the rules that refuse.
//! - [`switchover`]: the phases and rules of a switchover.
//! - [`cluster_watch`]: watches a cluster. A driver around a pure state.

pub mod action_executor;
pub mod actions;
pub mod candidates;
pub mod cluster_watch;
pub mod driver;
pub mod error;
pub mod failover;
pub mod failover_readiness;
pub mod history;
pub mod lease;
pub mod lossless;
pub mod model;
pub mod phase_machine;
pub mod recovery;
pub mod relay_reconciliation;
pub mod safety_refusal;
pub mod switchover;

pub use error::ManagerError;
pub use safety_refusal::SafetyRefusal;
pub use tailwater_topology::analysis::FailoverReadiness;
