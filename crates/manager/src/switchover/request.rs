//! The input of a switchover, and the state of its primary.

use tailwater_topology::ServerVersion;

use crate::candidates::GtidOrigin;
use crate::failover::ExpectedDurations;

/// Default limit of the write pause, in milliseconds.
pub const WRITE_PAUSE_MS_MAX: u64 = 1000;

/// A switchover request.
#[derive(Debug, Clone)]
pub struct SwitchoverRequest {
    /// Id of the run.
    pub id: String,
    /// The present primary.
    pub primary: String,
    /// Identifies its transactions.
    pub origin: GtidOrigin,
    /// Its version.
    pub version: ServerVersion,
    /// Its region.
    pub region: Option<String>,
    /// All ackers that capture from it.
    pub ackers: Vec<String>,
    /// Route hooks, in order.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the primary itself.
    pub direct_replicas: Vec<String>,
    /// ACKs that a commit of the new primary waits for.
    pub acks_required: u32,
    /// Promote only this server; the best candidate if absent.
    pub wanted: Option<String>,
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// Time limit for the candidate and every acker to catch up before the pause, in milliseconds.
    pub catch_up_ms_max: u64,
    /// Limit of the write pause, in milliseconds.
    pub write_pause_ms_max: u64,
    /// Statements that delay the pause are killed after this time, in milliseconds.
    pub grace_ms: u64,
    /// Stop before the first action that changes something, and return the plan.
    pub dry_run: bool,
    /// Used for the plan.
    pub expected: ExpectedDurations,
}
