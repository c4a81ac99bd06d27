//! The state of a primary.

use tailwater_wire::gtid::GtidSet;

use crate::lossless_rules::SemiSyncWait;

/// State of a primary that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryStatus {
    /// Whether clients can write to the primary.
    pub writable: bool,
    /// How the primary waits for ACKs; `None` if semi-sync is not loaded or was not queried.
    pub waiting: Option<SemiSyncWait>,
    /// All transactions that the primary has executed.
    pub executed: GtidSet,
}
