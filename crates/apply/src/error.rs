//! The errors of a channel, with stable codes and a retry class.

use tailwater_log::{LogError, LogPosition};
use tailwater_session::{PrivateText, ServerError, SessionError};
use tailwater_wire::WireError;
use tailwater_wire::event_printer::PrintError;

use crate::applied_transactions::ProgressError;
use crate::column_matching::ColumnMismatch;
use crate::replication_filter::FilterError;
use crate::source_to_target_table::MappedTable;

/// Why a channel stopped or could not start.
///
/// After an error, no part of the log is lost. On transactional tables, no transaction is applied in part. If
/// a statement that commits implicitly may have run, the channel has recorded this on the target.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The connection to the target failed or broke.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The channel cannot read the log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The bytes of a binlog event are malformed.
    #[error("{}: {error}", event_subject(.gtid, .position))]
    Event {
        /// The GTID of the transaction that contains the event; empty if the event is outside of
        /// transactions, or its transaction is not known.
        gtid: String,
        /// The start of the transaction in the log, or of the event if it is outside of transactions. The
        /// segment is 0 if the position is not known, or the event is not in the log.
        position: LogPosition,
        /// What is malformed in the event.
        error: WireError,
    },
    /// The row images of a table in a rows event are malformed.
    #[error("transaction {gtid}: rows of {table} in the event at {position} of the log: {error}{remedy}")]
    Rows {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// Log position of the event, or of the transaction if the position of the event is unknown.
        position: LogPosition,
        /// What is malformed, and in which column.
        error: Box<WireError>,
        /// What the operator can do, with a semicolon before it; empty if there is no remedy.
        remedy: &'static str,
    },
    /// The target rejected a transaction with an error.
    #[error(
        "transaction {gtid}: {}the target rejected it: {error}; nothing is lost: fix the cause and start the channel, or skip the transaction",
        prefix(subject)
    )]
    Rejected {
        /// The GTID of the transaction. If the target does not show which transaction of a batch failed, this
        /// is the GTID of the first transaction of the batch.
        gtid: String,
        /// The operation and its table, or the start of the statement without its values; empty if unknown.
        subject: String,
        /// The key of the row, or the statement with its values; empty if unknown.
        values: PrivateText,
        /// The error that the target reported.
        error: Box<ServerError>,
    },
    /// The target does not have a table that the source changed.
    #[error(
        "transaction {gtid}: the target has no table {table}; create it on the target, or exclude it with a filter"
    )]
    MissingTable {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
    },
    /// A column of the target's table cannot hold the values of the source's column.
    #[error("transaction {gtid}: table {table}, column {column}: {reason}")]
    IncompatibleColumn {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// The name of the column that cannot hold the values.
        column: String,
        /// Why the column cannot hold the values, and what to do.
        reason: String,
    },
    /// The number of fractional digits of a column is not known: the column has the temporal layout from
    /// before MySQL 5.6, and the binlog does not contain the number.
    #[error("transaction {gtid}: table {table}, column {column}: {reason}")]
    UnknownDigits {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// The column, or a list of columns.
        column: String,
        /// What the source and the target declare, and what to do.
        reason: String,
    },
    /// The source's table definition, which the binlog does not contain, cannot be read.
    #[error(
        "transaction {gtid}: table {table} has columns in the temporal layout from before MySQL 5.6, and the binlog does not \
         contain their number of fractional digits. The channel retries to read it from the source; old_temporal_precision = \
         \"target\" uses the target's declaration instead, unverified. Last error: {reason}"
    )]
    SourceCatalogue {
        /// The GTID of the transaction.
        gtid: String,
        /// The source's table.
        table: String,
        /// Why the definition cannot be read.
        reason: String,
    },
    /// A transaction that the channel cannot apply at all.
    #[error("transaction {gtid}: {what} cannot be applied: {reason}")]
    Unsupported {
        /// The GTID of the transaction.
        gtid: String,
        /// The event or statement that cannot be applied.
        what: String,
        /// Why the transaction cannot be applied.
        reason: String,
    },
    /// A statement refers to the account that runs it (`CURRENT_USER()`), and Tailwater cannot write that
    /// account into the statement.
    #[error(
        "transaction {gtid}: {statement}refers to the account of its session, which cannot be written into the statement: {reason}; run the statement on the target with the account's name, and skip the transaction"
    )]
    SessionAccount {
        /// The GTID of the transaction.
        gtid: String,
        /// The statement that refers to the account of its session.
        statement: String,
        /// Why the account cannot be written into the statement.
        reason: &'static str,
    },
    /// A statement was interrupted on the source after it took effect in part.
    #[error(
        "transaction {gtid}: {statement}was interrupted on the source (error {number}) and took effect only in part, and the binlog does not say which part; compare the tables that it changes on source and target, correct the target, and skip the transaction"
    )]
    InterruptedStatement {
        /// The GTID of the transaction.
        gtid: String,
        /// The statement that was interrupted on the source.
        statement: String,
        /// The error number with which the statement stopped on the source.
        number: u16,
    },
    /// A statement failed on the source and succeeded on the target.
    #[error(
        "transaction {gtid}: {statement}failed with error {number} on the source and succeeded on the target, so their data differ; compare the tables that it changes (`tailwater check`), correct the target, and start the channel; if the channel stops there again, skip the transaction"
    )]
    OutcomeDiffers {
        /// The GTID of the transaction.
        gtid: String,
        /// The statement that failed on the source and succeeded on the target.
        statement: String,
        /// The error number with which the statement failed on the source.
        number: u16,
    },
    /// The channel's progress tables on the target are malformed, or belong to another log.
    #[error("channel {channel}: the progress on the target (schema tailwater) cannot be used: {reason}")]
    ProgressRecord {
        /// The name of the channel.
        channel: String,
        /// What is wrong with the progress, and what to do.
        reason: String,
    },
    /// The target has applied transactions that the log does not hold durably. Either the log's disk is slow,
    /// or a power failure removed the end of the log and the relay has not captured this part again yet.
    #[error(
        "channel {channel}: the target has applied the log up to {has}, but the log is durable only up to {end}. The channel waits until the log's disk catches up or, after a power failure, until the missing end is captured again from the same source; if the log continues from another server, the channel stops. If the source is lost or the log was recreated: `tailwater channel seek {channel} GTIDS --yes`"
    )]
    TargetAhead {
        /// The name of the channel.
        channel: String,
        /// Log position up to which the target has applied transactions.
        has: String,
        /// Log position up to which the log is durable.
        end: String,
    },
    /// A newer Tailwater has upgraded its tables on the target to a version that this Tailwater does not
    /// know.
    #[error(
        "channel {channel}: the tables in schema tailwater on the target have version {found}, and this Tailwater supports versions up to {known}; run the Tailwater release that upgraded them, or a newer one"
    )]
    NewerSchema {
        /// The name of the channel.
        channel: String,
        /// The version of the tables on the target.
        found: u32,
        /// The newest version that this Tailwater supports.
        known: u32,
    },
    /// Another Tailwater has taken over the channel on this target.
    #[error(
        "channel {channel}: another Tailwater has taken over the channel on this target; this process has stopped applying"
    )]
    TakenOver {
        /// The name of the channel.
        channel: String,
    },
    /// The channel cannot start.
    #[error("the channel cannot start: {reason}")]
    Start {
        /// Why the channel cannot start, and what to do.
        reason: String,
    },
    /// Rows to update or delete do not exist on the target, or rows to insert already exist.
    #[error("the target has {found} of the {wanted} rows that a statement changes: {statement}")]
    RowsMissing {
        /// The number of rows that the statement found on the target.
        found: u64,
        /// The number of rows that the statement should have found.
        wanted: u64,
        /// The start of the statement, up to its values.
        statement: String,
    },
    /// A table of the target is not transactional, so the transaction cannot be applied exactly once.
    #[error(
        "transaction {gtid}: table {table} on the target is not transactional: {reason}; nothing of the transaction was written. Run `ALTER TABLE {table} ENGINE=InnoDB` on the target, or set gtid = log for the channel"
    )]
    NotTransactional {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// Why the table is not transactional.
        reason: String,
    },
    /// The target changed fewer rows than the channel sent, and reported no error.
    #[error(
        "transaction {gtid}: the target received {wanted} rows and counted {counted} changes: {}",
        missing_rows(.is_committed)
    )]
    RowCountMismatch {
        /// The target counted the changes of several transactions together. This is the GTID of the newest of
        /// them.
        gtid: String,
        /// The number of changes that the target counted.
        counted: u64,
        /// The number of rows that the channel sent to the target.
        wanted: u64,
        /// Whether some of the transactions are committed.
        is_committed: bool,
    },
    /// A transaction failed after some of its rows were written to a table that is not transactional.
    #[error(
        "transaction {gtid}: {table} on the target is not transactional, and some rows of the transaction may already be written: {}. Compare the tables that the transaction changes with those of the source, add the missing changes on the target, and skip the transaction",
        cause(error)
    )]
    PartlyWritten {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// Why the transaction failed.
        error: Box<ApplyError>,
    },
    /// The log reader stopped in the middle of a transaction that a worker streams from the log. Nothing of
    /// the transaction is committed.
    #[error("transaction {gtid}: reading the transaction from the log was interrupted")]
    ReadInterrupted {
        /// The GTID of the transaction.
        gtid: String,
    },
    /// A task of the channel panicked. This is a bug in Tailwater.
    #[error(
        "channel {channel}: {what}: this is a bug in Tailwater, please report it; uncommitted transactions are not applied, and `tailwater channel start {channel}` resumes with them"
    )]
    InternalFault {
        /// The name of the channel.
        channel: String,
        /// The task that panicked, and its panic message.
        what: String,
    },
    /// The channel is closed and accepts no commands.
    #[error("channel {channel} is closed")]
    ChannelClosed {
        /// The name of the channel.
        channel: String,
    },
    /// A progress row on the target cannot be decoded.
    #[error(transparent)]
    Progress(#[from] ProgressError),
    /// The filters are invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The filters would map two tables of the source to one table of the target.
    #[error("transaction {gtid}: {error}")]
    NameCollision {
        /// The GTID of the first transaction that the collision affects.
        gtid: String,
        /// The two tables that have the same name on the target.
        error: FilterError,
    },
    /// A new value of an option is outside its range. No option was changed.
    #[error("channel {channel}: {option} must be {range}")]
    OptionOutOfRange {
        /// The name of the channel.
        channel: String,
        /// The name of the option.
        option: &'static str,
        /// The values that are allowed.
        range: String,
    },
    /// A row is longer than the target's `max_allowed_packet`.
    #[error(
        "transaction {gtid}: a row of {table} needs a statement of {bytes} bytes, and the target accepts at most {bytes_max}; raise max_allowed_packet on the target"
    )]
    TooLarge {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// The length of the statement that writes the row, in bytes.
        bytes: usize,
        /// The target's `max_allowed_packet`, in bytes.
        bytes_max: usize,
    },
    /// A row has no exact form in SQL, and the target accepts the row in no other form.
    #[error("transaction {gtid}: a row of {table} cannot be written exactly: {error}")]
    NotExact {
        /// The GTID of the transaction.
        gtid: String,
        /// The table, with its database.
        table: String,
        /// The value that has no exact SQL form.
        error: Box<PrintError>,
    },
}

/// Returns which event is malformed: its transaction and its position in the log, as far as they are known.
fn event_subject(gtid: &str, position: &LogPosition) -> String {
    let subject = match gtid {
        "" => "a binlog event".to_owned(),
        gtid => format!("transaction {gtid}"),
    };
    match position.segment {
        0 => subject,
        _ => format!("{subject} at {position} of the log"),
    }
}

/// Returns the consequence and the remedy for rows that the target did not change.
fn missing_rows(is_committed: &bool) -> &'static str {
    match is_committed {
        true => {
            "rows of earlier transactions are missing on the target; check slave_exec_mode and the error log there, then compare \
             (`tailwater check`) and repair before you start the channel"
        }
        false => {
            "none of these rows is committed; check slave_exec_mode and the error log on the target, then start the channel"
        }
    }
}

/// Whether and when to retry after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyRetry {
    /// Retry after a pause, without an operator.
    Later,
    /// Retry only after an operator has changed something.
    AfterChange,
}

/// Returns why a transaction failed. The text contains no GTID. If it contains a remedy, this remedy is
/// correct even after some rows are written.
fn cause(error: &ApplyError) -> String {
    match error {
        ApplyError::Session(SessionError::Server { error, .. }) => {
            format!("the target rejected the next statement: {error}")
        }
        ApplyError::Rejected { subject, error, .. } => {
            format!("{}the target rejected it: {error}", prefix(subject))
        }
        ApplyError::RowCountMismatch { counted, wanted, is_committed, .. } => format!(
            "the target received {wanted} rows and counted {counted} changes{}; check slave_exec_mode and the error log on \
             the target",
            if *is_committed { ", and rows of earlier transactions are missing too" } else { "" }
        ),
        ApplyError::OutcomeDiffers { statement, number, .. } => {
            format!("{statement}failed with error {number} on the source and succeeded on the target")
        }
        ApplyError::InterruptedStatement { statement, number, .. } => format!(
            "{statement}was interrupted on the source (error {number}) and took effect there only in part"
        ),
        ApplyError::SessionAccount { statement, reason, .. } => {
            format!(
                "{statement}refers to the account of its session, which cannot be written into the statement: {reason}"
            )
        }
        ApplyError::Unsupported { what, reason, .. } => format!("{what} cannot be applied: {reason}"),
        ApplyError::ReadInterrupted { .. } => {
            "reading the transaction from the log was interrupted".to_owned()
        }
        error => error.to_string(),
    }
}

/// Returns the subject with a colon; empty if there is no subject.
fn prefix(subject: &str) -> String {
    if subject.is_empty() { String::new() } else { format!("{subject}: ") }
}

/// Returns the retry class of a server error. Errors that are temporary for every client are retried. Errors
/// of a server that does not accept writes yet are also retried.
fn retry_class(error: &ServerError) -> ApplyRetry {
    let is_temporary = match error.number {
        // The disk is full: EE_WRITE, EE_DISK_FULL, ER_DISK_FULL, ER_ERROR_ON_WRITE, ER_RECORD_FILE_FULL,
        // ER_TEMP_FILE_WRITE_FAILURE, ER_DISK_FULL_NOWAIT.
        3 | 20 | 1021 | 1026 | 1114 | 1878 | 3675 => true,
        // ER_CANT_CREATE_FILE, ER_CANT_CREATE_TABLE and ER_GET_ERRNO are temporary if the cause is a full
        // disk.
        1004 | 1005 | 1030 => names_full_disk(error.message.expose()),
        // The server is read-only, or open to administrators only: ER_OPTION_PREVENTS_STATEMENT,
        // ER_READ_ONLY_MODE, ER_SERVER_OFFLINE_MODE.
        1290 | 1836 | 3032 => true,
        // ER_ERROR_DURING_COMMIT, ER_LOCK_TABLE_FULL; statement timeouts;
        // ER_TRANSACTION_ROLLBACK_DURING_COMMIT.
        1180 | 1206 | 1969 | 3024 | 3101 => true,
        // The server reports that its own connection to another server broke.
        2006 | 2013 => true,
        _ => error.retry() == tailwater_session::SessionRetry::Later,
    };
    if is_temporary { ApplyRetry::Later } else { ApplyRetry::AfterChange }
}

/// Whether a message contains the error number of a full disk, `ENOSPC`.
fn names_full_disk(message: &str) -> bool {
    message.split(|c: char| !c.is_alphanumeric()).any(|word| word == "28")
}

impl ApplyError {
    /// Returns the retry class.
    pub fn retry(&self) -> ApplyRetry {
        match self {
            Self::Session(SessionError::Server { error, .. }) => retry_class(error),
            Self::Rejected { error, .. } => retry_class(error),
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
            Self::Filter(_) | Self::NameCollision { .. } | Self::OptionOutOfRange { .. } => {
                ApplyRetry::AfterChange
            }
            Self::TooLarge { .. } | Self::NotExact { .. } | Self::RowsMissing { .. } => {
                ApplyRetry::AfterChange
            }
            // Do not retry after these errors, because a retry could apply rows twice.
            Self::NotTransactional { .. } | Self::RowCountMismatch { .. } | Self::PartlyWritten { .. } => {
                ApplyRetry::AfterChange
            }
            Self::UnknownDigits { .. } => ApplyRetry::AfterChange,
            Self::SourceCatalogue { .. } | Self::ReadInterrupted { .. } | Self::TargetAhead { .. } => {
                ApplyRetry::Later
            }
        }
    }

    /// Returns the details that the message omits because they may contain row values. They are shown only to
    /// an operator who requests them, and never contain passwords.
    pub fn private_detail(&self) -> Option<String> {
        match self {
            Self::Session(error) => error.private_detail(),
            Self::Rejected { values, error, .. } => {
                let text = format!("{}{}", prefix(values.expose()), error.private());
                (text != error.to_string()).then_some(text)
            }
            Self::PartlyWritten { error, .. } => error.private_detail(),
            _ => None,
        }
    }

    /// Returns the error that the target reported, if there is one.
    pub(crate) fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Session(error) => error.server_error(),
            Self::Rejected { error, .. } => Some(error),
            Self::PartlyWritten { error, .. } => error.server_error(),
            _ => None,
        }
    }

    /// Returns whether the target has rejected this transaction but may accept other transactions.
    pub(crate) fn is_rejection(&self) -> bool {
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

    /// Sets the GTID of the failed transaction, unless the error already has one.
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

    /// Returns the error for a target column that cannot hold the source's values.
    pub(crate) fn mismatch(table: &MappedTable, mismatch: &ColumnMismatch) -> Self {
        Self::IncompatibleColumn {
            gtid: String::new(),
            table: format!("{}.{}", table.target.schema, table.target.table),
            column: mismatch.column.clone(),
            reason: mismatch.reason.clone(),
        }
    }

    /// Returns the error for a target table that lacks some of the source's columns.
    pub(crate) fn mismatches(gtid: String, table: String, mismatches: &[ColumnMismatch]) -> Self {
        let columns: Vec<&str> = mismatches.iter().map(|mismatch| mismatch.column.as_str()).collect();
        let reason = mismatches.first().map(|mismatch| mismatch.reason.clone()).unwrap_or_default();
        Self::IncompatibleColumn { gtid, table, column: columns.join(", "), reason }
    }

    /// Adds to the message that the preflight scan found the error before the channel applied anything.
    pub(crate) fn found_by_preflight(mut self) -> Self {
        if let Self::IncompatibleColumn { reason, .. } = &mut self {
            reason.push_str(
                "; found by the preflight scan of the log, and the channel does not start before it is fixed",
            );
        }
        self
    }

    /// Returns the error for malformed rows of a transaction that is already decoded.
    pub(crate) fn rows(error: WireError) -> Self {
        Self::Event { gtid: String::new(), position: LogPosition::ZERO, error }
    }

    /// Returns the stable error code; see docs/reference/errors.md.
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
            Self::OptionOutOfRange { .. } => "TW-APP-0023",
            Self::TooLarge { .. } => "TW-APP-0030",
            Self::NotExact { .. } => "TW-APP-0031",
            Self::NotTransactional { .. } => "TW-APP-0050",
            Self::RowCountMismatch { .. } => "TW-APP-0051",
            Self::PartlyWritten { .. } => "TW-APP-0052",
            Self::UnknownDigits { .. } => "TW-APP-0054",
            Self::SourceCatalogue { .. } => "TW-APP-0055",
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
    fn temporary_errors_are_retried() {
        let class = |number, message: &str| {
            retry_class(&ServerError { number, sql_state: "HY000".into(), message: message.into() })
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
            assert_eq!(
                class(number, message),
                ApplyRetry::Later,
                "wrong retry class for error {number}: {message}"
            );
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
            assert_eq!(
                class(number, message),
                ApplyRetry::AfterChange,
                "wrong retry class for error {number}: {message}"
            );
        }
    }
}
