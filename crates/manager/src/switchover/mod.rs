//! A switchover, phase by phase: the failover's acts with a primary that is alive, and with a bound on how long nobody can
//! write. Pure.
//!
//! lease → confirm → choose → prepare → **pause → drain → fence → source → follow → writable** → routes → others.
//!
//! What takes time is done before the pause. In it the primary lets the commits in flight through, for the ackers still
//! acknowledge, and takes no more; when the candidate has executed and every acker holds all that the primary has, the
//! ackers stop, which fences the primary even from accounts that `read_only` does not bind, and capture from the
//! candidate, which becomes writable last: its first commit finds its ackers there. Nothing can be missing: the primary
//! has told its last position itself, and whoever wrote behind that would show in what the stopped ackers hold.
//!
//! Until the candidate may be writable everything is undone when a step fails or the bound is passed: a candidate that may
//! be writable first, then the rest side by side, and what cannot be undone once more. From then on there is only forward.
//! Without the lease nothing is done any more.
//!
//! - [`order`]: what is asked for.
//! - [`run`]: the machine.

pub mod order;
pub mod run;

pub use order::{Order, Primary};
pub use run::Switchover;
