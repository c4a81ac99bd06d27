//! Computes the size limits of a batch from the options and from measurements.

use super::scheduler_options::SchedulerOptions;
use super::transaction_batch::{BatchTiming, TransactionWeight};

/// The execution time of a batch is limited to this multiple of the commit time. The commit then takes at
/// most 5 % of the time.
const EXECUTE_PER_COMMIT: u64 = 20;
/// The lowest limit of the execution time, for fast commits, in microseconds.
const EXECUTE_US_MIN: u64 = 200_000;
/// The highest limit of the execution time, in microseconds. A batch holds its locks during its execution,
/// and a retry takes the same time again.
const EXECUTE_US_MAX: u64 = 5_000_000;
/// The lowest row limit. There is a minimum because a batch is often slow for other reasons than its number
/// of rows.
const ROWS_MIN: u64 = 16;
/// Each new batch reduces the weight of earlier measurements by an eighth.
const FORGET: u64 = 8;
/// The maximum value of one measurement, in microseconds.
const MEASURED_US_MAX: u64 = 3_600_000_000;

/// A batch with this many transactions is large enough to be worth a commit. If a quarter of the batch limit
/// is less than this number, a quarter of the limit is enough. In independent order, this many consecutive
/// transactions stay in one batch. Each commit then has fewer gaps to record, and more rows of one table are
/// together.
const WORTH_TRANSACTIONS: usize = 256;

/// The current size limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub transactions_max: usize,
    pub bytes_max: usize,
    /// The maximum number of rows, computed from measurements: see [`BatchSizing`].
    pub rows_max: usize,
    pub workers: usize,
    /// How many batches must execute or commit at the same time, so that the commits, which are in order,
    /// follow each other without a pause.
    pub overlap: usize,
    pub window_transactions_max: usize,
}

impl BatchLimits {
    /// Returns whether `more_transactions` of size `more` fit in a batch that contains `transactions` of size
    /// `held`. An empty batch accepts any transaction.
    pub fn fits(
        &self,
        transactions: usize,
        held: TransactionWeight,
        more_transactions: usize,
        more: TransactionWeight,
    ) -> bool {
        transactions == 0
            || (transactions + more_transactions <= self.transactions_max
                && held.bytes.saturating_add(more.bytes) <= self.bytes_max
                && held.rows.saturating_add(more.rows) <= self.rows_max)
    }

    /// Returns how many transactions make a batch large enough to be worth a commit.
    pub fn worth_transactions(&self) -> usize {
        (self.transactions_max / 4).clamp(1, WORTH_TRANSACTIONS)
    }

    /// Returns whether a batch is large enough to be worth a commit.
    pub fn is_worth_a_commit(&self, transactions: usize, held: TransactionWeight) -> bool {
        transactions >= self.worth_transactions()
            || held.bytes > self.bytes_max / 4
            || held.rows > self.rows_max / 4
    }

    /// Returns whether a batch is full.
    pub fn is_full(&self, transactions: usize, held: TransactionWeight) -> bool {
        transactions >= self.transactions_max || held.bytes >= self.bytes_max || held.rows >= self.rows_max
    }
}

/// Measures the average time per row and per commit. Newer and larger batches have more weight.
///
/// The row limit is the number of rows that should execute within 20 commit times, but at least 0.2 s and at
/// most 5 s. It grows with the commit time and shrinks with the time per row. Before the first batch is done
/// there is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchSizing {
    batches: u64,
    rows: u64,
    execute_us: u64,
    commit_us: u64,
}

impl BatchSizing {
    /// Records how long a batch of `rows` rows took.
    pub fn record(&mut self, rows: usize, timing: BatchTiming) {
        let weigh = |sum: &mut u64, new: u64| *sum = (*sum - *sum / FORGET).saturating_add(new);
        // The counter is scaled by 1000, so that integer division also reduces small sums.
        weigh(&mut self.batches, FORGET * 1000);
        weigh(&mut self.rows, (rows as u64).min(MEASURED_US_MAX).saturating_mul(1000));
        weigh(&mut self.execute_us, timing.execute_us.min(MEASURED_US_MAX).saturating_mul(1000));
        weigh(&mut self.commit_us, timing.commit_us.min(MEASURED_US_MAX).saturating_mul(1000));
    }

    /// Returns the current limits of a batch.
    pub fn limits(&self, options: &SchedulerOptions) -> BatchLimits {
        let workers = options.workers.max(1);
        BatchLimits {
            transactions_max: options.batch_transactions_max.max(1),
            bytes_max: options.batch_bytes_max.max(1),
            rows_max: self.rows_max(),
            workers,
            overlap: self.overlap(workers),
            window_transactions_max: options.window_transactions_max.max(1),
        }
    }

    fn rows_max(&self) -> usize {
        if self.execute_us == 0 {
            return usize::MAX;
        }
        // The average commit time. Both sums are scaled by the same factor and reduced at the same rate.
        let commit_us = self.commit_us.saturating_mul(FORGET) / self.batches.max(1);
        let budget_us = commit_us.saturating_mul(EXECUTE_PER_COMMIT).clamp(EXECUTE_US_MIN, EXECUTE_US_MAX);
        let rows = u128::from(budget_us) * u128::from(self.rows) / u128::from(self.execute_us);
        usize::try_from(rows.max(u128::from(ROWS_MIN))).unwrap_or(usize::MAX)
    }

    fn overlap(&self, workers: usize) -> usize {
        if self.commit_us == 0 {
            return workers;
        }
        if self.execute_us < self.commit_us {
            // If batches overlapped, a batch would execute earlier, but this would save little time. All
            // later batches would then have to wait for one more commit.
            return 1;
        }
        let executing = usize::try_from(self.execute_us.div_ceil(self.commit_us)).unwrap_or(workers);
        executing.saturating_add(1).clamp(2, workers.max(2)).min(workers)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CommitOrder;
    use super::*;

    const OPTIONS: SchedulerOptions = SchedulerOptions {
        commit_order: CommitOrder::Source,
        workers: 8,
        batch_transactions_max: 1000,
        batch_bytes_max: 1 << 20,
        window_transactions_max: 10_000,
        window_bytes_max: 1 << 30,
    };

    /// Returns the limits after batches that all take the same time.
    fn steady(rows: usize, execute_us: u64, commit_us: u64) -> BatchLimits {
        let mut sizing = BatchSizing::default();
        for _ in 0..50 {
            sizing.record(rows, BatchTiming { execute_us, commit_us });
        }
        sizing.limits(&OPTIONS)
    }

    #[test]
    fn rows_are_limited_to_twenty_commit_times() {
        assert_eq!(BatchSizing::default().limits(&OPTIONS).rows_max, usize::MAX);
        // Rows take 10 µs each, and 20 commits of 20 ms are 400 ms.
        let rows_max = steady(100, 1000, 20_000).rows_max;
        assert!((39_000..=41_000).contains(&rows_max), "wrong batch size: {rows_max}");
        // If commits take no time, the limit is 200 ms.
        assert_eq!(steady(100, 1000, 0).rows_max, 20_000);
        // Slow rows and slow commits reach the limits.
        assert_eq!(steady(1, u64::MAX, u64::MAX).rows_max, 16);
        assert_eq!(steady(1000, 1_000_000, u64::MAX).rows_max, 5000);
    }

    #[test]
    fn the_overlap_keeps_commits_busy() {
        assert_eq!(BatchSizing::default().limits(&OPTIONS).overlap, 8);
        assert_eq!(steady(10, 100, 1000).overlap, 1);
        assert_eq!(steady(10, 1000, 1000).overlap, 2);
        assert_eq!(steady(10, 4000, 1000).overlap, 5);
        assert_eq!(steady(10, 1_000_000, 1000).overlap, 8);
        let mut one = BatchSizing::default();
        one.record(1, BatchTiming { execute_us: 1000, commit_us: 10 });
        assert_eq!(one.limits(&SchedulerOptions { workers: 0, ..OPTIONS }).overlap, 1);
    }

    #[test]
    fn one_slow_batch_loses_its_weight() {
        let mut sizing = BatchSizing::default();
        sizing.record(10, BatchTiming { execute_us: 10_000_000, commit_us: 1000 });
        let at_first = sizing.limits(&OPTIONS).rows_max;
        for _ in 0..100 {
            sizing.record(1000, BatchTiming { execute_us: 10_000, commit_us: 1000 });
        }
        let later = sizing.limits(&OPTIONS).rows_max;
        assert!(
            at_first == 16 && later > 9000,
            "the row limit must start at 16 and rise above 9000: {at_first} {later}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn slower_rows_reduce_the_row_limit_and_slower_commits_raise_it(
            rows in 1..10_000usize,
            execute_us in 0..10_000_000u64,
            commit_us in 0..1_000_000u64,
            more_us in 0..10_000_000u64,
        ) {
            let limit = steady(rows, execute_us, commit_us).rows_max;
            prop_assert!(steady(rows, execute_us + more_us, commit_us).rows_max <= limit);
            prop_assert!(steady(rows, execute_us, commit_us + more_us).rows_max >= limit);
            prop_assert!(limit >= 16);
        }

        #[test]
        fn extreme_measurements_keep_the_limits_valid(timings in prop::collection::vec((any::<usize>(), any::<u64>(), any::<u64>()), 0..20)) {
            let mut sizing = BatchSizing::default();
            for (rows, execute_us, commit_us) in timings {
                sizing.record(rows, BatchTiming { execute_us, commit_us });
                let limits = sizing.limits(&OPTIONS);
                prop_assert!(limits.rows_max >= 16 && (1..=8).contains(&limits.overlap));
            }
        }
    }
}
