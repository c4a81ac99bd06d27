//! The input of a switchover.

use tailwater_topology::ServerVersion;

use crate::candidates::GtidOrigin;
use crate::failover::ExpectedDurations;

/// Default limit of the write pause, in milliseconds.
pub const WRITE_PAUSE_MS_MAX: u64 = 1000;

/// A switchover request.
#[derive(Debug, Clone)]
pub struct SwitchoverRequest {
    /// Id of the switchover.
    pub id: String,
    /// The present primary.
    pub primary: String,
    /// Identifies the transactions that the present primary wrote itself.
    pub origin: GtidOrigin,
    /// Version of the present primary.
    pub version: ServerVersion,
    /// Region of the present primary.
    pub region: Option<String>,
    /// All ackers that capture from the present primary.
    pub ackers: Vec<String>,
    /// Names of the route hooks, in the order in which they run.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the primary itself.
    pub direct_replicas: Vec<String>,
    /// Number of ACKs that a commit of the new primary waits for.
    pub acks_required: u32,
    /// Promote only this server. Default: the best candidate.
    pub wanted: Option<String>,
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// Time limit for the candidate and every acker to catch up before the pause, in milliseconds.
    pub catch_up_ms_max: u64,
    /// Limit of the write pause, in milliseconds.
    pub write_pause_ms_max: u64,
    /// Statements that delay the pause are killed after this time, in milliseconds.
    pub grace_ms: u64,
    /// Whether to stop before the first action that changes something, and return the plan.
    pub dry_run: bool,
    /// Expected durations of the actions, for the plan.
    pub expected: ExpectedDurations,
}
