//! A switchover: another server becomes primary while the primary works. It uses the actions of a failover,
//! and limits the write pause. Pure.
//!
//! lease → confirm → choose → prepare → catch up → **pause → fence → repoint ackers → make writable** → route
//! clients → repoint replicas.
//!
//! Everything slow happens before the pause, which does not begin until the lag of the candidate is small. In
//! the pause the primary completes running commits, because the ackers still acknowledge them, and takes no
//! new ones. After that, the ackers and the candidate proceed independently. An acker that holds everything
//! of the primary stops, which fences the primary even for accounts that `read_only` does not bind. A
//! candidate that has executed everything becomes a semi-sync source. Then the ackers capture from the
//! candidate. The candidate becomes writable last, so ackers are connected before its first commit. No
//! transaction can be missing: the primary itself reports its last position, and a later write would appear
//! in the logs of the stopped ackers.
//!
//! Before the candidate may be writable, everything is undone if an action fails or the limit is exceeded. A
//! candidate that may be writable is made read-only first; then the rest is undone in parallel. Failed undo
//! actions are repeated once. From then on the run only continues. Without the lease no action is executed.
//!
//! - [`request`]: the input of a switchover.
//! - [`procedure`]: its phases and the write pause; [`crate::phase_machine`] runs them. `phases` lists the
//!   actions of each phase, `readiness` has the rules, `catch_up` decides when the pause may begin.

mod catch_up;
mod phases;
pub mod procedure;
mod readiness;
pub mod request;

pub use procedure::{Switchover, SwitchoverProcedure};
pub use request::SwitchoverRequest;
