//! How large a batch may be, from the options and from what was measured.

use super::{Options, Timing, Weight};

/// A batch may take this many times as long to execute as to commit: its commit then costs at most 5 % of it.
const EXECUTE_PER_COMMIT: u64 = 20;
/// However fast commits are, a batch may take this long to execute.
const EXECUTE_US_MIN: u64 = 100_000;
/// However slow commits are, no batch shall take longer: its locks are held all that time, and a retry repeats it.
const EXECUTE_US_MAX: u64 = 5_000_000;
/// However slow rows are, a batch may have this many: what makes them slow is often not their number.
const ROWS_MIN: u64 = 16;
/// Of what was measured before, an eighth is forgotten with each batch.
const FORGET: u64 = 8;
/// No measurement counts for more.
const MEASURED_US_MAX: u64 = 3_600_000_000;

/// What a batch may hold now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub transactions_max: usize,
    pub bytes_max: usize,
    /// From measurements: see [`Sizing`].
    pub rows_max: usize,
    pub workers: usize,
    /// So many batches that commit one behind the other keep both executing and committing busy.
    pub overlap: usize,
    pub window_transactions_max: usize,
}

impl Limits {
    /// Whether `weight` more, in `transactions`, fits in a batch that holds `held`. Anything fits in an empty one.
    pub fn fits(&self, transactions: usize, held: Weight, more_transactions: usize, more: Weight) -> bool {
        transactions == 0
            || (transactions + more_transactions <= self.transactions_max
                && held.bytes.saturating_add(more.bytes) <= self.bytes_max
                && held.rows.saturating_add(more.rows) <= self.rows_max)
    }

    /// Whether a batch is to take no more.
    pub fn is_full(&self, transactions: usize, held: Weight) -> bool {
        transactions >= self.transactions_max || held.bytes >= self.bytes_max || held.rows >= self.rows_max
    }
}

/// Measured time per row and per commit, newer batches counting for more, larger ones too.
///
/// The limit on rows is what can be expected to execute within 20 commits' time, within 0.1 s and 5 s: it grows with the
/// commit's time and shrinks with the rows'. There is none before the first batch is done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizing {
    batches: u64,
    rows: u64,
    execute_us: u64,
    commit_us: u64,
}

impl Sizing {
    /// Notes what a batch of `rows` took.
    pub fn record(&mut self, rows: usize, timing: Timing) {
        let weigh = |sum: &mut u64, new: u64| *sum = (*sum - *sum / FORGET).saturating_add(new);
        // Scaled, so that forgetting an eighth of small sums forgets something.
        weigh(&mut self.batches, FORGET * 1000);
        weigh(&mut self.rows, (rows as u64).min(MEASURED_US_MAX).saturating_mul(1000));
        weigh(&mut self.execute_us, timing.execute_us.min(MEASURED_US_MAX).saturating_mul(1000));
        weigh(&mut self.commit_us, timing.commit_us.min(MEASURED_US_MAX).saturating_mul(1000));
    }

    /// What a batch may hold now.
    pub fn limits(&self, options: &Options) -> Limits {
        let workers = options.workers.max(1);
        Limits {
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
        // The average commit: both sums carry the same factor and forget alike.
        let commit_us = self.commit_us.saturating_mul(FORGET) / self.batches.max(1);
        let budget_us = commit_us.saturating_mul(EXECUTE_PER_COMMIT).clamp(EXECUTE_US_MIN, EXECUTE_US_MAX);
        let rows = u128::from(budget_us) * u128::from(self.rows) / u128::from(self.execute_us);
        usize::try_from(rows.max(u128::from(ROWS_MIN))).unwrap_or(usize::MAX)
    }

    fn overlap(&self, workers: usize) -> usize {
        if self.commit_us == 0 {
            return workers;
        }
        let executing = usize::try_from(self.execute_us.div_ceil(self.commit_us)).unwrap_or(workers);
        executing.saturating_add(1).clamp(2, workers.max(2)).min(workers)
    }
}
