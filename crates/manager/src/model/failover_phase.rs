//! The phases of a failover or switchover.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A phase of a failover or switchover. The variants are in the order of a failover.
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
    /// Verify that the ackers hold every acknowledged transaction and that the old primary is fenced.
    #[serde(rename = "prove", alias = "prove_completeness")]
    ProveCompleteness,
    /// Choose the new primary.
    #[serde(rename = "choose", alias = "choose_candidate")]
    ChooseCandidate,
    /// Only in a switchover: do everything slow while the primary still takes writes.
    Prepare,
    /// Only in a switchover: wait until the lag of the candidate is small.
    CatchUp,
    /// Only in a switchover: pause writes on the primary.
    Pause,
    /// Send missing transactions to the candidate.
    #[serde(rename = "supply", alias = "backfill")]
    Backfill,
    /// Let the candidate execute everything that it received.
    Drain,
    /// Make the candidate wait for ACKs, before clients can commit on it.
    #[serde(rename = "source", alias = "enable_semi_sync")]
    EnableSemiSync,
    /// Let clients write to the new primary.
    #[serde(rename = "writable", alias = "make_writable")]
    MakeWritable,
    /// Make the ackers capture from the new primary, so that its commits are acknowledged.
    #[serde(rename = "follow", alias = "repoint_ackers")]
    RepointAckers,
    /// Make replicas of the old primary read from the log.
    #[serde(rename = "others", alias = "repoint_replicas")]
    RepointReplicas,
    /// Route clients to the new primary.
    #[serde(rename = "routes", alias = "route_clients")]
    RouteClients,
    /// Undo the actions that the failover or switchover has executed.
    Undo,
    /// The failover or switchover is finished.
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
