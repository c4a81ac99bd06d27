//! Drives a machine: does what it orders through [`Hands`](crate::hands::Hands), side by side where it may, and tells it how that
//! went.
//!
//! - [`machine`]: what a machine is; failovers and switchovers are.
//! - [`term`]: whether this manager may act, and when it no longer may.
//! - [`record`]: where the record lies, before anything is changed that it tells of.
//! - [`run`]: the loop.

pub mod machine;
pub mod record;
pub mod run;
pub mod term;

pub use machine::Machine;
pub use record::{AuditFolder, AuditStore, RecordError};
pub use run::{Confirm, Driver, Limits};
pub use term::Term;
