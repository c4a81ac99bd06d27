//! A failover, phase by phase. Pure: answers in, acts out; the driver does what it is told and says how it went.
//!
//! lease → confirm → fence → fence hooks → prove → choose → supply → drain → source → writable → follow → others → routes.
//! The lease is asked for before each act; acts of one phase that run side by side share the question. Up to the moment at which a new primary may have become writable
//! everything that was done can be undone, and is, in the opposite order, if a rule refuses or a step fails. From then on
//! there is only forward. Without the lease nothing is done any more, not even undone: what is left to be undone is told.
//!
//! - [`act`]: what is to be done, and the answers.
//! - [`order`]: what is asked for.
//! - [`run`]: the machine. `run`: what it has in common with those of switchovers and recoveries.
//! - [`audit`]: the record of everything that was done and answered.

pub mod action;
pub mod audit;
pub mod request;
mod run_state;
pub mod state_machine;

pub use action::{ActionOutcome, RunAction, RunPhase};
pub use audit::{Audit, AuditEntry, AuditEvent, RunKind, RunOutcome};
pub use request::{ExpectedDurations, FailoverRequest};
pub(crate) use run_state::RunState;
pub use state_machine::{Failover, NumberedAction};
