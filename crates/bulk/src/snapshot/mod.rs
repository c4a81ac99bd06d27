//! The same point in time on many connections, with the shortest lock that does.
//!
//! - [`plan`]: which statements, in which order, and why: what `--dry-run` prints is what is run.
//! - [`taking`]: runs a plan, and the next one if it is refused.
//! - [`listing`]: what there is at that point.
//! - [`fed`], [`replicated`]: servers whose binlog and GTIDs do not tell all.
//! - [`hold`]: keeps definitions of tables from changing until they are finished, one by one.

pub mod fed;
pub mod hold;
pub(crate) mod listing;
pub mod plan;
pub(crate) mod replicated;
pub mod taking;

pub use hold::{FinishedTables, SnapshotReader};
pub use plan::{Circumstances, Method, SnapshotPlan};
pub use taking::{Snapshot, SnapshotOptions, circumstances};
