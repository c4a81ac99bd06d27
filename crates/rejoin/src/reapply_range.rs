//! Determines the redo range: the part of the log that a server must reapply. It starts where the content of
//! the server's tables is no longer certain. It ends with the last transaction that native replication would
//! skip.

use std::collections::HashSet;
use std::time::Duration;

use tailwater_log::{LogDir, LogEntry, LogPosition, SegmentSummary};
use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventBody, EventHeader, EventType, FormatDescription, MariadbGtidEvent,
    strip_checksum,
};
use tailwater_wire::gtid::{Gtid, GtidSet};

use crate::common_gtids::Identity;
use crate::ddl_durability_rules::{DdlEvidence, classify};
use crate::error::RejoinError;
use tailwater_apply::source_transaction::{ApplyStep, Transaction, TransactionContent};
use tailwater_apply::transaction_decoder::statement_classifier::defines;

pub(crate) use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// The longest DDL statement that is examined, in bytes. A longer statement proves nothing.
const STATEMENT_BYTES_MAX: u32 = 1 << 20;

/// The redo range: the part of the log that a server must reapply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedoRange {
    /// The log segment at which reading starts. Reading starts before `from`, because the reader also needs
    /// events between transactions, such as the format description event.
    pub segment: u64,
    /// Start of the first transaction of the range.
    pub from: LogPosition,
    /// End of the last transaction of the range; equal to `from` if the range is empty.
    pub until: LogPosition,
    /// The GTID set of the server after the range is applied.
    pub gtids: GtidSet,
    /// Number of transactions of the range that are missing in the server's GTID set.
    pub lost: u64,
}

/// A transaction of the log, and whether the rejoining server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScannedTransaction {
    position: LogPosition,
    end: LogPosition,
    commit_time_us: u64,
    has: bool,
    own: bool,
    /// What the transaction proves, if it is a DDL statement.
    definition: Option<DdlEvidence>,
}

impl ScannedTransaction {
    fn is_proof(&self) -> bool {
        self.has && self.definition == Some(DdlEvidence::Flushed)
    }

    /// Whether the transaction is a DDL statement that can neither be reapplied nor be skipped.
    fn blocks_redo(&self) -> bool {
        match self.definition {
            Some(definition) => !self.has || definition == DdlEvidence::Unknown,
            None => false,
        }
    }
}

/// Computes the redo range from the transactions of the log, which it takes in order.
#[derive(Debug, Default)]
struct RedoScan {
    /// Log position at which the last DDL statement ends for which the server's storage engine flushed its
    /// own log. That flush made all earlier commits durable. `None` if there is no such statement.
    certain: Option<LogPosition>,
    /// Commit time of the newest transaction that the server has, in microseconds since 1970.
    last_us: u64,
    until: Option<LogPosition>,
}

impl RedoScan {
    fn add(&mut self, seen: &ScannedTransaction) {
        if seen.has {
            self.last_us = self.last_us.max(seen.commit_time_us);
            if seen.is_proof() {
                self.certain = Some(seen.end);
            }
        }
        if seen.has || seen.own {
            self.until = Some(seen.end);
        }
    }

    /// Whether the tables certainly contain the transaction, so that it need not be reapplied.
    fn is_certain(&self, position: LogPosition, commit_time_us: u64, has: bool, window: Duration) -> bool {
        let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        has && (self.certain.is_some_and(|certain| position < certain)
            || window.is_zero()
            || commit_time_us < self.last_us.saturating_sub(window_us))
    }
}

/// The history that the log and the server share.
#[derive(Debug)]
pub struct SharedHistory<'a> {
    /// The GTIDs that the log and the server have in common.
    pub gtids: &'a GtidSet,
    /// The InnoDB tables of the server, as pairs of database and table name in lower case.
    pub innodb: &'a HashSet<(String, String)>,
}

impl SharedHistory<'_> {
    /// Whether the server has this transaction of the log.
    pub(crate) fn has(&self, entry: &LogEntry) -> bool {
        entry.gtid.as_ref().is_some_and(|gtid| self.gtids.contains(gtid))
    }
}

/// Finds the redo range. Transactions that committed within `window` before the last common transaction are
/// reapplied.
///
/// Only a statement for which the engine itself flushes its log shortens the range. A concurrent commit may
/// end after the engine's part of the statement, but be earlier in the binlog than the statement. Such a
/// commit counts as flushed with the statement.
///
/// # Errors
/// [`RejoinError::Log`]; [`RejoinError::Impossible`] if the log begins too late;
/// [`RejoinError::Irreversible`] for a DDL statement in the range that cannot be skipped.
pub fn find(
    log: &LogDir,
    common: &SharedHistory<'_>,
    identity: &Identity,
    window: Duration,
) -> Result<RedoRange, RejoinError> {
    let segments = log.segments()?;
    let first = first_segment(log, &segments, common.gtids, window)?;
    let mut finder = RedoScan::default();
    scan(log, first, common, identity, |seen, _| {
        finder.add(&seen);
        Ok(())
    })?;
    let start = LogPosition { segment: first, offset: FIRST_EVENT_OFFSET };
    let until = finder.until.unwrap_or(start);
    let mut range = RedoRange { segment: first, from: until, until, gtids: common.gtids.clone(), lost: 0 };
    let mut is_inside = false;
    scan(log, first, common, identity, |seen, gtid| {
        if seen.position >= until {
            return Ok(());
        }
        if !is_inside && !finder.is_certain(seen.position, seen.commit_time_us, seen.has, window) {
            is_inside = true;
            range.from = seen.position;
        }
        if is_inside {
            if seen.blocks_redo() {
                return Err(RejoinError::Irreversible {
                    gtid: gtid.map_or_else(|| "without GTID".to_owned(), Gtid::to_string),
                    reason: "the transaction is a DDL statement in the range of the log to reapply, and it is unknown how much of the statement the server has executed"
                        .to_owned(),
                });
            }
            range.lost += u64::from(!seen.has);
            if let Some(gtid) = gtid {
                // A log contains GTIDs of one flavour only, so the insertion cannot fail.
                let _ = range.gtids.insert(gtid);
            }
        }
        Ok(())
    })?;
    Ok(range)
}

/// Returns the first segment to read. The server has all transactions of the earlier segments, and its tables
/// certainly contain them.
fn first_segment(
    log: &LogDir,
    segments: &[SegmentSummary],
    common: &GtidSet,
    window: Duration,
) -> Result<u64, RejoinError> {
    let parse = |segment: &SegmentSummary| GtidSet::parse(common.flavour(), &segment.gtids_before).ok();
    let complete =
        |segment: &&SegmentSummary| parse(segment).is_some_and(|before| before.is_subset_of(common));
    let Some(mut index) = segments.iter().rposition(|segment| complete(&segment)) else {
        return Err(RejoinError::Impossible {
            reason: format!(
                "the server has {common}, and the log starts after that: the log lacks transactions that the server needs; copy the server from scratch (--copy)"
            ),
        });
    };
    let last_us = last_of(log, &segments[index..], common)?;
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    while index > 0
        && first_time(log, segments[index].number)?
            .is_none_or(|first| last_us.is_none_or(|last| first >= last.saturating_sub(window_us)))
    {
        // If the window is zero, transactions that the server has are not reapplied.
        if window.is_zero() {
            break;
        }
        index -= 1;
    }
    Ok(segments[index].number)
}

/// Returns the commit time of the last transaction in `common`.
fn last_of(log: &LogDir, segments: &[SegmentSummary], common: &GtidSet) -> Result<Option<u64>, RejoinError> {
    let Some(first) = segments.first() else { return Ok(None) };
    let mut reader = log.reader(LogPosition { segment: first.number, offset: FIRST_EVENT_OFFSET })?;
    let mut last = None;
    while let Some(entry) = reader.try_next()? {
        if entry.gtid.as_ref().is_some_and(|gtid| common.contains(gtid)) {
            last = Some(entry.commit_time_us);
        }
    }
    Ok(last)
}

/// Returns the commit time of the first transaction of a segment.
fn first_time(log: &LogDir, segment: u64) -> Result<Option<u64>, RejoinError> {
    let mut reader = log.reader(LogPosition { segment, offset: FIRST_EVENT_OFFSET })?;
    while let Some(entry) = reader.try_next()? {
        if entry.position.segment != segment {
            return Ok(None);
        }
        if entry.is_transaction() {
            return Ok(Some(entry.commit_time_us));
        }
    }
    Ok(None)
}

fn scan(
    log: &LogDir,
    first: u64,
    common: &SharedHistory<'_>,
    identity: &Identity,
    mut see: impl FnMut(ScannedTransaction, Option<&Gtid>) -> Result<(), RejoinError>,
) -> Result<(), RejoinError> {
    let mut reader = log.reader(LogPosition { segment: first, offset: FIRST_EVENT_OFFSET })?;
    let (mut event, mut format) = (Vec::new(), None);
    while let Some(entry) = reader.try_next()? {
        if !entry.is_transaction() {
            while let Some(header) = reader.next_event()? {
                if header.event_type == EventType::FORMAT_DESCRIPTION {
                    reader.read_event(&mut event)?;
                    // If the event cannot be parsed, the statements after it prove nothing.
                    format =
                        FormatDescription::parse(event.get(EVENT_HEADER_BYTES..).unwrap_or_default()).ok();
                }
            }
            continue;
        }
        let gtid = entry.gtid.as_ref();
        let has = common.has(&entry);
        let mut definition = None;
        while let Some(header) = reader.next_event()? {
            if holds_rows(header.event_type) {
                definition = None;
                break;
            }
            if may_contain_ddl(header.event_type) && header.event_length <= STATEMENT_BYTES_MAX {
                reader.read_event(&mut event)?;
                match examine_event(&header, &event, format.as_ref(), common) {
                    StatementText::Nothing => {}
                    StatementText::DdlEvidence(evidence) => definition = Some(evidence),
                    StatementText::Unfinished => break,
                }
            }
        }
        let seen = ScannedTransaction {
            position: entry.position,
            end: entry.end(),
            commit_time_us: entry.commit_time_us,
            has,
            own: gtid.is_some_and(|gtid| identity.is_own(gtid)),
            definition,
        };
        see(seen, gtid)?;
    }
    Ok(())
}

/// Whether a transaction consists only of statements that do not affect rows.
pub(crate) fn is_apart(transaction: &Transaction, common: &SharedHistory<'_>) -> bool {
    let TransactionContent::Steps(steps) = &transaction.content else { return false };
    steps.iter().all(|step| match step {
        ApplyStep::Rows(_) => false,
        ApplyStep::Statement(statement) => {
            let database = String::from_utf8_lossy(&statement.database);
            classify(common.gtids.flavour(), &statement.text, &database, common.innodb)
                == DdlEvidence::Unrelated
        }
    })
}

fn may_contain_ddl(event_type: EventType) -> bool {
    matches!(event_type, EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED | EventType::MARIADB_GTID)
}

/// What an event shows about the DDL statement that its transaction consists of.
enum StatementText {
    Nothing,
    DdlEvidence(DdlEvidence),
    /// The event is the first half of a statement (`START ALTER`), or the statement was rolled back.
    Unfinished,
}

fn examine_event(
    header: &EventHeader,
    event: &[u8],
    format: Option<&FormatDescription>,
    common: &SharedHistory<'_>,
) -> StatementText {
    let Some(format) = format else { return StatementText::Nothing };
    let event = if format.has_checksums() { strip_checksum(event) } else { Ok(event) };
    let body = event.ok().and_then(|event| event.get(EVENT_HEADER_BYTES..)).unwrap_or_default();
    let query = match EventBody::parse(header, body, format) {
        Ok(EventBody::Query(query)) => query,
        Ok(EventBody::MariadbGtid(gtid)) => {
            const HALVES: u8 = MariadbGtidEvent::EXTRA_START_ALTER | MariadbGtidEvent::EXTRA_ROLLBACK_ALTER;
            return if gtid.flags_extra & HALVES != 0 {
                StatementText::Unfinished
            } else {
                StatementText::Nothing
            };
        }
        _ => return StatementText::Nothing,
    };
    let Ok(text) = query.statement(STATEMENT_BYTES_MAX as usize) else { return StatementText::Nothing };
    if !defines(&text) {
        return StatementText::Nothing;
    }
    let database = String::from_utf8_lossy(query.database);
    match classify(common.gtids.flavour(), &text, &database, common.innodb) {
        // A statement that failed may not have reached the storage engine.
        DdlEvidence::Flushed if query.error_code != 0 => StatementText::DdlEvidence(DdlEvidence::Unknown),
        definition => StatementText::DdlEvidence(definition),
    }
}

/// Whether the event shows that its transaction contains rows, and is not a statement that commits
/// implicitly.
fn holds_rows(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::TABLE_MAP | EventType::XID | EventType::XA_PREPARE | EventType::TRANSACTION_PAYLOAD
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::Flavour;

    use super::*;

    fn seen(offset: u64, commit_time_us: u64, has: bool, own: bool, is_proof: bool) -> ScannedTransaction {
        let definition = is_proof.then_some(DdlEvidence::Flushed);
        let position = LogPosition { segment: 1, offset };
        let end = LogPosition { segment: 1, offset: offset + 10 };
        ScannedTransaction { position, end, commit_time_us, has, own, definition }
    }

    fn from(all: &[ScannedTransaction], window_us: u64) -> (Option<u64>, Option<u64>) {
        let mut finder = RedoScan::default();
        all.iter().for_each(|seen| finder.add(seen));
        let window = Duration::from_micros(window_us);
        let first = all.iter().find(|seen| {
            !finder.is_certain(seen.position, seen.commit_time_us, seen.has, window)
                && finder.until.is_some_and(|until| seen.position < until)
        });
        (first.map(|seen| seen.position.offset), finder.until.map(|until| until.offset))
    }

    #[test]
    fn the_redo_range_starts_before_the_window_and_ends_at_the_last_own_transaction() {
        let log = [
            seen(10, 100, true, true, false),
            seen(20, 200, true, true, false),
            seen(30, 300, true, true, false),
            // The server wrote this transaction itself and then lost it, so native replication would skip it.
            seen(40, 310, false, true, false),
            // The new primary wrote this transaction.
            seen(50, 400, false, false, false),
        ];
        assert_eq!(from(&log, 150), (Some(20), Some(50)));
        assert_eq!(from(&log, 1000), (Some(10), Some(50)));
        assert_eq!(from(&log, 0), (Some(40), Some(50)));
    }

    #[test]
    fn a_flushed_statement_makes_earlier_commits_certain() {
        let log = [
            seen(10, 290, true, true, false),
            seen(20, 291, true, true, true),
            seen(30, 300, true, true, false),
        ];
        assert_eq!(from(&log, 150), (Some(30), Some(40)));
    }

    /// SQL statements, and whether the storage engine of MariaDB flushes its log for them. The empty text
    /// represents a transaction with rows. The test `crates/rejoin/tests/tables_behind_binlog_after_crash.rs`
    /// shows these values on real servers.
    const WRITTEN: [(&str, bool); 10] = [
        ("", false),
        ("GRANT SELECT ON d.t TO u", false),
        ("CREATE VIEW v AS SELECT 1", false),
        ("CREATE PROCEDURE p() SELECT 1", false),
        ("CREATE DATABASE x", false),
        ("CREATE TABLE IF NOT EXISTS t (id INT)", false),
        ("ALTER TABLE t COMMENT='x'", false),
        ("ALTER TABLE t MODIFY c INT COMMENT 'x'", false),
        ("ALTER TABLE t ADD COLUMN c INT", true),
        ("CREATE TABLE t (id INT)", true),
    ];

    proptest! {
        /// The range must contain every commit that the server lost, however few commits it still has.
        #[test]
        fn the_redo_range_contains_all_lost_commits(
            kinds in proptest::collection::vec(0..WRITTEN.len(), 1..40),
            lost in 0..40_usize,
        ) {
            let tables = HashSet::from([("d".to_owned(), "t".to_owned())]);
            let log: Vec<_> = kinds.iter().enumerate().map(|(place, kind)| {
                let judged = classify(Flavour::MariaDb, WRITTEN[*kind].0.as_bytes(), "d", &tables);
                seen(10 * place as u64 + 10, place as u64, true, true, judged == DdlEvidence::Flushed)
            }).collect();
            // The engine has at least the commits that it had to flush. It may have more.
            let written = kinds.iter().rposition(|kind| WRITTEN[*kind].1).map_or(0, |place| place + 1);
            let durable = written.max(log.len().saturating_sub(lost));
            let (first, until) = from(&log, 1_000_000);
            let begins = first.unwrap_or(u64::MAX);
            for lacking in &log[durable..] {
                prop_assert!(begins <= lacking.position.offset, "the range to reapply starts at {begins}, after the end of the durable commits ({durable}): {kinds:?}");
            }
            prop_assert_eq!(until, log.last().map(|last| last.end.offset));
            // Commits that the engine had to flush must not be reapplied.
            if let Some(proof) = log[..written].last() {
                prop_assert!(begins >= proof.end.offset);
            }
        }
    }

    #[test]
    fn a_lost_or_uncertain_ddl_statement_blocks_the_redo() {
        let of = |has, definition| ScannedTransaction { definition, ..seen(10, 100, has, true, false) };
        for definition in [DdlEvidence::Flushed, DdlEvidence::Unrelated, DdlEvidence::Unknown] {
            assert!(
                of(false, Some(definition)).blocks_redo(),
                "a lost DDL statement must block the redo: {definition:?}"
            );
        }
        assert!(of(true, Some(DdlEvidence::Unknown)).blocks_redo());
        assert!(!of(true, Some(DdlEvidence::Unrelated)).blocks_redo() && !of(true, None).blocks_redo());
        assert!(!of(false, None).blocks_redo() && !of(false, Some(DdlEvidence::Flushed)).is_proof());
    }

    #[test]
    fn the_redo_range_is_empty_if_nothing_is_lost() {
        let log = [seen(10, 100, true, true, false), seen(20, 200, false, false, false)];
        assert_eq!(from(&log, 0), (None, Some(20)));
    }
}
