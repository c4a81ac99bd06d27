//! The input of a failover.

use crate::candidates::GtidOrigin;
use crate::lossless_rules::AckPolicyHistory;
use tailwater_topology::ServerVersion;
use tailwater_wire::gtid::GtidSet;

use crate::model::RunAction;

/// Expected durations of actions, in milliseconds, for the plan of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedDurations {
    /// Expected time for stopping an acker.
    pub stop_ms: u64,
    /// Expected time for a hook.
    pub hook_ms: u64,
    /// Expected time for sending a thousand transactions from a log or another server.
    pub supply_ms: u64,
    /// Expected time for a change of a server's settings.
    pub change_ms: u64,
    /// Expected time for repointing an acker.
    pub follow_ms: u64,
}

impl ExpectedDurations {
    /// Returns the expected duration of one action. For a drain, the failover uses the estimate of the server
    /// instead of this duration.
    pub fn of(&self, act: &RunAction) -> u64 {
        match act {
            RunAction::StopAcker { .. } | RunAction::StartAcker { .. } => self.stop_ms,
            RunAction::RunFenceHook { .. } | RunAction::RunRouteHook { .. } => self.hook_ms,
            RunAction::Backfill { .. } => self.supply_ms,
            RunAction::EnableSemiSyncSource { .. }
            | RunAction::PersistSemiSyncSource { .. }
            | RunAction::MakeWritable { .. }
            | RunAction::RepointReplica { .. }
            | RunAction::PrepareSemiSyncSource { .. }
            | RunAction::PauseWrites { .. }
            | RunAction::ResumeWrites { .. }
            | RunAction::Demote { .. }
            | RunAction::DisableSemiSyncSource { .. }
            | RunAction::MakeReadOnly { .. } => self.change_ms,
            RunAction::RepointAcker { .. } => self.follow_ms,
            RunAction::CheckLease
            | RunAction::ConfirmFailure
            | RunAction::ReadAcker { .. }
            | RunAction::ProbeCandidates
            | RunAction::ProbePrimary
            | RunAction::ProbeServer { .. }
            | RunAction::CheckAckerTerm { .. }
            | RunAction::WaitForServer { .. }
            | RunAction::WaitForAcker { .. }
            | RunAction::DrainRelayLog { .. } => 0,
        }
    }
}

/// A failover request, with what was known of the primary while it was alive.
#[derive(Debug, Clone)]
pub struct FailoverRequest {
    /// Id of the failover.
    pub id: String,
    /// The old primary.
    pub primary: String,
    /// Identifies the transactions that the old primary wrote itself.
    pub origin: GtidOrigin,
    /// Version of the old primary.
    pub version: ServerVersion,
    /// Region of the old primary.
    pub region: Option<String>,
    /// Transactions that the primary had executed at its last observation.
    pub last_known: Option<GtidSet>,
    /// The ack policies that were observed. This is a copy, because the manager records no ack policies
    /// during a failover.
    pub ack_policies: Option<AckPolicyHistory>,
    /// Time from the last observation of the primary to its last sign of life, in milliseconds.
    pub primary_state_age_ms: u64,
    /// Largest accepted value of `primary_state_age_ms`.
    pub primary_state_max_age_ms: u64,
    /// The ackers to stop.
    pub ackers: Vec<String>,
    /// Names of the fence hooks, in the order in which they run.
    pub fence_hooks: Vec<String>,
    /// Names of the route hooks, in the order in which they run.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
    /// Number of ACKs that a commit of the new primary waits for.
    pub acks_required: u32,
    /// Promote only this server. Default: the best candidate.
    pub wanted: Option<String>,
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// The longest acceptable time for executing what a server received, as in
    /// [`crate::candidates::SelectionInput`].
    pub catch_up_ms_max: u64,
    /// Whether to continue even if completeness is not proven.
    pub allow_data_loss: bool,
    /// Whether to stop before the first action that changes something, and return the plan.
    pub dry_run: bool,
    /// Expected durations of the actions, for the plan.
    pub expected: ExpectedDurations,
}
