//! Decides where a capture continues after a restart of either side, or why it must not. Pure.
//!
//! The rule: nothing may be missing between the log and the next event, and the source's history must contain
//! the log's. If both are the same server, the stream begins with the log's last transaction again, so that
//! its bytes can be compared. Another server is followed by GTID only.
//!
//! The source is queried as little as possible beforehand. While commits wait for an ACK, the server may hold
//! the lock on its binlog (in MariaDB's group commit, and in MySQL's rotation). A query for its list of
//! binlog files would then wait for commits that wait for this capture. The stream is therefore requested
//! first, and the list is queried only if the request was refused.

use std::path::PathBuf;

use tailwater_log::SourceIdentity;
use tailwater_wire::event::FIRST_EVENT_OFFSET;
use tailwater_wire::gtid::GtidSet;

use crate::CaptureError;
use crate::stream_position::LogTail;

/// The extent of the log.
#[derive(Debug, Clone)]
pub struct LogCoverage {
    /// Where it ends in the source's files, and which server that was; `None` while it is empty.
    pub tail: Option<(LogTail, SourceIdentity)>,
    /// The segment that holds the overlap, if the overlap is the segment's beginning and not the log's last
    /// transaction.
    pub head: Option<PathBuf>,
    /// Every transaction in it, including those of purged segments.
    pub gtids: GtidSet,
    /// The source reported that its file is torn after the log's end: it was killed while it wrote there. The
    /// unfinished event was never committed; the source continues in its next file.
    pub torn: bool,
}

/// What the source states before the stream begins.
#[derive(Debug, Clone)]
pub struct SourceState {
    /// Which server it is.
    pub identity: SourceIdentity,
    /// Its binlog files with their sizes in bytes, oldest first; `None` if not queried.
    pub binlogs: Option<Vec<(String, u64)>>,
    /// The binlog file that it writes now; `None` if not queried.
    pub current_binlog: Option<String>,
    /// Every transaction it has written or applied (`gtid_executed`; `gtid_binlog_state` and
    /// `gtid_slave_pos`); `None` where GTIDs are off.
    pub gtids: Option<GtidSet>,
    /// The transactions that its binlog files no longer hold (`gtid_purged`); `None` where it does not state
    /// them.
    pub gtids_purged: Option<GtidSet>,
}

/// Where an empty log begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartPolicy {
    /// The start of the binlog file that the source writes now.
    Current,
    /// The start of the oldest binlog file that the source has.
    Oldest,
    /// An offset in a file.
    Position {
        /// Name of a binlog file of the source.
        file: String,
        /// Offset of an event in it; 4 is the first.
        position: u64,
    },
}

/// How to request the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumePoint {
    /// By file and offset.
    FilePosition {
        /// The source's file; empty for its oldest.
        file: String,
        /// Offset in it of the first event wanted.
        position: u64,
    },
    /// By GTIDs: everything that is not in the log's set.
    Gtid,
}

/// Decides how to continue.
///
/// # Errors
/// [`CaptureError::WrongFlavour`], [`CaptureError::Rewound`], [`CaptureError::Purged`]: each names the cause;
/// a retry does not help.
pub fn decide(
    log: &LogCoverage,
    source: &SourceState,
    start: &StartPolicy,
) -> Result<ResumePoint, CaptureError> {
    let Some((tail, identity)) = &log.tail else {
        return begin(source, start);
    };
    check_history(log, identity, source)?;
    if identity.same_server(&source.identity) {
        if log.torn {
            return resume_after_torn_file(tail, source);
        }
        if let Some(position) = resume_in_file(tail, source)? {
            return Ok(ResumePoint::FilePosition { file: tail.file.clone(), position });
        }
    }
    check_purged(log, tail, source)?;
    Ok(ResumePoint::Gtid)
}

/// Checks that the source has the log's flavour and every transaction of the log.
fn check_history(
    log: &LogCoverage,
    identity: &SourceIdentity,
    source: &SourceState,
) -> Result<(), CaptureError> {
    if identity.flavour != source.identity.flavour {
        return Err(CaptureError::WrongFlavour {
            log: identity.flavour,
            source_flavour: source.identity.flavour,
        });
    }
    let Some(gtids) = &source.gtids else { return Ok(()) };
    let missing = log.gtids.subtract(gtids).map_err(CaptureError::gtids)?;
    if missing.is_empty() {
        return Ok(());
    }
    Err(CaptureError::Rewound {
        missing: missing.to_string(),
        detail: "its GTID set lacks transactions that the log has".into(),
    })
}

/// Continues at the start of the file after the torn one.
fn resume_after_torn_file(tail: &LogTail, source: &SourceState) -> Result<ResumePoint, CaptureError> {
    let next = match &source.binlogs {
        Some(files) => {
            files.iter().skip_while(|(file, _)| *file != tail.file).nth(1).map(|(file, _)| file.clone())
        }
        // The list is not available. Files are numbered consecutively; if the next one does not exist yet,
        // the source refuses the stream.
        None => next_file(&tail.file),
    };
    match next {
        Some(file) => Ok(ResumePoint::FilePosition { file, position: FIRST_EVENT_OFFSET }),
        None => Err(CaptureError::TornTail { file: tail.file.clone() }),
    }
}

/// The offset at which to continue in the log's last file; `None` if the source does not have that file any
/// more, or the protocol cannot express the offset.
fn resume_in_file(tail: &LogTail, source: &SourceState) -> Result<Option<u64>, CaptureError> {
    if let Some(binlogs) = &source.binlogs {
        match (binlogs.iter().find(|(file, _)| *file == tail.file), binlogs.last()) {
            (Some((file, size)), _) if *size < tail.end => {
                return Err(CaptureError::Rewound {
                    missing: format!("{file}:{size} to {}", tail.end),
                    detail: "its binlog file is shorter than what the log has of it".into(),
                });
            }
            (Some(_), _) => {}
            (None, Some((last, _))) if number(last) < number(&tail.file) => {
                return Err(CaptureError::Rewound {
                    missing: format!("{} and everything else after {last}", tail.file),
                    detail: "its newest binlog file comes before the log's".into(),
                });
            }
            (None, _) => return Ok(None),
        }
    }
    let position = tail.overlap.map_or(tail.end, |last| last.start);
    // The protocol's positions end at 4 GiB; only one huge transaction makes a file that long.
    Ok(u32::try_from(position).is_ok().then_some(position))
}

/// Checks that a stream by GTIDs would lack nothing after the log.
fn check_purged(log: &LogCoverage, tail: &LogTail, source: &SourceState) -> Result<(), CaptureError> {
    if source.gtids.is_none() {
        return Err(CaptureError::Purged {
            needed: format!("{}:{}", tail.file, tail.end),
            detail: "the source does not have that file, or it lies beyond 4 GiB, and without GTIDs there is no other way to continue".into(),
        });
    }
    let Some(purged) = &source.gtids_purged else { return Ok(()) };
    let lost = purged.subtract(&log.gtids).map_err(CaptureError::gtids)?;
    if lost.is_empty() {
        return Ok(());
    }
    Err(CaptureError::Purged {
        needed: lost.to_string(),
        detail: "the source has purged these transactions, and the log does not have them".into(),
    })
}

/// The error for a source that refuses to stream what comes after the log's GTIDs.
pub(crate) fn refused_by_gtid(log: &LogCoverage, words: &str) -> CaptureError {
    // MariaDB has other transactions under the log's GTIDs; MySQL has fewer.
    if words.contains("is not in the master's binlog") || words.contains("has more GTIDs") {
        return CaptureError::Rewound { missing: format!("some of {}", log.gtids), detail: words.to_owned() };
    }
    CaptureError::Purged { needed: format!("what comes after {}", log.gtids), detail: words.to_owned() }
}

/// The number at the end of a binlog file's name.
pub(crate) fn number(file: &str) -> Option<u64> {
    file.rsplit_once('.')?.1.parse().ok()
}

fn next_file(file: &str) -> Option<String> {
    let (base, digits) = file.rsplit_once('.')?;
    let next = digits.parse::<u64>().ok()?.checked_add(1)?;
    Some(format!("{base}.{next:0width$}", width = digits.len()))
}

fn begin(source: &SourceState, start: &StartPolicy) -> Result<ResumePoint, CaptureError> {
    let (file, position) = match start {
        StartPolicy::Position { file, position } => (file.clone(), *position),
        StartPolicy::Current => {
            (source.current_binlog.clone().ok_or(CaptureError::NoBinlog)?, FIRST_EVENT_OFFSET)
        }
        // A server opens its oldest file if the name is empty.
        StartPolicy::Oldest => (String::new(), FIRST_EVENT_OFFSET),
    };
    Ok(ResumePoint::FilePosition { file, position })
}

#[cfg(test)]
mod tests {
    use tailwater_wire::Flavour;

    use super::*;
    use crate::stream_position::Overlap;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn gtids(text: &str) -> GtidSet {
        GtidSet::parse(Flavour::MySql, text).unwrap()
    }

    fn identity(uuid: &str) -> SourceIdentity {
        let server_version = "test".to_owned();
        SourceIdentity {
            flavour: Flavour::MySql,
            server_uuid: Some(uuid.into()),
            server_id: 1,
            server_version,
        }
    }

    fn log(set: &str) -> LogCoverage {
        let overlap = Some(Overlap { start: 600, end: 900 });
        let tail = LogTail { file: "b.2".into(), end: 900, overlap };
        LogCoverage { tail: Some((tail, identity(UUID))), head: None, gtids: gtids(set), torn: false }
    }

    fn source(set: &str) -> SourceState {
        SourceState {
            identity: identity(UUID),
            binlogs: Some(vec![("b.1".into(), 500), ("b.2".into(), 2000), ("b.3".into(), 200)]),
            current_binlog: Some("b.3".into()),
            gtids: Some(gtids(set)),
            gtids_purged: Some(gtids("")),
        }
    }

    fn at(file: &str, position: u64) -> ResumePoint {
        ResumePoint::FilePosition { file: file.into(), position }
    }

    #[test]
    fn empty_log_begins_as_configured() {
        let empty = LogCoverage { tail: None, head: None, gtids: gtids(""), torn: false };
        let check = |start, expected| assert_eq!(decide(&empty, &source(""), &start).unwrap(), expected);
        check(StartPolicy::Current, at("b.3", 4));
        check(StartPolicy::Oldest, at("", 4));
        check(StartPolicy::Position { file: "b.2".into(), position: 700 }, at("b.2", 700));
        let mut unlogged = source("");
        unlogged.current_binlog = None;
        assert!(matches!(decide(&empty, &unlogged, &StartPolicy::Current), Err(CaptureError::NoBinlog)));
    }

    #[test]
    fn same_server_continues_by_position_and_repeats_the_last_transaction() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.2", 600));
        source.binlogs = None;
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.2", 600));
    }

    #[test]
    fn source_that_lacks_transactions_of_the_log_is_refused_with_their_gtids() {
        let log = log(&format!("{UUID}:1-9"));
        match decide(&log, &source(&format!("{UUID}:1-7")), &StartPolicy::Current) {
            Err(CaptureError::Rewound { missing, .. }) => assert_eq!(missing, format!("{UUID}:8-9")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn file_shorter_than_the_log_is_a_rewound_source_even_without_gtids() {
        let mut source = source("");
        source.gtids = None;
        source.binlogs = Some(vec![("b.2".into(), 899)]);
        let result = decide(&log(""), &source, &StartPolicy::Current);
        assert!(matches!(result, Err(CaptureError::Rewound { .. })), "{result:?}");
    }

    #[test]
    fn older_newest_file_is_a_rewound_source() {
        let mut source = source("");
        source.gtids = None;
        source.binlogs = Some(vec![("b.1".into(), 899)]);
        let result = decide(&log(""), &source, &StartPolicy::Current);
        assert!(matches!(result, Err(CaptureError::Rewound { .. })), "{result:?}");
    }

    #[test]
    fn files_are_numbered_consecutively() {
        assert_eq!(next_file("b.000009").as_deref(), Some("b.000010"));
        assert_eq!(next_file("my.bin.999999").as_deref(), Some("my.bin.1000000"));
        assert_eq!(next_file("b"), None);
        assert!(number("b.999999") < number("b.1000000"));
    }

    #[test]
    fn purged_file_continues_by_gtid_only_if_nothing_is_lost() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        source.binlogs = Some(vec![("b.3".into(), 200)]);
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.gtids_purged = Some(gtids(&format!("{UUID}:1-9")));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.gtids_purged = Some(gtids(&format!("{UUID}:1-10")));
        match decide(&log, &source, &StartPolicy::Current) {
            Err(CaptureError::Purged { needed, .. }) => assert_eq!(needed, format!("{UUID}:10")),
            other => panic!("{other:?}"),
        }
        source.gtids = None;
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(matches!(result, Err(CaptureError::Purged { .. })), "{result:?}");
    }

    #[test]
    fn torn_file_is_followed_by_the_next_file() {
        let mut log = log(&format!("{UUID}:1-9"));
        log.torn = true;
        let mut source = source(&format!("{UUID}:1-20"));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.3", 4));
        source.binlogs = None;
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.3", 4));
        source.binlogs = Some(vec![("b.2".into(), 2000)]);
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(matches!(result, Err(CaptureError::TornTail { .. })), "{result:?}");
    }

    #[test]
    fn other_server_is_followed_by_gtid() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        source.identity = identity("00000000-0000-0000-0000-000000000001");
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.identity.flavour = Flavour::MariaDb;
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(matches!(result, Err(CaptureError::WrongFlavour { .. })), "{result:?}");
    }
}
