//! Who leads and who follows: what servers look like from outside, what has failed, and what is to be done.
//!
//! The map:
//! - [`acting`]: does what is ordered, on real servers. A driver.
//! - [`failure`]: why a server could not be looked at, and whether that means that it lives.
//! - [`observation`]: what one look at a server saw, as plain data.
//! - [`observing`]: takes such looks, and pings, over connections. A driver.
//! - [`topology`]: pure: looks and the configuration become a tree.
//! - [`astray`]: pure: which relays do not follow the primary, as far as that is certain.
//! - [`analysis`]: pure: what several observers said over time becomes a named failure with its evidence.
//! - [`choice`]: who becomes primary.
//! - [`driving`]: has done what a machine orders, and tells it how that went.
//! - [`error`]: what can go wrong, with stable codes.
//! - [`failover`]: the phases, from the lease to the report.
//! - [`failover_readiness`]: pure: whether a failover would go through if the primary died now.
//! - [`hands`]: who does what is ordered.
//! - [`lease`]: one manager acts at a time.
//! - [`lossless`]: what the ackers that were stopped prove.
//! - [`recovery`]: what a manager that died left half done is undone, or finished.
//! - [`refusal`]: the rules that refuse.
//! - [`switchover`]: the phases while the primary is alive.
//! - [`watching`]: hears of everybody all the time. A driver, but for its chronicle.

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
