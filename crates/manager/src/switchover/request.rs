//! What is asked for, and what a look at the primary tells.

use tailwater_wire::gtid::GtidSet;

use crate::candidates::{GtidOrigin, ServerVersion};
use crate::failover::ExpectedDurations;
use crate::lossless::SemiSyncWait;

/// How long nobody may be able to write, in milliseconds, unless it is said otherwise.
pub const WRITE_PAUSE_MS_MAX: u64 = 1000;

/// A primary that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryStatus {
    /// Clients can write to it.
    pub writable: bool,
    /// How it waits for ackers; `None` if semi-sync is not there, or was not asked for.
    pub waiting: Option<SemiSyncWait>,
    /// All that it has executed.
    pub executed: GtidSet,
}

/// A switchover as it is asked for.
#[derive(Debug, Clone)]
pub struct SwitchoverRequest {
    /// Names this run.
    pub id: String,
    /// The primary of today.
    pub primary: String,
    /// Its mark in GTIDs.
    pub origin: GtidOrigin,
    /// Its version.
    pub version: ServerVersion,
    /// Its region.
    pub region: Option<String>,
    /// All ackers that capture from it.
    pub ackers: Vec<String>,
    /// Hooks that lead clients, in order.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the primary itself.
    pub direct_replicas: Vec<String>,
    /// How many ACKs the new primary waits for.
    pub acks_required: u32,
    /// The server that shall become primary, if it was named.
    pub wanted: Option<String>,
    /// Whether another region will do.
    pub across_regions: bool,
    /// Within this a candidate, and every acker, must have what the primary has before its writes are held, in milliseconds.
    pub catch_up_ms_max: u64,
    /// How long nobody may be able to write, in milliseconds.
    pub write_pause_ms_max: u64,
    /// Statements that keep the primary from stopping are ended after so long, in milliseconds.
    pub grace_ms: u64,
    /// Stop before the first act that changes anything, and tell the plan.
    pub dry_run: bool,
    /// For the plan.
    pub expected: ExpectedDurations,
}
