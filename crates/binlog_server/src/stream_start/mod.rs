//! Decides where a client's stream starts in the log, or why the server refuses the request. It does no I/O.
//!
//! The rules are those of the servers (`rpl_binlog_sender.cc` of MySQL, `sql_repl.cc` of MariaDB). The error
//! texts start with the servers' texts, because replicas and monitoring know them. Details about the log
//! follow. Tailwater adds one rule: a client that is ahead of the log first waits, because the log may lag
//! behind its source for a moment.

mod dump_request_parser;
mod mariadb_gtid_position;
mod mysql_auto_position;

use tailwater_log::LogPosition;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtidSet};

pub use dump_request_parser::{ClientDumpRequest, MariadbRequest, RequestedStart};
pub use mariadb_gtid_position::{MariadbSkip, SkipDomain};
pub(crate) use mariadb_gtid_position::{not_in_binlog, written_by};

use super::binlog_file_list::{Catalog, LocateError};
use super::client_error::{ClientError, quoted};
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// The data about the log on which the decision depends.
pub trait LogHistory {
    /// The flavour of the log's source.
    fn flavour(&self) -> Flavour;

    /// The binlog files that the log serves.
    fn catalog(&self) -> &Catalog;

    /// All durable transactions of the log, and all known transactions before its beginning.
    fn gtids(&self) -> GtidSet;

    /// All transactions before a segment, including those before the log's beginning. `None` if these
    /// transactions are unknown because the log began in the middle of a file. If a segment has its file from
    /// the start, the previous-GTIDs or GTID-list event of the file contains them.
    ///
    /// # Errors
    /// If the segment cannot be read. The error is sent to the client.
    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError>;

    /// The `server_uuid` of the server that is captured now (MySQL).
    fn source_uuid(&self) -> Option<[u8; 16]>;
}

/// Where the stream of a dump request starts, or why it does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartDecision {
    /// The stream starts at this position.
    Begin(StreamStart),
    /// The client is ahead of the log. It gets this error if the log does not catch up soon.
    Wait(ClientError),
    /// The client gets this error immediately.
    Refuse(ClientError),
}

impl StartDecision {
    fn refuse(message: impl Into<String>) -> Self {
        Self::Refuse(ClientError::dump(message))
    }

    fn wait(message: impl Into<String>) -> Self {
        Self::Wait(ClientError::dump(message))
    }
}

/// Where a stream starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStart {
    /// The first entry to process. For the beginning of a segment it is the position of the format
    /// description event.
    pub from: LogPosition,
    /// The served file that contains this entry.
    pub file: String,
    /// The offset in `file`, which the rotate event at the beginning of the stream contains.
    pub position: u64,
    /// The transactions to leave out of the stream.
    pub skip: SkipSet,
}

/// Which transactions after the start of its stream a client already has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipSet {
    /// Nothing, because the client requested the stream by position.
    Nothing,
    /// The transactions of a GTID set.
    Mysql {
        /// The transactions that the client has.
        has: MysqlGtidSet,
        /// Whether the client has transactions from after the start of the stream. Such a client has already
        /// received the format description event there. It must keep the temporary tables that it has created
        /// since.
        resumes: bool,
    },
    /// In each domain, all transactions up to a GTID.
    Mariadb(Box<MariadbSkip>),
}

/// Decides where a client's stream starts.
pub fn decide(request: &ClientDumpRequest, log: &dyn LogHistory) -> StartDecision {
    let decided = match &request.from {
        RequestedStart::FilePosition { file, position } => {
            Ok(by_position(file, *position, log).unwrap_or_else(|outcome| outcome))
        }
        RequestedStart::Mysql { has, file, position } if !file.is_empty() => {
            Ok(match by_position(file, *position, log) {
                Ok(StartDecision::Begin(begin)) => {
                    let resumes = begin.position > FIRST_EVENT_OFFSET;
                    StartDecision::Begin(StreamStart {
                        skip: SkipSet::Mysql { has: has.clone(), resumes },
                        ..begin
                    })
                }
                Ok(outcome) | Err(outcome) => outcome,
            })
        }
        RequestedStart::Mysql { has, position, .. } => mysql_auto_position::by_gtids(has, *position, log),
        RequestedStart::Mariadb(request) => mariadb_gtid_position::by_gtids(request, log),
    };
    decided.unwrap_or_else(StartDecision::Refuse)
}

const NO_SUCH_FILE: &str = "Could not find first log file name in binary log index file";

fn empty(log: &dyn LogHistory) -> StartDecision {
    let nothing = match log.flavour() {
        Flavour::MySql => "the log of its source is still empty",
        Flavour::MariaDb => "the log of its master is still empty",
    };
    StartDecision::wait(format!("{NO_SUCH_FILE}; {nothing}"))
}

fn by_position(name: &str, position: u64, log: &dyn LogHistory) -> Result<StartDecision, StartDecision> {
    let catalog = log.catalog();
    let (Some(oldest), Some(newest)) = (catalog.files().first(), catalog.files().last()) else {
        return Err(empty(log));
    };
    // An empty name requests the oldest file, from the first offset of this file that the log has.
    let (file, position) = match name {
        "" if position == FIRST_EVENT_OFFSET => (oldest.name.as_str(), oldest.begins_at()),
        "" => (oldest.name.as_str(), position),
        name => (name, position),
    };
    let shown = quoted(file);
    let words = |mysql: &str| match log.flavour() {
        Flavour::MySql => mysql.to_owned(),
        Flavour::MariaDb => format!(
            "Client requested master to start replication from impossible position; the first event '{shown}' \
             at {position}, the last event read from '{shown}' at 4, the last byte read from '{shown}' at 4."
        ),
    };
    let reason = match catalog.locate(file, position) {
        Ok(from) => {
            let skip = SkipSet::Nothing;
            return Ok(StartDecision::Begin(StreamStart { from, file: file.to_owned(), position, skip }));
        }
        Err(reason) => reason,
    };
    Err(match reason {
        LocateError::UnknownFile if follows(file, &newest.name) => StartDecision::wait(NO_SUCH_FILE),
        LocateError::UnknownFile => StartDecision::refuse(NO_SUCH_FILE),
        LocateError::BeforeFirst => {
            StartDecision::refuse(words("Client requested source to start replication from position < 4"))
        }
        LocateError::PastEnd { size } => {
            let message = words("Client requested source to start replication from position > file size");
            match catalog.file(file).is_some_and(|file| file.is_open()) {
                true => StartDecision::wait(format!("{message} (the log has {file} up to {size})")),
                false => StartDecision::refuse(format!("{message} ({file} ends at {size})")),
            }
        }
        LocateError::NotCaptured { begins_at } => StartDecision::refuse(format!(
            "{NO_SUCH_FILE}: the log has {file} only from position {begins_at} on, where its capture began, \
             and the client requests position {position}; start from there, or read the part before it from \
             the source itself"
        )),
        LocateError::Hole => StartDecision::refuse(format!(
            "{NO_SUCH_FILE}: position {position} of {file} is in a part that the log captured from another \
             server's file; connect by GTIDs"
        )),
    })
}

/// Whether the file `name` may be a later file of the source than the newest file of the log.
fn follows(name: &str, newest: &str) -> bool {
    match (name.rsplit_once('.'), newest.rsplit_once('.')) {
        (Some((base, number)), Some((newest_base, newest_number))) => {
            base == newest_base
                && matches!((number.parse::<u64>(), newest_number.parse::<u64>()), (Ok(a), Ok(b)) if a > b)
        }
        _ => false,
    }
}

/// Returns the decision to start the stream at the beginning of a segment.
fn at_segment(segment: u64, log: &dyn LogHistory, skip: SkipSet) -> Option<StartDecision> {
    let from = LogPosition { segment, offset: FIRST_EVENT_OFFSET };
    let place = log.catalog().place(from)?;
    Some(StartDecision::Begin(StreamStart { from, file: place.file, position: place.position, skip }))
}

/// The numbers of the log's segments, newest first.
fn newest_first(log: &dyn LogHistory) -> impl Iterator<Item = u64> {
    let files = log.catalog().files().iter().rev();
    files.flat_map(|file| file.segments.iter().rev().map(|segment| segment.number))
}

/// Returns the error for a client that uses GTIDs if the log does not know which transactions came before it.
fn unknown_beginning(log: &dyn LogHistory) -> String {
    let place = log.catalog().files().first();
    let place = place.map_or(String::new(), |file| format!(", {}:{}", file.name, file.begins_at()));
    format!(
        "the log began in the middle of a file{place} and does not know the transactions before it; connect \
         by file and position, or begin a new log at the start of a file"
    )
}

#[cfg(test)]
mod tests;
