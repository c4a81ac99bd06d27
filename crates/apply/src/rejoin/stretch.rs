//! Which stretch of the log a server has to do again: from where its tables are certain to stand, to the last transaction that
//! native replication would not bring it.

use std::time::Duration;

use tailwater_log::{LogDir, LogPosition, SegmentSummary};
use tailwater_wire::event::EventType;
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::identity::Identity;
use crate::error::ApplyError;

/// Offset of the first event of a segment.
pub(super) const FIRST_EVENT_OFFSET: u64 = 4;

/// A stretch of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The segment to begin reading at, for what is said between transactions.
    pub segment: u64,
    /// Its first transaction.
    pub from: LogPosition,
    /// Behind its last transaction; where `from` is if it is empty.
    pub until: LogPosition,
    /// What the server has when all of it is done.
    pub gtids: GtidSet,
    /// How many of the transactions in it the server does not have by its GTIDs.
    pub lost: u64,
}

/// What a transaction of the log is to a server that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    position: LogPosition,
    end: LogPosition,
    commit_time_us: u64,
    has: bool,
    own: bool,
    is_statement: bool,
}

/// Finds the stretch as transactions pass by, in their order.
#[derive(Debug, Default)]
struct Finder {
    /// Behind the last statement that the server has, which an engine writes durably, with all before it.
    certain: Option<LogPosition>,
    /// When the last transaction committed that the server has, in microseconds since 1970.
    last_us: u64,
    until: Option<LogPosition>,
}

impl Finder {
    fn see(&mut self, seen: &Seen) {
        if seen.has {
            self.last_us = self.last_us.max(seen.commit_time_us);
            if seen.is_statement {
                self.certain = Some(seen.end);
            }
        }
        if seen.has || seen.own {
            self.until = Some(seen.end);
        }
    }

    /// Whether a transaction is before the stretch.
    fn is_certain(&self, position: LogPosition, commit_time_us: u64, has: bool, window: Duration) -> bool {
        let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
        has && (self.certain.is_some_and(|certain| position < certain)
            || window.is_zero()
            || commit_time_us < self.last_us.saturating_sub(window_us))
    }
}

/// Finds the stretch. `common` is what log and server have in common; what committed within `window` before the last of that
/// is done again.
///
/// # Errors
/// [`ApplyError::Log`]; [`ApplyError::Rejoin`] if the log does not reach back far enough.
pub fn find(
    log: &LogDir,
    common: &GtidSet,
    identity: &Identity,
    window: Duration,
) -> Result<Stretch, ApplyError> {
    let segments = log.segments()?;
    let first = first_segment(log, &segments, common, window)?;
    let mut finder = Finder::default();
    scan(log, first, common, identity, |seen, _| {
        finder.see(&seen);
        Ok(())
    })?;
    let start = LogPosition { segment: first, offset: FIRST_EVENT_OFFSET };
    let until = finder.until.unwrap_or(start);
    let mut stretch = Stretch { segment: first, from: until, until, gtids: common.clone(), lost: 0 };
    let mut begun = false;
    scan(log, first, common, identity, |seen, gtid| {
        if seen.position >= until {
            return Ok(());
        }
        if !begun && !finder.is_certain(seen.position, seen.commit_time_us, seen.has, window) {
            begun = true;
            stretch.from = seen.position;
        }
        if begun {
            stretch.lost += u64::from(!seen.has);
            if let Some(gtid) = gtid {
                // A log holds one family's GTIDs.
                let _ = stretch.gtids.insert(gtid);
            }
        }
        Ok(())
    })?;
    Ok(stretch)
}

/// The segment before which the server lacks nothing and all is certain.
fn first_segment(
    log: &LogDir,
    segments: &[SegmentSummary],
    common: &GtidSet,
    window: Duration,
) -> Result<u64, ApplyError> {
    let parse = |segment: &SegmentSummary| GtidSet::parse(common.flavour(), &segment.gtids_before).ok();
    let complete =
        |segment: &&SegmentSummary| parse(segment).is_some_and(|before| before.is_subset_of(common));
    let Some(mut index) = segments.iter().rposition(|segment| complete(&segment)) else {
        return Err(ApplyError::Rejoin {
            reason: format!(
                "the server has {common}, and the log begins later: what it lacks is not there; copy it anew (--copy)"
            ),
        });
    };
    let last_us = last_of(log, &segments[index..], common)?;
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    while index > 0
        && first_time(log, segments[index].number)?
            .is_none_or(|first| last_us.is_none_or(|last| first >= last.saturating_sub(window_us)))
    {
        // Without a window nothing that the server has is done again.
        if window.is_zero() {
            break;
        }
        index -= 1;
    }
    Ok(segments[index].number)
}

/// When the last transaction committed that is in `common`.
fn last_of(log: &LogDir, segments: &[SegmentSummary], common: &GtidSet) -> Result<Option<u64>, ApplyError> {
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

/// When the first transaction of a segment committed.
fn first_time(log: &LogDir, segment: u64) -> Result<Option<u64>, ApplyError> {
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
    common: &GtidSet,
    identity: &Identity,
    mut see: impl FnMut(Seen, Option<&Gtid>) -> Result<(), ApplyError>,
) -> Result<(), ApplyError> {
    let mut reader = log.reader(LogPosition { segment: first, offset: FIRST_EVENT_OFFSET })?;
    while let Some(entry) = reader.try_next()? {
        if !entry.is_transaction() {
            continue;
        }
        let gtid = entry.gtid.as_ref();
        let has = gtid.is_some_and(|gtid| common.contains(gtid));
        let mut is_statement = has;
        while let Some(header) = reader.next_event()?.filter(|_| is_statement) {
            is_statement = !holds_rows(header.event_type);
        }
        let seen = Seen {
            position: entry.position,
            end: entry.end(),
            commit_time_us: entry.commit_time_us,
            has,
            own: gtid.is_some_and(|gtid| identity.is_own(gtid)),
            is_statement,
        };
        see(seen, gtid)?;
    }
    Ok(())
}

/// Whether an event says that its transaction is no statement that commits by itself.
fn holds_rows(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::TABLE_MAP | EventType::XID | EventType::XA_PREPARE | EventType::TRANSACTION_PAYLOAD
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(offset: u64, commit_time_us: u64, has: bool, own: bool, is_statement: bool) -> Seen {
        let position = LogPosition { segment: 1, offset };
        let end = LogPosition { segment: 1, offset: offset + 10 };
        Seen { position, end, commit_time_us, has, own, is_statement }
    }

    fn from(all: &[Seen], window_us: u64) -> (Option<u64>, Option<u64>) {
        let mut finder = Finder::default();
        all.iter().for_each(|seen| finder.see(seen));
        let window = Duration::from_micros(window_us);
        let first = all.iter().find(|seen| {
            !finder.is_certain(seen.position, seen.commit_time_us, seen.has, window)
                && finder.until.is_some_and(|until| seen.position < until)
        });
        (first.map(|seen| seen.position.offset), finder.until.map(|until| until.offset))
    }

    #[test]
    fn a_stretch_reaches_from_before_the_window_to_the_last_own_transaction() {
        let log = [
            seen(10, 100, true, true, false),
            seen(20, 200, true, true, false),
            seen(30, 300, true, true, false),
            // Lost, and its own: native replication would pass over it.
            seen(40, 310, false, true, false),
            // Of the new primary.
            seen(50, 400, false, false, false),
        ];
        assert_eq!(from(&log, 150), (Some(20), Some(50)));
        assert_eq!(from(&log, 1000), (Some(10), Some(50)));
        assert_eq!(from(&log, 0), (Some(40), Some(50)));
    }

    #[test]
    fn a_statement_that_the_server_has_is_certain_with_all_before_it() {
        let log = [
            seen(10, 290, true, true, false),
            seen(20, 291, true, true, true),
            seen(30, 300, true, true, false),
        ];
        assert_eq!(from(&log, 150), (Some(30), Some(40)));
    }

    #[test]
    fn nothing_is_done_again_where_nothing_is_lost_and_nothing_in_doubt() {
        let log = [seen(10, 100, true, true, false), seen(20, 200, false, false, false)];
        assert_eq!(from(&log, 0), (None, Some(20)));
    }
}
