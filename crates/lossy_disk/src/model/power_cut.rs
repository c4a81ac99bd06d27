//! Which unsynced changes a power cut takes away.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Which unsynced changes are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsyncedLoss {
    /// All unsynced changes: nothing reaches the disk before a sync.
    Everything,
    /// All unsynced changes after a random moment, on the whole disk. The write at that moment is torn.
    AfterMoment,
    /// Any unsynced sectors: the disk has written the sectors of files in any order. Names of files survive
    /// in order, because file systems write them through a journal.
    AnySectors,
}

/// A power cut. The same seed and the same changes leave the same disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerCut {
    /// Seed of the random choices.
    pub seed: u64,
    /// Which unsynced changes are lost.
    pub loss: UnsyncedLoss,
    /// The unit that the disk writes completely or not at all: 512 or 4096 bytes.
    pub sector_bytes: u32,
}

impl PowerCut {
    /// Chooses loss and sectors by the seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
        let loss = match random.random_range(0..4) {
            0 => UnsyncedLoss::Everything,
            1 => UnsyncedLoss::AfterMoment,
            _ => UnsyncedLoss::AnySectors,
        };
        Self { seed, loss, sector_bytes: if random.random() { 512 } else { 4096 } }
    }

    /// Returns a power cut that loses all unsynced changes.
    pub fn of_everything() -> Self {
        Self { seed: 0, loss: UnsyncedLoss::Everything, sector_bytes: 4096 }
    }
}

/// What a power cut left of the unsynced changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Number of files with unsynced changes.
    pub unsynced_files: usize,
    /// Number of unsynced changes of names.
    pub unsynced_names: usize,
    /// Number of unsynced changes of names that were lost.
    pub lost_names: usize,
}

/// The choices of a power cut that hold for the whole disk.
#[derive(Debug)]
pub(crate) struct CutDecision {
    sector_bytes: u32,
    /// The last change that survives. `None`: each sector has its own.
    limit: Option<u64>,
    /// The last change of names that survives.
    name_limit: u64,
    /// The number of sectors of the write after `limit` that survive.
    torn_sectors: u64,
}

impl CutDecision {
    /// `oldest` and `newest` are the numbers of the unsynced changes of the disk.
    pub(crate) fn new(cut: &PowerCut, oldest: u64, newest: u64, random: &mut StdRng) -> Self {
        let before = oldest.saturating_sub(1);
        let moment = random.random_range(before..=newest.max(before));
        let (limit, name_limit) = match cut.loss {
            UnsyncedLoss::Everything => (Some(before), before),
            UnsyncedLoss::AfterMoment => (Some(moment), moment),
            UnsyncedLoss::AnySectors => (None, moment),
        };
        let torn_sectors = match cut.loss {
            UnsyncedLoss::AfterMoment => random.random_range(0..16),
            _ => 0,
        };
        Self { sector_bytes: cut.sector_bytes, limit, name_limit, torn_sectors }
    }

    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    pub(crate) fn name_limit(&self) -> u64 {
        self.name_limit
    }

    pub(crate) fn torn_sectors(&self) -> u64 {
        self.torn_sectors
    }

    /// Whether the disk was writing this change at the moment of the power cut.
    pub(crate) fn is_torn(&self, sequence: u64) -> bool {
        self.torn_sectors > 0 && self.limit.is_some_and(|limit| sequence == limit + 1)
    }
}
