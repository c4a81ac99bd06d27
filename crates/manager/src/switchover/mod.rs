//! A switchover, phase by phase: the failover's acts with a primary that is alive, and with a bound on how long nobody can
//! write. Pure.
//!
//! lease → confirm → choose → prepare → catch up → **pause → fence → follow → writable** → routes → others.
//!
//! What takes time is done before the pause, which does not begin before the candidate is close behind the primary. In it the
//! primary lets the commits in flight through, for the ackers still acknowledge, and takes no more. Then each goes on by
//! itself: an acker that holds all that the primary has stops, which fences the primary even from accounts that `read_only`
//! does not bind; a candidate that has executed it becomes a source. When all are there the ackers capture from the
//! candidate, which becomes writable last: its first commit finds its ackers there. Nothing can be missing: the primary has
//! told its last position itself, and whoever wrote behind that would show in what the stopped ackers hold.
//!
//! Until the candidate may be writable everything is undone when a step fails or the bound is passed: a candidate that may
//! be writable first, then the rest side by side, and what cannot be undone once more. From then on there is only forward.
//! Without the lease nothing is done any more.
//!
//! - [`order`]: what is asked for.
//! - [`run`]: the machine; `phases` has the acts of each phase, `readiness` the rules, `catch_up` when the pause may begin.

mod catch_up;
mod phases;
mod readiness;
pub mod request;
pub mod state_machine;

pub use request::{PrimaryStatus, SwitchoverRequest};
pub use state_machine::Switchover;
