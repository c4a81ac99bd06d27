//! Cluster management: probes servers, analyses failures, and runs failovers and switchovers.
//!
//! The map:
//! - [`actions`]: executes actions on real servers. A driver.
//! - [`probe_failure`]: why a probe failed, and whether the server is alive.
//! - [`observation`]: the state of a server at one time, as plain data.
//! - [`probe`]: probes and pings servers. A driver.
//! - [`topology`]: pure: observations and the configuration become a tree.
//! - [`relay_reconciliation`]: pure: which relays follow the wrong server.
//! - [`analysis`]: pure: observer reports over time become a failure code with evidence.
//! - [`candidates`]: pure: ranks the servers that may become primary.
//! - [`driver`]: executes the actions of a state machine.
//! - [`error`]: errors with stable codes.
//! - [`failover`]: the state machine of a failover.
//! - [`failover_readiness`]: pure: whether a failover would succeed now.
//! - [`action_executor`]: the interfaces through which runs act.
//! - [`lease`]: one manager acts at a time.
//! - [`lossless`]: what the stopped ackers prove.
//! - [`recovery`]: undoes or finishes an interrupted run.
//! - [`safety_refusal`]: the rules that refuse.
//! - [`switchover`]: the state machine of a switchover.
//! - [`cluster_watch`]: watches a cluster. A driver around a pure state.

pub mod action_executor;
pub mod actions;
pub mod analysis;
pub mod candidates;
pub mod cluster_watch;
pub mod driver;
pub mod error;
pub mod failover;
pub mod failover_readiness;
pub mod lease;
pub mod lossless;
pub mod observation;
pub mod probe;
pub mod probe_failure;
pub mod recovery;
pub mod relay_reconciliation;
pub mod safety_refusal;
pub mod switchover;
pub mod topology;

pub use error::ManagerError;
pub use failover_readiness::FailoverReadiness;
pub use safety_refusal::SafetyRefusal;
