//! The same point in time on many connections, with the shortest lock that does.
//!
//! - [`plan`]: which statements, in which order, and why: what `--dry-run` prints is what is run.
//! - [`taking`]: runs a plan, and the next one if it is refused.
//! - [`hold`]: keeps definitions of tables from changing until they are finished, one by one.

pub mod hold;
pub mod plan;
pub mod taking;

pub use hold::TableHold;
pub use plan::{Circumstances, Method, SnapshotPlan};
pub use taking::{Snapshot, SnapshotOptions, circumstances};
