//! Reasons for and against a server, as data and as text.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_topology::ServerVersion;

/// Why a server cannot become primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum ExclusionReason {
    /// The server cannot be reached.
    NotReached {
        /// The error of the last attempt to reach the server.
        reason: String,
    },
    /// This failover or switchover tried to promote the server and failed.
    Failed {
        /// The action that failed, and its error.
        reason: String,
    },
    /// `promotion = "must_not"` is configured.
    MustNot,
    /// The transactions of the server are unknown.
    Unknown,
    /// The server has errant transactions, which are neither in a log nor the old primary's own.
    Errant {
        /// The GTIDs of the errant transactions.
        gtids: String,
    },
    /// The server lacks transactions that no log or server can send.
    Gap {
        /// The GTIDs of the transactions that the server lacks.
        gtids: String,
        /// The log that begins only after these transactions.
        log: String,
    },
    /// The server is in another region than the old primary, and that is not allowed.
    OtherRegion {
        /// Region of the server.
        region: String,
    },
    /// The server and the old primary have different flavours: one is MySQL, the other MariaDB.
    OtherFlavour,
    /// The server writes no binlog.
    NoBinlog,
    /// The server's binlog lacks replicated transactions.
    NoReplicaUpdates,
    /// The semi-sync plugin is not loaded, and cannot be loaded.
    NoSemiSync {
        /// Why the plugin cannot be loaded.
        reason: String,
    },
    /// The server is the target of a channel that applies under the target's own GTIDs.
    OwnGtids,
    /// The server is the target of a channel with filters or skipped transactions.
    Partial,
    /// The server's applier has stopped, so the transactions in its relay logs cannot be executed.
    ApplierStopped {
        /// The applier's error, as the server reports it.
        error: String,
    },
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReached { reason } => write!(f, "the server cannot be reached: {reason}"),
            Self::Failed { reason } => write!(f, "an attempt to promote the server failed: {reason}"),
            Self::MustNot => f.write_str("promotion = \"must_not\""),
            Self::Unknown => f.write_str("the received transactions are unknown (the account may lack a privilege: `tailwater grants`)"),
            Self::Errant { gtids } => write!(f, "the server has transactions that are not in the log: {gtids}"),
            Self::Gap { gtids, log } => {
                write!(
                    f,
                    "the server lacks {gtids}, which is before the beginning of {log} and which no other server can send"
                )
            }
            Self::OtherRegion { region } => write!(f, "the server is in another region ({region})"),
            Self::OtherFlavour => f.write_str("the server is of the other flavour (MySQL or MariaDB)"),
            Self::NoBinlog => f.write_str("log_bin is off"),
            Self::NoReplicaUpdates => f.write_str("log_replica_updates is off"),
            Self::NoSemiSync { reason } => {
                write!(f, "semi-sync is not loaded and cannot be loaded, so the server could not wait for ACKs: {reason}")
            }
            Self::Partial => f.write_str("the server's channel has filters or skipped transactions, so the server is not a copy of the primary"),
            Self::OwnGtids => f.write_str(
                "the server's channel writes with the server's own GTIDs, from which no replica can continue; run: tailwater channel set NAME \
                 --gtid log",
            ),
            Self::ApplierStopped { error } => {
                write!(f, "the server's applier has stopped, so the received transactions cannot be executed: {error}")
            }
        }
    }
}

/// What counts against a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Drawback {
    /// `promotion = "prefer_not"` is configured.
    NotPreferred,
    /// The candidate is in another region than the old primary.
    OtherRegion {
        /// Region of the candidate.
        region: String,
    },
    /// A server of an older release series could not replicate from the candidate.
    CannotFollow {
        /// The server that could not replicate.
        server: String,
        /// Version of that server.
        version: ServerVersion,
    },
    /// The candidate is older than the old primary, and may not understand all of the old primary's
    /// transactions.
    OlderThanPrimary {
        /// Version of the candidate.
        version: ServerVersion,
    },
    /// The candidate could lose commits in a power cut.
    NotDurable,
    /// The candidate needs time to execute what it received.
    Behind {
        /// Expected time, in milliseconds.
        ms: u64,
    },
    /// The candidate needs longer than allowed to execute what it received.
    Slow {
        /// Expected time, in milliseconds.
        ms: u64,
    },
    /// Other servers have unacknowledged transactions that cannot be sent to the candidate. These servers
    /// must be rebuilt after the candidate is promoted.
    LeavesBehind {
        /// Names of the servers that must be rebuilt.
        servers: Vec<String>,
    },
}

impl fmt::Display for Drawback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPreferred => f.write_str("promotion = \"prefer_not\""),
            Self::OtherRegion { region } => write!(f, "the server is in another region ({region})"),
            Self::CannotFollow { server, version } => {
                write!(f, "{server} is older ({version}) and could not replicate from this server")
            }
            Self::OlderThanPrimary { version } => {
                write!(f, "the server is older ({version}) than the old primary")
            }
            Self::NotDurable => f.write_str(
                "the server could lose commits in a power cut (sync_binlog, innodb_flush_log_at_trx_commit)",
            ),
            Self::Behind { ms } => {
                write!(f, "the server needs about {ms} ms to execute what it has received")
            }
            Self::Slow { ms } => {
                write!(f, "the server needs about {ms} ms to execute what it has received, which is too long")
            }
            Self::LeavesBehind { servers } => {
                write!(
                    f,
                    "{} received unacknowledged transactions of the old primary and cannot send them",
                    servers.join(", ")
                )
            }
        }
    }
}

/// What counts for a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Advantage {
    /// `promotion = "prefer"` is configured.
    Preferred,
    /// The candidate received all known transactions.
    ReceivedAll,
    /// The candidate executed everything it received.
    ExecutedAll,
    /// Commits on the candidate survive a power cut.
    Durable,
    /// The candidate is in the old primary's region.
    SameRegion,
}

impl fmt::Display for Advantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preferred => "promotion = \"prefer\"",
            Self::ReceivedAll => "the server has received all known transactions",
            Self::ExecutedAll => "the server has executed everything that it received",
            Self::Durable => "commits on the server survive a power cut",
            Self::SameRegion => "the server is in the old primary's region",
        })
    }
}
