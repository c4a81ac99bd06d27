//! Chooses by measurement how many batches run at the same time in independent order. It does no I/O.
//!
//! More concurrent batches help while batches wait for disks or commits. While batches use the CPU, they slow
//! each other down, and each batch is smaller. So the tuner tries another number of concurrent batches from
//! time to time for a few batches, and keeps this number if it is faster.

use super::transaction_batch::BatchTiming;

/// The minimum number of concurrent batches. If only one batch ran at a time and waited for another client's
/// lock, all other batches would wait too.
const MIN: usize = 2;
/// A trial with more concurrent batches must reach this percentage of the current throughput. More batches
/// cost memory, hold more locks, and leave more gaps in the applied transactions.
const GAIN_PERCENT: u128 = 110;
/// A trial with fewer concurrent batches must reach this percentage of the current throughput.
const LOSS_PERCENT: u128 = 97;
/// Initial number of batches between two trials, per concurrent batch.
const PAUSE_MIN: usize = 2;
/// Maximum number of batches between two trials, per concurrent batch. It is reached after trials without
/// gain.
const PAUSE_MAX: usize = 64;
/// Number of batches that one measurement covers, per concurrent batch.
const MEASURED: usize = 2;
/// If too few batches run concurrently, a trial ends after this many batches, per concurrent batch.
const PATIENCE: usize = 8;

/// Measurements with one number of concurrent batches.
#[derive(Debug, Clone, Copy, Default)]
struct ThroughputSample {
    batches: usize,
    rows: u128,
    time_us: u128,
}

impl ThroughputSample {
    fn add(&mut self, rows: usize, timing: BatchTiming) {
        self.batches += 1;
        self.rows += rows as u128;
        self.time_us += u128::from(timing.execute_us) + u128::from(timing.commit_us);
    }

    /// Returns whether this sample has at least `percent` of the throughput of `other`. `at_a_time` batches
    /// ran concurrently in this sample, and `other_at_a_time` in `other`.
    fn beats(&self, at_a_time: usize, other: &Self, other_at_a_time: usize, percent: u128) -> bool {
        let rate = |own: &Self, at_a_time: usize, time: &Self| {
            own.rows.saturating_mul(at_a_time as u128).saturating_mul(time.time_us.max(1))
        };
        rate(self, at_a_time, other).saturating_mul(100)
            >= rate(other, other_at_a_time, self).saturating_mul(percent)
    }
}

#[derive(Debug, Clone, Copy)]
struct WorkerTrial {
    at_a_time: usize,
    /// Number of batches that started before the trial and have not ended. They do not count for the trial.
    skip: usize,
    /// Number of batches at whose end fewer batches ran concurrently than the trial requires.
    unfilled: usize,
    measured: ThroughputSample,
}

/// Measures throughput, and chooses the number of concurrent batches.
#[derive(Debug, Clone)]
pub(super) struct Parallelism {
    workers: usize,
    at_a_time: usize,
    measured: ThroughputSample,
    /// Number of batches until the next trial.
    pause: usize,
    /// The length of the last pause between trials, as the number of batches per concurrent batch.
    patience: usize,
    /// Whether the next trial uses a larger number of concurrent batches.
    upwards: bool,
    trial: Option<WorkerTrial>,
}

impl Parallelism {
    /// Starts with few concurrent batches. If batches only use the CPU, many concurrent batches would be
    /// slow, and a short backlog would end before the tuner could reduce their number. If batches wait for
    /// disks or commits, the tuner raises the number after a few measured batches.
    pub fn new(workers: usize) -> Self {
        let workers = workers.max(1);
        Self {
            workers,
            at_a_time: MIN.min(workers),
            measured: ThroughputSample::default(),
            pause: PAUSE_MIN * MIN,
            patience: PAUSE_MIN,
            upwards: true,
            trial: None,
        }
    }

    /// Returns the current number of concurrent batches.
    pub fn at_a_time(&self) -> usize {
        self.trial.map_or(self.at_a_time, |trial| trial.at_a_time)
    }

    /// Records a batch of `rows` rows. `running` is the number of batches that ran when this batch ended,
    /// including this batch.
    pub fn record(&mut self, running: usize, rows: usize, timing: BatchTiming) {
        let is_filled = running >= self.at_a_time();
        match &mut self.trial {
            Some(trial) if trial.skip > 0 => trial.skip -= 1,
            Some(trial) if !is_filled => {
                trial.unfilled += 1;
                if trial.unfilled >= PATIENCE * trial.at_a_time {
                    self.reject();
                }
            }
            Some(trial) => {
                trial.measured.add(rows, timing);
                if trial.measured.batches >= MEASURED * trial.at_a_time {
                    self.decide();
                }
            }
            None if is_filled => {
                // Use only the newest measurements, because older measurements may be from other tables.
                if self.measured.batches >= MEASURED * self.at_a_time && self.pause > 0 {
                    self.measured = ThroughputSample::default();
                }
                self.measured.add(rows, timing);
                self.pause = self.pause.saturating_sub(1);
                if self.pause == 0 && self.measured.batches >= MEASURED * self.at_a_time {
                    self.begin_trial();
                }
            }
            None => {}
        }
    }

    fn begin_trial(&mut self) {
        let more = (self.at_a_time + (self.at_a_time / 2).max(1)).min(self.workers);
        let fewer = (self.at_a_time - (self.at_a_time / 4).max(1)).max(MIN.min(self.workers));
        let (first, second) = if self.upwards { (more, fewer) } else { (fewer, more) };
        let other = [first, second].into_iter().find(|other| *other != self.at_a_time);
        self.upwards = !self.upwards;
        let Some(at_a_time) = other else {
            self.pause = PAUSE_MAX * self.at_a_time;
            return;
        };
        let skip = self.at_a_time.max(at_a_time);
        self.trial =
            Some(WorkerTrial { at_a_time, skip, unfilled: 0, measured: ThroughputSample::default() });
    }

    fn decide(&mut self) {
        let Some(trial) = self.trial else { return };
        let more = trial.at_a_time > self.at_a_time;
        let percent = if more { GAIN_PERCENT } else { LOSS_PERCENT };
        if !trial.measured.beats(trial.at_a_time, &self.measured, self.at_a_time, percent) {
            self.reject();
            return;
        }
        self.trial = None;
        self.at_a_time = trial.at_a_time;
        self.measured = trial.measured;
        self.upwards = more;
        self.patience = PAUSE_MIN;
        self.pause = self.patience * self.at_a_time;
    }

    fn reject(&mut self) {
        self.trial = None;
        self.measured = ThroughputSample::default();
        self.patience = (self.patience * 2).min(PAUSE_MAX);
        self.pause = self.patience * self.at_a_time;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the number of concurrent batches that the tuner reaches in the end. `time_us(n)` is the time
    /// that each of `n` concurrent batches of 100 rows takes.
    fn rest(workers: usize, time_us: impl Fn(usize) -> u64) -> usize {
        let mut own = Parallelism::new(workers);
        let mut most = [0usize; 65];
        for batch in 0..20_000 {
            let running = own.at_a_time();
            own.record(running, 100, BatchTiming { execute_us: time_us(running), commit_us: 0 });
            if batch >= 4_000 {
                most[running] += 1;
            }
        }
        (0..most.len()).max_by_key(|at| most[*at]).unwrap_or(0)
    }

    #[test]
    fn batches_that_wait_use_all_workers() {
        assert_eq!(rest(8, |_| 1000), 8);
        // The effect of the last step is too small to be measured.
        assert!(rest(64, |_| 1000) >= 60);
        assert_eq!(rest(1, |_| 1000), 1);
    }

    #[test]
    fn batches_that_use_the_cpu_use_as_many_workers_as_processors() {
        assert_eq!(rest(8, |running| 1000 * running.max(2) as u64 / 2), 2);
        let at_a_time = rest(16, |running| 1000 * running.max(6) as u64 / 6);
        assert!((5..=6).contains(&at_a_time), "wrong number of concurrent batches: {at_a_time}");
    }

    #[test]
    fn slower_trials_are_reverted() {
        let mut own = Parallelism::new(8);
        for _ in 0..500 {
            own.record(own.at_a_time(), 100, BatchTiming { execute_us: 1000, commit_us: 0 });
        }
        for _ in 0..5000 {
            let running = own.at_a_time();
            own.record(running, 100, BatchTiming { execute_us: 1000 * running as u64, commit_us: 0 });
        }
        assert!(own.at_a_time() <= 3, "wrong number of concurrent batches: {own:?}");
    }

    #[test]
    fn batches_with_too_little_concurrency_are_not_measured() {
        let mut own = Parallelism::new(8);
        for _ in 0..1000 {
            own.record(1, 1, BatchTiming { execute_us: 1, commit_us: 1 });
        }
        assert_eq!(own.at_a_time(), MIN);
    }

    proptest! {
        #[test]
        fn the_number_stays_between_its_bounds(workers in 0usize..40, seen in prop::collection::vec((0usize..50, any::<usize>(), any::<u64>(), any::<u64>()), 0..600)) {
            let mut own = Parallelism::new(workers);
            for (running, rows, execute_us, commit_us) in seen {
                own.record(running, rows, BatchTiming { execute_us, commit_us });
                prop_assert!((1..=workers.max(1)).contains(&own.at_a_time()));
                prop_assert!(workers < 2 || own.at_a_time() >= 2);
            }
        }
    }
}
