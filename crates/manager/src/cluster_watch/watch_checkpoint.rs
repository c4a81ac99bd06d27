//! What a manager knew of its primary, kept for the next manager process on this machine. A manager that
//! restarts while the primary dies has never observed it alive, and would otherwise refuse the failover
//! (TW-MGR-0031).
//!
//! A checkpoint is valid only for the same primary, in the same boot of the machine, while the local relay
//! has seen no later term, and as long as [`KnownPrimary::primary_state_age_ms`](super::KnownPrimary) allows.
//! The first own observation replaces it.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::lossless::AckPolicyHistory;
use crate::lossless::gtid_serde;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchCheckpoint {
    /// Name of the primary.
    pub primary: String,
    /// Transactions executed at the last observation.
    #[serde(with = "gtid_serde")]
    pub executed: GtidSet,
    /// The ack policies at that time.
    #[serde(alias = "regimes")]
    pub ack_policies: AckPolicyHistory,
}

/// A checkpoint with the data that decides whether it is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// What was kept.
    #[serde(alias = "memory")]
    pub checkpoint: WatchCheckpoint,
    /// When the primary was last probed, in milliseconds since the machine's boot.
    #[serde(alias = "looked_ms")]
    pub probed_at_ms: u64,
    /// Id of that boot.
    pub boot: String,
    /// The highest lease term that the local relay had seen.
    pub term: u64,
}

/// Circumstances of a manager's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerStart<'a> {
    /// The server that the log follows.
    pub primary: &'a str,
    /// In milliseconds since the machine's boot.
    pub now_ms: u64,
    /// Id of that boot.
    pub boot: &'a str,
    /// The highest lease term that the local relay has seen.
    pub term: u64,
}

impl StoredCheckpoint {
    /// The checkpoint if it is valid for this start, and its age in milliseconds.
    pub fn for_start(self, start: &ManagerStart<'_>) -> Option<(WatchCheckpoint, u64)> {
        let is_same =
            self.checkpoint.primary == start.primary && self.boot == start.boot && self.term == start.term;
        let ago_ms = start.now_ms.checked_sub(self.probed_at_ms)?;
        is_same.then_some((self.checkpoint, ago_ms))
    }
}
