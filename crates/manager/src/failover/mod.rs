//! A failover: the primary has failed. Pure.
//!
//! lease → confirm → fence → fence hooks → prove → choose → backfill → drain → semi-sync → make writable →
//! repoint ackers → repoint replicas → route clients. The lease is checked before each action; parallel
//! actions of one phase share a check. Until a new primary may have become writable, every action can be
//! undone, and is undone in reverse order if a rule refuses or an action fails. From then on the run only
//! continues. Without the lease no action is executed, not even an undo; the record lists what is left to
//! undo.
//!
//! - [`request`]: the input of a failover.
//! - [`procedure`]: its phases, actions and rules; [`crate::phase_machine`] runs them.
//! - `plan`: the expected duration of a plan.

mod plan;
pub mod procedure;
pub mod request;

pub use procedure::{Failover, FailoverProcedure};
pub use request::{ExpectedDurations, FailoverRequest};
