//! A log directory whose older segments are in the archive. Readers notice no difference.

use std::any::Any;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::archived_segment_list::Archive;
use super::object_store::RangedRead;
use crate::control_file::ControlFile;
use crate::segment_files::{index_name, parse_index_name, parse_segment_name, segment_name};
use crate::storage::{Directory, LogFile, OpenMode};

/// The files of a directory, and the archived segments before its first segment.
///
/// Only segments before the first segment of the directory come from the archive. If the directory lacks a
/// later segment, that is damage, and the archive must not hide it. Without a directory, all segments come
/// from the archive.
#[derive(Debug)]
pub(crate) struct ArchivedDirectory {
    local: Option<Arc<dyn Directory>>,
    archive: Archive,
    path: PathBuf,
}

impl ArchivedDirectory {
    pub(crate) fn new(local: Option<Arc<dyn Directory>>, archive: Archive) -> Self {
        let path = local.as_ref().map_or_else(|| archive.url(), |local| local.path().to_owned());
        Self { local, archive, path }
    }

    /// Returns the oldest segment in the directory. Returns `None` if there is no directory, or if it has no
    /// segments.
    fn local_first(&self) -> io::Result<Option<u64>> {
        let Some(local) = &self.local else { return Ok(None) };
        match ControlFile::read(local.as_ref()) {
            Ok(Some(control)) => Ok(Some(control.first_segment)),
            Ok(None) => Ok(local.list()?.iter().filter_map(|name| parse_segment_name(name)).min()),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn archived_numbers(&self) -> io::Result<Vec<u64>> {
        let Some(first) = self.local_first()? else { return self.archive.numbers() };
        Ok(self.archive.leading_to(first)?.map_or_else(Vec::new, |oldest| (oldest..first).collect()))
    }

    fn open_archived(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let number = parse_segment_name(name).or_else(|| parse_index_name(name));
        let Some(number) = number else { return Err(ErrorKind::NotFound.into()) };
        match self.local_first()? {
            Some(first) if number >= first => return Err(ErrorKind::NotFound.into()),
            // Another process may have archived and purged the segment since the last listing.
            Some(_) if !self.archive.contains(number)? => self.archive.refresh()?,
            _ => {}
        }
        match parse_segment_name(name) {
            Some(_) => self.archive.open_segment(number),
            None => self.archive.open_index(number),
        }
    }

    fn local(&self) -> io::Result<&dyn Directory> {
        self.local.as_deref().ok_or_else(|| ErrorKind::ReadOnlyFilesystem.into())
    }
}

impl Directory for ArchivedDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = match &self.local {
            Some(local) => local.list()?,
            None => Vec::new(),
        };
        for number in self.archived_numbers()? {
            names.extend([segment_name(number), index_name(number)]);
        }
        Ok(names)
    }

    fn archived_before(&self, first: u64) -> io::Result<Option<u64>> {
        self.archive.leading_to(first)
    }

    fn missing_before(&self, first: u64) -> io::Result<Vec<u64>> {
        self.archive.missing_before(first)
    }

    fn open(&self, name: &str, mode: OpenMode) -> io::Result<Arc<dyn LogFile>> {
        if mode != OpenMode::Read {
            return self.local()?.open(name, mode);
        }
        match &self.local {
            Some(local) => match local.open(name, mode) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.open_archived(name),
                opened => opened,
            },
            None => self.open_archived(name),
        }
    }

    fn modified(&self, name: &str) -> io::Result<SystemTime> {
        match (&self.local, parse_segment_name(name)) {
            (Some(local), number) => match (local.modified(name), number) {
                (Err(error), Some(number)) if error.kind() == ErrorKind::NotFound => {
                    self.archive.archived_at(number)
                }
                (modified, _) => modified,
            },
            (None, Some(number)) => self.archive.archived_at(number),
            (None, None) => Err(ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.local()?.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.local()?.remove(name)
    }

    fn sync(&self) -> io::Result<()> {
        self.local()?.sync()
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        self.local()?.lock(name)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        let local = self.local.as_ref().filter(|local| local.modified(name).is_ok());
        match (local, self.archive.path_of(name)) {
            (None, Some(path)) if self.is_archived(name) => path,
            _ => self.path.join(name),
        }
    }
}

impl ArchivedDirectory {
    fn is_archived(&self, name: &str) -> bool {
        let number = parse_segment_name(name).or_else(|| parse_index_name(name));
        number.is_some_and(|number| self.archive.contains(number).unwrap_or(false))
    }
}

/// An archived object as a read-only file.
#[derive(Debug)]
pub(super) struct ArchivedFile<R>(pub R);

impl<R: RangedRead> LogFile for ArchivedFile<R> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn truncate(&self, _length: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
}
