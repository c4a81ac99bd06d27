//! The files of a dump in a folder of this machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::files::{DumpFiles, NewFile, partial};
use super::past_cache::PastCache;

/// Files in a folder of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFiles {
    folder: PathBuf,
}

impl LocalFiles {
    /// Those in a folder, which may not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes what was created and renamed outlast a power cut.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl DumpFiles for LocalFiles {
    fn path(&self, name: &str) -> PathBuf {
        match name {
            "" => self.folder.clone(),
            name => self.folder.join(name),
        }
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
        }
        Ok(found)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.path(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>> {
        let temporary = self.path(&partial(name));
        let file = File::create(&temporary)?;
        Ok(LocalFile::new(file, self.path(name), temporary))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(name)?;
        file.write_all(bytes)?;
        file.finish(true)?;
        self.sync()
    }

    fn put_private(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.path(&partial(name));
        self.remove(&partial(name))?;
        // No moment at which others may read it.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut file = LocalFile::new(file, self.path(name), temporary);
        file.write_all(bytes)?;
        file.finish(true)?;
        self.sync()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// A file with another name until it is finished.
struct LocalFile {
    file: PastCache,
    path: PathBuf,
    temporary: PathBuf,
    renamed: bool,
}

impl LocalFile {
    fn new(file: File, path: PathBuf, temporary: PathBuf) -> Box<Self> {
        Box::new(Self { file: PastCache::new(file), path, temporary, renamed: false })
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nobody sees it before it is finished.
        Ok(())
    }
}

impl NewFile for LocalFile {
    fn finish(mut self: Box<Self>, durable: bool) -> io::Result<u64> {
        let written_bytes = self.file.end(durable)?;
        fs::rename(&self.temporary, &self.path)?;
        self.renamed = true;
        Ok(written_bytes)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if !self.renamed {
            // It is written anew whether or not it is there.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
