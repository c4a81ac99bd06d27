//! Who leads and who follows: what servers look like from outside, what has failed, and what is to be done.
//!
//! The map:
//! - [`choice`]: who becomes primary.
//! - [`error`]: what can go wrong, with stable codes.
//! - [`failover`]: the phases, from the lease to the report.
//! - [`lease`]: one manager acts at a time.
//! - [`lossless`]: what the ackers that were stopped prove.
//! - [`refusal`]: the rules that refuse.

pub mod choice;
pub mod error;
pub mod failover;
pub mod lease;
pub mod lossless;
pub mod refusal;

pub use error::ManagerError;
pub use refusal::Refusal;
