//! Recovery of an interrupted run: a failover or switchover whose manager died or lost the lease is undone or
//! finished. Pure.
//!
//! The audit record says what may have been done. It was stored before each action that changes something,
//! except for those of a switchover while clients wait. The decision therefore depends on the present state
//! of the servers:
//!
//! - The candidate takes writes: the run is finished. The ackers capture from it, and the actions after a
//!   promotion are executed.
//! - The candidate takes no writes and cannot have acknowledged a commit: everything is undone.
//! - The candidate cannot be probed, or record and server contradict each other: nothing is done, and the
//!   reason is reported.
//!
//! If an acker accepted an order in a later term, another manager has acted since, and nothing is done: the
//! interrupted run is obsolete. An exception is an acker that was only stopped, as by a run that was itself
//! interrupted.
//!
//! - [`procedure`]: its phases, actions and rules; [`crate::phase_machine`] runs them.
//! - [`crate::history`]: what a record says.

pub mod procedure;

pub use procedure::{RecoveryProcedure, RecoveryRequest, RunRecovery};
