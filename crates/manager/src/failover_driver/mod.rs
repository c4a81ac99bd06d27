//! Drives the state machine of a failover or switchover. The driver executes the actions of the state machine
//! through an [`ActionExecutor`](crate::action_executor::ActionExecutor), in parallel where that is allowed,
//! and passes the outcomes back to the state machine.
//!
//! - [`state_machine_interface`]: the interface of the state machines.
//! - [`lease_check`]: checks whether this manager holds the lease.
//! - [`audit_store`]: stores the audit records.
//! - [`action_loop`]: the loop that executes the actions.

pub mod action_loop;
pub mod audit_store;
pub mod lease_check;
pub mod state_machine_interface;

pub use action_loop::{ConfirmFailure, DriverTimeouts, RunDriver};
pub use audit_store::{AuditError, AuditFolder, AuditStore};
pub use lease_check::LeaseCheck;
pub use state_machine_interface::RunMachine;
