//! When an operation of a slow disk completes.

use std::time::{Duration, Instant};

/// Speed of a disk. The default adds no delay.
///
/// Reads take time when the kernel's page cache does not have the data. Writes take time if the file is open
/// with `O_DIRECT` or `O_SYNC`; other writes go to a cache, and their bytes count at the next sync.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DiskSpeed {
    /// Latency of each read.
    pub read: Duration,
    /// Latency of each direct or synchronous write.
    pub write: Duration,
    /// Latency of each sync of a file or folder.
    pub sync: Duration,
    /// Bytes per second of reads and writes together. `None`: no limit.
    pub bytes_per_second: Option<u64>,
    /// Reads, writes and syncs per second. `None`: no limit.
    pub operations_per_second: Option<u32>,
}

/// The queue of a disk: operations share the bandwidth and the operations per second, and their latencies
/// overlap.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskQueue {
    free_at: Option<Instant>,
}

impl DiskQueue {
    /// Returns when an operation with this latency completes that moves `bytes`. `None`: at once.
    pub(crate) fn completion(
        &mut self,
        speed: &DiskSpeed,
        latency: Duration,
        bytes: u64,
        now: Instant,
    ) -> Option<Instant> {
        let seconds = |amount: f64, rate: Option<f64>| {
            rate.filter(|rate| *rate > 0.0)
                .map_or(Duration::ZERO, |rate| Duration::from_secs_f64(amount / rate))
        };
        let by_bytes = seconds(bytes as f64, speed.bytes_per_second.map(|rate| rate as f64));
        let by_count = seconds(1.0, speed.operations_per_second.map(f64::from));
        let start = self.free_at.map_or(now, |free| free.max(now));
        let done = start + by_bytes.max(by_count);
        self.free_at = Some(done);
        let completion = done + latency;
        (completion > now).then_some(completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_overlap_and_rates_add_up() {
        let millisecond = Duration::from_millis(1);
        let now = Instant::now();
        let mut queue = DiskQueue::default();
        assert_eq!(queue.completion(&DiskSpeed::default(), Duration::ZERO, 1 << 20, now), None);
        let slow = DiskSpeed { bytes_per_second: Some(1_000_000), ..DiskSpeed::default() };
        assert_eq!(queue.completion(&slow, millisecond, 1_000, now), Some(now + 2 * millisecond));
        assert_eq!(queue.completion(&slow, millisecond, 1_000, now), Some(now + 3 * millisecond));
        let rare = DiskSpeed { operations_per_second: Some(100), ..DiskSpeed::default() };
        let later = now + 50 * millisecond;
        assert_eq!(queue.completion(&rare, Duration::ZERO, 0, later), Some(later + 10 * millisecond));
        assert_eq!(queue.completion(&rare, Duration::ZERO, 0, later), Some(later + 20 * millisecond));
    }
}
