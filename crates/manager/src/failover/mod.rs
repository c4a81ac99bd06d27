//! A failover: another server becomes primary because the primary has failed. Pure.
//!
//! lease → confirm → fence → fence hooks → prove → choose → backfill → drain → semi-sync → make writable →
//! repoint ackers → repoint replicas → route clients.
//!
//! The lease is checked before each action; parallel actions of one phase share a check. Before a new primary
//! may have become writable, every action can be undone. If a rule refuses or an action fails, the actions
//! are undone in reverse order. After that point the run only continues. Without the lease no action is
//! executed, not even an undo action; the record lists what is left to undo.
//!
//! - [`request`]: the input of a failover.
//! - [`procedure`]: its phases, actions and rules; [`crate::phase_machine`] runs them.
//! - `plan`: the expected duration of a plan.

mod plan;
pub mod procedure;
pub mod request;

pub use procedure::{Failover, FailoverProcedure};
pub use request::{ExpectedDurations, FailoverRequest};
