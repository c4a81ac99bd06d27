//! What speaks for and against a server, as data and in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::candidate_server::ServerVersion;

/// Why a server cannot become primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum ExclusionReason {
    /// It does not answer.
    NotReached {
        /// What was tried.
        reason: String,
    },
    /// It was tried in this run, and something failed.
    Failed {
        /// What, and why.
        reason: String,
    },
    /// The operator forbids it.
    MustNot,
    /// It does not tell what it has.
    Unknown,
    /// It has transactions that are in no log and not the old primary's.
    Errant {
        /// Which.
        gtids: String,
    },
    /// It lacks transactions that nobody can give.
    Gap {
        /// Which.
        gtids: String,
        /// The log that begins behind them.
        log: String,
    },
    /// It stands elsewhere, and nobody allowed that.
    OtherRegion {
        /// Where.
        region: String,
    },
    /// MySQL for MariaDB, or the other way round.
    OtherFlavour,
    /// It writes no binlog.
    NoBinlog,
    /// Its binlog lacks what it replicates.
    NoReplicaUpdates,
    /// Semi-sync is not loaded, and cannot be.
    NoSemiSync {
        /// Why.
        reason: String,
    },
    /// Its channel writes under GTIDs of the target's own.
    OwnGtids,
    /// Its channel does not bring everything.
    Partial,
    /// Its applier has stopped: what it received cannot be drained.
    ApplierStopped {
        /// The server's words.
        error: String,
    },
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReached { reason } => write!(f, "it is not reached: {reason}"),
            Self::Failed { reason } => write!(f, "it was tried and failed: {reason}"),
            Self::MustNot => f.write_str("promotion = \"must_not\""),
            Self::Unknown => f.write_str("it does not tell what it has received (its account may lack a privilege: `tailwater grants`)"),
            Self::Errant { gtids } => write!(f, "it has transactions that are not in the log: {gtids}"),
            Self::Gap { gtids, log } => {
                write!(
                    f,
                    "it lacks {gtids}, which is before the beginning of {log} and which no other server can give"
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
                "its channel writes under GTIDs of its own, behind which nobody can go on; run: tailwater channel set NAME \
                 --gtid log",
            ),
            Self::ApplierStopped { error } => {
                write!(f, "its applier has stopped, and what it received cannot be drained: {error}")
            }
        }
    }
}

/// What speaks against a server that can become primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Drawback {
    /// The operator would rather not.
    NotPreferred,
    /// It stands elsewhere.
    OtherRegion {
        /// Where.
        region: String,
    },
    /// A replica of an older series could not follow it.
    CannotFollow {
        /// Which.
        server: String,
        /// Its version.
        version: ServerVersion,
    },
    /// What the old primary wrote may be more than it knows.
    OlderThanPrimary {
        /// Its version.
        version: ServerVersion,
    },
    /// A power cut could cost commits.
    NotDurable,
    /// It needs some time to execute what it has.
    Behind {
        /// In milliseconds.
        ms: u64,
    },
    /// It needs too long.
    Slow {
        /// In milliseconds.
        ms: u64,
    },
    /// Others have unacknowledged transactions that it cannot get; they will have to be rebuilt.
    LeavesBehind {
        /// Which.
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
                    "{} received more of the old primary, unacknowledged, and cannot give it",
                    servers.join(", ")
                )
            }
        }
    }
}

/// What speaks for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Advantage {
    /// The operator wants it.
    Preferred,
    /// It has received all that is known.
    ReceivedAll,
    /// It has executed all that it received.
    ExecutedAll,
    /// It survives a power cut.
    Durable,
    /// It stands where the old primary stood.
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
