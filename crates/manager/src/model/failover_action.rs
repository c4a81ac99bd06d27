//! The actions of a failover, switchover or recovery. Their JSON spelling is fixed, because managers of other
//! versions read it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An action with its number.
pub type NumberedAction = (u32, RunAction);

/// An action of a failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum RunAction {
    /// Check that this manager holds the lease.
    CheckLease,
    /// Query all observers of the primary once more, to confirm that the primary has failed.
    #[serde(rename = "confirm", alias = "confirm_failure")]
    ConfirmFailure,
    /// Stop capture on an acker, also after a restart of the acker, and read which transactions it holds.
    StopAcker {
        /// The acker to stop.
        acker: String,
    },
    /// Read which transactions an acker holds, without changing anything (`--dry-run`).
    ReadAcker {
        /// The acker to read.
        acker: String,
    },
    /// Run a fence hook.
    #[serde(rename = "fence_hook", alias = "run_fence_hook")]
    RunFenceHook {
        /// Name of the hook.
        hook: String,
    },
    /// Probe every server that may become primary.
    #[serde(rename = "look_at_servers", alias = "probe_candidates")]
    ProbeCandidates,
    /// Send missing transactions to a server. The server first executes everything in its relay logs, so that
    /// nothing is dropped.
    #[serde(rename = "supply", alias = "backfill")]
    Backfill {
        /// The server that lacks the transactions.
        server: String,
        /// The relay or server that sends the transactions.
        from: String,
        /// The GTIDs of the missing transactions.
        what: String,
    },
    /// Let a server execute everything that it has received.
    #[serde(rename = "drain", alias = "drain_relay_log")]
    DrainRelayLog {
        /// The server that executes its relay logs.
        server: String,
    },
    /// Make a read-only server wait for ACKs without a time-out. If the server was prepared, it waits for
    /// ACKs only until its next restart, and [`RunAction::PersistSemiSyncSource`] follows.
    #[serde(rename = "make_source", alias = "enable_semi_sync_source")]
    EnableSemiSyncSource {
        /// The server that must wait for ACKs.
        server: String,
        /// Number of ACKs that a commit waits for.
        acks: u32,
    },
    /// Let clients write to a server.
    MakeWritable {
        /// The server that becomes writable.
        server: String,
    },
    /// Make an acker capture from the new primary.
    #[serde(rename = "follow", alias = "repoint_acker")]
    RepointAcker {
        /// The acker to repoint.
        acker: String,
        /// The new primary.
        server: String,
    },
    /// Make a replica of the old primary read from the log.
    #[serde(rename = "repoint", alias = "repoint_replica")]
    RepointReplica {
        /// The replica to repoint.
        replica: String,
    },
    /// Run a hook that routes clients to the new primary.
    #[serde(rename = "route_hook", alias = "run_route_hook")]
    RunRouteHook {
        /// Name of the hook.
        hook: String,
        /// The new primary.
        server: String,
    },
    /// Ask an acker whether it has accepted an order in a later lease term.
    #[serde(rename = "check_acker", alias = "check_acker_term")]
    CheckAckerTerm {
        /// The acker to ask.
        acker: String,
        /// The lease term of this failover or switchover.
        term: u64,
    },
    /// Probe a primary that is alive: whether clients can write to it, and how it waits for ACKs.
    #[serde(rename = "look_at_primary", alias = "probe_primary")]
    ProbePrimary,
    /// Read whether clients can write to a server, and what it has executed.
    #[serde(rename = "glance", alias = "probe_server")]
    ProbeServer {
        /// The server to probe.
        server: String,
    },
    /// Prepare a server for [`RunAction::EnableSemiSyncSource`] and the actions after it: do everything that
    /// does not affect the server as a replica.
    #[serde(rename = "prepare", alias = "prepare_semi_sync_source")]
    PrepareSemiSyncSource {
        /// The server to prepare.
        server: String,
        /// Number of ACKs that a commit will wait for.
        acks: u32,
    },
    /// Make a prepared source wait for ACKs also after a restart, and remove the server's own replication
    /// source.
    #[serde(rename = "settle_source", alias = "persist_semi_sync_source")]
    PersistSemiSyncSource {
        /// The server whose settings are persisted.
        server: String,
        /// Number of ACKs that a commit waits for.
        acks: u32,
    },
    /// Wait until a server has executed the given transactions.
    #[serde(rename = "await_server", alias = "wait_for_server")]
    WaitForServer {
        /// The server to wait for.
        server: String,
        /// The GTIDs of the transactions.
        what: String,
        /// Time limit, in milliseconds.
        within_ms: u64,
    },
    /// Wait until an acker durably holds the given transactions.
    #[serde(rename = "await_acker", alias = "wait_for_acker")]
    WaitForAcker {
        /// The acker to wait for.
        acker: String,
        /// The GTIDs of the transactions.
        what: String,
        /// Time limit, in milliseconds.
        within_ms: u64,
    },
    /// Pause writes on the primary, let running commits complete, and read what the primary has executed.
    #[serde(rename = "hold_writes", alias = "pause_writes")]
    PauseWrites {
        /// The old primary.
        server: String,
        /// Time limit, in milliseconds. When it is exceeded, the primary takes writes again.
        within_ms: u64,
        /// Statements that delay the pause are killed after this time, in milliseconds.
        grace_ms: u64,
    },
    /// Undo [`RunAction::PauseWrites`]. First makes commits wait for ACKs again, because that may have been
    /// disabled: when the server was demoted to a replica, or by a restart.
    #[serde(rename = "release_writes", alias = "resume_writes")]
    ResumeWrites {
        /// The old primary, which takes writes again.
        server: String,
        /// Number of ACKs that a commit waits for. In records of earlier versions it is 0: then the server
        /// must already wait.
        #[serde(default)]
        acks: u32,
    },
    /// Make the old primary a replica that reads from the log. Sessions that delay this are killed, and
    /// semi-sync is disabled.
    Demote {
        /// The old primary, which becomes a replica.
        server: String,
        /// All transactions that were executed when writes were paused. If the server has executed more, the
        /// action changes nothing.
        has: String,
    },
    /// Undo [`RunAction::StopAcker`]: let the acker capture from the old primary again.
    StartAcker {
        /// The acker to start.
        acker: String,
    },
    /// Undo [`RunAction::EnableSemiSyncSource`] and [`RunAction::DrainRelayLog`].
    #[serde(rename = "unmake_source", alias = "disable_semi_sync_source")]
    DisableSemiSyncSource {
        /// The server whose wait for ACKs is disabled.
        server: String,
    },
    /// Undo [`RunAction::MakeWritable`].
    MakeReadOnly {
        /// The server that becomes read-only.
        server: String,
    },
}

impl RunAction {
    /// Whether the action changes the state of a server, a relay or a route.
    pub fn changes_state(&self) -> bool {
        !matches!(
            self,
            Self::CheckLease
                | Self::ConfirmFailure
                | Self::ReadAcker { .. }
                | Self::ProbeCandidates
                | Self::ProbePrimary
                | Self::ProbeServer { .. }
                | Self::CheckAckerTerm { .. }
                | Self::WaitForServer { .. }
                | Self::WaitForAcker { .. }
        )
    }

    /// Returns the names of servers in this action. Names of ackers are not among them, but the sender of a
    /// backfill may be either.
    pub fn servers_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Backfill { server, from, .. } => vec![server, from],
            Self::DrainRelayLog { server }
            | Self::EnableSemiSyncSource { server, .. }
            | Self::MakeWritable { server }
            | Self::RepointAcker { server, .. }
            | Self::RepointReplica { replica: server }
            | Self::RunRouteHook { server, .. }
            | Self::ProbeServer { server }
            | Self::PrepareSemiSyncSource { server, .. }
            | Self::PersistSemiSyncSource { server, .. }
            | Self::WaitForServer { server, .. }
            | Self::PauseWrites { server, .. }
            | Self::ResumeWrites { server, .. }
            | Self::Demote { server, .. }
            | Self::DisableSemiSyncSource { server }
            | Self::MakeReadOnly { server } => vec![server],
            Self::CheckLease
            | Self::ConfirmFailure
            | Self::StopAcker { .. }
            | Self::ReadAcker { .. }
            | Self::RunFenceHook { .. }
            | Self::ProbeCandidates
            | Self::CheckAckerTerm { .. }
            | Self::ProbePrimary
            | Self::WaitForAcker { .. }
            | Self::StartAcker { .. } => Vec::new(),
        }
    }

    /// Returns the action that undoes this one; `None` if this action cannot be undone, needs no undo, or is
    /// undone in a way that depends on the failover or switchover. Transactions that were sent to a server,
    /// and effects of hooks, cannot be undone.
    pub fn undo_action(&self) -> Option<Self> {
        match self {
            Self::StopAcker { acker } => Some(Self::StartAcker { acker: acker.clone() }),
            Self::EnableSemiSyncSource { server, .. } => {
                Some(Self::DisableSemiSyncSource { server: server.clone() })
            }
            Self::MakeWritable { server } => Some(Self::MakeReadOnly { server: server.clone() }),
            _ => None,
        }
    }
}

/// A number of ACKs as text: `1 ACK`, `2 ACKs`.
pub(crate) fn acks_text(acks: u32) -> String {
    format!("{acks} ACK{}", if acks == 1 { "" } else { "s" })
}

impl fmt::Display for RunAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckLease => f.write_str("check the lease"),
            Self::ConfirmFailure => f.write_str("confirm that the primary has failed"),
            Self::StopAcker { acker } => write!(f, "stop capture on {acker}"),
            Self::ReadAcker { acker } => write!(f, "read what {acker} holds"),
            Self::RunFenceHook { hook } => write!(f, "run the fence hook {hook}"),
            Self::ProbeCandidates => f.write_str("probe the servers"),
            Self::Backfill { server, from, what } => write!(f, "send {what} to {server} from {from}"),
            Self::DrainRelayLog { server } => write!(f, "execute everything that {server} received"),
            Self::EnableSemiSyncSource { server, acks } => {
                write!(f, "have {server} wait for {}", acks_text(*acks))
            }
            Self::MakeWritable { server } => write!(f, "make {server} writable"),
            Self::RepointAcker { acker, server } => write!(f, "have {acker} capture from {server}"),
            Self::RepointReplica { replica } => write!(f, "have {replica} read from the log"),
            Self::RunRouteHook { hook, server } => write!(f, "run the hook {hook} for {server}"),
            Self::ProbePrimary => f.write_str("probe the primary"),
            Self::ProbeServer { server } => write!(f, "read what {server} has executed"),
            Self::CheckAckerTerm { acker, term } => {
                write!(f, "ask {acker} for orders after term {term}")
            }
            Self::PersistSemiSyncSource { server, .. } => {
                write!(f, "remove the replication source of {server}, and persist its semi-sync settings")
            }
            Self::PrepareSemiSyncSource { server, acks } => {
                write!(f, "prepare {server} to wait for {}", acks_text(*acks))
            }
            Self::WaitForServer { server, what, within_ms } => {
                write!(f, "wait until {server} has executed {what}, {within_ms} ms at most")
            }
            Self::WaitForAcker { acker, what, within_ms } => {
                write!(f, "wait until {acker} holds {what}, {within_ms} ms at most")
            }
            Self::PauseWrites { server, within_ms, .. } => {
                write!(f, "pause writes on {server}, within {within_ms} ms")
            }
            Self::ResumeWrites { server, .. } => write!(f, "resume writes on {server}"),
            Self::Demote { server, .. } => write!(f, "make {server} a replica that reads from the log"),
            Self::StartAcker { acker } => write!(f, "have {acker} capture from the old primary again"),
            Self::DisableSemiSyncSource { server } => write!(f, "disable semi-sync on {server}"),
            Self::MakeReadOnly { server } => write!(f, "make {server} read-only again"),
        }
    }
}
