//! What can go wrong with a dump or a load.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_session::{PrivateText, ServerError, SessionError};

/// How what an error has ended is brought to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeHint {
    /// What is there is gone on behind.
    Resume,
    /// It is to be of one point in time, which what is there would not be.
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
    fn behind_an_earlier(self) -> &'static str {
        match self {
            Self::Resume => {
                "continue with --resume, or start from scratch: a copy with --restart, a load after dropping what it made"
            }
            Self::Restart => "start from scratch with --restart, which drops what was copied",
        }
    }
}

/// Why a dump or a load could not go on. What was finished before is kept, and gone on behind.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// The connection to a server failed or broke, or a statement did.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file of a dump is not what was written.
    #[error("{}: {reason}; it is damaged or not of a dump", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// A newer version wrote the dump.
    #[error("{}: format {found}, and this version reads up to {known}; use a newer Tailwater", path.display())]
    NewerFormat {
        /// The dump's manifest.
        path: PathBuf,
        /// The format it names.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// Another process works in the folder.
    #[error("another process works in {}; wait for it, or take another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A server answered what makes no sense.
    #[error("{table}: the server's answer makes no sense: {reason}; report it with the table's definition")]
    UnexpectedAnswer {
        /// The table.
        table: String,
        /// What was asked.
        reason: String,
    },
    /// Rows are missing, or there twice, by a count that does not depend on how they were read.
    #[error("{table}: {reason}; it is not finished. Try again, and report it with the table's definition")]
    RowCountMismatch {
        /// The table.
        table: String,
        /// How the counts differ.
        reason: String,
    },
    /// No way to the same point in time on all connections is open.
    #[error(
        "no consistent snapshot: {reasons}; grant RELOAD (and BACKUP_ADMIN on MySQL) or LOCK TABLES, or try at a quieter time"
    )]
    NoSnapshot {
        /// What was tried, and why it did not work.
        reasons: String,
    },
    /// Writers would have waited for too long.
    #[error("writers waited for {} ms, and the snapshot was given up", waited.as_millis())]
    WritersBlocked {
        /// How long they did.
        waited: Duration,
    },
    /// Commits kept coming between the snapshots.
    #[error("snapshots opened without a lock were never at the same place of the binlog in {tries} tries")]
    SnapshotMismatch {
        /// How often they were opened.
        tries: u32,
    },
    /// What there is changed while it was listed.
    #[error("definitions change while a snapshot is taken: {reason}")]
    SchemaChanged {
        /// What was seen of it.
        reason: String,
    },
    /// A lock would have waited behind a statement, and everybody behind the lock.
    #[error("a statement has run for {seconds} s on connection {id}, and a read lock would wait for it")]
    LongRunningStatement {
        /// The connection that runs it.
        id: u64,
        /// For how long.
        seconds: u64,
    },
    /// The transaction that everything was read in did not last.
    #[error(
        "{server} ended the transaction of the snapshot; what was read in it is not of one point in time: dump again"
    )]
    SnapshotLost {
        /// Where.
        server: String,
    },
    /// A folder for a new dump is not empty.
    #[error(
        "{} is not empty; go on with the interrupted dump in it with --resume, or take another folder",
        path.display()
    )]
    FolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// It was told to stop.
    #[error("interrupted; what is finished is kept: go on with --resume")]
    Interrupted,
    /// What was begun cannot be gone on with.
    #[error("{what} cannot be gone on with: {reason}; dump into another folder")]
    ResumeImpossible {
        /// What.
        what: String,
        /// Why not.
        reason: String,
    },
    /// Something that was asked for is not on the server.
    #[error("there is no {what} on {server}; check its name and whether the user may see it")]
    NotFound {
        /// What.
        what: String,
        /// Where.
        server: String,
    },
    /// The server does not show a definition to this user.
    #[error(
        "the server does not show the definition of {object} to this user; grant it SHOW_ROUTINE (MySQL), SELECT on \
         mysql.proc (MariaDB) or the right that the object's own kind needs"
    )]
    DefinitionHidden {
        /// What.
        object: String,
    },
    /// Tables of the dump are on the target already.
    #[error(
        "{server} has {count} of the tables already, {first} for one; nothing was changed. Drop them, or have `load` add to \
         them with --force-merge"
    )]
    TablesExist {
        /// Where.
        server: String,
        /// How many.
        count: usize,
        /// One of them.
        first: String,
    },
    /// An earlier load of the same dump was interrupted.
    #[error(
        "an earlier load or copy of the same into {server} was interrupted; {}",
        go_on.behind_an_earlier()
    )]
    InterruptedLoad {
        /// Where.
        server: String,
        /// What to do about it.
        go_on: ResumeHint,
    },
    /// Another process loads the same dump into the same server.
    #[error("another process loads this dump into {server}; wait for it, or stop it")]
    LoadInProgress {
        /// Where.
        server: String,
    },
    /// A dump that is not complete was to be loaded.
    #[error("{}: the dump is not complete, {tables} tables are missing or in parts; let it go on first", path.display())]
    IncompleteDump {
        /// The folder.
        path: PathBuf,
        /// How many tables are not finished.
        tables: usize,
    },
    /// A dump of several points in time was to be loaded.
    #[error(
        "{}: the dump was interrupted, and its data stands at {points} points in time; dump anew, or load it all the same \
         with --allow-mixed",
        path.display()
    )]
    MixedSnapshots {
        /// The folder.
        path: PathBuf,
        /// How many.
        points: usize,
    },
    /// The target refuses a definition.
    #[error(
        "cannot make {what} ({}): {error}; the statement begins: {statement}. {go_on}",
        path.display()
    )]
    DefinitionRejected {
        /// What was to be made.
        what: String,
        /// The script.
        path: PathBuf,
        /// The front of the statement.
        statement: String,
        /// The server's error.
        error: Box<ServerError>,
        /// What to do when that is mended.
        go_on: ResumeHint,
    },
    /// Rows cannot be loaded.
    #[error("cannot load {} into {table}: {error}. {go_on}", path.display())]
    RowsRejected {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<SessionError>,
        /// What to do when that is mended.
        go_on: ResumeHint,
    },
    /// A row is too long to be sent as values.
    #[error(
        "{}: a row of {table} has more than {bytes_max} bytes; the table goes on by LOAD DATA LOCAL",
        path.display()
    )]
    RowExceedsPacket {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// The longest row that can be sent so.
        bytes_max: usize,
    },
    /// Part of a file may be in a table that had rows of its own.
    #[error(
        "{table} was there before the load, its engine has no transactions, and the load of {} was cut short: what of its rows \
         is there cannot be told. Delete those that are, run {forget}, and go on with --resume",
        path.display()
    )]
    PartialLoad {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// The statement that makes the file one that was not begun with.
        forget: String,
    },
    /// Tables that an earlier load has made are gone.
    #[error(
        "{server}: an earlier load or copy of the same has made {count} tables that are not there any more, {first} for one; \
         nothing was changed. To begin from the beginning, drop the others, too"
    )]
    TablesDropped {
        /// Where.
        server: String,
        /// How many.
        count: usize,
        /// One of them.
        first: String,
    },
    /// Rows would not be in the table as they are in the file.
    #[error(
        "{} is not loaded: rows would be changed or left out in {table}, says the server ({warnings} warnings): {first}",
        path.display()
    )]
    RowsAltered {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// How many warnings.
        warnings: u16,
        /// The first of those that matter.
        first: PrivateText,
    },
    /// The target took fewer or more rows than the file holds.
    #[error("{} is not loaded: {table} took {found} rows of {wanted}", path.display())]
    RowsMissing {
        /// The table.
        table: String,
        /// The file.
        path: PathBuf,
        /// How many it took.
        found: u64,
        /// How many there are.
        wanted: u64,
    },
    /// A dump's rows are for others to load.
    #[error(
        "{}: its rows are {format}, and load takes tsv (tailwater dump --format tsv): run files of SQL with the stock client, \
         in the order of the manifest; CSV and Parquet are for other programs",
        path.display()
    )]
    RowFormatUnsupported {
        /// The folder.
        path: PathBuf,
        /// The format.
        format: &'static str,
    },
    /// Another tool's folder holds what is not understood.
    #[error("{}: a folder of {tool}: {reason}", path.display())]
    ForeignDump {
        /// The folder or a file of it.
        path: PathBuf,
        /// Who wrote it.
        tool: &'static str,
        /// What is not understood, and what to do.
        reason: String,
    },
    /// Rows that only `LOAD DATA` can convert were to be loaded by INSERT statements.
    #[error(
        "the rows of {table} are in a character set of their own, and are loaded by LOAD DATA LOCAL only: leave --inserts out"
    )]
    InsertsUnsupported {
        /// The table.
        table: String,
    },
    /// There are no accounts to dump or load.
    #[error("no accounts can be had: {reason}")]
    AccountsUnavailable {
        /// Why not.
        reason: String,
    },
    /// Something of a dump means nothing to a server of the other family.
    #[error("{what} cannot be loaded into a server of this family: {reason}. Nothing was changed")]
    FlavourMismatch {
        /// What: a table and its column, for one.
        what: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A dump into a stream was told to stop.
    #[error("interrupted; what was written is not a whole dump, and cannot be gone on with: dump again")]
    StreamInterrupted,
    /// A copy that is to tell the target which transactions it has was told to stop.
    #[error(
        "interrupted; the target is to have the data of one point in time: start from scratch with --restart, which drops what was copied"
    )]
    CopyInterrupted,
    /// The target cannot be told which transactions it has.
    #[error("the GTID state of the target cannot be set: {reason}; load without --set-gtid")]
    GtidState {
        /// Why.
        reason: String,
    },
    /// The target takes no `LOAD DATA LOCAL`.
    #[error(
        "{server} takes no LOAD DATA LOCAL (local_infile = OFF); run there: SET GLOBAL local_infile = ON, or load with \
         --inserts, which is slower"
    )]
    LocalInfileOff {
        /// Which.
        server: String,
    },
    /// The target's binlog would have statements, which no load can write.
    #[error(
        "{server} logs statements (binlog_format = STATEMENT), and this user may not have its own session log rows: {error}. \
         Grant it {privilege}, load without the binlog (--no-binlog), or set binlog_format = ROW there. Nothing was changed"
    )]
    BinlogFormat {
        /// Which.
        server: String,
        /// What the user needs.
        privilege: &'static str,
        /// What the server says.
        error: Box<ServerError>,
    },
    /// The target lacks the engine of a table.
    #[error(
        "{server} has no engine {engine}, which {table} needs: install it there, leave the table out, or alter its engine in \
         {}. Nothing was changed",
        path.display()
    )]
    EngineMissing {
        /// Which server.
        server: String,
        /// The engine.
        engine: String,
        /// The first table that needs it.
        table: String,
        /// The table's definition.
        path: PathBuf,
    },
    /// Nothing is there to be dumped, copied or compared.
    #[error(
        "nothing is selected on {server}: it has no tables of its own that this user may see, or all are excluded; check the \
         names, and what the user is granted"
    )]
    NothingSelected {
        /// Where.
        server: String,
    },
    /// The user does not see all that was asked for.
    #[error("this user does not see all of {what} on {server}: {lacking} is not granted. Grant it{instead}")]
    MissingPrivilege {
        /// What was asked for.
        what: String,
        /// Where.
        server: String,
        /// Privileges.
        lacking: String,
        /// What can be done without them, after "Grant it".
        instead: &'static str,
    },
    /// The target does not come to where the source was.
    #[error(
        "{target} has not come to where the source was in {seconds} s: {position}; is it replicating, without filters that \
         leave transactions out? Give it more time with --wait-max-s"
    )]
    TargetBehind {
        /// The target.
        target: String,
        /// How long it was waited for.
        seconds: u64,
        /// Where the source was.
        position: String,
    },
    /// It cannot be told whether the target has what the source had.
    #[error(
        "cannot tell whether {target} is where the source is: {reason}; choose --wait mark, which writes a row to the source \
         and waits for it, or --wait none if nobody writes"
    )]
    SyncUnknown {
        /// The target.
        target: String,
        /// Why not.
        reason: String,
    },
    /// Rows are too long for the server to make one text of them.
    #[error("{table}: {count} rows are too long to be compared on {server}; raise max_allowed_packet there")]
    RowTooLong {
        /// The table.
        table: String,
        /// Where.
        server: String,
        /// How many.
        count: u64,
    },
    /// A file for the state of a new check is there already.
    #[error("{}: holds the state of a check already; go on with it with --resume, or take another file", path.display())]
    StateFileExists {
        /// The file.
        path: PathBuf,
    },
    /// The state is of another check.
    #[error("{}: is the state of another check: {reason}; take another file", path.display())]
    StateMismatch {
        /// The file.
        path: PathBuf,
        /// In what it differs.
        reason: String,
    },
    /// Source and target are the same server.
    #[error("{server} is source and target; name two servers")]
    SameServer {
        /// The server.
        server: String,
    },
    /// A check without a state, or a repair, was told to stop.
    #[error("interrupted; rows that are repaired stay so, and of a check nothing is kept without --state")]
    InterruptedWithoutState,
    /// The target may not be repaired by this user.
    #[error("{server} does not let this user repair it: {error}; {advice}")]
    RepairDenied {
        /// The target.
        server: String,
        /// What the target says.
        error: Box<ServerError>,
        /// What to do.
        advice: &'static str,
    },
    /// Indexes that were left until all rows of their table are there cannot be made.
    #[error("cannot make the indexes of {table}, whose rows are there: {error}. {go_on}")]
    IndexesRejected {
        /// The table.
        table: String,
        /// The server's error.
        error: Box<ServerError>,
        /// What to do when that is mended.
        go_on: ResumeHint,
    },
    /// A server cannot be copied as its files lie.
    #[error("a binary copy is not possible: {reason}; nothing was changed. Without --binary rows are copied")]
    BinaryUnsupported {
        /// Why not, and what to do.
        reason: String,
    },
    /// What copies files gave up.
    #[error("{what} failed: {reason}; {left}")]
    BinaryFailed {
        /// Who.
        what: String,
        /// What it said.
        reason: String,
        /// What is left of it.
        left: String,
    },
    /// A copy of files was told to stop.
    #[error("interrupted; {left}")]
    BinaryInterrupted {
        /// What is left of it, and what to do.
        left: String,
    },
    /// A cloned server does not come back.
    #[error(
        "{server} has all of the copy, and did not come back within {seconds} s: start it. The last try said: {reason}"
    )]
    RecipientDown {
        /// Which.
        server: String,
        /// How long it was waited for.
        seconds: u64,
        /// Why it could not be asked.
        reason: String,
    },
}

impl BulkError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
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

    /// Of a copy that is to be of one point in time: what ended it cannot be gone on behind.
    pub(crate) fn of_one_point(mut self) -> Self {
        match &mut self {
            Self::Interrupted => return Self::CopyInterrupted,
            Self::InterruptedLoad { go_on, .. }
            | Self::DefinitionRejected { go_on, .. }
            | Self::RowsRejected { go_on, .. }
            | Self::IndexesRejected { go_on, .. } => *go_on = ResumeHint::Restart,
            _ => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_of_one_point_is_begun_anew() {
        let refusal = || ServerError { number: 1064, sql_state: "42000".into(), message: "no".into() };
        let (table, path, go_on) = (String::new, PathBuf::new, ResumeHint::Resume);
        for error in [
            BulkError::Interrupted,
            BulkError::InterruptedLoad { server: String::new(), go_on },
            BulkError::DefinitionRejected {
                what: String::new(),
                path: path(),
                statement: String::new(),
                error: Box::new(refusal()),
                go_on,
            },
            BulkError::RowsRejected {
                table: table(),
                path: path(),
                error: Box::new(SessionError::LoadBody),
                go_on,
            },
            BulkError::IndexesRejected { table: table(), error: Box::new(refusal()), go_on },
        ] {
            assert!(error.to_string().contains("--resume"), "{error}");
            let error = error.of_one_point();
            let said = error.to_string();
            assert!(said.contains("--restart") && !said.contains("--resume"), "{error}");
        }
    }
}
