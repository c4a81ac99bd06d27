//! Counts commits over time, and finds periods without commits.

use std::collections::BTreeMap;

use crate::stats_report::{Bucket, Timeline};

/// The maximum number of buckets. If there are more, neighbouring buckets are merged.
const BUCKETS_MAX: usize = 480;

/// The possible lengths of a bucket, in seconds. Each length divides the next, so that whole buckets can be
/// merged.
const WIDTHS: [u64; 15] =
    [1, 2, 10, 30, 60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_419_200, 31_449_600];

/// The number of commits in each bucket of time.
#[derive(Debug, Default)]
pub(crate) struct Buckets {
    /// The length of a bucket, as an index into [`WIDTHS`].
    width: usize,
    /// The buckets, by the number of bucket lengths since 1970.
    buckets: BTreeMap<u64, Bucket>,
}

impl Buckets {
    /// Adds a transaction that committed at `at_us`.
    pub(crate) fn add(&mut self, at_us: u64, bytes: u64, rows: u64) {
        let bucket = self.buckets.entry(at_us / 1_000_000 / WIDTHS[self.width]).or_default();
        bucket.transactions += 1;
        bucket.bytes += bytes;
        bucket.rows += rows;
        while self.width + 1 < WIDTHS.len() && self.stretch() > BUCKETS_MAX as u64 {
            self.widen();
        }
    }

    /// The number of buckets from the first to the last, including empty ones.
    fn stretch(&self) -> u64 {
        match (self.buckets.first_key_value(), self.buckets.last_key_value()) {
            (Some((first, _)), Some((last, _))) => last - first + 1,
            _ => 0,
        }
    }

    fn widen(&mut self) {
        let factor = WIDTHS[self.width + 1] / WIDTHS[self.width];
        self.width += 1;
        for (number, bucket) in std::mem::take(&mut self.buckets) {
            let merged = self.buckets.entry(number / factor).or_default();
            merged.transactions += bucket.transactions;
            merged.bytes += bucket.bytes;
            merged.rows += bucket.rows;
        }
    }

    pub(crate) fn report(&self) -> Timeline {
        let width = WIDTHS[self.width];
        let buckets = self
            .buckets
            .iter()
            .map(|(number, bucket)| Bucket { start_us: number * width * 1_000_000, ..*bucket })
            .collect();
        Timeline { bucket_seconds: width, buckets }
    }
}

/// The rate of commits over time in columns of equal length, including empty columns.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineColumns {
    /// The start of the first column, in microseconds since 1970.
    pub start_us: u64,
    /// The length of each column in seconds.
    pub seconds: u64,
    /// The commits in each column.
    pub columns: Vec<Bucket>,
}

impl Timeline {
    /// Merges the buckets into at most `columns_max` columns for a chart. `None` if there are no buckets.
    pub fn columns(&self, columns_max: usize) -> Option<TimelineColumns> {
        let width_us = self.bucket_seconds * 1_000_000;
        let (first, last) =
            (self.buckets.first()?.start_us / width_us, self.buckets.last()?.start_us / width_us);
        let factor = (last - first + 1).div_ceil(columns_max.max(1) as u64);
        let count = (last - first + 1).div_ceil(factor);
        let start_of = |column| (first + column * factor) * width_us;
        let mut columns: Vec<Bucket> =
            (0..count).map(|column| Bucket { start_us: start_of(column), ..Bucket::default() }).collect();
        for bucket in &self.buckets {
            let column = &mut columns[((bucket.start_us / width_us - first) / factor) as usize];
            column.transactions += bucket.transactions;
            column.bytes += bucket.bytes;
            column.rows += bucket.rows;
        }
        Some(TimelineColumns { start_us: first * width_us, seconds: factor * self.bucket_seconds, columns })
    }
}

/// The time of each commit in binlog order. No commit is earlier than the commit before it.
#[derive(Debug, Default)]
pub(crate) struct CommitClock {
    now_us: u64,
}

impl CommitClock {
    /// Returns the time of a commit whose event has the time `stated_us`, and the time since the previous
    /// commit. The time since the previous commit is 0 for the first commit.
    ///
    /// The time in the event may be earlier than the previous commit. MariaDB writes the second in which the
    /// last statement started, and a statement may run for a long time. Even then, the transaction committed
    /// no earlier than the one before it.
    pub(crate) fn commit(&mut self, stated_us: u64) -> (u64, u64) {
        let before = self.now_us;
        self.now_us = before.max(stated_us);
        (self.now_us, if before == 0 { 0 } else { self.now_us - before })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_bucket_length_divides_the_next() {
        assert!(WIDTHS.windows(2).all(|pair| pair[1] % pair[0] == 0 && pair[1] > pair[0]));
    }

    proptest! {
        #[test]
        fn merging_buckets_loses_no_commit(times in proptest::collection::vec(0u64..400_000_000, 1..300)) {
            let mut buckets = Buckets::default();
            for (number, seconds) in times.iter().enumerate() {
                buckets.add(seconds * 1_000_000, number as u64, 2);
                prop_assert!(buckets.buckets.len() <= BUCKETS_MAX);
            }
            let report = buckets.report();
            let sum = |of: fn(&Bucket) -> u64| report.buckets.iter().map(of).sum::<u64>();
            prop_assert_eq!(sum(|bucket| bucket.transactions), times.len() as u64);
            prop_assert_eq!(sum(|bucket| bucket.rows), 2 * times.len() as u64);
            prop_assert_eq!(sum(|bucket| bucket.bytes), (0..times.len() as u64).sum::<u64>());
            for seconds in times {
                let holds = |bucket: &&Bucket| {
                    let start = bucket.start_us / 1_000_000;
                    (start..start + report.bucket_seconds).contains(&seconds)
                };
                prop_assert_eq!(report.buckets.iter().filter(holds).count(), 1);
            }
            for columns_max in [1, 7, 80, 1000] {
                let columns = report.columns(columns_max).unwrap();
                prop_assert!(columns.columns.len() <= columns_max);
                let rows: u64 = columns.columns.iter().map(|column| column.rows).sum();
                prop_assert_eq!(rows, sum(|bucket| bucket.rows));
                let width_us = columns.seconds * 1_000_000;
                let mut pairs = columns.columns.windows(2);
                let even = pairs.all(|pair| pair[1].start_us - pair[0].start_us == width_us);
                prop_assert!(even);
            }
        }
    }
}
