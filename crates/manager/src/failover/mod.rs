//! A failover: another server becomes primary because the primary has failed. Pure.
//!
//! lease → confirm → fence → fence hooks → prove → choose → backfill → drain → semi-sync → make writable →
//! repoint ackers → repoint replicas → route clients.
//!
//! The lease is checked before each action; parallel actions of one phase share a check. Before a new primary
//! may have become writable, every action can be undone. If a rule refuses or an action fails, the actions
//! are undone in reverse order. After that point the failover is not undone any more. Without the lease no
//! action is executed, not even an undo action; the audit record lists what is left to undo.
//!
//! - [`failover_request`]: the input of a failover.
//! - [`failover_phases`]: its phases, actions and rules; [`crate::failover_state_machine`] runs them.
//! - `expected_duration`: the expected duration of a plan.

mod expected_duration;
pub mod failover_phases;
pub mod failover_request;

pub use failover_phases::{Failover, FailoverProcedure};
pub use failover_request::{ExpectedDurations, FailoverRequest};
