//! The errors of bulk work: dump, load, copy, check and repair.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tailwater_session::{PrivateText, ServerError, SessionError};

/// How a user can continue after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeHint {
    /// The user continues with --resume, and finished work is kept.
    Resume,
    /// The user starts again with --restart: all data must come from one point in time, and the finished part
    /// comes from an earlier point in time.
    Restart,
}

impl fmt::Display for ResumeHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resume => "What was loaded is kept: continue with --resume",
            Self::Restart => "Start from scratch with --restart, which drops what was copied",
        })
    }
}

impl ResumeHint {
    fn after_interrupted_run(self) -> &'static str {
        match self {
            Self::Resume => {
                "continue with --resume, or start from scratch: a copy with --restart, a load after dropping its tables"
            }
            Self::Restart => "start from scratch with --restart, which drops what was copied",
        }
    }
}

/// Why bulk work failed. Finished work is kept, and a resumed run continues after it.
///
/// The crates `tables`, `dump` and `check` share this enum. Nineteen of its variants are returned by two or
/// three of these crates. The binary decides on exit codes and hints from this one type. Three separate enums
/// would repeat the variants or wrap each other.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// A connection to a server failed or broke, or a statement failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The failed action as a verb, such as "read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of a dump is damaged.
    #[error("{}: {reason}; the file is damaged or does not belong to a dump", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong in the file, and where.
        reason: String,
    },
    /// A newer version of Tailwater wrote the dump.
    #[error("{}: format {found}, but this version reads formats up to {known}; use a newer Tailwater", path.display())]
    NewerFormat {
        /// The dump's manifest.
        path: PathBuf,
        /// The format of the dump.
        found: u32,
        /// The newest format that this version can read.
        known: u32,
    },
    /// Another process writes to the folder.
    #[error("another process uses {}; wait for it, or use another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// An answer of a server cannot be parsed.
    #[error("{table}: unexpected answer of the server: {reason}; report this with the table's definition")]
    UnexpectedAnswer {
        /// The table.
        table: String,
        /// What cannot be parsed: the query or the value.
        reason: String,
    },
    /// The number of rows that were read differs from the number that the server counts.
    #[error(
        "{table}: {reason}; the table is not finished. Try again, and report this with the table's definition"
    )]
    RowCountMismatch {
        /// The table.
        table: String,
        /// How the two numbers of rows differ.
        reason: String,
    },
    /// No snapshot method works on this server with this account.
    #[error(
        "no consistent snapshot: {reasons}; grant RELOAD (and BACKUP_ADMIN on MySQL) or LOCK TABLES, or try again under less load"
    )]
    NoSnapshot {
        /// The methods that were tried, and why they failed.
        reasons: String,
    },
    /// The snapshot was aborted, because it would have blocked writers for too long.
    #[error("writers were blocked for {} ms, so the snapshot was aborted", waited.as_millis())]
    WritersBlocked {
        /// How long writers were blocked.
        waited: Duration,
    },
    /// In every attempt, transactions committed between the snapshots of two connections.
    #[error("snapshots without a lock had different binlog positions in {tries} attempts")]
    SnapshotMismatch {
        /// Number of attempts.
        tries: u32,
    },
    /// Objects on the server were changed while the snapshot was taken.
    #[error("definitions changed while the snapshot was taken: {reason}")]
    SchemaChanged {
        /// What has changed.
        reason: String,
    },
    /// A read lock would have waited for a long statement, and would have blocked other sessions in the
    /// meantime.
    #[error("a statement has run for {seconds} s on connection {id}, so a read lock would wait for it")]
    LongRunningStatement {
        /// The connection id of the long statement.
        id: u64,
        /// For how many seconds the statement has run.
        seconds: u64,
    },
    /// The server ended the transaction of the snapshot.
    #[error(
        "{server} ended the transaction of the snapshot, so the data has several points in time: dump again"
    )]
    SnapshotLost {
        /// The server.
        server: String,
    },
    /// The folder for a new dump has files.
    #[error(
        "{} is not empty; resume the interrupted dump in it with --resume, or use another folder",
        path.display()
    )]
    FolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The work was cancelled.
    #[error("the work was interrupted; finished parts are kept: continue with --resume")]
    Interrupted,
    /// Interrupted work cannot be resumed.
    #[error("{what} cannot be resumed: {reason}; dump into another folder")]
    ResumeImpossible {
        /// The work that was interrupted.
        what: String,
        /// The reason.
        reason: String,
    },
    /// A selected object does not exist on the server.
    #[error("there is no {what} on {server}; check its name and whether the account may see it")]
    NotFound {
        /// The kind and name of the object.
        what: String,
        /// The server.
        server: String,
    },
    /// The server does not show a definition to this account.
    #[error(
        "the server does not show the definition of {object} to this account; grant it SHOW_ROUTINE (MySQL), SELECT on \
         mysql.proc (MariaDB) or the privilege that this kind of object needs"
    )]
    DefinitionHidden {
        /// The object whose definition is hidden.
        object: String,
    },
    /// Tables of the dump exist on the target already.
    #[error(
        "{server} already has {count} of the tables, for example {first}; nothing was changed. Drop them, or let `load` insert into \
         them with --force-merge"
    )]
    TablesExist {
        /// The server.
        server: String,
        /// Number of tables that exist.
        count: usize,
        /// The first table that exists.
        first: String,
    },
    /// An earlier load or copy of the same data was interrupted.
    #[error(
        "an earlier load or copy of the same data into {server} was interrupted; {}",
        hint.after_interrupted_run()
    )]
    InterruptedLoad {
        /// The server.
        server: String,
        /// How the user can continue.
        hint: ResumeHint,
    },
    /// Another process is loading the same dump into the same server.
    #[error("another process is loading this dump into {server}: wait until it has finished, or stop it")]
    LoadInProgress {
        /// The server.
        server: String,
    },
    /// The dump to load is not complete.
    #[error("{}: the dump is not complete, {tables} tables are missing or incomplete; finish it first with `dump --resume`", path.display())]
    IncompleteDump {
        /// The folder.
        path: PathBuf,
        /// Number of tables that are missing or incomplete.
        tables: usize,
    },
    /// The tables of the dump to load show the data of different points in time.
    #[error(
        "{}: the dump was interrupted, and its data has {points} points in time; dump again, or load it anyway \
         with --allow-mixed",
        path.display()
    )]
    MixedSnapshots {
        /// The folder.
        path: PathBuf,
        /// Number of different points in time.
        points: usize,
    },
    /// The target rejects the definition of an object.
    #[error(
        "cannot create {what} ({}): {error}; the statement begins: {statement}. {hint}",
        path.display()
    )]
    DefinitionRejected {
        /// The kind and name of the object.
        what: String,
        /// The script with the definition.
        path: PathBuf,
        /// The beginning of the rejected statement.
        statement: String,
        /// The server's error.
        error: Box<ServerError>,
        /// How the user can continue after fixing the cause.
        hint: ResumeHint,
    },
    /// The target rejects rows of a file.
    #[error("cannot load {} into {table}: {error}. {hint}", path.display())]
    RowsRejected {
        /// The table.
        table: String,
        /// The file with the rows.
        path: PathBuf,
        /// The error of the server or the connection.
        error: Box<SessionError>,
        /// How the user can continue after fixing the cause.
        hint: ResumeHint,
    },
    /// A row is longer than the maximum packet of a bulk statement.
    #[error(
        "{}: a row of {table} is longer than {bytes_max} bytes; the rest of the table is loaded by LOAD DATA LOCAL",
        path.display()
    )]
    RowExceedsPacket {
        /// The table.
        table: String,
        /// The file with the row.
        path: PathBuf,
        /// Maximum size in bytes of a row in a bulk statement.
        bytes_max: usize,
    },
    /// An interrupted load may have loaded part of a file into a table that had rows before.
    #[error(
        "{table} existed before the load, its engine has no transactions, and the load of {} was interrupted: it is unknown \
         which rows of the file are loaded. Delete them, run {forget}, and continue with --resume",
        path.display()
    )]
    PartialLoad {
        /// The table.
        table: String,
        /// The file whose load was interrupted.
        path: PathBuf,
        /// The SQL statement that deletes the record of the file.
        forget: String,
    },
    /// Tables that an earlier load created do not exist any more.
    #[error(
        "{server}: an earlier load or copy of the same data created {count} tables that do not exist any more, for example \
         {first}; nothing was changed. To start from scratch, drop the remaining tables, too"
    )]
    TablesDropped {
        /// The server.
        server: String,
        /// Number of missing tables.
        count: usize,
        /// The first missing table.
        first: String,
    },
    /// The target would store rows with other values than those in the file.
    #[error(
        "{} is not loaded: the server would change or skip rows in {table} ({warnings} warnings): {first}",
        path.display()
    )]
    RowsAltered {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// Number of warnings.
        warnings: u16,
        /// The first warning that matters.
        first: PrivateText,
    },
    /// The target stored fewer or more rows than the file has.
    #[error("{} is not loaded: {table} stored {found} of {wanted} rows", path.display())]
    RowsMissing {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// Number of stored rows.
        found: u64,
        /// Number of rows in the file.
        wanted: u64,
    },
    /// The dump has a row format that `load` does not read.
    #[error(
        "{}: its row format is {format}, but load reads tsv (tailwater dump --format tsv): run files of SQL with the stock \
         client, in the order of the manifest; CSV and Parquet are for other programs",
        path.display()
    )]
    RowFormatUnsupported {
        /// The folder.
        path: PathBuf,
        /// The row format of the dump.
        format: &'static str,
    },
    /// The dump of another tool has contents that `load` does not support.
    #[error("{}: this dump of {tool} cannot be loaded: {reason}", path.display())]
    ForeignDump {
        /// The folder or a file of it.
        path: PathBuf,
        /// The name of the tool.
        tool: &'static str,
        /// What is not supported, and what the user can do.
        reason: String,
    },
    /// The rows cannot be loaded by INSERT statements, because only `LOAD DATA` can convert them.
    #[error("the rows of {table} have their own character set, which needs LOAD DATA LOCAL: omit --inserts")]
    InsertsUnsupported {
        /// The table.
        table: String,
    },
    /// Accounts cannot be dumped or loaded.
    #[error("accounts cannot be dumped or loaded: {reason}")]
    AccountsUnavailable {
        /// The reason.
        reason: String,
    },
    /// A part of the dump is not valid on the target, because the dump is from MySQL and the target is
    /// MariaDB, or the reverse.
    #[error("{what} cannot be loaded into a server of this flavour: {reason}. Nothing was changed")]
    FlavourMismatch {
        /// The part that is not valid, such as a table and its column.
        what: String,
        /// The reason, and what the user can do.
        reason: String,
    },
    /// A dump into a stream was cancelled.
    #[error("the dump was interrupted; the stream is incomplete and cannot be resumed: dump again")]
    StreamInterrupted,
    /// A copy that sets the target's GTID state was cancelled. It cannot be resumed, because all its data
    /// must come from one point in time.
    #[error(
        "the copy was interrupted; the target must have the data of one point in time: start from scratch with --restart, which drops what was copied"
    )]
    CopyInterrupted,
    /// The target's GTID state cannot be set.
    #[error("the GTID state of the target cannot be set: {reason}; load without --set-gtid")]
    GtidState {
        /// The reason.
        reason: String,
    },
    /// The target does not allow `LOAD DATA LOCAL`.
    #[error(
        "{server} does not allow LOAD DATA LOCAL (local_infile = OFF); run there: SET GLOBAL local_infile = ON, or load with \
         --inserts, which is slower"
    )]
    LocalInfileOff {
        /// The server.
        server: String,
    },
    /// The target uses statement-based binary logging, in which a load cannot be logged.
    #[error(
        "{server} logs statements (binlog_format = STATEMENT), and this account may not enable row logging for its session: {error}. \
         Grant it {privilege}, load without the binlog (--no-binlog), or set binlog_format = ROW there. Nothing was changed"
    )]
    BinlogFormat {
        /// The server.
        server: String,
        /// The privilege that would allow row logging.
        privilege: &'static str,
        /// The server's error.
        error: Box<ServerError>,
    },
    /// The target lacks the storage engine of a table.
    #[error(
        "{server} has no engine {engine}, which {table} needs: install the engine there, omit the table, or change its engine in \
         {}. Nothing was changed",
        path.display()
    )]
    EngineMissing {
        /// The target.
        server: String,
        /// The name of the engine.
        engine: String,
        /// The first table that needs the engine.
        table: String,
        /// The file with the table's definition.
        path: PathBuf,
    },
    /// The selection matches no table.
    #[error(
        "nothing is selected on {server}: this account sees no tables there except system tables, or all are excluded; check \
         the names and the privileges"
    )]
    NothingSelected {
        /// The server.
        server: String,
    },
    /// The account cannot see all selected objects.
    #[error(
        "this account does not see all of {what} on {server}: {lacking} is not granted. Grant it{instead}"
    )]
    MissingPrivilege {
        /// What was selected.
        what: String,
        /// The server.
        server: String,
        /// The privileges that the account lacks.
        lacking: String,
        /// What the user can do without the privileges; the text follows "Grant it".
        instead: &'static str,
    },
    /// The target has not reached the source's position within the maximum wait.
    #[error(
        "{target} has not reached the source's position in {seconds} s: {position}; check that it replicates, without filters \
         that skip transactions, or wait longer with --wait-max-s"
    )]
    TargetBehind {
        /// The target.
        target: String,
        /// For how many seconds the check has waited.
        seconds: u64,
        /// The source's position.
        position: String,
    },
    /// The check cannot determine whether the target has applied all transactions of the source.
    #[error(
        "cannot determine whether {target} has reached the source's position: {reason}; use --wait mark, which writes a row \
         to the source and waits for it, or --wait none if no client writes"
    )]
    SyncUnknown {
        /// The target.
        target: String,
        /// The reason.
        reason: String,
    },
    /// Some rows are too long for the server to concatenate their columns.
    #[error(
        "{table}: {count} rows are too long to be compared on {server}; increase max_allowed_packet there"
    )]
    RowTooLong {
        /// The table.
        table: String,
        /// The server.
        server: String,
        /// Number of rows that are too long.
        count: u64,
    },
    /// The state file for a new check already exists.
    #[error("{} already contains the state of a check; continue that check with --resume, or use another file", path.display())]
    StateFileExists {
        /// The file.
        path: PathBuf,
    },
    /// The state file belongs to another check.
    #[error("{} contains the state of another check: {reason}; use another file", path.display())]
    StateMismatch {
        /// The file.
        path: PathBuf,
        /// How the state in the file differs from this check.
        reason: String,
    },
    /// The same server was given as source and as target.
    #[error("{server} is both source and target; specify two servers")]
    SameServer {
        /// The server.
        server: String,
    },
    /// A check without a state file, or a repair, was cancelled.
    #[error(
        "the check or repair was interrupted; repaired rows stay repaired, but the results of a check are kept only with --state"
    )]
    InterruptedWithoutState,
    /// The account has no right to repair the target.
    #[error("{server} does not let this account repair it: {error}; {advice}")]
    RepairDenied {
        /// The target.
        server: String,
        /// The target's error.
        error: Box<ServerError>,
        /// What the user can do.
        advice: &'static str,
    },
    /// The target cannot create the deferred indexes of a table.
    #[error("cannot create the indexes of {table}, whose rows are loaded: {error}. {hint}")]
    IndexesRejected {
        /// The table.
        table: String,
        /// The server's error.
        error: Box<ServerError>,
        /// How the user can continue after fixing the cause.
        hint: ResumeHint,
    },
    /// A binary copy is not possible.
    #[error(
        "a binary copy is not possible: {reason}; nothing was changed. Without --binary the copy works row by row"
    )]
    BinaryUnsupported {
        /// The reason, and what the user can do.
        reason: String,
    },
    /// A binary copy failed.
    #[error("{what} failed: {reason}; {left}")]
    BinaryFailed {
        /// The operation that failed.
        what: String,
        /// The error of the operation.
        reason: String,
        /// What remains of the failed operation.
        left: String,
    },
    /// A binary copy was cancelled.
    #[error("the binary copy was interrupted; {left}")]
    BinaryInterrupted {
        /// What remains of the cancelled copy, and what the user can do.
        left: String,
    },
    /// A cloned server did not restart within the maximum wait.
    #[error(
        "{server} has all data, but did not restart within {seconds} s: start it. The last connection attempt failed: {reason}"
    )]
    RecipientDown {
        /// The server.
        server: String,
        /// For how many seconds the clone has waited.
        seconds: u64,
        /// The error of the last attempt to connect.
        reason: String,
    },
}

impl BulkError {
    /// Returns the stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Session(error) => error.code(),
            Self::File { .. } => "TW-BULK-0001",
            Self::Damaged { .. } => "TW-BULK-0002",
            Self::NewerFormat { .. } => "TW-BULK-0003",
            Self::Busy { .. } => "TW-BULK-0004",
            Self::UnexpectedAnswer { .. } => "TW-BULK-0005",
            Self::NoSnapshot { .. } => "TW-BULK-0006",
            Self::WritersBlocked { .. } => "TW-BULK-0007",
            Self::SnapshotMismatch { .. } => "TW-BULK-0008",
            Self::SnapshotLost { .. } => "TW-BULK-0009",
            Self::LongRunningStatement { .. } => "TW-BULK-0013",
            Self::SchemaChanged { .. } => "TW-BULK-0014",
            Self::FolderNotEmpty { .. } => "TW-BULK-0010",
            Self::Interrupted => "TW-BULK-0011",
            Self::ResumeImpossible { .. } => "TW-BULK-0012",
            Self::NotFound { .. } => "TW-BULK-0020",
            Self::DefinitionHidden { .. } => "TW-BULK-0021",
            Self::TablesExist { .. } => "TW-BULK-0022",
            Self::InterruptedLoad { .. } => "TW-BULK-0023",
            Self::LoadInProgress { .. } => "TW-BULK-0024",
            Self::IncompleteDump { .. } => "TW-BULK-0025",
            Self::MixedSnapshots { .. } => "TW-BULK-0026",
            Self::DefinitionRejected { .. } => "TW-BULK-0027",
            Self::RowsRejected { .. } => "TW-BULK-0028",
            Self::RowsAltered { .. } => "TW-BULK-0029",
            Self::RowsMissing { .. } => "TW-BULK-0030",
            Self::RowFormatUnsupported { .. } => "TW-BULK-0080",
            Self::ForeignDump { .. } => "TW-BULK-0082",
            Self::InsertsUnsupported { .. } => "TW-BULK-0083",
            Self::AccountsUnavailable { .. } => "TW-BULK-0084",
            Self::FlavourMismatch { .. } => "TW-BULK-0085",
            Self::StreamInterrupted => "TW-BULK-0081",
            Self::CopyInterrupted => "TW-BULK-0086",
            Self::GtidState { .. } => "TW-BULK-0031",
            Self::LocalInfileOff { .. } => "TW-BULK-0032",
            Self::PartialLoad { .. } => "TW-BULK-0035",
            Self::TablesDropped { .. } => "TW-BULK-0034",
            Self::TargetBehind { .. } => "TW-BULK-0040",
            Self::SyncUnknown { .. } => "TW-BULK-0041",
            Self::RowTooLong { .. } => "TW-BULK-0042",
            Self::StateFileExists { .. } => "TW-BULK-0043",
            Self::StateMismatch { .. } => "TW-BULK-0044",
            Self::SameServer { .. } => "TW-BULK-0045",
            Self::InterruptedWithoutState => "TW-BULK-0047",
            Self::RepairDenied { .. } => "TW-BULK-0046",
            Self::RowExceedsPacket { .. } => "TW-BULK-0061",
            Self::IndexesRejected { .. } => "TW-BULK-0060",
            Self::RowCountMismatch { .. } => "TW-BULK-0120",
            Self::BinaryUnsupported { .. } => "TW-BULK-0100",
            Self::BinaryFailed { .. } => "TW-BULK-0101",
            Self::RecipientDown { .. } => "TW-BULK-0102",
            Self::BinaryInterrupted { .. } => "TW-BULK-0103",
            Self::NothingSelected { .. } => "TW-BULK-0104",
            Self::MissingPrivilege { .. } => "TW-BULK-0105",
            Self::BinlogFormat { .. } => "TW-BULK-0106",
            Self::EngineMissing { .. } => "TW-BULK-0107",
        }
    }

    /// Changes the error for a copy whose data must have one point in time. Such a copy cannot be resumed and
    /// must start from scratch.
    pub fn of_one_point(mut self) -> Self {
        match &mut self {
            Self::Interrupted => return Self::CopyInterrupted,
            Self::InterruptedLoad { hint, .. }
            | Self::DefinitionRejected { hint, .. }
            | Self::RowsRejected { hint, .. }
            | Self::IndexesRejected { hint, .. } => *hint = ResumeHint::Restart,
            _ => {}
        }
        self
    }
}

/// Returns a function that creates the error for a failed action on a file.
pub fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BulkError + use<> {
    let path = path.to_owned();
    move |source| BulkError::File { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_copy_with_one_point_in_time_suggest_a_restart() {
        let refusal = || ServerError { number: 1064, sql_state: "42000".into(), message: "no".into() };
        let (table, path, hint) = (String::new, PathBuf::new, ResumeHint::Resume);
        for error in [
            BulkError::Interrupted,
            BulkError::InterruptedLoad { server: String::new(), hint },
            BulkError::DefinitionRejected {
                what: String::new(),
                path: path(),
                statement: String::new(),
                error: Box::new(refusal()),
                hint,
            },
            BulkError::RowsRejected {
                table: table(),
                path: path(),
                error: Box::new(SessionError::LoadBody),
                hint,
            },
            BulkError::IndexesRejected { table: table(), error: Box::new(refusal()), hint },
        ] {
            assert!(error.to_string().contains("--resume"), "the error does not suggest --resume: {error}");
            let error = error.of_one_point();
            let text = error.to_string();
            assert!(
                text.contains("--restart") && !text.contains("--resume"),
                "the error must suggest --restart and not --resume: {error}"
            );
        }
    }
}
