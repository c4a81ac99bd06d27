//! What can go wrong on a channel, and whether trying again can help.

use tailwater_log::{LogError, LogPosition};
use tailwater_session::{PrivateText, ServerError, SessionError};
use tailwater_wire::WireError;
use tailwater_wire::print::PrintError;

use crate::columns::ColumnMismatch;
use crate::filter::FilterError;
use crate::progress::ProgressError;
use crate::transaction::MappedTable;

/// Why a channel could not go on. Nothing of the log is lost by any of them, and nothing was applied by half where the target's
/// tables have transactions; of a statement that commits by itself it is noted that it may have run.
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
    /// Rows of a table cannot be understood.
    #[error("transaction {gtid}: rows of {table} in the event at {position} of the log: {error}{remedy}")]
    Rows {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// Where the event begins in the log; where the transaction does, if the event does not tell.
        position: LogPosition,
        /// What is wrong with them, and in which column.
        error: Box<WireError>,
        /// What to do, after a semicolon, if that is known.
        remedy: &'static str,
    },
    /// The target refuses what a transaction does.
    #[error(
        "transaction {gtid}: {}the target refuses it: {error}; nothing is lost: mend what it says and start the channel, or skip the transaction",
        in_front(subject)
    )]
    Rejected {
        /// The transaction, or the first of a batch of which one is at fault.
        gtid: String,
        /// What was to be done to which table, or the beginning of the statement without its values; empty if it is not known.
        subject: String,
        /// The row's key, or the statement with its values, if they are known.
        values: PrivateText,
        /// What the target said.
        error: Box<ServerError>,
    },
    /// The target lacks a table that the source changed.
    #[error(
        "transaction {gtid}: the target has no table {table}; create it there, or leave it out with a filter"
    )]
    MissingTable {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
    },
    /// The target's table cannot take what the source's holds.
    #[error("transaction {gtid}: table {table}, column {column}: {reason}")]
    IncompatibleColumn {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What does not fit.
        reason: String,
    },
    /// How many digits the fractions of a column have is not certain: it has the temporal layout of before MySQL 5.6, and the binlog
    /// does not hold the number.
    #[error("transaction {gtid}: table {table}, column {column}: {reason}")]
    UnknownDigits {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// The column; several, or all, where the reason is not about one.
        column: String,
        /// What source and target declare, and what to do.
        reason: String,
    },
    /// The source cannot be asked for what the binlog does not hold.
    #[error(
        "transaction {gtid}: table {table} has columns in the temporal layout of before MySQL 5.6, and the binlog does not hold how \
         many digits their fractions have; the source cannot be asked: {reason}. Waits until it can; with old_temporal_precision = \
         \"target\" the target's declaration is taken, unverified"
    )]
    SourceCatalogue {
        /// The transaction.
        gtid: String,
        /// The source's table.
        table: String,
        /// Why not.
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
    /// A statement means the account of its session, and that account cannot be written into it.
    #[error(
        "transaction {gtid}: {statement}means the account of its session, which cannot be written into it: {reason}; run it on the target by hand with the account's name, and skip the transaction"
    )]
    SessionAccount {
        /// The transaction.
        gtid: String,
        /// The statement.
        statement: String,
        /// Why not.
        reason: &'static str,
    },
    /// A statement was interrupted on the source and has done a part of what it says.
    #[error(
        "transaction {gtid}: {statement}was interrupted on the source (error {number}) and did only a part of what it says, and which part is not logged; compare what it changes on source and target, mend it on the target, and skip the transaction"
    )]
    InterruptedStatement {
        /// The transaction.
        gtid: String,
        /// The statement.
        statement: String,
        /// The error that it ended with there.
        number: u16,
    },
    /// A statement failed on the source and not on the target.
    #[error(
        "transaction {gtid}: {statement}ended with error {number} on the source and without one on the target, whose data differ; compare what it changes (`tailwater check`), mend it on the target, and start the channel; if it stops there again, skip the transaction"
    )]
    OutcomeDiffers {
        /// The transaction.
        gtid: String,
        /// The statement.
        statement: String,
        /// The error that it ended with on the source.
        number: u16,
    },
    /// What is kept on the target about the channel cannot be understood, or does not belong to this log.
    #[error("channel {channel}: its progress on the target (schema tailwater): {reason}")]
    ProgressRecord {
        /// The channel.
        channel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The target has what the log does not have durably: its disk is slow, or a power cut has taken it and it was not captured again yet.
    #[error(
        "channel {channel}: the target has all up to {has} of the log, which is durable up to {end} only. Waits: for its disk, or, if a power cut has taken its end, until that is captured again from the same source; if the log goes on from another server, the channel stops and says so. If the source is lost, or the log was made anew: `tailwater channel seek {channel} GTIDS --yes`"
    )]
    TargetAhead {
        /// The channel.
        channel: String,
        /// Up to where in the log the target has all, or has something.
        has: String,
        /// Where the log ends.
        end: String,
    },
    /// A newer Tailwater has made the tables on the target into something that this one does not know.
    #[error(
        "channel {channel}: the tables in schema tailwater on the target are of version {found}, and this Tailwater knows them up to version {known}; run the newer Tailwater that made them, or a newer one still"
    )]
    NewerSchema {
        /// The channel.
        channel: String,
        /// Their version.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// Somebody else applies the same channel to the same target.
    #[error(
        "channel {channel} was taken over by another Tailwater on this target; this one has stopped applying"
    )]
    TakenOver {
        /// The channel.
        channel: String,
    },
    /// The channel cannot begin.
    #[error("the channel cannot begin: {reason}")]
    Start {
        /// Why, and what to do.
        reason: String,
    },
    /// Rows that are to be changed or deleted are not on the target, or rows that are to be inserted are.
    #[error("the target has {found} of {wanted} rows that a statement is to change: {statement}")]
    RowsMissing {
        /// How many it found.
        found: u64,
        /// How many it was to find.
        wanted: u64,
        /// The beginning of the statement, up to its values.
        statement: String,
    },
    /// A table of the target has no transactions, and what is to be done cannot be done exactly once then.
    #[error(
        "transaction {gtid}: table {table} on the target has no transactions: {reason}; nothing of the transaction was written. `ALTER TABLE {table} ENGINE=InnoDB` on the target, or apply the channel with gtid = log"
    )]
    NotTransactional {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// Why not.
        reason: String,
    },
    /// The server has changed fewer rows than it was sent, and did not say so.
    #[error(
        "transaction {gtid}: the target was sent {wanted} rows and has counted {counted} changes: {}",
        missing_rows(.is_committed)
    )]
    RowCountMismatch {
        /// The transaction, the newest of those that were counted together.
        gtid: String,
        /// How many changes it has counted.
        counted: u64,
        /// How many rows it was sent.
        wanted: u64,
        /// Whether some of them are committed.
        is_committed: bool,
    },
    /// A transaction has failed of which the target may have rows already, as their table has no transactions.
    #[error(
        "transaction {gtid}: {table} on the target has no transactions, and rows of it may be written already: {}. Compare the tables that the transaction changes with the source's, write there what is missing of it, and skip the transaction",
        cause(error)
    )]
    PartlyWritten {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// Why the transaction failed.
        error: Box<ApplyError>,
    },
    /// A transaction that is read while it is written could not be read to its end; nothing of it is committed.
    #[error("transaction {gtid} was interrupted while it was read from the log")]
    ReadInterrupted {
        /// The transaction.
        gtid: String,
    },
    /// A part of the channel has died of a fault of Tailwater's own.
    #[error(
        "channel {channel}: {what}: a fault of Tailwater itself, please report it; what had not committed is not applied, and `tailwater channel start {channel}` goes on from there"
    )]
    InternalFault {
        /// The channel.
        channel: String,
        /// Which part, and its last words.
        what: String,
    },
    /// The channel has ended.
    #[error("channel {channel} has ended")]
    ChannelClosed {
        /// The channel.
        channel: String,
    },
    /// The target's record of what it has cannot be read.
    #[error(transparent)]
    Progress(#[from] ProgressError),
    /// The filters are wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The filters do not fit the tables that come: two would be written to one.
    #[error("transaction {gtid}: {error}")]
    NameCollision {
        /// The transaction, the first that shows it.
        gtid: String,
        /// Which tables.
        error: FilterError,
    },
    /// A row does not fit into what the target takes at once.
    #[error(
        "transaction {gtid}: a row of {table} takes a statement of {bytes} bytes, and the target takes {bytes_max} at most; raise max_allowed_packet on the target"
    )]
    TooLarge {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// The statement's length.
        bytes: usize,
        /// The target's `max_allowed_packet`.
        bytes_max: usize,
    },
    /// A transaction of a server that comes back cannot be undone, or not be done again.
    #[error("transaction {gtid} can be neither undone nor repeated: {reason}; copy the server anew (--copy)")]
    Irreversible {
        /// The transaction.
        gtid: String,
        /// Why.
        reason: String,
    },
    /// A server cannot be brought back.
    #[error("the server cannot be rejoined: {reason}")]
    Rejoin {
        /// Why, and what to do.
        reason: String,
    },
    /// A server that comes back has transactions that nobody else has, and they are not to be undone.
    #[error(
        "only this server has {gtids}, and a client may have been told of it; `tailwater rejoin` undoes it"
    )]
    ErrantTransactions {
        /// Which.
        gtids: String,
    },
    /// A row cannot be said in SQL, and goes no other way to this target.
    #[error("transaction {gtid}: a row of {table}: {error}")]
    NotExact {
        /// The transaction.
        gtid: String,
        /// The table.
        table: String,
        /// What cannot be said.
        error: Box<PrintError>,
    },
}

/// What is to be said of rows that were not changed.
fn missing_rows(is_committed: &bool) -> &'static str {
    match is_committed {
        true => {
            "rows of earlier transactions are missing there; look at slave_exec_mode and the error log on the target, then \
             compare (`tailwater check`) and repair before the channel is started"
        }
        false => {
            "nothing of them is committed; look at slave_exec_mode and the error log on the target, then start the channel"
        }
    }
}

/// Whether trying again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyRetry {
    /// Yes, after a while.
    Later,
    /// Not before somebody changes something.
    AfterChange,
}

/// Why a transaction failed, without its GTID and without a remedy that is wrong where rows are there already.
fn cause(error: &ApplyError) -> String {
    match error {
        ApplyError::Session(SessionError::Server { error, .. }) => {
            format!("the target refuses what comes next: {error}")
        }
        ApplyError::Rejected { subject, error, .. } => {
            format!("{}the target refuses it: {error}", in_front(subject))
        }
        ApplyError::RowCountMismatch { counted, wanted, is_committed, .. } => format!(
            "the target was sent {wanted} rows and has counted {counted} changes{}; look at slave_exec_mode and the error log on \
             the target",
            if *is_committed { ", and rows of earlier transactions are missing, too" } else { "" }
        ),
        ApplyError::OutcomeDiffers { statement, number, .. } => {
            format!("{statement}ended with error {number} on the source and without one on the target")
        }
        ApplyError::InterruptedStatement { statement, number, .. } => format!(
            "{statement}was interrupted on the source (error {number}) and did only a part of what it says there"
        ),
        ApplyError::SessionAccount { statement, reason, .. } => {
            format!("{statement}means the account of its session, which cannot be written into it: {reason}")
        }
        ApplyError::Unsupported { what, reason, .. } => format!("{what} cannot be applied: {reason}"),
        ApplyError::ReadInterrupted { .. } => "it was interrupted while it was read from the log".to_owned(),
        error => error.to_string(),
    }
}

/// The subject of a message, if there is one.
fn in_front(subject: &str) -> String {
    if subject.is_empty() { String::new() } else { format!("{subject}: ") }
}

/// Errors of a server that pass: those that pass for whoever asks it, and those of a server that cannot be written to yet.
fn judge(error: &ServerError) -> ApplyRetry {
    let passes = match error.number {
        // Its disk is full: EE_WRITE, EE_DISK_FULL, ER_DISK_FULL, ER_ERROR_ON_WRITE, ER_RECORD_FILE_FULL,
        // ER_TEMP_FILE_WRITE_FAILURE, ER_DISK_FULL_NOWAIT.
        3 | 20 | 1021 | 1026 | 1114 | 1878 | 3675 => true,
        // ER_CANT_CREATE_FILE, ER_CANT_CREATE_TABLE, ER_GET_ERRNO, if that is why.
        1004 | 1005 | 1030 => names_full_disk(error.message.expose()),
        // It is read-only, or for administrators: ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE, ER_SERVER_OFFLINE_MODE.
        1290 | 1836 | 3032 => true,
        // ER_ERROR_DURING_COMMIT, ER_LOCK_TABLE_FULL; statements that take too long; ER_TRANSACTION_ROLLBACK_DURING_COMMIT.
        1180 | 1206 | 1969 | 3024 | 3101 => true,
        // What a server says whose own connection broke.
        2006 | 2013 => true,
        _ => error.retry() == tailwater_session::SessionRetry::Later,
    };
    if passes { ApplyRetry::Later } else { ApplyRetry::AfterChange }
}

/// Whether a message holds the system's number for a full disk, `ENOSPC`.
fn names_full_disk(message: &str) -> bool {
    message.split(|c: char| !c.is_alphanumeric()).any(|word| word == "28")
}

impl ApplyError {
    /// Whether trying again may help.
    pub fn retry(&self) -> ApplyRetry {
        match self {
            Self::Session(SessionError::Server { error, .. }) => judge(error),
            Self::Rejected { error, .. } => judge(error),
            Self::Session(error) => match error.retry() {
                tailwater_session::SessionRetry::Later => ApplyRetry::Later,
                tailwater_session::SessionRetry::AfterChange => ApplyRetry::AfterChange,
            },
            Self::Log(_)
            | Self::Event { .. }
            | Self::Rows { .. }
            | Self::MissingTable { .. }
            | Self::IncompatibleColumn { .. } => ApplyRetry::AfterChange,
            Self::SessionAccount { .. } | Self::InterruptedStatement { .. } | Self::OutcomeDiffers { .. } => {
                ApplyRetry::AfterChange
            }
            Self::Unsupported { .. }
            | Self::ProgressRecord { .. }
            | Self::NewerSchema { .. }
            | Self::TakenOver { .. } => ApplyRetry::AfterChange,
            Self::Start { .. }
            | Self::InternalFault { .. }
            | Self::ChannelClosed { .. }
            | Self::Progress(_) => ApplyRetry::AfterChange,
            Self::Filter(_) | Self::NameCollision { .. } => ApplyRetry::AfterChange,
            Self::TooLarge { .. } | Self::NotExact { .. } | Self::RowsMissing { .. } => {
                ApplyRetry::AfterChange
            }
            // Again would be twice.
            Self::NotTransactional { .. } | Self::RowCountMismatch { .. } | Self::PartlyWritten { .. } => {
                ApplyRetry::AfterChange
            }
            Self::Irreversible { .. } | Self::Rejoin { .. } | Self::ErrantTransactions { .. } => {
                ApplyRetry::AfterChange
            }
            Self::UnknownDigits { .. } => ApplyRetry::AfterChange,
            Self::SourceCatalogue { .. } | Self::ReadInterrupted { .. } | Self::TargetAhead { .. } => {
                ApplyRetry::Later
            }
        }
    }

    /// What the message leaves out, as it may hold values of rows: for an operator who asks for it. Never passwords.
    pub fn private_detail(&self) -> Option<String> {
        match self {
            Self::Session(error) => error.private_detail(),
            Self::Rejected { values, error, .. } => {
                let text = format!("{}{}", in_front(values.expose()), error.private());
                (text != error.to_string()).then_some(text)
            }
            Self::PartlyWritten { error, .. } => error.private_detail(),
            _ => None,
        }
    }

    /// What the target said, if it is that.
    pub(crate) fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Session(error) => error.server_error(),
            Self::Rejected { error, .. } => Some(error),
            Self::PartlyWritten { error, .. } => error.server_error(),
            _ => None,
        }
    }

    /// Whether it is the target that does not take what a transaction does, and another transaction may be taken.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Session(SessionError::Server { .. })
                | Self::Rejected { .. }
                | Self::Unsupported { .. }
                | Self::RowsMissing { .. }
                | Self::IncompatibleColumn { .. }
                | Self::TooLarge { .. }
                | Self::NotExact { .. }
                | Self::RowCountMismatch { is_committed: false, .. }
        )
    }

    /// Says which transaction it is about, if that is not known yet.
    pub(crate) fn of_transaction(mut self, of: &str) -> Self {
        match &mut self {
            Self::Event { gtid, .. }
            | Self::Unsupported { gtid, .. }
            | Self::IncompatibleColumn { gtid, .. }
            | Self::TooLarge { gtid, .. }
            | Self::NotExact { gtid, .. }
            | Self::NotTransactional { gtid, .. }
            | Self::RowCountMismatch { gtid, .. }
                if gtid.is_empty() =>
            {
                of.clone_into(gtid);
            }
            _ => {}
        }
        self
    }

    /// A target's table that cannot take what the source's holds.
    pub(crate) fn mismatch(table: &MappedTable, mismatch: &ColumnMismatch) -> Self {
        Self::IncompatibleColumn {
            gtid: String::new(),
            table: format!("{}.{}", table.target.schema, table.target.table),
            column: mismatch.column.clone(),
            reason: mismatch.reason.clone(),
        }
    }

    /// A target's table that lacks columns of the source's.
    pub(crate) fn mismatches(gtid: String, table: String, mismatches: &[ColumnMismatch]) -> Self {
        let columns: Vec<&str> = mismatches.iter().map(|mismatch| mismatch.column.as_str()).collect();
        let reason = mismatches.first().map(|mismatch| mismatch.reason.clone()).unwrap_or_default();
        Self::IncompatibleColumn { gtid, table, column: columns.join(", "), reason }
    }

    /// Says that it was found before anything was applied.
    pub(crate) fn found_ahead(mut self) -> Self {
        if let Self::IncompatibleColumn { reason, .. } = &mut self {
            reason.push_str("; found by looking ahead, and the channel does not begin before it is mended");
        }
        self
    }

    /// Rows of a transaction that was decoded and are no rows.
    pub(crate) fn rows(error: WireError) -> Self {
        Self::Event { gtid: String::new(), position: LogPosition::ZERO, error }
    }

    /// The stable code, see docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::Log(error) => error.code(),
            Self::Event { .. } => "TW-APP-0001",
            Self::Rows { .. } => "TW-APP-0053",
            Self::Rejected { .. } => "TW-APP-0002",
            Self::MissingTable { .. } => "TW-APP-0003",
            Self::IncompatibleColumn { .. } => "TW-APP-0004",
            Self::Unsupported { .. } => "TW-APP-0005",
            Self::ProgressRecord { .. } => "TW-APP-0006",
            Self::TakenOver { .. } => "TW-APP-0007",
            Self::Start { .. } => "TW-APP-0008",
            Self::ChannelClosed { .. } => "TW-APP-0009",
            Self::ReadInterrupted { .. } => "TW-APP-0010",
            Self::RowsMissing { .. } => "TW-APP-0011",
            Self::NewerSchema { .. } => "TW-APP-0012",
            Self::InternalFault { .. } => "TW-APP-0013",
            Self::TargetAhead { .. } => "TW-APP-0014",
            Self::Progress(_) => "TW-APP-0020",
            Self::Filter(_) => "TW-APP-0021",
            Self::NameCollision { .. } => "TW-APP-0022",
            Self::TooLarge { .. } => "TW-APP-0030",
            Self::NotExact { .. } => "TW-APP-0031",
            Self::NotTransactional { .. } => "TW-APP-0050",
            Self::RowCountMismatch { .. } => "TW-APP-0051",
            Self::PartlyWritten { .. } => "TW-APP-0052",
            Self::UnknownDigits { .. } => "TW-APP-0054",
            Self::SourceCatalogue { .. } => "TW-APP-0055",
            Self::Irreversible { .. } => "TW-APP-0040",
            Self::Rejoin { .. } => "TW-APP-0041",
            Self::ErrantTransactions { .. } => "TW-APP-0042",
            Self::SessionAccount { .. } => "TW-APP-0043",
            Self::InterruptedStatement { .. } => "TW-APP-0044",
            Self::OutcomeDiffers { .. } => "TW-APP-0045",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_tried_again() {
        let judged = |number, message: &str| {
            judge(&ServerError { number, sql_state: "HY000".into(), message: message.into() })
        };
        for (number, message) in [
            (
                1021,
                "Disk full (/tmp); waiting for someone to free some space... (errno: 28 \"No space left\")",
            ),
            (1114, "The table 't' is full"),
            (3675, "Create table/tablespace 't' failed, as disk is full"),
            (1030, "Got error 28 \"No space left on device\" from storage engine InnoDB"),
            (1030, "Got error 28 - 'No space left on device' from storage engine"),
            (1005, "Can't create table `d`.`t` (errno: 28 \"No space left on device\")"),
            (
                1290,
                "The MariaDB server is running with the --read-only option so it cannot execute this statement",
            ),
            (3032, "The server is currently in offline mode"),
            (1205, "Lock wait timeout exceeded; try restarting transaction"),
            (1037, "Out of memory; restart server and try again (needed 7 bytes)"),
        ] {
            assert_eq!(judged(number, message), ApplyRetry::Later, "{number} {message}");
        }
        for (number, message) in [
            (1062, "Duplicate entry '28' for key 'PRIMARY'"),
            (1030, "Got error 168 - 'Unknown (generic) error from engine' from storage engine"),
            (
                1005,
                "Can't create table `d`.`t28` (errno: 150 \"Foreign key constraint is incorrectly formed\")",
            ),
            (1146, "Table 'd.t' doesn't exist"),
        ] {
            assert_eq!(judged(number, message), ApplyRetry::AfterChange, "{number} {message}");
        }
    }
}
