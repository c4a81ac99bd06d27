//! What is to be done, and the answers. Failover and switchover share them.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::choice::Server;
use crate::lease::Token;
use crate::lossless::Acker;
use crate::switchover::Primary;

/// Where a failover or a switchover stands. The order is that of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// May this manager act at all?
    Lease,
    /// Has the primary really failed?
    Confirm,
    /// Ackers stop capturing, and so the old primary stops committing.
    Fence,
    /// The operator's own fence.
    FenceHooks,
    /// Is everything acknowledged held, and the old primary fenced?
    Prove,
    /// Who becomes primary.
    Choose,
    /// Of a switchover: all that takes time is done while the primary still takes writes.
    Prepare,
    /// Of a switchover: the candidate comes close behind the primary.
    CatchUp,
    /// Of a switchover: the primary takes no more writes.
    Pause,
    /// It gets what it lacks.
    Supply,
    /// It executes all it has.
    Drain,
    /// It waits for ackers, before there is anything to wait for.
    Source,
    /// Clients may write to it.
    Writable,
    /// The ackers capture from it, and its commits go through.
    Follow,
    /// Replicas that read from the old primary itself read from elsewhere.
    Others,
    /// Clients are led to it.
    Routes,
    /// What was done is undone.
    Undo,
    /// It is over.
    Over,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Confirm => "confirm",
            Self::Fence => "fence",
            Self::FenceHooks => "fence hooks",
            Self::Prove => "prove",
            Self::Choose => "choose",
            Self::Prepare => "prepare",
            Self::CatchUp => "catch up",
            Self::Pause => "pause",
            Self::Supply => "supply",
            Self::Drain => "drain",
            Self::Source => "semi-sync source",
            Self::Writable => "make writable",
            Self::Follow => "follow",
            Self::Others => "other replicas",
            Self::Routes => "routes",
            Self::Undo => "undo",
            Self::Over => "over",
        })
    }
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum Act {
    /// Ask whether the lease is still held.
    CheckLease,
    /// Ask every observer once more for the primary.
    Confirm,
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
    FenceHook {
        /// Its name.
        hook: String,
    },
    /// Look at every server that may become primary.
    LookAtServers,
    /// Give a server what it lacks. Its relay logs are drained first, not dropped.
    Supply {
        /// To whom.
        server: String,
        /// From which relay's log or server.
        from: String,
        /// Which transactions.
        what: String,
    },
    /// Have a server execute everything it has received.
    Drain {
        /// Which.
        server: String,
    },
    /// Have a server wait for so many ACKs, without time-out, while it is still read-only. One that was prepared does so until a
    /// restart, and [`Act::SettleSource`] follows.
    MakeSource {
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
    Follow {
        /// Which.
        acker: String,
        /// From where.
        server: String,
    },
    /// Have a replica that read from the old primary read from the log.
    Repoint {
        /// Which.
        replica: String,
    },
    /// Run a hook that leads clients to the new primary.
    RouteHook {
        /// Its name.
        hook: String,
        /// The new primary.
        server: String,
    },
    /// Ask an acker whether somebody has given it orders in a later term than that.
    CheckAcker {
        /// Which.
        acker: String,
        /// The term.
        term: u64,
    },
    /// Look at a primary that is alive: does it take writes, and does it wait for ackers?
    LookAtPrimary,
    /// Ask a server whether clients can write to it, and what it has executed.
    Glance {
        /// Which.
        server: String,
    },
    /// Do all that [`Act::MakeSource`] and what follows need and that changes nothing for the server as a replica.
    Prepare {
        /// Which.
        server: String,
        /// ACKs that a commit will need.
        acks: u32,
    },
    /// Have a server that was prepared and waits for ACKs do so after a restart, too, and forget its own source.
    SettleSource {
        /// Which.
        server: String,
        /// ACKs that a commit needs.
        acks: u32,
    },
    /// Wait until a server has executed so much.
    AwaitServer {
        /// Which.
        server: String,
        /// What.
        what: String,
        /// At most so long.
        within_ms: u64,
    },
    /// Wait until an acker durably holds so much.
    AwaitAcker {
        /// Which.
        acker: String,
        /// What.
        what: String,
        /// At most so long.
        within_ms: u64,
    },
    /// Have the primary take no more writes, commits in flight let through, and tell what it has executed then.
    HoldWrites {
        /// The primary.
        server: String,
        /// At most so long; it takes writes again if that is not enough.
        within_ms: u64,
        /// Statements that keep it from stopping are ended after so long.
        grace_ms: u64,
    },
    /// Undo [`Act::HoldWrites`], once commits wait for ACKs there: whoever took it for a former primary, or a restart, may have
    /// switched that off.
    ReleaseWrites {
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
    /// Undo [`Act::StopAcker`]: capture from the old primary again.
    StartAcker {
        /// Which.
        acker: String,
    },
    /// Undo [`Act::MakeSource`] and [`Act::Drain`].
    UnmakeSource {
        /// Where.
        server: String,
    },
    /// Undo [`Act::MakeWritable`].
    MakeReadOnly {
        /// Where.
        server: String,
    },
}

impl Act {
    /// Whether anything is different afterwards.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::CheckLease
                | Self::Confirm
                | Self::ReadAcker { .. }
                | Self::LookAtServers
                | Self::LookAtPrimary
                | Self::Glance { .. }
                | Self::CheckAcker { .. }
                | Self::AwaitServer { .. }
                | Self::AwaitAcker { .. }
        )
    }

    /// What undoes it; `None` if nothing does or nothing needs to, or if that depends on the run. What a server was given, and what a
    /// hook did, stays.
    pub fn undone_by(&self) -> Option<Self> {
        match self {
            Self::StopAcker { acker } => Some(Self::StartAcker { acker: acker.clone() }),
            Self::MakeSource { server, .. } => Some(Self::UnmakeSource { server: server.clone() }),
            Self::MakeWritable { server } => Some(Self::MakeReadOnly { server: server.clone() }),
            _ => None,
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CheckLease => f.write_str("check the lease"),
            Self::Confirm => f.write_str("confirm that the primary has failed"),
            Self::StopAcker { acker } => write!(f, "stop capture on {acker}"),
            Self::ReadAcker { acker } => write!(f, "read what {acker} holds"),
            Self::FenceHook { hook } => write!(f, "run the fence hook {hook}"),
            Self::LookAtServers => f.write_str("look at the servers"),
            Self::Supply { server, from, what } => write!(f, "give {what} to {server} from {from}"),
            Self::Drain { server } => write!(f, "have {server} execute all it has"),
            Self::MakeSource { server, acks } => write!(f, "have {server} wait for {acks} ACKs"),
            Self::MakeWritable { server } => write!(f, "make {server} writable"),
            Self::Follow { acker, server } => write!(f, "have {acker} capture from {server}"),
            Self::Repoint { replica } => write!(f, "have {replica} read from the log"),
            Self::RouteHook { hook, server } => write!(f, "run the hook {hook} for {server}"),
            Self::LookAtPrimary => f.write_str("look at the primary"),
            Self::Glance { server } => write!(f, "ask {server} what it has"),
            Self::CheckAcker { acker, term } => {
                write!(f, "ask {acker} whether somebody led it after term {term}")
            }
            Self::SettleSource { server, .. } => {
                write!(f, "have {server} forget its source, and wait for ACKs after a restart, too")
            }
            Self::Prepare { server, acks } => write!(f, "have {server} ready to wait for {acks} ACKs"),
            Self::AwaitServer { server, what, within_ms } => {
                write!(f, "wait until {server} has executed {what}, {within_ms} ms at most")
            }
            Self::AwaitAcker { acker, what, within_ms } => {
                write!(f, "wait until {acker} holds {what}, {within_ms} ms at most")
            }
            Self::HoldWrites { server, within_ms, .. } => {
                write!(f, "hold the writes to {server}, within {within_ms} ms")
            }
            Self::ReleaseWrites { server, .. } => write!(f, "let {server} take writes again"),
            Self::Demote { server, .. } => write!(f, "make {server} a replica that reads from the log"),
            Self::StartAcker { acker } => write!(f, "have {acker} capture from the old primary again"),
            Self::UnmakeSource { server } => write!(f, "have {server} wait for ACKs no more"),
            Self::MakeReadOnly { server } => write!(f, "make {server} read-only again"),
        }
    }
}

/// How an act went.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To [`Act::CheckLease`]: it is held.
    Held(Token),
    /// To [`Act::Confirm`]: it has failed; the evidence.
    Confirmed(String),
    /// To [`Act::StopAcker`] and [`Act::ReadAcker`].
    Acker {
        /// Its state; after a stop, read behind it.
        acker: Acker,
        /// What its log cannot give any more.
        before: GtidSet,
    },
    /// To [`Act::LookAtServers`].
    Servers(Vec<Server>),
    /// To [`Act::LookAtPrimary`] and [`Act::Glance`].
    Primary(Primary),
    /// To [`Act::HoldWrites`]: done, and all that the primary executed.
    Position(GtidSet),
    /// To [`Act::CheckAcker`]: somebody has led it in that later term.
    Led {
        /// The term.
        term: Token,
        /// Whether it stands still by that.
        stopped: bool,
    },
    /// It is done, for certain. To [`Act::CheckAcker`]: nobody has.
    Done,
    /// It is done, for certain, and this belongs into the record.
    Noted(String),
    /// It is not done, for certain. To [`Act::CheckLease`] and [`Act::Confirm`]: no.
    Failed(String),
    /// Nobody knows whether it is done.
    Unknown(String),
}

impl Answer {
    /// In words: how it went (`done`, `failed` or `unknown`), and what was said.
    pub fn words(&self) -> (&'static str, String) {
        match self {
            Self::Held(token) => ("done", format!("term {token}")),
            Self::Confirmed(evidence) => ("done", evidence.clone()),
            Self::Acker { acker, .. } => {
                let holds =
                    acker.holds.as_ref().map_or_else(|| "nothing readable".to_owned(), ToString::to_string);
                ("done", format!("{}, holds {holds}", acker.stop))
            }
            Self::Servers(servers) => ("done", format!("{} servers", servers.len())),
            Self::Primary(primary) => ("done", format!("has executed {}", primary.executed)),
            Self::Position(position) => ("done", format!("has executed {position}")),
            Self::Led { term, stopped: false } => ("done", format!("was led in term {term}")),
            Self::Led { term, stopped: true } => ("done", format!("was stopped in term {term}")),
            Self::Done => ("done", String::new()),
            Self::Noted(note) => ("done", note.clone()),
            Self::Failed(reason) => ("failed", reason.clone()),
            Self::Unknown(reason) => ("unknown", reason.clone()),
        }
    }
}
