//! What is asked for.

use crate::candidates::{GtidOrigin, ServerVersion};
use crate::lossless::AckPolicyHistory;
use tailwater_wire::gtid::GtidSet;

use super::action::RunAction;

/// How long steps take, in milliseconds, as far as is known: for the plan of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedDurations {
    /// Stop of an acker.
    pub stop_ms: u64,
    /// A hook.
    pub hook_ms: u64,
    /// A thousand transactions from a log or another server.
    pub supply_ms: u64,
    /// A change of a server's settings.
    pub change_ms: u64,
    /// Until an acker captures from another server.
    pub follow_ms: u64,
}

impl ExpectedDurations {
    /// How long one act takes; for the draining see the server's own estimate.
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

/// A failover as it is asked for, with what was known while the primary was alive.
#[derive(Debug, Clone)]
pub struct FailoverRequest {
    /// Names this run.
    pub id: String,
    /// The old primary.
    pub primary: String,
    /// Its mark in GTIDs.
    pub origin: GtidOrigin,
    /// Its version.
    pub version: ServerVersion,
    /// Its region.
    pub region: Option<String>,
    /// What it was last seen to have executed.
    pub last_known: Option<GtidSet>,
    /// Who could ACK. A copy: nothing is noted while a failover runs.
    pub ack_policies: Option<AckPolicyHistory>,
    /// Milliseconds from the last look to its last sign of life.
    pub primary_state_age_ms: u64,
    /// More than this is too long.
    pub primary_state_max_age_ms: u64,
    /// The ackers to be stopped.
    pub ackers: Vec<String>,
    /// Hooks that fence, in order.
    pub fence_hooks: Vec<String>,
    /// Hooks that lead clients, in order.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
    /// How many ACKs the new primary waits for.
    pub acks_required: u32,
    /// The server that shall become primary, if it was named.
    pub wanted: Option<String>,
    /// Whether another region will do.
    pub across_regions: bool,
    /// As in [`crate::candidates::SelectionInput`].
    pub catch_up_ms_max: u64,
    /// The operator accepts what cannot be proven.
    pub allow_data_loss: bool,
    /// Stop before the first act that changes anything, and tell the plan.
    pub dry_run: bool,
    /// For the plan.
    pub expected: ExpectedDurations,
}
