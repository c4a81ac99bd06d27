//! Takes the same consistent snapshot on many connections, with the shortest possible lock.
//!
//! - [`snapshot_methods`]: the statements of each method, their order and the reasons. `--dry-run` prints
//!   them.
//! - [`snapshot_acquisition`]: executes a plan, and the next one if the server refuses it.
//! - [`table_list`]: the objects that exist at the snapshot's point in time.
//! - [`gtids_applied_without_binlog`], [`log_slave_updates_off`]: servers whose binlog and GTIDs do not cover
//!   all of their data.
//! - [`table_metadata_locks`]: keeps table definitions unchanged until each table is finished.

pub mod gtids_applied_without_binlog;
pub mod log_slave_updates_off;
pub mod snapshot_acquisition;
pub mod snapshot_methods;
mod snapshot_position;
pub mod table_list;
pub mod table_metadata_locks;

pub use snapshot_acquisition::{Snapshot, SnapshotOptions, capabilities};
pub use snapshot_methods::{ServerCapabilities, SnapshotMethod, SnapshotPlan};
pub use snapshot_position::SnapshotPoint;
pub use table_metadata_locks::{FinishedTables, SnapshotReader};
