//! A file with its durable contents and the changes since the last sync.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;

use super::power_cut::CutDecision;
use super::sparse_contents::{PAGE_BYTES, SparseContents, parts};

/// A file whose unsynced changes have more bytes is written back by the operating system on its own.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;

/// A file. `durable` is what certainly survives a power cut.
#[derive(Debug, Clone, Default)]
pub(crate) struct VolatileFile {
    current: SparseContents,
    durable: SparseContents,
    unsynced: Vec<ContentChange>,
    unsynced_bytes: usize,
}

#[derive(Debug, Clone)]
struct ContentChange {
    /// Number of the change among all changes of the disk.
    sequence: u64,
    kind: ContentChangeKind,
    length_after: u64,
}

#[derive(Debug, Clone)]
enum ContentChangeKind {
    Write { offset: u64, bytes: Box<[u8]> },
    Zero { offset: u64, length: u64 },
    Resize { length: u64 },
}

impl VolatileFile {
    pub(crate) fn length(&self) -> u64 {
        self.current.length()
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.current.stored_bytes()
    }

    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Returns the number of the newest unsynced change.
    pub(crate) fn newest_change(&self) -> Option<u64> {
        self.unsynced.last().map(|change| change.sequence)
    }

    /// Returns the number of the oldest unsynced change.
    pub(crate) fn oldest_change(&self) -> Option<u64> {
        self.unsynced.first().map(|change| change.sequence)
    }

    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        self.current.read(offset, length)
    }

    pub(crate) fn write(&mut self, sequence: u64, offset: u64, bytes: &[u8]) {
        self.current.write(offset, bytes);
        self.record(sequence, ContentChangeKind::Write { offset, bytes: bytes.into() });
        self.unsynced_bytes += bytes.len();
        if self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            self.sync();
        }
    }

    pub(crate) fn zero(&mut self, sequence: u64, offset: u64, length: u64) {
        self.current.zero(offset, length);
        self.record(sequence, ContentChangeKind::Zero { offset, length });
    }

    pub(crate) fn resize(&mut self, sequence: u64, length: u64) {
        if length != self.current.length() {
            self.current.resize(length);
            self.record(sequence, ContentChangeKind::Resize { length });
        }
    }

    fn record(&mut self, sequence: u64, kind: ContentChangeKind) {
        self.unsynced.push(ContentChange { sequence, kind, length_after: self.current.length() });
    }

    /// Makes all changes durable.
    pub(crate) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change.kind {
                // A later change of the same bytes copies the pages again, so the final pages are right
                // whatever the changes between them are.
                ContentChangeKind::Write { offset, bytes } => {
                    self.durable.share_pages(&self.current, offset, bytes.len() as u64);
                }
                ContentChangeKind::Zero { offset, length } => self.durable.zero(offset, length),
                ContentChangeKind::Resize { .. } => {}
            }
            self.durable.resize(change.length_after);
        }
        self.unsynced_bytes = 0;
    }

    /// Leaves what survives a power cut. Everything that is left is durable.
    pub(crate) fn cut_power(&mut self, decision: &CutDecision, random: &mut StdRng) {
        let survivors = self.survivors(decision, random);
        *self = Self { current: survivors.clone(), durable: survivors, ..Self::default() };
    }

    fn survivors(&self, decision: &CutDecision, random: &mut StdRng) -> SparseContents {
        let mut found = self.durable.clone();
        let (Some(oldest), Some(newest)) = (self.oldest_change(), self.newest_change()) else {
            return found;
        };
        let mut limits = SectorLimits::new(decision, oldest - 1..=newest, random);
        // File systems write lengths and freed space through a journal, so these changes survive in order.
        let length_limit = limits.draw();
        self.order_cuts(length_limit, &mut limits);
        let mut length = found.length();
        let mut length_before = found.length();
        let mut not_cut_at = u64::MAX;
        for change in &self.unsynced {
            let is_in_journal = change.sequence <= length_limit;
            match &change.kind {
                ContentChangeKind::Write { offset, bytes } => {
                    let first = offset / limits.sector_bytes;
                    for (sector, at, count) in parts(*offset, bytes.len() as u64, limits.sector_bytes) {
                        // After a cut of the file that was lost, the file has its old space. Later writes
                        // went to new space.
                        if at < not_cut_at && limits.survives(change.sequence, sector, sector - first) {
                            let from = (at - offset) as usize;
                            found.write(at, &bytes[from..from + count]);
                            if decision.is_torn(change.sequence) {
                                length = length.max(at + count as u64);
                            }
                        }
                    }
                }
                ContentChangeKind::Zero { offset, length } => {
                    let length = (*length).min(not_cut_at.saturating_sub(*offset));
                    zero_survivors(&mut found, &mut limits, change.sequence, *offset, length);
                }
                ContentChangeKind::Resize { length } if is_in_journal => {
                    found.zero(*length, u64::MAX - length)
                }
                ContentChangeKind::Resize { length } if *length < length_before.min(not_cut_at) => {
                    // The rest of the last sector is written as zeros.
                    let end = length.next_multiple_of(limits.sector_bytes);
                    zero_survivors(&mut found, &mut limits, change.sequence, *length, end - length);
                    not_cut_at = not_cut_at.min(end);
                }
                ContentChangeKind::Resize { .. } => {}
            }
            length_before = change.length_after;
            if is_in_journal {
                length = change.length_after;
            }
        }
        // The length decides how many of the written bytes can be read.
        found.resize(length);
        found
    }

    /// A file system writes the rest of a file's last sector as zeros before it records that the file was
    /// cut.
    fn order_cuts(&self, length_limit: u64, limits: &mut SectorLimits<'_>) {
        let mut length_before = self.durable.length();
        for change in self.unsynced.iter().take_while(|change| change.sequence <= length_limit) {
            if let ContentChangeKind::Resize { length } = change.kind
                && length < length_before
            {
                limits.raise(length / limits.sector_bytes, change.sequence);
            }
            length_before = change.length_after;
        }
    }
}

/// Replaces stored bytes of a range by zeros, where the change `sequence` survived.
fn zero_survivors(
    found: &mut SparseContents,
    limits: &mut SectorLimits<'_>,
    sequence: u64,
    offset: u64,
    length: u64,
) {
    let end = offset.saturating_add(length);
    for page in found.stored_pages(offset, end) {
        let start = (page * PAGE_BYTES as u64).max(offset);
        let count = ((page + 1) * PAGE_BYTES as u64).min(end) - start;
        for (sector, at, count) in parts(start, count, limits.sector_bytes) {
            if limits.survives(sequence, sector, u64::MAX) {
                found.zero(at, count as u64);
            }
        }
    }
}

/// The newest change that each sector of a file has got before the power cut.
struct SectorLimits<'a> {
    decision: &'a CutDecision,
    sector_bytes: u64,
    changes: std::ops::RangeInclusive<u64>,
    random: &'a mut StdRng,
    /// Limits that were drawn, by sector.
    drawn: BTreeMap<u64, u64>,
}

impl<'a> SectorLimits<'a> {
    fn new(
        decision: &'a CutDecision,
        changes: std::ops::RangeInclusive<u64>,
        random: &'a mut StdRng,
    ) -> Self {
        let sector_bytes = u64::from(decision.sector_bytes());
        Self { decision, sector_bytes, changes, random, drawn: BTreeMap::new() }
    }

    /// Draws the newest change that survives, for the length or a sector.
    fn draw(&mut self) -> u64 {
        match self.decision.limit() {
            Some(limit) => limit,
            // In half of the cases, the sector is lost completely or survives completely.
            None => match self.random.random_range(0..4) {
                0 => *self.changes.start(),
                1 => *self.changes.end(),
                _ => self.random.random_range(self.changes.clone()),
            },
        }
    }

    /// Makes the changes of a sector up to `sequence` survive.
    fn raise(&mut self, sector: u64, sequence: u64) {
        let limit = self.limit(sector).max(sequence);
        self.drawn.insert(sector, limit);
    }

    fn limit(&mut self, sector: u64) -> u64 {
        match self.drawn.get(&sector) {
            Some(limit) => *limit,
            None => {
                let limit = self.draw();
                self.drawn.insert(sector, limit);
                limit
            }
        }
    }

    /// Whether the change `sequence` of a sector is on the disk. `index` is the number of the sector in its
    /// write.
    fn survives(&mut self, sequence: u64, sector: u64, index: u64) -> bool {
        if self.decision.is_torn(sequence) {
            return index < self.decision.torn_sectors();
        }
        sequence <= self.limit(sector)
    }
}
