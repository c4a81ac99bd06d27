//! Decides how many rows the next chunk gets, from the measured cost of recent chunks.

use std::collections::VecDeque;

/// Number of recent chunks whose cost is kept.
const REMEMBERED: usize = 10;

/// The cost of a row is stored in units of 1/1024, so that it may be less than 1.
const PARTS: u128 = 1024;

/// Limits for the size of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizeLimits {
    /// Number of rows of the first chunk, before any cost is known.
    pub rows_first: u64,
    /// Maximum number of rows of a chunk.
    pub rows_max: u64,
    /// Maximum cost of a chunk, in the unit that the caller measures, such as bytes or time.
    pub cost_max: u64,
}

/// Sizes chunks so that nine of ten chunks stay within the maximum cost. From one chunk to the next, the size
/// grows by at most half, and shrinks without a limit.
#[derive(Debug, Clone)]
pub struct ChunkSizer {
    limits: ChunkSizeLimits,
    rows: u64,
    costs: VecDeque<u128>,
}

impl ChunkSizer {
    /// Creates a chunk sizer that has no measurements yet.
    pub fn new(limits: ChunkSizeLimits) -> Self {
        let rows = limits.rows_first.clamp(1, limits.rows_max.max(1));
        Self { limits, rows, costs: VecDeque::with_capacity(REMEMBERED) }
    }

    /// Returns the number of rows for the next chunk, at least 1.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Records the cost of a finished chunk.
    pub fn record_chunk(&mut self, rows: u64, cost: u64) {
        if rows == 0 {
            return;
        }
        if self.costs.len() == REMEMBERED {
            self.costs.pop_front();
        }
        self.costs.push_back(u128::from(cost) * PARTS / u128::from(rows));
        let fitting = match self.p90() {
            0 => u64::MAX,
            cost => u64::try_from(u128::from(self.limits.cost_max) * PARTS / cost).unwrap_or(u64::MAX),
        };
        let grown = self.rows.saturating_add(self.rows / 2).max(self.rows.saturating_add(1));
        self.rows = fitting.min(grown).clamp(1, self.limits.rows_max.max(1));
    }

    /// Returns the 90th percentile: nine of ten recorded chunks have at most this cost per row.
    fn p90(&self) -> u128 {
        let mut costs: Vec<_> = self.costs.iter().copied().collect();
        costs.sort_unstable();
        let index = (costs.len() * 9).div_ceil(10).saturating_sub(1);
        costs.get(index).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ChunkSizeLimits = ChunkSizeLimits { rows_first: 100, rows_max: 1000, cost_max: 10_000 };

    #[test]
    fn size_grows_by_half_and_shrinks_at_once() {
        let mut chunk_sizer = ChunkSizer::new(LIMITS);
        chunk_sizer.record_chunk(100, 1_000);
        assert_eq!(chunk_sizer.rows(), 150);
        for _ in 0..20 {
            chunk_sizer.record_chunk(100, 1_000);
        }
        assert_eq!(chunk_sizer.rows(), 1000);
        // One expensive chunk among ten does not shrink the size, but a second one does.
        chunk_sizer.record_chunk(100, 100_000);
        assert_eq!(chunk_sizer.rows(), 1000);
        chunk_sizer.record_chunk(100, 100_000);
        assert_eq!(chunk_sizer.rows(), 10);
    }

    #[test]
    fn size_stays_within_its_limits() {
        let mut chunk_sizer = ChunkSizer::new(ChunkSizeLimits { rows_first: 0, ..LIMITS });
        assert_eq!(chunk_sizer.rows(), 1);
        chunk_sizer.record_chunk(1, u64::MAX);
        assert_eq!(chunk_sizer.rows(), 1);
        chunk_sizer.record_chunk(0, 5);
        assert_eq!(chunk_sizer.rows(), 1);
        let mut chunk_sizer = ChunkSizer::new(LIMITS);
        for _ in 0..100 {
            chunk_sizer.record_chunk(u64::MAX, 0);
        }
        assert_eq!(chunk_sizer.rows(), LIMITS.rows_max);
    }
}
