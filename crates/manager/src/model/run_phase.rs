//! Phases of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Phase of a run, in the order of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Check that this manager holds the lease.
    Lease,
    /// Confirm that the primary has failed.
    Confirm,
    /// Stop capture on the ackers, which stops commits on the old primary.
    Fence,
    /// Run the operator's fence hooks.
    FenceHooks,
    /// Verify that every acknowledged transaction is held and that the old primary is fenced.
    #[serde(rename = "prove", alias = "prove_completeness")]
    ProveCompleteness,
    /// Choose the new primary.
    #[serde(rename = "choose", alias = "choose_candidate")]
    ChooseCandidate,
    /// Switchover: do everything slow while the primary still takes writes.
    Prepare,
    /// Switchover: wait until the lag of the candidate is small.
    CatchUp,
    /// Switchover: pause writes on the primary.
    Pause,
    /// Send missing transactions to the candidate.
    #[serde(rename = "supply", alias = "backfill")]
    Backfill,
    /// Execute everything the candidate received.
    Drain,
    /// Make the candidate wait for ACKs, before any commit.
    #[serde(rename = "source", alias = "enable_semi_sync")]
    EnableSemiSync,
    /// Let clients write to the new primary.
    #[serde(rename = "writable", alias = "make_writable")]
    MakeWritable,
    /// Let the ackers capture from the new primary, so that its commits are acknowledged.
    #[serde(rename = "follow", alias = "repoint_ackers")]
    RepointAckers,
    /// Repoint replicas of the old primary.
    #[serde(rename = "others", alias = "repoint_replicas")]
    RepointReplicas,
    /// Route clients to the new primary.
    #[serde(rename = "routes", alias = "route_clients")]
    RouteClients,
    /// Undo the actions so far.
    Undo,
    /// The run is finished.
    #[serde(rename = "over", alias = "finished")]
    Finished,
}

impl fmt::Display for RunPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Confirm => "confirm",
            Self::Fence => "fence",
            Self::FenceHooks => "fence hooks",
            Self::ProveCompleteness => "prove",
            Self::ChooseCandidate => "choose",
            Self::Prepare => "prepare",
            Self::CatchUp => "catch up",
            Self::Pause => "pause",
            Self::Backfill => "supply",
            Self::Drain => "drain",
            Self::EnableSemiSync => "semi-sync source",
            Self::MakeWritable => "make writable",
            Self::RepointAckers => "follow",
            Self::RepointReplicas => "other replicas",
            Self::RouteClients => "routes",
            Self::Undo => "undo",
            Self::Finished => "over",
        })
    }
}
