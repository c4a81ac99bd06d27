//! A failover or switchover whose manager died in the midst of it, or lost the lease, is undone, or finished. Pure.
//!
//! The record says what may have been done: it was stored before each act that changes something, but for those of a switchover
//! while clients wait. So what is done rests on what the servers say now:
//!
//! - The candidate takes writes: there is only forward. The ackers capture from it, and what comes behind a promotion is done.
//! - It takes none, and cannot have acknowledged anything: everything is undone.
//! - It cannot be asked, or the two contradict each other: nothing is done, and why is told.
//!
//! If an acker was led in a later term than that of the run, somebody else has acted since, and nothing is done at all: what was
//! left is over, unless that acker was stopped and nothing more, as by a run that was itself cut off.
//!
//! - [`traces`]: what a record says.
//! - [`run`]: the machine.

pub mod interrupted_run;
pub mod state_machine;

pub use interrupted_run::InterruptedRun;
pub use state_machine::{RecoveryRequest, RunRecovery};
