//! Computes the applied GTIDs from the transactions that the reader has read and the workers have committed.
//! It does no I/O.

use std::collections::VecDeque;

use tailwater_log::LogPosition;
use tailwater_wire::gtid::{Gtid, GtidSet};

use crate::applied_transactions::AppliedSet;
use crate::log_position_range::LogSpan;

/// When this many transactions are above the low watermark, [`GtidProgress::compact`] removes those that the
/// applied GTIDs do not need.
const ABOVE_COMPACT_MIN: usize = 100_000;

/// The applied GTIDs, and the transactions that were read but do not count as applied yet.
#[derive(Debug)]
pub(super) struct GtidProgress {
    gtids: GtidSet,
    /// The transactions above the low watermark, by their end in the log. `None` for a transaction that
    /// already counts as applied.
    above: VecDeque<(LogPosition, Option<ReadAhead>)>,
}

#[derive(Debug)]
struct ReadAhead {
    gtid: Option<Gtid>,
    commit_time_us: u64,
}

impl GtidProgress {
    /// Returns a progress in which `gtids` are applied.
    pub(super) fn new(gtids: GtidSet) -> Self {
        Self { gtids, above: VecDeque::new() }
    }

    /// Returns the applied GTIDs. A MySQL set has gaps where transactions are missing. A MariaDB position
    /// cannot have gaps: it stays before the first missing transaction.
    pub(super) fn gtids(&self) -> &GtidSet {
        &self.gtids
    }

    /// Records a transaction that the reader has read; calls are in log order. A transaction with a
    /// `commit_time_us` of 0 does not count for the lag.
    pub(super) fn read(&mut self, end: LogPosition, gtid: Option<Gtid>, commit_time_us: u64) {
        debug_assert!(
            self.above.back().is_none_or(|(last, _)| *last < end),
            "transactions must be recorded in log order"
        );
        self.above.push_back((end, Some(ReadAhead { gtid, commit_time_us })));
    }

    /// Marks the transactions that end at `ends`, and all transactions up to `low`, as applied.
    pub(super) fn apply(&mut self, ends: &[LogPosition], low: LogPosition) {
        if matches!(self.gtids, GtidSet::MySql(_)) {
            for end in ends {
                let place = self.above.binary_search_by_key(end, |(end, _)| *end);
                let read = place.ok().and_then(|place| self.above.get_mut(place)?.1.take());
                self.add(read);
            }
        }
        while self.above.front().is_some_and(|(end, _)| *end <= low) {
            let read = self.above.pop_front().and_then(|(_, read)| read);
            self.add(read);
        }
    }

    fn add(&mut self, read: Option<ReadAhead>) {
        if let Some(gtid) = read.and_then(|read| read.gtid) {
            // All GTIDs of a log are of one flavour, so inserting cannot fail.
            let _ = self.gtids.insert(&gtid);
        }
    }

    /// Returns the commit time of the oldest unapplied transaction, in microseconds since 1970.
    pub(super) fn oldest_commit_us(&self) -> Option<u64> {
        self.above.iter().flat_map(|(_, read)| read).map(|read| read.commit_time_us).find(|time| *time > 0)
    }

    /// Removes transactions that the applied GTIDs do not need, if the list of transactions is long. The list
    /// grows while an XA transaction is open, because all later transactions then stay above the low
    /// watermark. If two consecutive applied transactions are in one domain, MariaDB's position needs only
    /// the later one.
    pub(super) fn compact(&mut self, applied: &AppliedSet) {
        if self.above.len() >= ABOVE_COMPACT_MIN {
            self.drop_redundant(applied);
        }
    }

    fn drop_redundant(&mut self, applied: &AppliedSet) {
        let mut kept = VecDeque::new();
        let mut start = applied.low();
        let mut previous: Option<(LogPosition, Option<ReadAhead>, bool)> = None;
        for (end, read) in std::mem::take(&mut self.above) {
            let is_applied = applied.contains(&LogSpan { start, end });
            if let Some((end, before, was_applied)) = previous.take()
                && before.is_some()
                && !(was_applied && is_applied && is_same_domain(&before, &read))
            {
                kept.push_back((end, before));
            }
            previous = Some((end, read, is_applied));
            start = end;
        }
        kept.extend(previous.map(|(end, read, _)| (end, read)));
        self.above = kept;
    }
}

fn is_same_domain(one: &Option<ReadAhead>, other: &Option<ReadAhead>) -> bool {
    let gtid = |read: &Option<ReadAhead>| read.as_ref().and_then(|read| read.gtid.clone());
    match (gtid(one), gtid(other)) {
        (Some(Gtid::MariaDb(one)), Some(Gtid::MariaDb(other))) => one.domain == other.domain,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tailwater_wire::Flavour;

    use super::*;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn at(offset: u64) -> LogPosition {
        LogPosition { segment: 1, offset }
    }

    fn gtid(flavour: Flavour, text: &str) -> Gtid {
        Gtid::parse(flavour, text).expect(text)
    }

    fn mysql(number: u64) -> Gtid {
        gtid(Flavour::MySql, &format!("{UUID}:{number}"))
    }

    fn mariadb(text: &str) -> Gtid {
        gtid(Flavour::MariaDb, text)
    }

    #[test]
    fn a_mysql_set_has_gaps_and_a_mariadb_position_waits() {
        let mut set = GtidProgress::new(GtidSet::empty(Flavour::MySql));
        let mut position = GtidProgress::new(GtidSet::empty(Flavour::MariaDb));
        for number in 1..=3 {
            set.read(at(number * 10), Some(mysql(number)), number);
            position.read(at(number * 10), Some(mariadb(&format!("0-1-{number}"))), number);
        }
        // Only the third transaction is applied.
        set.apply(&[at(30)], at(4));
        position.apply(&[at(30)], at(4));
        assert_eq!(set.gtids().to_string(), format!("{UUID}:3"));
        assert!(position.gtids().is_empty());
        assert_eq!((set.oldest_commit_us(), position.oldest_commit_us()), (Some(1), Some(1)));
        // Now all transactions are applied.
        set.apply(&[at(10), at(20)], at(30));
        position.apply(&[at(10), at(20)], at(30));
        assert_eq!(set.gtids().to_string(), format!("{UUID}:1-3"));
        assert!(position.gtids().contains(&mariadb("0-1-3")));
        assert_eq!((set.oldest_commit_us(), position.oldest_commit_us()), (None, None));
    }

    #[test]
    fn transactions_without_commit_time_do_not_count_as_lag() {
        let mut progress = GtidProgress::new(GtidSet::empty(Flavour::MariaDb));
        progress.read(at(10), Some(mariadb("0-1-1")), 0);
        assert_eq!(progress.oldest_commit_us(), None);
        progress.read(at(20), Some(mariadb("0-1-2")), 7);
        assert_eq!(progress.oldest_commit_us(), Some(7));
    }

    #[test]
    fn the_later_of_adjacent_applied_transactions_is_kept() {
        let mut progress = GtidProgress::new(GtidSet::empty(Flavour::MariaDb));
        let read = ["0-1-1", "0-1-2", "0-1-3", "5-1-1", "0-1-4", "0-1-5"];
        for (number, text) in read.iter().enumerate() {
            progress.read(at(10 * (number as u64 + 1)), Some(mariadb(text)), 1);
        }
        // The first and the fifth transaction are not applied.
        let mut applied = AppliedSet::new(at(4));
        applied.add(LogSpan { start: at(10), end: at(40) });
        applied.add(LogSpan { start: at(50), end: at(60) });
        progress.drop_redundant(&applied);
        let kept: Vec<u64> = progress.above.iter().map(|(end, _)| end.offset).collect();
        assert_eq!(kept, [10, 30, 40, 50, 60]);
        // After the first and the fifth transaction are applied too, no GTID is missing.
        applied.add(LogSpan { start: at(4), end: at(10) });
        progress.apply(&[at(10)], applied.low());
        for text in ["0-1-3", "5-1-1"] {
            assert!(
                progress.gtids().contains(&mariadb(text)),
                "the applied GTIDs {} do not contain {text}",
                progress.gtids()
            );
        }
        assert!(!progress.gtids().contains(&mariadb("0-1-4")));
    }
}
