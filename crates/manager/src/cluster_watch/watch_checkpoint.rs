//! What a manager knew of its primary, for the one that comes behind it in the same place: one that is restarted while the primary
//! dies has never seen it alive, and would have to refuse (TW-MGR-0031) what the one before it could have proven.
//!
//! It counts only for the same primary, on the same boot of the machine, while the relay beside it has not been ordered about by
//! a later term, and as long as [`KnownPrimary::primary_state_age_ms`](super::Known) lets it. The first look of one's own puts it aside.

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
    #[serde(alias = "regimes")]
    pub ack_policies: AckPolicyHistory,
}

/// A memory with the marks by which it counts or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// What is remembered.
    #[serde(alias = "memory")]
    pub checkpoint: WatchCheckpoint,
    /// When the primary was last looked at, in milliseconds since the machine's boot.
    #[serde(alias = "looked_ms")]
    pub probed_at_ms: u64,
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
    pub fn for_start(self, start: &ManagerStart<'_>) -> Option<(WatchCheckpoint, u64)> {
        let is_same =
            self.checkpoint.primary == start.primary && self.boot == start.boot && self.term == start.term;
        let ago_ms = start.now_ms.checked_sub(self.probed_at_ms)?;
        is_same.then_some((self.checkpoint, ago_ms))
    }
}
