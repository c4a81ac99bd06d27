//! Plain types that the rest of the crate shares: actions, outcomes, audit records, the lease token. None of
//! them does I/O.
//!
//! - [`failover_action`]: the actions of a failover or switchover.
//! - [`action_outcome`]: the outcomes of actions.
//! - [`audit_record`]: the audit record of a failover or switchover.
//! - [`lease_token`]: the token of a lease term.
//! - [`primary_status`]: the state of a primary.
//! - [`relay_state`]: the state of a relay, and the orders that managers gave it.
//! - [`failover_phase`]: the phases of a failover or switchover.

pub mod action_outcome;
pub mod audit_record;
pub mod failover_action;
pub mod failover_phase;
pub mod lease_token;
pub mod primary_status;
pub mod relay_state;

pub use action_outcome::ActionOutcome;
pub use audit_record::{Audit, AuditEntry, AuditEvent, NamedServer, RunKind, RunOutcome};
pub use failover_action::{NumberedAction, RunAction};
pub use failover_phase::RunPhase;
pub use lease_token::LeaseToken;
pub use primary_status::PrimaryStatus;
pub use relay_state::{RelayAssignment, RelayProbeResult};
