//! Answers questions about earlier failovers and switchovers from their audit records. Pure.
//!
//! Each function reads the audit records from the newest to the oldest, and uses [`RunEffect`] to determine
//! what each failover or switchover changed. The answers therefore cannot contradict each other. A failover
//! that was recovered later has two audit records: its own, and that of the recovery.
//!
//! - [`failover_effect`]: what one failover or switchover changed.
//! - [`former_primaries`]: which servers were primary and were replaced.
//! - [`interrupted_failover`]: what an interrupted failover or switchover may have done, and which of them
//!   must be recovered.
//! - [`recorded_primary`]: which server is the primary according to the audit records.
//! - [`replacement_of_former_primary`]: how a former primary was replaced.
//! - [`server_names`]: the names of the servers in another configuration.

pub mod failover_effect;
pub mod former_primaries;
pub mod interrupted_failover;
pub mod recorded_primary;
pub mod replacement_of_former_primary;
pub mod server_names;

pub use failover_effect::RunEffect;
pub use former_primaries::former_primaries;
pub use interrupted_failover::{InterruptedRun, run_to_recover};
pub use recorded_primary::{PrimaryRecord, RecordedPrimary};
pub use replacement_of_former_primary::{Replacement, last_replacement};
pub use server_names::with_configured_names;
