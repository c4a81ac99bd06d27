//! What the audit records say. Pure.
//!
//! Every question reads the records from the newest to the oldest and takes [`RunEffect`] for what each one
//! changed, so the answers cannot contradict each other. A run that is recovered later has two records: its
//! own, and that of the recovery.
//!
//! - [`failover_effect`]: what one run changed.
//! - [`interrupted_failover`]: what an interrupted run may have done, and which run is to be recovered.
//! - [`recorded_primary`]: which server the records make the primary.
//! - [`former_primary_replacement`]: how a former primary was replaced.

pub mod failover_effect;
pub mod former_primary_replacement;
pub mod interrupted_failover;
pub mod recorded_primary;

pub use failover_effect::RunEffect;
pub use former_primary_replacement::{Replacement, last_replacement};
pub use interrupted_failover::{InterruptedRun, run_to_recover};
pub use recorded_primary::{PrimaryRecord, RecordedPrimary};
