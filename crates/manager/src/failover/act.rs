//! What is to be done, and the answers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use crate::choice::Server;
use crate::lease::Token;
use crate::lossless::Acker;

/// Where a failover stands.
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
    /// Have a server wait for so many ACKs, without time-out, while it is still read-only.
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
    /// Undo [`Act::StopAcker`]: capture from the old primary again.
    StartAcker {
        /// Which.
        acker: String,
    },
    /// Undo [`Act::MakeSource`].
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
        !matches!(self, Self::CheckLease | Self::Confirm | Self::ReadAcker { .. } | Self::LookAtServers)
    }

    /// What undoes it; `None` if nothing does or nothing needs to. What a server was given, and what a hook did, stays.
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
    /// It is done, for certain.
    Done,
    /// It is done, for certain, and this belongs into the record.
    Noted(String),
    /// It is not done, for certain. To [`Act::CheckLease`] and [`Act::Confirm`]: no.
    Failed(String),
    /// Nobody knows whether it is done.
    Unknown(String),
}
