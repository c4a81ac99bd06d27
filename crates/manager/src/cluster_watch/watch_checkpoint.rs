//! What a manager knew of its primary, stored for the next manager process on this machine. Without a
//! checkpoint, if the manager restarted while the primary died, the new process would never have observed the
//! primary alive. It would then refuse the failover (TW-MGR-0031).
//!
//! A checkpoint is valid only for the same primary and in the same boot of the machine. The local relay must
//! not have seen a later lease term, and the observation must not be older than
//! [`KnownPrimary::primary_state_age_ms`](super::KnownPrimary) may be. The first observation by the new
//! process replaces the checkpoint.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::lossless_rules::{AckPolicyHistory, gtid_set_serde};

/// What a manager stores for its successor process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchCheckpoint {
    /// Name of the primary.
    pub primary: String,
    /// Transactions that the primary had executed at its last observation.
    #[serde(with = "gtid_set_serde")]
    pub executed: GtidSet,
    /// The ack policies at the last observation.
    #[serde(alias = "regimes")]
    pub ack_policies: AckPolicyHistory,
}

/// A checkpoint, with the data that decides whether it is still valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// The checkpoint itself.
    #[serde(alias = "memory")]
    pub checkpoint: WatchCheckpoint,
    /// When the primary was last probed, in milliseconds since the boot of the machine.
    #[serde(alias = "looked_ms")]
    pub probed_at_ms: u64,
    /// Id of the boot of the machine.
    pub boot: String,
    /// The highest lease term that the local relay had seen.
    pub term: u64,
}

/// The facts at the start of a manager. A checkpoint is valid only if it agrees with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerStart<'a> {
    /// The server from which the log is captured.
    pub primary: &'a str,
    /// The present time, in milliseconds since the boot of the machine.
    pub now_ms: u64,
    /// Id of the boot of the machine.
    pub boot: &'a str,
    /// The highest lease term that the local relay has seen.
    pub term: u64,
}

impl StoredCheckpoint {
    /// Returns the checkpoint and its age in milliseconds, if the checkpoint is valid for this start.
    pub fn for_start(self, start: &ManagerStart<'_>) -> Option<(WatchCheckpoint, u64)> {
        let is_same =
            self.checkpoint.primary == start.primary && self.boot == start.boot && self.term == start.term;
        let ago_ms = start.now_ms.checked_sub(self.probed_at_ms)?;
        is_same.then_some((self.checkpoint, ago_ms))
    }
}
