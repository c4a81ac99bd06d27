//! The input of a failover.

use crate::candidates::GtidOrigin;
use crate::lossless::AckPolicyHistory;
use tailwater_topology::ServerVersion;
use tailwater_wire::gtid::GtidSet;

use crate::model::RunAction;

/// Expected durations of actions, in milliseconds, for the plan of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedDurations {
    /// Stopping an acker.
    pub stop_ms: u64,
    /// A hook.
    pub hook_ms: u64,
    /// A thousand transactions from a log or another server.
    pub supply_ms: u64,
    /// A change of a server's settings.
    pub change_ms: u64,
    /// Repointing an acker.
    pub follow_ms: u64,
}

impl ExpectedDurations {
    /// Expected duration of one action. A drain has an estimate per server instead.
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

/// A failover request, with what was known while the primary was alive.
#[derive(Debug, Clone)]
pub struct FailoverRequest {
    /// Id of the run.
    pub id: String,
    /// The old primary.
    pub primary: String,
    /// Identifies the old primary's transactions.
    pub origin: GtidOrigin,
    /// Its version.
    pub version: ServerVersion,
    /// Its region.
    pub region: Option<String>,
    /// Transactions executed at the last observation of the primary.
    pub last_known: Option<GtidSet>,
    /// The ack policies. A copy: nothing is recorded during a failover.
    pub ack_policies: Option<AckPolicyHistory>,
    /// Time from the last observation of the primary to its last sign of life, in milliseconds.
    pub primary_state_age_ms: u64,
    /// Largest accepted value of it.
    pub primary_state_max_age_ms: u64,
    /// Ackers to stop.
    pub ackers: Vec<String>,
    /// Fence hooks, in order.
    pub fence_hooks: Vec<String>,
    /// Route hooks, in order.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
    /// ACKs that a commit of the new primary waits for.
    pub acks_required: u32,
    /// Promote only this server; the best candidate if absent.
    pub wanted: Option<String>,
    /// Whether a server of another region may become primary.
    pub across_regions: bool,
    /// As in [`crate::candidates::SelectionInput`].
    pub catch_up_ms_max: u64,
    /// Accept unproven completeness.
    pub allow_data_loss: bool,
    /// Stop before the first action that changes something, and return the plan.
    pub dry_run: bool,
    /// Used for the plan.
    pub expected: ExpectedDurations,
}
