//! How many rows a chunk gets, from what the last ones cost.

use std::collections::VecDeque;

/// How many chunks are remembered.
const REMEMBERED: usize = 10;

/// Costs per row are kept in parts of this, for rows that cost less than 1.
const PARTS: u128 = 1024;

/// Bounds of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizeLimits {
    /// How many rows the first chunk gets, before anything is known.
    pub rows_first: u64,
    /// The most rows of a chunk.
    pub rows_max: u64,
    /// What a chunk may cost: bytes or time, whatever is measured.
    pub cost_max: u64,
}

/// Sizes chunks so that nine of ten cost no more than they may: it grows by half at most, and shrinks at once.
#[derive(Debug, Clone)]
pub struct ChunkSizer {
    limits: ChunkSizeLimits,
    rows: u64,
    costs: VecDeque<u128>,
}

impl ChunkSizer {
    /// A chunk_sizer that knows nothing yet.
    pub fn new(limits: ChunkSizeLimits) -> Self {
        let rows = limits.rows_first.clamp(1, limits.rows_max.max(1));
        Self { limits, rows, costs: VecDeque::with_capacity(REMEMBERED) }
    }

    /// How many rows the next chunk should have; 1 at least.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes in what a chunk cost.
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

    /// The cost of a row that nine of ten remembered chunks do not exceed.
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
    fn it_grows_by_half_and_shrinks_at_once() {
        let mut chunk_sizer = ChunkSizer::new(LIMITS);
        chunk_sizer.record_chunk(100, 1_000);
        assert_eq!(chunk_sizer.rows(), 150);
        for _ in 0..20 {
            chunk_sizer.record_chunk(100, 1_000);
        }
        assert_eq!(chunk_sizer.rows(), 1000);
        // One dear chunk of ten is forgiven, a second is not.
        chunk_sizer.record_chunk(100, 100_000);
        assert_eq!(chunk_sizer.rows(), 1000);
        chunk_sizer.record_chunk(100, 100_000);
        assert_eq!(chunk_sizer.rows(), 10);
    }

    #[test]
    fn it_stays_within_its_bounds() {
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
