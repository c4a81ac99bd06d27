//! The state machine of a failover. Pure: outcomes in, actions out; the driver executes them.
//!
//! lease → confirm → fence → fence hooks → prove → choose → backfill → drain → semi-sync → make writable →
//! repoint ackers → repoint replicas → route clients. The lease is checked before each action; parallel
//! actions of one phase share a check. Until a new primary may have become writable, every action can be
//! undone, and is undone in reverse order if a rule refuses or an action fails. From then on the run only
//! continues. Without the lease no action is executed, not even an undo; the record lists what is left to
//! undo.
//!
//! - [`action`]: actions and their outcomes.
//! - [`request`]: the input of a failover.
//! - [`state_machine`]: the state machine; `run_state`: what it shares with switchovers and recoveries.
//! - [`audit`]: the audit record.

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
