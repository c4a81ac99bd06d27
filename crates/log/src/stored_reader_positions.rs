//! Persistent readers: the log stores their positions while they are disconnected, so that a purge keeps the
//! segments that they need. Format: docs/reference/log-format.md.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::atomic_json_file;
use crate::error::LogError;
use crate::log_position::LogPosition;
use crate::storage::Directory;

pub(crate) const NAME: &str = "readers.json";

/// The newest format version. New files are written in this version.
const FORMAT_VERSION: u32 = 1;

/// The maximum length of the file in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// The maximum number of persistent readers.
const READERS_MAX: usize = 10_000;

/// The minimum time between two writes of changed positions.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// A reader whose position the log stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentReader {
    /// The name under which the reader was registered.
    pub name: String,
    /// The reader needs nothing before this position.
    pub position: LogPosition,
    /// When the reader was last connected.
    pub seen: SystemTime,
}

/// The persistent readers, and whether their changes are on disk.
#[derive(Debug, Default)]
pub(crate) struct PersistentReaders {
    readers: BTreeMap<String, (LogPosition, SystemTime)>,
    changed: bool,
    written: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadersFile {
    format_version: u32,
    readers: Vec<ReaderRecord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReaderRecord {
    name: String,
    segment: u64,
    offset: u64,
    seen_seconds: u64,
}

impl PersistentReaders {
    /// Reads the file of persistent readers.
    pub(crate) fn read(directory: &dyn Directory) -> Result<Self, LogError> {
        let Some(document) = atomic_json_file::read(directory, NAME, BYTES_MAX)? else {
            return Ok(Self::default());
        };
        let path = directory.path_of(NAME);
        let parse = |document: String| {
            serde_json::from_str::<ReadersFile>(&document).map_err(|error| error.to_string())
        };
        let file = match document.and_then(parse) {
            Ok(file) if file.format_version > FORMAT_VERSION => {
                let (found, known) = (file.format_version, FORMAT_VERSION);
                return Err(LogError::FormatVersion { path, found, known });
            }
            Ok(file) => file,
            Err(reason) => return Err(LogError::corrupt(path, 0, reason)),
        };
        let mut readers = BTreeMap::new();
        if file.readers.len() > READERS_MAX {
            // Refuse the file. If the excess readers were ignored, a purge could remove segments that they
            // need.
            let reason = format!("the file has {} readers; the limit is {READERS_MAX}", file.readers.len());
            return Err(LogError::corrupt(path, 0, reason));
        }
        for entry in file.readers {
            let position = LogPosition { segment: entry.segment, offset: entry.offset };
            let seen = UNIX_EPOCH.checked_add(Duration::from_secs(entry.seen_seconds)).unwrap_or(UNIX_EPOCH);
            readers.insert(entry.name, (position, seen));
        }
        Ok(Self { readers, ..Self::default() })
    }

    /// Returns all readers, ordered by name.
    pub(crate) fn all(&self) -> Vec<PersistentReader> {
        let remembered = |(name, (position, seen)): (&String, &(LogPosition, SystemTime))| PersistentReader {
            name: name.clone(),
            position: *position,
            seen: *seen,
        };
        self.readers.iter().map(remembered).collect()
    }

    /// Records the position of a reader. Returns false if there are too many other readers.
    pub(crate) fn record(&mut self, name: &str, position: LogPosition, now: SystemTime) -> bool {
        if self.readers.len() >= READERS_MAX && !self.readers.contains_key(name) {
            return false;
        }
        self.readers.insert(name.to_owned(), (position, now));
        self.changed = true;
        true
    }

    pub(crate) fn forget(&mut self, name: &str) -> bool {
        let known = self.readers.remove(name).is_some();
        self.changed |= known;
        known
    }

    /// Writes changes durably. If `at_once` is false, writes only if the last write was at least
    /// [`WRITE_INTERVAL`] ago.
    pub(crate) fn write(&mut self, directory: &dyn Directory, at_once: bool) -> Result<(), LogError> {
        let recent = self.written.is_some_and(|written| written.elapsed() < WRITE_INTERVAL);
        if !self.changed || (recent && !at_once) {
            return Ok(());
        }
        // Record the time even if the write fails. Otherwise the log would retry a write to a full disk each
        // time a reader advances.
        self.written = Some(Instant::now());
        let entry = |reader: PersistentReader| ReaderRecord {
            name: reader.name,
            segment: reader.position.segment,
            offset: reader.position.offset,
            seen_seconds: reader.seen.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        let file = ReadersFile {
            format_version: FORMAT_VERSION,
            readers: self.all().into_iter().map(entry).collect(),
        };
        // Serializing strings and integers cannot fail.
        atomic_json_file::replace(directory, NAME, &serde_json::to_string(&file).unwrap_or_default())?;
        self.changed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::simulated_disk::{SimulatedDirectory, TestDirectory};

    #[test]
    fn readers_round_trip_and_damage_is_reported() {
        let disk = SimulatedDirectory::default();
        let mut readers = PersistentReaders::default();
        let at = UNIX_EPOCH + Duration::from_secs(1_795_305_599);
        assert!(readers.record("replica \"db2\"\n", LogPosition { segment: 7, offset: 4 }, at));
        assert!(readers.record("b", LogPosition { segment: 8, offset: 99 }, at));
        readers.write(&disk, true).unwrap();
        assert_eq!(PersistentReaders::read(&disk).unwrap().all(), readers.all());
        assert!(readers.forget("b") && !readers.forget("b"));
        readers.write(&disk, false).unwrap();
        assert_eq!(
            PersistentReaders::read(&disk).unwrap().all().len(),
            2,
            "a change soon after the last write must not be written"
        );
        readers.write(&disk, true).unwrap();
        assert_eq!(PersistentReaders::read(&disk).unwrap().all(), readers.all());

        let mut bytes = disk.contents(NAME).unwrap();
        bytes[10] ^= 1;
        disk.replace(NAME, bytes);
        assert_eq!(PersistentReaders::read(&disk).unwrap_err().code(), "TW-LOG-0003");
    }
}
