//! The file with the figures of the last hour and day. Its size is bounded, and a torn write loses one point.
//!
//! After a header, the file has one block for each series: its name, then one ring of slots for each
//! [`HistoryPeriod`]. The time of a point determines its slot, so no write position is stored, and a point is
//! one write of [`SLOT_BYTES`] bytes. Each slot and each name has a checksum. A slot or name with a wrong
//! checksum counts as empty. The file is never synced: after a crash of the machine, the newest points may be
//! missing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::history_point::{HistoryPeriod, HistoryPoint, VALUES_MAX};

/// The first bytes of the file. A file that starts with other bytes, such as a file of a later version, is
/// emptied.
const MAGIC: &[u8; 16] = b"tailwater hist 1";

/// Size of the header and of a block's name, in bytes.
const HEADER_BYTES: usize = 512;

/// Size of a slot in bytes: a time, the values, and a checksum.
const SLOT_BYTES: usize = 8 + VALUES_MAX * 4 + 4;

/// The maximum length of the name of a series, in bytes. A series with a longer name is not recorded.
const NAME_BYTES_MAX: usize = HEADER_BYTES - 6;

/// How many series the file has at most, which bounds it to 65 MB.
const SERIES_MAX: usize = 1_000;

/// How often a series without points in the last day is searched, in seconds.
const UNUSED_SEARCH_SECONDS: u64 = 600;

const PERIODS: [HistoryPeriod; 2] = [HistoryPeriod::Hour, HistoryPeriod::Day];

/// The number of slots of a ring.
const fn slots(period: HistoryPeriod) -> u64 {
    period.seconds() / period.step_seconds()
}

const BLOCK_BYTES: u64 =
    HEADER_BYTES as u64 + (slots(HistoryPeriod::Hour) + slots(HistoryPeriod::Day)) * SLOT_BYTES as u64;

/// The open file with the points of all series.
#[derive(Debug)]
pub struct RingFile {
    file: File,
    /// The number of the block of each series.
    blocks: BTreeMap<String, u64>,
    /// Numbers of the blocks whose name cannot be read. New series get these blocks first.
    free: Vec<u64>,
    blocks_total: u64,
    /// Until then no series is unused, in seconds since 1970. Searching one reads the whole file.
    none_unused_until: u64,
}

impl RingFile {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = tailwater_files::open_or_create(path, tailwater_files::PRIVATE_FILE_MODE)?;
        let mut magic = [0; MAGIC.len()];
        if file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC {
            file.set_len(0)?;
            file.write_all_at(MAGIC, 0)?;
            file.set_len(HEADER_BYTES as u64)?;
        }
        // The last block may be incomplete. Its missing bytes are read as zeros, so its missing slots are
        // empty.
        let bytes = file.metadata()?.len().saturating_sub(HEADER_BYTES as u64);
        let blocks_total = bytes.div_ceil(BLOCK_BYTES).min(SERIES_MAX as u64);
        let (mut blocks, mut free) = (BTreeMap::new(), Vec::new());
        for block in 0..blocks_total {
            let mut header = [0; HEADER_BYTES];
            read_up_to(&file, &mut header, block_start(block))?;
            match decoded_name(&header) {
                Some(name) if !blocks.contains_key(&name) => drop(blocks.insert(name, block)),
                _ => free.push(block),
            }
        }
        Ok(Self { file, blocks, free, blocks_total, none_unused_until: 0 })
    }

    /// Stores a point in the ring of the hour. Stores the aggregate of all points of the same minute in the
    /// ring of the day.
    ///
    /// # Errors
    /// The error of the system.
    pub fn record(
        &mut self,
        series: &str,
        point: HistoryPoint,
        aggregate: impl Fn(&[HistoryPoint]) -> [f32; VALUES_MAX],
    ) -> io::Result<()> {
        let Some(block) = self.block_for(series, point.at_seconds)? else { return Ok(()) };
        self.write_slot(block, HistoryPeriod::Hour, point)?;
        let step = HistoryPeriod::Day.step_seconds();
        let minute = point.at_seconds / step * step;
        // The slots of a minute are next to each other.
        let per_minute = step / HistoryPeriod::Hour.step_seconds();
        let all = self.slots(block, HistoryPeriod::Hour, slot_of(HistoryPeriod::Hour, minute), per_minute)?;
        let same: Vec<_> = all.into_iter().filter(|one| one.at_seconds / step * step == minute).collect();
        let of_minute = HistoryPoint { at_seconds: minute, values: aggregate(&same) };
        self.write_slot(block, HistoryPeriod::Day, of_minute)
    }

    /// The points of a series in the period that ends at `now_seconds`, the oldest first.
    ///
    /// # Errors
    /// The error of the system.
    pub fn points(
        &self,
        series: &str,
        period: HistoryPeriod,
        now_seconds: u64,
    ) -> io::Result<Vec<HistoryPoint>> {
        let Some(block) = self.blocks.get(series) else { return Ok(Vec::new()) };
        let mut points = self.ring(*block, period)?;
        // Points after `now_seconds` were recorded before the clock was set back.
        points.retain(|point| {
            point.at_seconds <= now_seconds && point.at_seconds + period.seconds() > now_seconds
        });
        points.sort_by_key(|point| point.at_seconds);
        Ok(points)
    }

    /// The names of all series.
    pub fn series(&self) -> impl Iterator<Item = &str> {
        self.blocks.keys().map(String::as_str)
    }

    /// Returns the number of a series' block. A new series gets a new block, or the block of a series without
    /// points in the last day; `None` if there is no such block.
    fn block_for(&mut self, series: &str, now_seconds: u64) -> io::Result<Option<u64>> {
        if let Some(block) = self.blocks.get(series) {
            return Ok(Some(*block));
        }
        if series.len() > NAME_BYTES_MAX {
            return Ok(None);
        }
        let block = match self.free.pop() {
            Some(block) => block,
            None if self.blocks_total < SERIES_MAX as u64 => self.blocks_total,
            None => match self.unused_series(now_seconds)? {
                Some(unused) => self.blocks.remove(&unused).unwrap_or_default(),
                None => return Ok(None),
            },
        };
        // The name is written last, so that a block that was only partly emptied has no name.
        let emptied = self.file.write_all_at(&vec![0; BLOCK_BYTES as usize], block_start(block));
        let named = emptied.and_then(|()| self.file.write_all_at(&encoded_name(series), block_start(block)));
        if let Err(error) = named {
            // The disk may be full. The block stays free, so that it is used when there is space again.
            self.free.extend(Some(block).filter(|block| *block < self.blocks_total));
            return Err(error);
        }
        self.blocks_total = self.blocks_total.max(block + 1);
        self.blocks.insert(series.to_owned(), block);
        Ok(Some(block))
    }

    fn unused_series(&mut self, now_seconds: u64) -> io::Result<Option<String>> {
        if now_seconds < self.none_unused_until {
            return Ok(None);
        }
        for series in self.blocks.keys() {
            if self.points(series, HistoryPeriod::Day, now_seconds)?.is_empty() {
                return Ok(Some(series.clone()));
            }
        }
        self.none_unused_until = now_seconds + UNUSED_SEARCH_SECONDS;
        Ok(None)
    }

    fn write_slot(&self, block: u64, period: HistoryPeriod, point: HistoryPoint) -> io::Result<()> {
        let slot = slot_of(period, point.at_seconds);
        self.file.write_all_at(&encoded_slot(point), ring_start(block, period) + slot * SLOT_BYTES as u64)
    }

    fn ring(&self, block: u64, period: HistoryPeriod) -> io::Result<Vec<HistoryPoint>> {
        self.slots(block, period, 0, slots(period))
    }

    /// The points in `count` slots from the slot `first` on.
    fn slots(
        &self,
        block: u64,
        period: HistoryPeriod,
        first: u64,
        count: u64,
    ) -> io::Result<Vec<HistoryPoint>> {
        let mut bytes = vec![0; count as usize * SLOT_BYTES];
        read_up_to(&self.file, &mut bytes, ring_start(block, period) + first * SLOT_BYTES as u64)?;
        Ok(bytes.chunks_exact(SLOT_BYTES).filter_map(decoded_slot).collect())
    }
}

/// The slot of a time in the ring of a period.
fn slot_of(period: HistoryPeriod, at_seconds: u64) -> u64 {
    at_seconds / period.step_seconds() % slots(period)
}

fn block_start(block: u64) -> u64 {
    HEADER_BYTES as u64 + block * BLOCK_BYTES
}

fn ring_start(block: u64, period: HistoryPeriod) -> u64 {
    let before = PERIODS.iter().take_while(|one| **one != period).map(|one| slots(*one)).sum::<u64>();
    block_start(block) + HEADER_BYTES as u64 + before * SLOT_BYTES as u64
}

/// Reads at an offset. Bytes after the end of the file stay 0.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn encoded_name(name: &str) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&(name.len() as u16).to_le_bytes());
    header[2..2 + name.len()].copy_from_slice(name.as_bytes());
    let checksum = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    header
}

fn decoded_name(header: &[u8; HEADER_BYTES]) -> Option<String> {
    let (content, checksum) = header.split_last_chunk::<4>()?;
    let length = usize::from(u16::from_le_bytes([header[0], header[1]]));
    let is_whole = length > 0 && crc32fast::hash(content).to_le_bytes() == *checksum;
    let name = is_whole.then(|| content.get(2..2 + length)).flatten()?;
    String::from_utf8(name.to_vec()).ok()
}

fn encoded_slot(point: HistoryPoint) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(&point.at_seconds.to_le_bytes());
    for (place, value) in slot[8..].chunks_exact_mut(4).zip(point.values) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    let checksum = crc32fast::hash(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

fn decoded_slot(slot: &[u8]) -> Option<HistoryPoint> {
    let (content, checksum) = slot.split_last_chunk::<4>()?;
    let (at, values) = content.split_first_chunk::<8>()?;
    let at_seconds = u64::from_le_bytes(*at);
    // An empty slot consists of zeros, and the checksum of zeros is not 0.
    (at_seconds > 0 && crc32fast::hash(content).to_le_bytes() == *checksum).then_some(())?;
    let mut point = HistoryPoint { at_seconds, values: [f32::NAN; VALUES_MAX] };
    for (value, bytes) in point.values.iter_mut().zip(values.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
    Some(point)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_790_000_000;

    fn point(at_seconds: u64, value: f32) -> HistoryPoint {
        HistoryPoint { at_seconds, values: [value; VALUES_MAX] }
    }

    fn mean(points: &[HistoryPoint]) -> [f32; VALUES_MAX] {
        let sum: f32 = points.iter().map(|point| point.values[0]).sum();
        [sum / points.len() as f32; VALUES_MAX]
    }

    fn times(points: &[HistoryPoint]) -> Vec<u64> {
        points.iter().map(|point| point.at_seconds).collect()
    }

    #[test]
    fn an_hour_and_a_day_remain_after_a_restart_and_the_file_does_not_grow() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("history.ring");
        let start = NOW / 60 * 60;
        for at in (start..start + 90_000).step_by(10) {
            let mut file = if at % 30_000 == 0 { RingFile::open(&path)? } else { continue };
            file.record("source/orders", point(at, 1.0), mean)?;
        }
        let mut file = RingFile::open(&path)?;
        for at in (start..start + 90_000).step_by(10) {
            file.record("source/orders", point(at, (at / 60 % 7) as f32), mean)?;
        }
        let bytes = std::fs::metadata(&path)?.len();
        assert_eq!(bytes, HEADER_BYTES as u64 + BLOCK_BYTES);
        let (file, last) = (RingFile::open(&path)?, start + 89_990);
        let hour = file.points("source/orders", HistoryPeriod::Hour, last)?;
        assert_eq!(times(&hour), (last - 3_590..=last).step_by(10).collect::<Vec<_>>());
        let day = file.points("source/orders", HistoryPeriod::Day, last)?;
        assert_eq!(day.len(), 1_440);
        assert!(day.iter().all(|point| point.values[0] == (point.at_seconds / 60 % 7) as f32));
        // The test recorded no points in the hour after `last`.
        assert!(file.points("source/orders", HistoryPeriod::Hour, last + 3_600)?.is_empty());
        assert!(file.points("source/other", HistoryPeriod::Hour, last)?.is_empty());
        assert_eq!(file.series().collect::<Vec<_>>(), ["source/orders"]);
        Ok(())
    }

    #[test]
    fn a_minute_is_the_aggregate_of_its_points() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let mut file = RingFile::open(&folder.path().join("history.ring"))?;
        let start = NOW / 60 * 60;
        for (index, value) in [1.0, 2.0, 6.0].into_iter().enumerate() {
            file.record("channel/reports", point(start + 10 * index as u64, value), mean)?;
        }
        let day = file.points("channel/reports", HistoryPeriod::Day, start + 30)?;
        assert_eq!((times(&day), day[0].values[0]), (vec![start], 3.0));
        // After the clock has been set back, the later points do not count.
        assert_eq!(times(&file.points("channel/reports", HistoryPeriod::Hour, start)?), [start]);
        Ok(())
    }

    #[test]
    fn another_version_of_the_file_and_a_full_one_are_handled() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("history.ring");
        std::fs::write(&path, "tailwater hist 9 and more")?;
        let mut file = RingFile::open(&path)?;
        file.record(&"x".repeat(NAME_BYTES_MAX + 1), point(NOW, 1.0), mean)?;
        assert_eq!(file.series().count(), 0);
        for index in 0..SERIES_MAX {
            file.record(&format!("channel/{index}"), point(NOW, 1.0), mean)?;
        }
        file.record("channel/late", point(NOW + 10, 1.0), mean)?;
        assert_eq!(file.series().count(), SERIES_MAX, "a full file accepted another series");
        assert!(file.points("channel/late", HistoryPeriod::Hour, NOW + 10)?.is_empty());
        // All series are searched for an unused one only now and then.
        let last = NOW + HistoryPeriod::Day.seconds();
        file.record("channel/late", point(last - 30, 1.0), mean)?;
        file.record("channel/late", point(last + 60, 1.0), mean)?;
        assert!(file.points("channel/late", HistoryPeriod::Hour, last + 60)?.is_empty());
        file.record("channel/late", point(NOW + 90_000, 1.0), mean)?;
        assert_eq!(
            file.series().count(),
            SERIES_MAX,
            "the new series did not replace a series without recent points"
        );
        assert_eq!(file.points("channel/late", HistoryPeriod::Hour, NOW + 90_000)?.len(), 1);
        Ok(())
    }

    #[test]
    fn a_link_is_not_followed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink("/dev/null", folder.path().join("history.ring"))?;
        assert!(RingFile::open(&folder.path().join("history.ring")).is_err());
        Ok(())
    }

    proptest! {
        /// After any partial or wrong write, the file opens, returns only points that were recorded, and
        /// accepts new points.
        #[test]
        fn a_torn_file_loses_points_and_nothing_else(
            cut in 0u64..160_000,
            scratches in prop::collection::vec((0u64..160_000, any::<u8>()), 0..40),
        ) {
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("history.ring");
            let mut file = RingFile::open(&path)?;
            for at in (NOW..NOW + 600).step_by(10) {
                file.record("source/orders", point(at, at as f32), mean)?;
                file.record("channel/reports", point(at, at as f32), mean)?;
            }
            let raw = std::fs::OpenOptions::new().write(true).open(&path)?;
            for (at, byte) in scratches {
                raw.write_all_at(&[byte], at)?;
            }
            raw.set_len(cut)?;
            let mut file = RingFile::open(&path)?;
            for series in ["source/orders", "channel/reports"] {
                for point in file.points(series, HistoryPeriod::Hour, NOW + 600)? {
                    prop_assert_eq!(point.values[0], point.at_seconds as f32);
                }
                file.record(series, point(NOW + 600, 7.0), mean)?;
                let points = file.points(series, HistoryPeriod::Hour, NOW + 600)?;
                prop_assert_eq!(points.last().map(|point| point.values[0]), Some(7.0));
            }
        }
    }
}
