//! The state of a primary.

use tailwater_wire::gtid::GtidSet;

use crate::lossless::SemiSyncWait;

/// State of a primary that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryStatus {
    /// Clients can write to it.
    pub writable: bool,
    /// How it waits for ackers; `None` if semi-sync is not loaded or was not queried.
    pub waiting: Option<SemiSyncWait>,
    /// All transactions executed.
    pub executed: GtidSet,
}
