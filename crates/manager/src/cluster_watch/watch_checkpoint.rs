//! What a manager knew of its primary, for the one that comes behind it in the same place: one that is restarted while the primary
//! dies has never seen it alive, and would have to refuse (TW-MGR-0031) what the one before it could have proven.
//!
//! It counts only for the same primary, on the same boot of the machine, while the relay beside it has not been ordered about by
//! a later term, and as long as [`KnownPrimary::unverified_ms`](super::Known) lets it. The first look of one's own puts it aside.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::lossless::AckPolicyHistory;
use crate::lossless::gtid_serde;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchCheckpoint {
    /// The primary's name.
    pub primary: String,
    /// What it was last seen to have executed.
    #[serde(with = "gtid_serde")]
    pub executed: GtidSet,
    /// Who could acknowledge.
    pub regimes: AckPolicyHistory,
}

/// A memory with the marks by which it counts or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// What is remembered.
    pub memory: WatchCheckpoint,
    /// When the primary was last looked at, in milliseconds since the machine's boot.
    pub looked_ms: u64,
    /// Which boot that was.
    pub boot: String,
    /// The highest term of the lease that the relay beside the manager had seen then.
    pub term: u64,
}

/// Where and when a manager begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerStart<'a> {
    /// Whom the log follows.
    pub primary: &'a str,
    /// In milliseconds since the machine's boot.
    pub now_ms: u64,
    /// Which boot that was.
    pub boot: &'a str,
    /// The highest term of the lease that the relay beside it has seen.
    pub term: u64,
}

impl StoredCheckpoint {
    /// What counts of it for a manager that begins so, and how long ago the primary was looked at, in milliseconds.
    pub fn for_one_that(self, begins: &ManagerStart<'_>) -> Option<(WatchCheckpoint, u64)> {
        let is_same =
            self.memory.primary == begins.primary && self.boot == begins.boot && self.term == begins.term;
        let ago_ms = begins.now_ms.checked_sub(self.looked_ms)?;
        is_same.then_some((self.memory, ago_ms))
    }
}
