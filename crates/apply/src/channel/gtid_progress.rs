//! Computes the applied GTIDs from the transactions that were read and committed. Pure.

use std::collections::VecDeque;

use tailwater_log::LogPosition;
use tailwater_wire::gtid::{Gtid, GtidSet};

use crate::log_span::LogSpan;
use crate::progress::AppliedSet;

/// From this many transactions above the low watermark on, redundant ones are dropped.
const ABOVE_COMPACT_MIN: usize = 100_000;

/// The applied GTIDs, and those that were read and do not count yet.
#[derive(Debug)]
pub(super) struct GtidProgress {
    gtids: GtidSet,
    /// Transactions above the low watermark by their end, in log order; `None` for those that count already.
    above: VecDeque<(LogPosition, Option<ReadAhead>)>,
}

#[derive(Debug)]
struct ReadAhead {
    gtid: Option<Gtid>,
    commit_time_us: u64,
}

impl GtidProgress {
    /// Starts with applied `gtids`.
    pub(super) fn new(gtids: GtidSet) -> Self {
        Self { gtids, above: VecDeque::new() }
    }

    /// The applied GTIDs. A MySQL set has holes where transactions are missing. A MariaDB position cannot,
    /// and stays before the first missing one.
    pub(super) fn gtids(&self) -> &GtidSet {
        &self.gtids
    }

    /// Records a transaction that was read, in log order. With `commit_time_us` 0 it does not count as lag.
    pub(super) fn read(&mut self, end: LogPosition, gtid: Option<Gtid>, commit_time_us: u64) {
        debug_assert!(self.above.back().is_none_or(|(last, _)| *last < end), "read out of order");
        self.above.push_back((end, Some(ReadAhead { gtid, commit_time_us })));
    }

    /// Marks transactions as applied: those that end at `ends`, and all up to `low`.
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
            // A log holds the GTIDs of one flavour.
            let _ = self.gtids.insert(&gtid);
        }
    }

    /// The commit time of the oldest unapplied transaction, in microseconds since 1970.
    pub(super) fn oldest_commit_us(&self) -> Option<u64> {
        self.above.iter().flat_map(|(_, read)| read).map(|read| read.commit_time_us).find(|time| *time > 0)
    }

    /// Drops redundant transactions once there are many: while an XA transaction is open, all later ones stay
    /// above the low watermark. Of two adjacent applied ones, MariaDB's position only needs the later one in
    /// each domain.
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
    fn a_set_has_holes_and_a_position_waits() {
        let mut set = GtidProgress::new(GtidSet::empty(Flavour::MySql));
        let mut position = GtidProgress::new(GtidSet::empty(Flavour::MariaDb));
        for number in 1..=3 {
            set.read(at(number * 10), Some(mysql(number)), number);
            position.read(at(number * 10), Some(mariadb(&format!("0-1-{number}"))), number);
        }
        // The third is applied, the others are not.
        set.apply(&[at(30)], at(4));
        position.apply(&[at(30)], at(4));
        assert_eq!(set.gtids().to_string(), format!("{UUID}:3"));
        assert!(position.gtids().is_empty());
        assert_eq!((set.oldest_commit_us(), position.oldest_commit_us()), (Some(1), Some(1)));
        // Now all are.
        set.apply(&[at(10), at(20)], at(30));
        position.apply(&[at(10), at(20)], at(30));
        assert_eq!(set.gtids().to_string(), format!("{UUID}:1-3"));
        assert!(position.gtids().contains(&mariadb("0-1-3")));
        assert_eq!((set.oldest_commit_us(), position.oldest_commit_us()), (None, None));
    }

    #[test]
    fn transactions_without_commit_time_are_no_lag() {
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
        // The first and the fifth are open.
        let mut applied = AppliedSet::new(at(4));
        applied.add(LogSpan { start: at(10), end: at(40) });
        applied.add(LogSpan { start: at(50), end: at(60) });
        progress.drop_redundant(&applied);
        let kept: Vec<u64> = progress.above.iter().map(|(end, _)| end.offset).collect();
        assert_eq!(kept, [10, 30, 40, 50, 60]);
        // Nothing is missing once they are applied.
        applied.add(LogSpan { start: at(4), end: at(10) });
        progress.apply(&[at(10)], applied.low());
        for text in ["0-1-3", "5-1-1"] {
            assert!(progress.gtids().contains(&mariadb(text)), "{text} of {}", progress.gtids());
        }
        assert!(!progress.gtids().contains(&mariadb("0-1-4")));
    }
}
