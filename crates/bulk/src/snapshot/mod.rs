//! The same point in time on many connections, with the shortest lock that does.
//!
//! - [`plan`]: which statements, in which order, and why: what `--dry-run` prints is what is run.
//! - [`acquire`]: runs a plan, and the next one if it is refused.
//! - [`table_list`]: what there is at that point.
//! - [`channel_target`], [`replica_logging`]: servers whose binlog and GTIDs do not tell all.
//! - [`reader`]: keeps definitions of tables from changing until they are finished, one by one.

pub mod acquire;
pub mod channel_target;
pub mod plan;
pub mod reader;
pub(crate) mod replica_logging;
pub(crate) mod table_list;

pub use acquire::{Snapshot, SnapshotOptions, capabilities};
pub use plan::{ServerCapabilities, SnapshotMethod, SnapshotPlan};
pub use reader::{FinishedTables, SnapshotReader};
