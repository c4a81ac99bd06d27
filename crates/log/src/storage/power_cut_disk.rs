//! The disk of crate `lossy_disk` as a directory of the log. It keeps a copy of its state before each change,
//! so that a test can cut the power at each of these points.

use std::any::Any;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tailwater_lossy_disk::model::{NewNode, ROOT, RenameMode};
use tailwater_lossy_disk::{DiskModel, NameDurability, PowerCut};

use super::simulated_disk::TestDirectory;
use super::{Directory, LogFile, OpenMode};

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const NEW: NewNode = NewNode { mode: 0o640, uid: 0, gid: 0, now: NOW };

/// The disk before a change, and how many transactions the log had reported as durable.
#[derive(Debug, Clone)]
pub(crate) struct CutPoint {
    pub model: DiskModel,
    pub durable: usize,
}

#[derive(Debug)]
struct PowerCutState {
    model: DiskModel,
    points: Vec<CutPoint>,
    durable: usize,
    locked: bool,
}

/// A directory on a disk whose power can be cut before each change.
#[derive(Debug, Clone)]
pub(crate) struct PowerCutDirectory {
    state: Arc<Mutex<PowerCutState>>,
}

impl PowerCutDirectory {
    pub(crate) fn new(model: DiskModel) -> Self {
        let state = PowerCutState { model, points: Vec::new(), durable: 0, locked: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns an empty disk that keeps names only after a sync of the folder.
    pub(crate) fn empty() -> Self {
        Self::new(DiskModel::new(NameDurability::FolderSync))
    }

    /// Records how many transactions the log has reported as durable.
    pub(crate) fn set_durable(&self, durable: usize) {
        self.state.lock().durable = durable;
    }

    /// Returns the states before each change.
    pub(crate) fn points(&self) -> Vec<CutPoint> {
        self.state.lock().points.clone()
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut DiskModel) -> Result<T, rustix::io::Errno>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let point = CutPoint { model: state.model.clone(), durable: state.durable };
        state.points.push(point);
        Ok(change(&mut state.model)?)
    }

    fn inode(&self, name: &str) -> io::Result<u64> {
        Ok(self.state.lock().model.lookup(ROOT, OsStr::new(name))?)
    }
}

impl CutPoint {
    /// Returns the disk after a power cut at this point.
    pub(crate) fn cut(&self, cut: &PowerCut) -> PowerCutDirectory {
        let mut model = self.model.clone();
        model.cut_power(cut);
        PowerCutDirectory::new(model)
    }
}

impl TestDirectory for PowerCutDirectory {
    fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let inode = self.inode(name).ok()?;
        self.state.lock().model.read(inode, 0, usize::MAX).ok()
    }
}

impl Directory for PowerCutDirectory {
    fn path(&self) -> &Path {
        Path::new("/power-cut")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = self.state.lock().model.entries(ROOT)?;
        Ok(entries.into_iter().filter_map(|(name, _, _)| name.into_string().ok()).collect())
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>> {
        let inode = match mode {
            OpenMode::CreateNew => self.change(|model| model.create_file(ROOT, OsStr::new(name), NEW))?,
            _ => self.inode(name)?,
        };
        Ok(Arc::new(PowerCutFile { directory: self.clone(), inode }))
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        self.inode(name).map(|_| NOW)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = ((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)));
        self.change(|model| model.rename(from, to, RenameMode::Replace))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|model| model.remove_file(ROOT, OsStr::new(name)))
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|model| model.sync_folder(ROOT))
    }

    fn lock(&self, _name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        if std::mem::replace(&mut self.state.lock().locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(PowerCutUnlock(self.clone()))))
    }
}

#[derive(Debug)]
struct PowerCutUnlock(PowerCutDirectory);

impl Drop for PowerCutUnlock {
    fn drop(&mut self) {
        self.0.state.lock().locked = false;
    }
}

#[derive(Debug)]
struct PowerCutFile {
    directory: PowerCutDirectory,
    inode: u64,
}

impl LogFile for PowerCutFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.directory.state.lock().model.read(self.inode, offset, buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.directory.change(|model| model.write(self.inode, offset, bytes, NOW))
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = self.length()?.max(offset + length);
        self.directory.change(|model| model.resize(self.inode, end, NOW))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.directory.change(|model| model.resize(self.inode, length, NOW))
    }

    fn sync(&self) -> io::Result<()> {
        self.directory.change(|model| model.sync_file(self.inode))
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.directory.state.lock().model.attributes(self.inode)?.length)
    }
}
