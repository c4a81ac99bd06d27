//! Takes the same consistent snapshot on many connections, with the shortest possible lock.
//!
//! - [`plan`]: the statements of each method, their order and the reasons. `--dry-run` prints them.
//! - [`acquire`]: executes a plan, and the next one if the server refuses it.
//! - [`table_list`]: the objects that exist at the snapshot's point in time.
//! - [`channel_target`], [`replica_logging`]: servers whose binlog and GTIDs do not cover all of their data.
//! - [`reader`]: keeps table definitions unchanged until each table is finished.

pub mod acquire;
pub mod channel_target;
pub mod plan;
mod point;
pub mod reader;
pub mod replica_logging;
pub mod table_list;

pub use acquire::{Snapshot, SnapshotOptions, capabilities};
pub use plan::{ServerCapabilities, SnapshotMethod, SnapshotPlan};
pub use point::SnapshotPoint;
pub use reader::{FinishedTables, SnapshotReader};
