//! Answers questions about earlier runs from the audit records. Pure.
//!
//! Each function reads the records from the newest to the oldest, and uses [`RunEffect`] to determine what
//! each run changed. The answers therefore cannot contradict each other. A run that was recovered later has
//! two records: its own, and that of the recovery.
//!
//! - [`run_effect`]: what one run changed.
//! - [`former_primaries`]: which servers were primary and were replaced.
//! - [`interrupted_run`]: what an interrupted run may have done, and which run must be recovered.
//! - [`recorded_primary`]: which server is the primary according to the records.
//! - [`replacement`]: how a former primary was replaced.

pub mod former_primaries;
pub mod interrupted_run;
pub mod recorded_primary;
pub mod replacement;
pub mod run_effect;

pub use former_primaries::former_primaries;
pub use interrupted_run::{InterruptedRun, run_to_recover};
pub use recorded_primary::{PrimaryRecord, RecordedPrimary};
pub use replacement::{Replacement, last_replacement};
pub use run_effect::RunEffect;
