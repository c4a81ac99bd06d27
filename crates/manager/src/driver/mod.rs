//! Drives a machine: does what it orders through [`Hands`](crate::hands::Hands), side by side where it may, and tells it how that
//! went.
//!
//! - [`machine`]: what a machine is; failovers and switchovers are.
//! - [`term`]: whether this manager may act, and when it no longer may.
//! - [`record`]: where the record lies, before anything is changed that it tells of.
//! - [`run`]: the loop.

pub mod audit_store;
pub mod lease_check;
pub mod run_driver;
pub mod run_machine;

pub use audit_store::{AuditError, AuditFolder, AuditStore};
pub use lease_check::LeaseCheck;
pub use run_driver::{ConfirmFailure, DriverTimeouts, RunDriver};
pub use run_machine::RunMachine;
