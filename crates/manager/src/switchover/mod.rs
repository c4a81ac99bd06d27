//! A switchover: another server becomes primary while the primary works. It uses the actions of a failover,
//! and limits the write pause. Pure.
//!
//! lease → confirm → choose → prepare → catch up → **pause → fence → repoint ackers → make writable** → route
//! clients → repoint replicas.
//!
//! Everything slow happens before the pause, which does not begin until the lag of the candidate is small. In
//! the pause the primary completes running commits, because the ackers still acknowledge them, and takes no
//! new ones. After that, the ackers and the candidate proceed independently. An acker that holds everything
//! of the primary stops, which fences the primary even for accounts that can write despite `read_only`. A
//! candidate that has executed everything becomes a semi-sync source. Then the ackers capture from the
//! candidate. The candidate becomes writable last, so ackers are connected before its first commit. No
//! transaction can be missing: the primary itself reports its last position, and a later write would appear
//! in the logs of the stopped ackers.
//!
//! Before the candidate may be writable, everything is undone if an action fails or the limit is exceeded. A
//! candidate that may be writable is made read-only first; then the rest is undone in parallel. Failed undo
//! actions are repeated once. From then on the switchover is not undone any more. Without the lease no action
//! is executed.
//!
//! - [`switchover_request`]: the input of a switchover.
//! - [`switchover_phases`]: its phases and the write pause; [`crate::failover_state_machine`] runs them.
//!   `phase_actions` lists the actions of each phase, `switchover_rules` has the rules, `candidate_catch_up`
//!   decides when the pause may begin.

mod candidate_catch_up;
mod phase_actions;
pub mod switchover_phases;
pub mod switchover_request;
mod switchover_rules;

pub use switchover_phases::{Switchover, SwitchoverProcedure};
pub use switchover_request::SwitchoverRequest;
