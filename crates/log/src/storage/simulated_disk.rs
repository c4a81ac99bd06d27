//! A disk in memory that handles unsynced writes like a real disk: it keeps some sectors and loses others, in
//! any order.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::{Directory, LogFile, OpenMode};

/// The unit that a disk writes atomically, in bytes.
pub(crate) const SECTOR_BYTES: usize = 512;

/// A small deterministic random number generator (SplitMix64). The same seed gives the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(pub u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number in 0..`bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The faults to inject, and when to inject them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DiskFaults {
    /// The number of operations (write, allocate, truncate, sync) that succeed before an operation fails.
    pub fail_after: Option<u64>,
    /// The error with which the operation fails.
    pub failure: DiskFailure,
    /// The maximum sum of the lengths of all files, in bytes.
    pub capacity_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum DiskFailure {
    /// EIO.
    #[default]
    Io,
    /// ENOSPC.
    Full,
}

#[derive(Debug, Default)]
struct DiskState {
    names: BTreeMap<String, usize>,
    /// The names of the files after each change since the last sync of the directory. The first version is
    /// durable.
    name_versions: Vec<BTreeMap<String, usize>>,
    files: Vec<FileContents>,
    faults: DiskFaults,
    operations: u64,
    locked: bool,
}

#[derive(Debug, Clone, Default)]
struct FileContents {
    bytes: Vec<u8>,
    /// The content of the file after each change since the last sync. The first version is durable.
    versions: Vec<Vec<u8>>,
    /// The sectors that a failed sync did not write, by number, with their old content on the disk. Reads
    /// return the new content, and the sectors count as clean. So a later sync writes them to the disk only
    /// if the program writes them to the file again.
    given_up: BTreeMap<usize, Vec<u8>>,
}

/// A directory of a disk that tests can look into.
pub(crate) trait TestDirectory: Directory + Clone + 'static {
    /// Returns the content of a file.
    fn contents(&self, name: &str) -> Option<Vec<u8>>;
}

impl TestDirectory for SimulatedDirectory {
    fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(name).map(|file| state.files[*file].bytes.clone())
    }
}

/// A directory on the simulated disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedDirectory {
    state: Arc<Mutex<DiskState>>,
}

#[derive(Debug)]
struct SimulatedFile {
    state: Arc<Mutex<DiskState>>,
    file: usize,
}

impl SimulatedDirectory {
    pub(crate) fn set_faults(&self, faults: DiskFaults) {
        let mut state = self.state.lock();
        state.faults = faults;
        state.operations = 0;
    }

    /// Returns the disk as the next process finds it after this process was killed. Nothing is lost.
    pub(crate) fn after_kill(&self) -> Self {
        let state = self.state.lock();
        let files = state.files.clone();
        let names = state.names.clone();
        let name_versions = state.name_versions.clone();
        Self {
            state: Arc::new(Mutex::new(DiskState { names, name_versions, files, ..DiskState::default() })),
        }
    }

    /// Returns the disk after a power cut. Each unsynced sector has the content that it had at some moment
    /// since the last sync.
    pub(crate) fn after_power_cut(&self, random: &mut SplitMix) -> Self {
        let state = self.state.lock();
        let names = match state.name_versions.len() as u64 {
            0 => state.names.clone(),
            // Directory changes go through a journal of the file system, so they survive in order.
            count => match random.below(count + 1) {
                last if last == count => state.names.clone(),
                earlier => state.name_versions[earlier as usize].clone(),
            },
        };
        let files = state.files.iter().map(|file| file.after_power_cut(random)).collect();
        Self { state: Arc::new(Mutex::new(DiskState { names, files, ..DiskState::default() })) }
    }

    /// Replaces the content of a file durably, as bit rot or an operator would do.
    pub(crate) fn replace(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        let file = match state.names.get(name) {
            Some(file) => *file,
            None => {
                state.files.push(FileContents::default());
                let file = state.files.len() - 1;
                state.names.insert(name.to_owned(), file);
                file
            }
        };
        state.files[file] = FileContents { bytes, ..FileContents::default() };
    }
}

impl FileContents {
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        self.versions.push(self.bytes.clone());
        change(&mut self.bytes);
    }

    fn after_power_cut(&self, random: &mut SplitMix) -> Self {
        let mut versions: Vec<&[u8]> = self.versions.iter().map(Vec::as_slice).collect();
        versions.push(&self.bytes);
        let count = versions.len() as u64;
        // Some power cuts lose all unsynced bytes, some lose nothing, and most lose a part.
        let style = random.below(8);
        let pick = |random: &mut SplitMix| match style {
            0 => versions[0],
            1 => versions[versions.len() - 1],
            _ => versions[random.below(count) as usize],
        };
        let length = pick(random).len();
        let mut bytes = vec![0; length];
        for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
            let from = pick(random).get(index * SECTOR_BYTES..).unwrap_or_default();
            let count = from.len().min(sector.len());
            sector[..count].copy_from_slice(&from[..count]);
        }
        for (number, held) in &self.given_up {
            let start = number * SECTOR_BYTES;
            if let Some(sector) = bytes.get_mut(start..(start + held.len()).min(length)) {
                sector.copy_from_slice(&held[..sector.len()]);
            }
        }
        Self { bytes, ..Self::default() }
    }

    fn sync(&mut self) {
        self.versions.clear();
    }

    fn fail_to_sync(&mut self) {
        let Some(held) = self.versions.first() else { return };
        // The disk works with whole sectors even at the end of the file, because it does not know the length
        // of the file.
        let sector = |bytes: &[u8], number: usize| {
            let start = (number * SECTOR_BYTES).min(bytes.len());
            let mut sector = bytes[start..(start + SECTOR_BYTES).min(bytes.len())].to_vec();
            sector.resize(SECTOR_BYTES, 0);
            sector
        };
        for number in 0..self.bytes.len().div_ceil(SECTOR_BYTES) {
            let before = sector(held, number);
            if before != sector(&self.bytes, number) {
                self.given_up.entry(number).or_insert(before);
            }
        }
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        self.given_up
            .retain(|number, _| (number + 1) * SECTOR_BYTES <= offset || number * SECTOR_BYTES >= end);
        self.change(|contents| {
            contents.resize(contents.len().max(end), 0);
            contents[offset..end].copy_from_slice(bytes);
        });
    }

    fn resize(&mut self, length: usize) {
        if length < self.bytes.len() {
            self.given_up.retain(|number, _| (number + 1) * SECTOR_BYTES <= length);
        }
        self.change(|contents| contents.resize(length, 0));
    }
}

impl DiskState {
    /// Counts an operation, and returns an error if this is the operation that must fail.
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.faults.fail_after {
            Some(count) if self.operations > count => Err(match self.faults.failure {
                DiskFailure::Io => io::Error::from_raw_os_error(5),
                DiskFailure::Full => io::ErrorKind::StorageFull.into(),
            }),
            _ => Ok(()),
        }
    }

    fn check_capacity(&self, file: usize, length: usize) -> io::Result<()> {
        let Some(capacity) = self.faults.capacity_bytes else {
            return Ok(());
        };
        let others: usize = self
            .names
            .values()
            .filter(|other| **other != file)
            .map(|other| self.files[*other].bytes.len())
            .sum();
        if (others + length) as u64 > capacity { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        self.name_versions.push(self.names.clone());
        change(&mut self.names);
    }
}

impl Directory for SimulatedDirectory {
    fn path(&self) -> &Path {
        Path::new("/simulated")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.state.lock();
        let file = match (state.names.get(name).copied(), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => file,
            (None, OpenMode::CreateNew) => {
                state.operation()?;
                state.files.push(FileContents::default());
                let file = state.files.len() - 1;
                state.change_names(|names| {
                    names.insert(name.to_owned(), file);
                });
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(SimulatedFile { state: Arc::clone(&self.state), file }))
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        match self.state.lock().names.contains_key(name) {
            true => Ok(SystemTime::UNIX_EPOCH),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operation()?;
        let file = state.names.get(from).copied().ok_or(io::ErrorKind::NotFound)?;
        state.change_names(|names| {
            names.remove(from);
            names.insert(to.to_owned(), file);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.operation()?;
        state.change_names(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operation()?;
        state.name_versions.clear();
        Ok(())
    }

    fn lock(&self, _name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(Unlock(Arc::clone(&self.state)))))
    }
}

#[derive(Debug)]
struct Unlock(Arc<Mutex<DiskState>>);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.lock().locked = false;
    }
}

impl LogFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock();
        let rest = state.files[self.file].bytes.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let offset = offset as usize;
        if let Err(error) = state.operation() {
            // A write that fails may have written a part of the bytes.
            state.files[self.file].write(&bytes[..bytes.len() / 2], offset);
            return Err(error);
        }
        state.check_capacity(self.file, state.files[self.file].bytes.len().max(offset + bytes.len()))?;
        state.files[self.file].write(bytes, offset);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operation()?;
        let end = (offset + length) as usize;
        let now = state.files[self.file].bytes.len();
        state.check_capacity(self.file, now.max(end))?;
        state.files[self.file].resize(now.max(end));
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.operation()?;
        state.files[self.file].resize(length as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let result = state.operation();
        match &result {
            Ok(()) => state.files[self.file].sync(),
            Err(_) => state.files[self.file].fail_to_sync(),
        }
        result
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.state.lock().files[self.file].bytes.len() as u64)
    }
}
