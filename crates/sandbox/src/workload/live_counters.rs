//! Live statistics of a workload: counts, rates, latencies, stalls.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Number of seconds for which commits per second are stored. Commits after that time count only in the
/// totals.
const SECONDS_MAX: usize = 4 * 3600;

/// Latencies are counted in buckets. There are 16 buckets for each power of two, so the error is at most 6 %.
const SUB_BUCKET_BITS: u32 = 4;
const SUB_BUCKETS: usize = 1 << SUB_BUCKET_BITS;
const BUCKETS: usize = SUB_BUCKETS * (64 - SUB_BUCKET_BITS as usize + 1);

/// A histogram of durations to which many tasks add.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    max_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), max_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds a duration, rounded to microseconds.
    pub fn add(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(us)].fetch_add(1, Relaxed);
        self.max_us.fetch_max(us, Relaxed);
    }

    /// Returns the quantile of the durations: the fraction `share` of them do not exceed it (0.5: the
    /// median). Zero if there are no durations.
    pub fn quantile(&self, share: f64) -> Duration {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let rank = ((total as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(upper_bound(index)).min(self.max());
            }
        }
        Duration::ZERO
    }

    /// Returns the longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.max_us.load(Relaxed))
    }
}

fn bucket_of(us: u64) -> usize {
    if us < SUB_BUCKETS as u64 {
        return us as usize;
    }
    let shift = us.ilog2() - SUB_BUCKET_BITS;
    SUB_BUCKETS * shift as usize + (us >> shift) as usize
}

/// Returns the largest number of microseconds that belongs to a bucket.
fn upper_bound(index: usize) -> u64 {
    if index < SUB_BUCKETS {
        return index as u64;
    }
    let shift = (index / SUB_BUCKETS - 1) as u32;
    let low = ((index % SUB_BUCKETS + SUB_BUCKETS) as u64) << shift;
    low + ((1 << shift) - 1)
}

/// Statistics of a running workload. Reading them does not slow the workers.
#[derive(Debug)]
pub struct Counters {
    began: Instant,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    unknown: AtomicU64,
    reconnects: AtomicU64,
    connected: AtomicU64,
    stalls: AtomicU64,
    /// Time of the last acknowledged commit of any worker, in microseconds since `began`.
    last_commit_us: AtomicU64,
    longest_gap_us: AtomicU64,
    per_second: Box<[AtomicU32]>,
    commit_latency: Histogram,
    stall: Duration,
}

impl Counters {
    pub(crate) fn new(stall: Duration) -> Self {
        Self {
            began: Instant::now(),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            reconnects: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            last_commit_us: AtomicU64::new(0),
            longest_gap_us: AtomicU64::new(0),
            per_second: (0..SECONDS_MAX).map(|_| AtomicU32::new(0)).collect(),
            commit_latency: Histogram::default(),
            stall,
        }
    }

    /// Counts an acknowledged transaction. `commit` is the duration of the statement that committed it.
    pub(crate) fn acknowledged(&self, commit: Duration) {
        let now = self.began.elapsed();
        let now_us = now.as_micros() as u64;
        self.acknowledged.fetch_add(1, Relaxed);
        self.commit_latency.add(commit);
        if commit >= self.stall {
            self.stalls.fetch_add(1, Relaxed);
        }
        let before = self.last_commit_us.fetch_max(now_us, Relaxed);
        self.longest_gap_us.fetch_max(now_us.saturating_sub(before), Relaxed);
        if let Some(second) = self.per_second.get(now.as_secs() as usize) {
            second.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn unknown(&self) {
        self.unknown.fetch_add(1, Relaxed);
    }

    pub(crate) fn connected(&self, again: bool) {
        self.connected.fetch_add(1, Relaxed);
        if again {
            self.reconnects.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn disconnected(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// Returns the statistics of this moment.
    pub fn snapshot(&self) -> WorkloadSnapshot {
        let elapsed = self.began.elapsed();
        let since = |us: &AtomicU64| elapsed.saturating_sub(Duration::from_micros(us.load(Relaxed)));
        WorkloadSnapshot {
            elapsed,
            acknowledged: self.acknowledged.load(Relaxed),
            failed: self.failed.load(Relaxed),
            unknown: self.unknown.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            connected: self.connected.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            since_last_commit: since(&self.last_commit_us),
            longest_gap: Duration::from_micros(self.longest_gap_us.load(Relaxed)),
            latency_p50: self.commit_latency.quantile(0.5),
            latency_p99: self.commit_latency.quantile(0.99),
            latency_max: self.commit_latency.max(),
        }
    }

    /// Returns the number of acknowledged commits in each second since the start, including the current
    /// second.
    pub fn per_second(&self) -> Vec<u32> {
        let seconds = (self.began.elapsed().as_secs() as usize + 1).min(SECONDS_MAX);
        self.per_second[..seconds].iter().map(|count| count.load(Relaxed)).collect()
    }

    /// Returns the histogram of commit durations.
    pub fn commit_latency(&self) -> &Histogram {
        &self.commit_latency
    }
}

/// Statistics of a workload at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadSnapshot {
    /// Time since the start.
    pub elapsed: Duration,
    /// Transactions whose commit the server acknowledged with OK.
    pub acknowledged: u64,
    /// Transactions that were certainly not committed.
    pub failed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// How often workers connected again.
    pub reconnects: u64,
    /// Number of workers that are connected now.
    pub connected: u64,
    /// Number of commits that took longer than the stall limit.
    pub stalls: u64,
    /// Time since the last acknowledged commit of any worker.
    pub since_last_commit: Duration,
    /// The longest time in which no worker got an acknowledged commit.
    pub longest_gap: Duration,
    /// Median duration of a commit.
    pub latency_p50: Duration,
    /// 99th percentile of the duration of a commit.
    pub latency_p99: Duration,
    /// Duration of the longest commit.
    pub latency_max: Duration,
}

impl WorkloadSnapshot {
    /// Returns the number of acknowledged commits per second since an earlier snapshot.
    pub fn rate_since(&self, earlier: &Self) -> f64 {
        let seconds = self.elapsed.saturating_sub(earlier.elapsed).as_secs_f64();
        let commits = self.acknowledged.saturating_sub(earlier.acknowledged) as f64;
        if seconds > 0.0 { commits / seconds } else { 0.0 }
    }

    /// Returns the number of acknowledged commits per second since the start.
    pub fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.acknowledged as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_match_the_values_in_the_bucket() {
        let samples = (0..200).chain((3..63).flat_map(|bits| {
            let power = 1_u64 << bits;
            [power - 1, power, power + power / 3]
        }));
        for us in samples.chain([u64::MAX]) {
            let index = bucket_of(us);
            assert!(index < BUCKETS, "{us} µs has no bucket");
            assert!(us <= upper_bound(index), "{us} µs is above its bucket");
            assert!(index == 0 || us > upper_bound(index - 1), "{us} µs is below its bucket");
        }
    }

    #[test]
    fn quantiles_are_nearly_exact() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), Duration::ZERO);
        for us in 1..=1000 {
            histogram.add(Duration::from_micros(us));
        }
        let median = histogram.quantile(0.5).as_micros();
        assert!((500..=531).contains(&median), "the median is {median} µs, expected 500 to 531");
        let p99 = histogram.quantile(0.99).as_micros();
        assert!((990..=1000).contains(&p99), "the 99th percentile is {p99} µs, expected 990 to 1000");
        assert_eq!(histogram.quantile(1.0), Duration::from_micros(1000));
    }
}
