//! Drives the state machine of a run: executes its actions through an
//! [`ActionExecutor`](crate::action_executor::ActionExecutor), in parallel where allowed, and returns the
//! outcomes to it.
//!
//! - [`run_machine`]: the interface of a state machine.
//! - [`lease_check`]: whether this manager holds the lease.
//! - [`audit_store`]: where audit records are stored.
//! - [`run_driver`]: the loop.

pub mod audit_store;
pub mod lease_check;
pub mod run_driver;
pub mod run_machine;

pub use audit_store::{AuditError, AuditFolder, AuditStore};
pub use lease_check::LeaseCheck;
pub use run_driver::{ConfirmFailure, DriverTimeouts, RunDriver};
pub use run_machine::RunMachine;
