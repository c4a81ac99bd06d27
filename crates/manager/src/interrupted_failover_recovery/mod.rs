//! Recovery of an interrupted failover or switchover. A failover or switchover whose manager died or lost the
//! lease is either undone or finished. Pure.
//!
//! The audit record shows what the failover or switchover may have done. It was stored before each action
//! that changes something, except during the write pause of a switchover. The decision therefore also depends
//! on the present state of the servers:
//!
//! - The candidate takes writes: the failover or switchover is finished. The ackers capture from the
//!   candidate, and the actions after a promotion are executed.
//! - The candidate takes no writes and cannot have acknowledged a commit: everything is undone.
//! - The candidate cannot be probed, or the audit record and the server contradict each other: nothing is
//!   done, and the reason is reported.
//!
//! If an acker accepted an order in a later lease term, another manager has acted since. The interrupted
//! failover or switchover is then obsolete, and nothing is done. An acker that was only stopped does not show
//! this: a failover that was itself interrupted may have stopped it.
//!
//! - [`recovery_phases`]: its phases, actions and rules; [`crate::failover_state_machine`] runs them.
//! - [`crate::audit_history`]: what an audit record shows.

pub mod recovery_phases;

pub use recovery_phases::{RecoveryProcedure, RecoveryRequest, RunRecovery};
