//! Who leads and who follows: what servers look like from outside, what has failed, and what is to be done.
//!
//! The map:
//! - [`failure`]: why a server could not be looked at, and whether that means that it lives.
//! - [`observation`]: what one look at a server saw, as plain data.
//! - [`observing`]: takes such looks, and pings, over connections. The only driver here.
//! - [`topology`]: pure: looks and the configuration become a tree.
//! - [`analysis`]: pure: what several observers said over time becomes a named failure with its evidence.
//! - [`error`]: what can go wrong, with stable codes.

pub mod analysis;
pub mod error;
pub mod failure;
pub mod observation;
pub mod observing;
pub mod topology;

pub use error::ManagerError;
