//! Decides where a capture continues after a restart of the source or of the capture, or why it must not
//! continue. It does no I/O.
//!
//! The rule: no event may be missing between the log and the stream, and the source must have every
//! transaction of the log. If the source is the same server as before, the stream starts with the log's last
//! transaction again, so that its bytes can be compared. If it is another server, the capture requests the
//! stream by GTIDs only.
//!
//! Before the stream starts, the capture queries the source as little as possible. While commits wait for an
//! ACK, the server may hold the lock on its binlog (in MariaDB's group commit, and in MySQL's rotation). A
//! query for the list of binlog files would then wait for commits that wait for an ACK of this capture. So
//! the capture first requests the stream. It queries the list only if the source refuses the request.

use std::path::PathBuf;

use tailwater_log::SourceIdentity;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;
use tailwater_wire::gtid::GtidSet;

use crate::CaptureError;
use crate::binlog_stream_position::LogTail;

/// Which part of the source's binlog the log contains.
#[derive(Debug, Clone)]
pub struct LogCoverage {
    /// Where the log ends in the source's binlog files, and which server the source was. `None` while the log
    /// is empty.
    pub tail: Option<(LogTail, SourceIdentity)>,
    /// The file of the newest segment, if the stream repeats the beginning of this segment (the overlap).
    /// `None` if the overlap is the log's last transaction.
    pub head: Option<PathBuf>,
    /// All transactions of the log, including the transactions in purged segments.
    pub gtids: GtidSet,
    /// Whether the source reported that its binlog file ends in the middle of an event, after the end of the
    /// log. The source was killed while it wrote this event, so the event was never committed. The source
    /// continues in its next file.
    pub torn: bool,
}

/// What the capture knows about the source before the stream starts.
#[derive(Debug, Clone)]
pub struct SourceState {
    /// Which server the source is.
    pub identity: SourceIdentity,
    /// The source's binlog files with their sizes in bytes, oldest first. `None` if the capture did not query
    /// them.
    pub binlogs: Option<Vec<(String, u64)>>,
    /// The binlog file that the source writes now. `None` if the capture did not query it.
    pub current_binlog: Option<String>,
    /// All transactions that the source has written itself or applied as a replica: `gtid_executed` on MySQL;
    /// `gtid_binlog_state` and `gtid_slave_pos` on MariaDB. `None` if GTIDs are off.
    pub gtids: Option<GtidSet>,
    /// The transactions that the source has purged from its binlog files (`gtid_purged`). `None` if the
    /// source does not report them.
    pub gtids_purged: Option<GtidSet>,
}

/// Where the capture of an empty log starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartPolicy {
    /// The start of the binlog file that the source writes now.
    Current,
    /// The start of the oldest binlog file that the source has.
    Oldest,
    /// An offset in a binlog file.
    Position {
        /// The name of a binlog file of the source.
        file: String,
        /// The offset of an event in the file; the first event is at 4.
        position: u64,
    },
}

/// How to request the stream from the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResumePoint {
    /// By one of the source's binlog files and an offset in it.
    FilePosition {
        /// The source's binlog file; empty for its oldest file.
        file: String,
        /// The offset in the file at which the first event starts.
        position: u64,
    },
    /// By GTIDs: the source sends all transactions that are not in the log's GTID set.
    Gtid,
}

/// Decides from which position the capture continues.
///
/// # Errors
/// [`CaptureError::WrongFlavour`], [`CaptureError::Rewound`], [`CaptureError::Purged`]. A retry does not
/// help.
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
        detail: "the source's GTID set lacks transactions that the log has".into(),
    })
}

/// Continues at the start of the binlog file that follows the torn file.
fn resume_after_torn_file(tail: &LogTail, source: &SourceState) -> Result<ResumePoint, CaptureError> {
    let next = match &source.binlogs {
        Some(files) => {
            files.iter().skip_while(|(file, _)| *file != tail.file).nth(1).map(|(file, _)| file.clone())
        }
        // The list of files is not available. Files are numbered consecutively, so this is the next name. If
        // that file does not exist yet, the source refuses the stream.
        None => next_file(&tail.file),
    };
    match next {
        Some(file) => Ok(ResumePoint::FilePosition { file, position: FIRST_EVENT_OFFSET }),
        None => Err(CaptureError::TornTail { file: tail.file.clone() }),
    }
}

/// The offset at which to continue in the log's last file. `None` if the source does not have this file any
/// more, or if the protocol cannot express the offset.
fn resume_in_file(tail: &LogTail, source: &SourceState) -> Result<Option<u64>, CaptureError> {
    if let Some(binlogs) = &source.binlogs {
        match (binlogs.iter().find(|(file, _)| *file == tail.file), binlogs.last()) {
            (Some((file, size)), _) if *size < tail.end => {
                return Err(CaptureError::Rewound {
                    missing: format!("{file}:{size} to {}", tail.end),
                    detail: "the source's copy of this binlog file is shorter than the log's copy".into(),
                });
            }
            (Some(_), _) => {}
            (None, Some((last, _))) if number(last) < number(&tail.file) => {
                return Err(CaptureError::Rewound {
                    missing: format!("{} and everything else after {last}", tail.file),
                    detail: "the source's newest binlog file is older than the last file of the log".into(),
                });
            }
            (None, _) => return Ok(None),
        }
    }
    let position = tail.overlap.map_or(tail.end, |last| last.start);
    // The protocol has 32 bits for a position. Only a single huge transaction makes a binlog file longer than
    // 4 GiB.
    Ok(u32::try_from(position).is_ok().then_some(position))
}

/// Checks that the source can still send every transaction after the end of the log, if the stream is
/// requested by GTIDs.
fn check_purged(log: &LogCoverage, tail: &LogTail, source: &SourceState) -> Result<(), CaptureError> {
    if source.gtids.is_none() {
        return Err(CaptureError::Purged {
            needed: format!("{}:{}", tail.file, tail.end),
            detail: "the source no longer has this file, or the position is beyond 4 GiB; without GTIDs the capture cannot continue in another way".into(),
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

/// The error for a source that refuses to send the transactions after the log's GTIDs.
pub(crate) fn refused_by_gtid(log: &LogCoverage, words: &str) -> CaptureError {
    // Both messages mean that the source has lost transactions of the log. MariaDB sends the first message if
    // the source has other transactions under the same GTIDs. MySQL sends the second message if transactions
    // are missing.
    if words.contains("is not in the master's binlog") || words.contains("has more GTIDs") {
        return CaptureError::Rewound { missing: format!("some of {}", log.gtids), detail: words.to_owned() };
    }
    CaptureError::Purged { needed: format!("the transactions after {}", log.gtids), detail: words.to_owned() }
}

/// The number at the end of a binlog file's name, such as 7 for `binlog.000007`.
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
        // With an empty file name, the server starts at its oldest binlog file.
        StartPolicy::Oldest => (String::new(), FIRST_EVENT_OFFSET),
    };
    Ok(ResumePoint::FilePosition { file, position })
}

#[cfg(test)]
mod tests {
    use tailwater_wire::Flavour;

    use super::*;
    use crate::binlog_stream_position::Overlap;

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
    fn an_empty_log_starts_where_the_configuration_says() {
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
    fn the_same_server_continues_by_position_and_repeats_the_last_transaction() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.2", 600));
        source.binlogs = None;
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.2", 600));
    }

    #[test]
    fn a_source_that_lacks_transactions_of_the_log_is_refused_with_their_gtids() {
        let log = log(&format!("{UUID}:1-9"));
        match decide(&log, &source(&format!("{UUID}:1-7")), &StartPolicy::Current) {
            Err(CaptureError::Rewound { missing, .. }) => assert_eq!(missing, format!("{UUID}:8-9")),
            other => panic!("the decision about the resume position is wrong: {other:?}"),
        }
    }

    #[test]
    fn a_file_shorter_than_the_log_means_a_rewound_source_even_without_gtids() {
        let mut source = source("");
        source.gtids = None;
        source.binlogs = Some(vec![("b.2".into(), 899)]);
        let result = decide(&log(""), &source, &StartPolicy::Current);
        assert!(
            matches!(result, Err(CaptureError::Rewound { .. })),
            "the decision about the resume position is wrong: {result:?}"
        );
    }

    #[test]
    fn a_newest_file_older_than_the_logs_means_a_rewound_source() {
        let mut source = source("");
        source.gtids = None;
        source.binlogs = Some(vec![("b.1".into(), 899)]);
        let result = decide(&log(""), &source, &StartPolicy::Current);
        assert!(
            matches!(result, Err(CaptureError::Rewound { .. })),
            "the decision about the resume position is wrong: {result:?}"
        );
    }

    #[test]
    fn binlog_files_are_numbered_consecutively() {
        assert_eq!(next_file("b.000009").as_deref(), Some("b.000010"));
        assert_eq!(next_file("my.bin.999999").as_deref(), Some("my.bin.1000000"));
        assert_eq!(next_file("b"), None);
        assert!(number("b.999999") < number("b.1000000"));
    }

    #[test]
    fn after_a_purge_the_log_continues_by_gtid_only_if_nothing_is_lost() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        source.binlogs = Some(vec![("b.3".into(), 200)]);
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.gtids_purged = Some(gtids(&format!("{UUID}:1-9")));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.gtids_purged = Some(gtids(&format!("{UUID}:1-10")));
        match decide(&log, &source, &StartPolicy::Current) {
            Err(CaptureError::Purged { needed, .. }) => assert_eq!(needed, format!("{UUID}:10")),
            other => panic!("the decision about the resume position is wrong: {other:?}"),
        }
        source.gtids = None;
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(
            matches!(result, Err(CaptureError::Purged { .. })),
            "the decision about the resume position is wrong: {result:?}"
        );
    }

    #[test]
    fn after_a_torn_file_the_capture_continues_in_the_next_file() {
        let mut log = log(&format!("{UUID}:1-9"));
        log.torn = true;
        let mut source = source(&format!("{UUID}:1-20"));
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.3", 4));
        source.binlogs = None;
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), at("b.3", 4));
        source.binlogs = Some(vec![("b.2".into(), 2000)]);
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(
            matches!(result, Err(CaptureError::TornTail { .. })),
            "the decision about the resume position is wrong: {result:?}"
        );
    }

    #[test]
    fn a_different_server_is_followed_by_gtid() {
        let log = log(&format!("{UUID}:1-9"));
        let mut source = source(&format!("{UUID}:1-20"));
        source.identity = identity("00000000-0000-0000-0000-000000000001");
        assert_eq!(decide(&log, &source, &StartPolicy::Current).unwrap(), ResumePoint::Gtid);
        source.identity.flavour = Flavour::MariaDb;
        let result = decide(&log, &source, &StartPolicy::Current);
        assert!(
            matches!(result, Err(CaptureError::WrongFlavour { .. })),
            "the decision about the resume position is wrong: {result:?}"
        );
    }
}
