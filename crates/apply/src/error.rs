//! What can go wrong on a channel, and whether trying again can help.

use tailwater_log::{LogError, LogPosition};
use tailwater_session::{ServerError, SessionError};
use tailwater_wire::WireError;
use tailwater_wire::print::PrintError;

/// Why a channel could not go on. Nothing of the log is lost by any of them, and nothing was applied by half.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The connection to the target failed or broke.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// An event's bytes cannot be understood.
    #[error("transaction {gtid} at {position} of the log: {error}")]
    Event {
        /// The transaction.
        gtid: String,
        /// Where it begins in the log.
        position: LogPosition,
        /// What is wrong with it.
        error: WireError,
    },
    /// The target refuses what a transaction does.
    #[error(
        "transaction {gtid}: {table}{key}: the target refuses it: {error}; the channel has stopped and kept everything"
    )]
    Refused {
        /// The transaction, or the first of a batch of which one is at fault.
        gtid: String,
        /// The table, if it is known.
        table: String,
        /// The row's key, if it is known.
        key: String,
        /// What the target said.
        error: Box<ServerError>,
    },
    /// The target lacks a table that the source changed.
    #[error(
        "transaction {gtid}: the target has no table {table}; create it there, or leave it out with a filter"
    )]
    NoTable {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
    },
    /// The target's table cannot take what the source's holds.
    #[error("transaction {gtid}: table {table}, column {column}: {reason}")]
    Shape {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What does not fit.
        reason: String,
    },
    /// Something that cannot be applied at all.
    #[error("transaction {gtid}: {what} cannot be applied: {reason}")]
    Unsupported {
        /// The transaction.
        gtid: String,
        /// What it is.
        what: String,
        /// Why not.
        reason: String,
    },
    /// A row does not fit into what the target takes at once.
    #[error(
        "a row of {table} takes a statement of {bytes} bytes, and the target takes {bytes_max} at most; raise max_allowed_packet on the target"
    )]
    TooLarge {
        /// The table.
        table: String,
        /// The statement's length.
        bytes: usize,
        /// The target's `max_allowed_packet`.
        bytes_max: usize,
    },
    /// A row cannot be said in SQL, and goes no other way to this target.
    #[error("a row of {table}: {error}")]
    Inexact {
        /// The table.
        table: String,
        /// What cannot be said.
        error: Box<PrintError>,
    },
}

impl ApplyError {
    /// The stable code, see docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Event { .. } => "TW-APP-0001",
            Self::Refused { .. } => "TW-APP-0002",
            Self::NoTable { .. } => "TW-APP-0003",
            Self::Shape { .. } => "TW-APP-0004",
            Self::Unsupported { .. } => "TW-APP-0005",
            Self::TooLarge { .. } => "TW-APP-0030",
            Self::Inexact { .. } => "TW-APP-0031",
        }
    }
}
