//! What is to be done, and the answers. Failover and switchover share them.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::candidates::CandidateServer;
use crate::lease::LeaseToken;
use crate::lossless::AckerEvidence;
use crate::switchover::PrimaryStatus;

/// Where a failover or a switchover stands. The order is that of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// May this manager act at all?
    Lease,
    /// Has the primary really failed?
    Confirm,
    /// Ackers stop capturing, and so the old primary stops committing.
    Fence,
    /// The operator's own fence.
    FenceHooks,
    /// Is everything acknowledged held, and the old primary fenced?
    #[serde(rename = "prove", alias = "prove_completeness")]
    ProveCompleteness,
    /// Who becomes primary.
    #[serde(rename = "choose", alias = "choose_candidate")]
    ChooseCandidate,
    /// Of a switchover: all that takes time is done while the primary still takes writes.
    Prepare,
    /// Of a switchover: the candidate comes close behind the primary.
    CatchUp,
    /// Of a switchover: the primary takes no more writes.
    Pause,
    /// It gets what it lacks.
    #[serde(rename = "supply", alias = "backfill")]
    Backfill,
    /// It executes all it has.
    Drain,
    /// It waits for ackers, before there is anything to wait for.
    #[serde(rename = "source", alias = "enable_semi_sync")]
    EnableSemiSync,
    /// Clients may write to it.
    #[serde(rename = "writable", alias = "make_writable")]
    MakeWritable,
    /// The ackers capture from it, and its commits go through.
    #[serde(rename = "follow", alias = "repoint_ackers")]
    RepointAckers,
    /// Replicas that read from the old primary itself read from elsewhere.
    #[serde(rename = "others", alias = "repoint_replicas")]
    RepointReplicas,
    /// Clients are led to it.
    #[serde(rename = "routes", alias = "route_clients")]
    RouteClients,
    /// What was done is undone.
    Undo,
    /// It is over.
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

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum RunAction {
    /// Ask whether the lease is still held.
    CheckLease,
    /// Ask every observer once more for the primary.
    #[serde(rename = "confirm", alias = "confirm_failure")]
    ConfirmFailure,
    /// Have an acker stop capturing, durably so, and tell what it holds then.
    StopAcker {
        /// Which.
        acker: String,
    },
    /// Have an acker tell what it holds, and change nothing (`--dry-run`).
    ReadAcker {
        /// Which.
        acker: String,
    },
    /// Run a fence hook.
    #[serde(rename = "fence_hook", alias = "run_fence_hook")]
    RunFenceHook {
        /// Its name.
        hook: String,
    },
    /// Look at every server that may become primary.
    #[serde(rename = "look_at_servers", alias = "probe_candidates")]
    ProbeCandidates,
    /// Give a server what it lacks. Its relay logs are drained first, not dropped.
    #[serde(rename = "supply", alias = "backfill")]
    Backfill {
        /// To whom.
        server: String,
        /// From which relay's log or server.
        from: String,
        /// Which transactions.
        what: String,
    },
    /// Have a server execute everything it has received.
    #[serde(rename = "drain", alias = "drain_relay_log")]
    DrainRelayLog {
        /// Which.
        server: String,
    },
    /// Have a server wait for so many ACKs, without time-out, while it is still read-only. One that was prepared does so until a
    /// restart, and [`RunAction::PersistSemiSyncSource`] follows.
    #[serde(rename = "make_source", alias = "enable_semi_sync_source")]
    EnableSemiSyncSource {
        /// Which.
        server: String,
        /// ACKs that a commit needs.
        acks: u32,
    },
    /// Let clients write.
    MakeWritable {
        /// Where.
        server: String,
    },
    /// Have an acker capture from the new primary.
    #[serde(rename = "follow", alias = "repoint_acker")]
    RepointAcker {
        /// Which.
        acker: String,
        /// From where.
        server: String,
    },
    /// Have a replica that read from the old primary read from the log.
    #[serde(rename = "repoint", alias = "repoint_replica")]
    RepointReplica {
        /// Which.
        replica: String,
    },
    /// Run a hook that leads clients to the new primary.
    #[serde(rename = "route_hook", alias = "run_route_hook")]
    RunRouteHook {
        /// Its name.
        hook: String,
        /// The new primary.
        server: String,
    },
    /// Ask an acker whether somebody has given it orders in a later term than that.
    #[serde(rename = "check_acker", alias = "check_acker_term")]
    CheckAckerTerm {
        /// Which.
        acker: String,
        /// The term.
        term: u64,
    },
    /// Look at a primary that is alive: does it take writes, and does it wait for ackers?
    #[serde(rename = "look_at_primary", alias = "probe_primary")]
    ProbePrimary,
    /// Ask a server whether clients can write to it, and what it has executed.
    #[serde(rename = "glance", alias = "probe_server")]
    ProbeServer {
        /// Which.
        server: String,
    },
    /// Do all that [`RunAction::EnableSemiSyncSource`] and what follows need and that changes nothing for the server as a replica.
    #[serde(rename = "prepare", alias = "prepare_semi_sync_source")]
    PrepareSemiSyncSource {
        /// Which.
        server: String,
        /// ACKs that a commit will need.
        acks: u32,
    },
    /// Have a server that was prepared and waits for ACKs do so after a restart, too, and forget its own source.
    #[serde(rename = "settle_source", alias = "persist_semi_sync_source")]
    PersistSemiSyncSource {
        /// Which.
        server: String,
        /// ACKs that a commit needs.
        acks: u32,
    },
    /// Wait until a server has executed so much.
    #[serde(rename = "await_server", alias = "wait_for_server")]
    WaitForServer {
        /// Which.
        server: String,
        /// What.
        what: String,
        /// At most so long.
        within_ms: u64,
    },
    /// Wait until an acker durably holds so much.
    #[serde(rename = "await_acker", alias = "wait_for_acker")]
    WaitForAcker {
        /// Which.
        acker: String,
        /// What.
        what: String,
        /// At most so long.
        within_ms: u64,
    },
    /// Have the primary take no more writes, commits in flight let through, and tell what it has executed then.
    #[serde(rename = "hold_writes", alias = "pause_writes")]
    PauseWrites {
        /// The primary.
        server: String,
        /// At most so long; it takes writes again if that is not enough.
        within_ms: u64,
        /// Statements that keep it from stopping are ended after so long.
        grace_ms: u64,
    },
    /// Undo [`RunAction::PauseWrites`], once commits wait for ACKs there: whoever took it for a former primary, or a restart, may have
    /// switched that off.
    #[serde(rename = "release_writes", alias = "resume_writes")]
    ResumeWrites {
        /// The primary.
        server: String,
        /// ACKs that a commit needs. 0 where the record does not say: then it has to wait already.
        #[serde(default)]
        acks: u32,
    },
    /// Have the old primary read from the log: sessions that hold on are ended, and it waits for ACKs no more.
    Demote {
        /// The old primary.
        server: String,
        /// All that it had executed when its writes were held; it has nothing else, or is left as it is.
        has: String,
    },
    /// Undo [`RunAction::StopAcker`]: capture from the old primary again.
    StartAcker {
        /// Which.
        acker: String,
    },
    /// Undo [`RunAction::EnableSemiSyncSource`] and [`RunAction::DrainRelayLog`].
    #[serde(rename = "unmake_source", alias = "disable_semi_sync_source")]
    DisableSemiSyncSource {
        /// Where.
        server: String,
    },
    /// Undo [`RunAction::MakeWritable`].
    MakeReadOnly {
        /// Where.
        server: String,
    },
}

impl RunAction {
    /// Whether anything is different afterwards.
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

    /// What undoes it; `None` if nothing does or nothing needs to, or if that depends on the run. What a server was given, and what a
    /// hook did, stays.
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

impl fmt::Display for RunAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckLease => f.write_str("check the lease"),
            Self::ConfirmFailure => f.write_str("confirm that the primary has failed"),
            Self::StopAcker { acker } => write!(f, "stop capture on {acker}"),
            Self::ReadAcker { acker } => write!(f, "read what {acker} holds"),
            Self::RunFenceHook { hook } => write!(f, "run the fence hook {hook}"),
            Self::ProbeCandidates => f.write_str("look at the servers"),
            Self::Backfill { server, from, what } => write!(f, "give {what} to {server} from {from}"),
            Self::DrainRelayLog { server } => write!(f, "have {server} execute all it has"),
            Self::EnableSemiSyncSource { server, acks } => write!(f, "have {server} wait for {acks} ACKs"),
            Self::MakeWritable { server } => write!(f, "make {server} writable"),
            Self::RepointAcker { acker, server } => write!(f, "have {acker} capture from {server}"),
            Self::RepointReplica { replica } => write!(f, "have {replica} read from the log"),
            Self::RunRouteHook { hook, server } => write!(f, "run the hook {hook} for {server}"),
            Self::ProbePrimary => f.write_str("look at the primary"),
            Self::ProbeServer { server } => write!(f, "ask {server} what it has"),
            Self::CheckAckerTerm { acker, term } => {
                write!(f, "ask {acker} whether somebody led it after term {term}")
            }
            Self::PersistSemiSyncSource { server, .. } => {
                write!(f, "have {server} forget its source, and wait for ACKs after a restart, too")
            }
            Self::PrepareSemiSyncSource { server, acks } => {
                write!(f, "have {server} ready to wait for {acks} ACKs")
            }
            Self::WaitForServer { server, what, within_ms } => {
                write!(f, "wait until {server} has executed {what}, {within_ms} ms at most")
            }
            Self::WaitForAcker { acker, what, within_ms } => {
                write!(f, "wait until {acker} holds {what}, {within_ms} ms at most")
            }
            Self::PauseWrites { server, within_ms, .. } => {
                write!(f, "hold the writes to {server}, within {within_ms} ms")
            }
            Self::ResumeWrites { server, .. } => write!(f, "let {server} take writes again"),
            Self::Demote { server, .. } => write!(f, "make {server} a replica that reads from the log"),
            Self::StartAcker { acker } => write!(f, "have {acker} capture from the old primary again"),
            Self::DisableSemiSyncSource { server } => write!(f, "have {server} wait for ACKs no more"),
            Self::MakeReadOnly { server } => write!(f, "make {server} read-only again"),
        }
    }
}

/// How an act went.
#[derive(Debug, Clone, PartialEq)]
pub enum ActionOutcome {
    /// To [`RunAction::CheckLease`]: it is held.
    LeaseHeld(LeaseToken),
    /// To [`RunAction::ConfirmFailure`]: it has failed; the evidence.
    FailureConfirmed(String),
    /// To [`RunAction::StopAcker`] and [`RunAction::ReadAcker`].
    AckerState {
        /// Its state; after a stop, read behind it.
        acker: AckerEvidence,
        /// What its log cannot give any more.
        before: GtidSet,
    },
    /// To [`RunAction::ProbeCandidates`].
    Candidates(Vec<CandidateServer>),
    /// To [`RunAction::ProbePrimary`] and [`RunAction::ProbeServer`].
    ServerStatus(PrimaryStatus),
    /// To [`RunAction::PauseWrites`]: done, and all that the primary executed.
    WritesPaused(GtidSet),
    /// To [`RunAction::CheckAckerTerm`]: somebody has led it in that later term.
    LaterTerm {
        /// The term.
        term: LeaseToken,
        /// Whether it stands still by that.
        stopped: bool,
    },
    /// It is done, for certain. To [`RunAction::CheckAckerTerm`]: nobody has.
    Done,
    /// It is done, for certain, and this belongs into the record.
    DoneWithNote(String),
    /// It is not done, for certain. To [`RunAction::CheckLease`] and [`RunAction::ConfirmFailure`]: no.
    Failed(String),
    /// Nobody knows whether it is done.
    Unknown(String),
}

impl ActionOutcome {
    /// In words: how it went (`done`, `failed` or `unknown`), and what was said.
    pub fn summary(&self) -> (&'static str, String) {
        match self {
            Self::LeaseHeld(token) => ("done", format!("term {token}")),
            Self::FailureConfirmed(evidence) => ("done", evidence.clone()),
            Self::AckerState { acker, .. } => {
                let holds =
                    acker.holds.as_ref().map_or_else(|| "nothing readable".to_owned(), ToString::to_string);
                ("done", format!("{}, holds {holds}", acker.stop))
            }
            Self::Candidates(servers) => ("done", format!("{} servers", servers.len())),
            Self::ServerStatus(primary) => ("done", format!("has executed {}", primary.executed)),
            Self::WritesPaused(position) => ("done", format!("has executed {position}")),
            Self::LaterTerm { term, stopped: false } => ("done", format!("was led in term {term}")),
            Self::LaterTerm { term, stopped: true } => ("done", format!("was stopped in term {term}")),
            Self::Done => ("done", String::new()),
            Self::DoneWithNote(note) => ("done", note.clone()),
            Self::Failed(reason) => ("failed", reason.clone()),
            Self::Unknown(reason) => ("unknown", reason.clone()),
        }
    }
}
