//! Reasons for and against a server, as data and as text.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_topology::ServerVersion;

/// Why a server cannot become primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum ExclusionReason {
    /// It does not answer.
    NotReached {
        /// The error.
        reason: String,
    },
    /// This run tried to promote it and failed.
    Failed {
        /// The action and its error.
        reason: String,
    },
    /// `promotion = "must_not"`.
    MustNot,
    /// Its transactions are unknown.
    Unknown,
    /// It has transactions that are neither in a log nor the old primary's.
    Errant {
        /// The GTIDs.
        gtids: String,
    },
    /// It lacks transactions that no log or server can send.
    Gap {
        /// The GTIDs.
        gtids: String,
        /// The log that begins after them.
        log: String,
    },
    /// It is in another region, and that is not allowed.
    OtherRegion {
        /// Its region.
        region: String,
    },
    /// It is MySQL and the primary MariaDB, or the other way round.
    OtherFlavour,
    /// It writes no binlog.
    NoBinlog,
    /// Its binlog lacks replicated transactions.
    NoReplicaUpdates,
    /// Semi-sync is not loaded and cannot be.
    NoSemiSync {
        /// The reason.
        reason: String,
    },
    /// Its channel applies under the target's own GTIDs.
    OwnGtids,
    /// Its channel has filters or skipped transactions.
    Partial,
    /// Its applier has stopped, so what it received cannot be drained.
    ApplierStopped {
        /// The server's error.
        error: String,
    },
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReached { reason } => write!(f, "it is not reached: {reason}"),
            Self::Failed { reason } => write!(f, "it was tried and failed: {reason}"),
            Self::MustNot => f.write_str("promotion = \"must_not\""),
            Self::Unknown => f.write_str("its received transactions are unknown (its account may lack a privilege: `tailwater grants`)"),
            Self::Errant { gtids } => write!(f, "it has transactions that are not in the log: {gtids}"),
            Self::Gap { gtids, log } => {
                write!(
                    f,
                    "it lacks {gtids}, which is before the beginning of {log} and which no other server can send"
                )
            }
            Self::OtherRegion { region } => write!(f, "it is in another region ({region})"),
            Self::OtherFlavour => f.write_str("it is of the other flavour"),
            Self::NoBinlog => f.write_str("log_bin is off"),
            Self::NoReplicaUpdates => f.write_str("log_replica_updates is off"),
            Self::NoSemiSync { reason } => {
                write!(f, "semi-sync is not loaded there, and cannot be, so that it could not wait for ACKs: {reason}")
            }
            Self::Partial => f.write_str("its channel has filters, or left transactions out: it is no copy of the primary"),
            Self::OwnGtids => f.write_str(
                "its channel writes with its own GTIDs, from which no replica can continue; run: tailwater channel set NAME \
                 --gtid log",
            ),
            Self::ApplierStopped { error } => {
                write!(f, "its applier has stopped, so what it received cannot be drained: {error}")
            }
        }
    }
}

/// What counts against a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Drawback {
    /// `promotion = "prefer_not"`.
    NotPreferred,
    /// It is in another region.
    OtherRegion {
        /// Its region.
        region: String,
    },
    /// A server of an older series could not replicate from it.
    CannotFollow {
        /// The server.
        server: String,
        /// Its version.
        version: ServerVersion,
    },
    /// It is older than the old primary, and may not understand all of its transactions.
    OlderThanPrimary {
        /// Its version.
        version: ServerVersion,
    },
    /// A power cut could lose commits.
    NotDurable,
    /// It needs time to execute what it received.
    Behind {
        /// In milliseconds.
        ms: u64,
    },
    /// It needs longer than allowed to execute what it received.
    Slow {
        /// In milliseconds.
        ms: u64,
    },
    /// Other servers have unacknowledged transactions that cannot be sent to it; those servers must be
    /// rebuilt.
    LeavesBehind {
        /// Those servers.
        servers: Vec<String>,
    },
}

impl fmt::Display for Drawback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPreferred => f.write_str("promotion = \"prefer_not\""),
            Self::OtherRegion { region } => write!(f, "it is in another region ({region})"),
            Self::CannotFollow { server, version } => {
                write!(f, "{server} is older ({version}) and could not follow it")
            }
            Self::OlderThanPrimary { version } => write!(f, "it is older ({version}) than the primary was"),
            Self::NotDurable => {
                f.write_str("a power cut could cost it commits (sync_binlog, innodb_flush_log_at_trx_commit)")
            }
            Self::Behind { ms } => write!(f, "it needs about {ms} ms to execute what it has"),
            Self::Slow { ms } => {
                write!(f, "it needs about {ms} ms to execute what it has, which is too long")
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
    /// `promotion = "prefer"`.
    Preferred,
    /// It received all known transactions.
    ReceivedAll,
    /// It executed all that it received.
    ExecutedAll,
    /// It survives a power cut.
    Durable,
    /// It is in the old primary's region.
    SameRegion,
}

impl fmt::Display for Advantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Preferred => "promotion = \"prefer\"",
            Self::ReceivedAll => "it has received everything",
            Self::ExecutedAll => "it has executed all that it received",
            Self::Durable => "it survives a power cut",
            Self::SameRegion => "it is in the old primary's region",
        })
    }
}
