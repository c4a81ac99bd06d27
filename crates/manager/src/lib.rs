//! Who leads and who follows: what servers look like from outside, what has failed, and what is to be done.
//!
//! The map:
//! - [`error`]: what can go wrong, with stable codes.

pub mod error;

pub use error::ManagerError;
