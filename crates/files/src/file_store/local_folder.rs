//! A file store in a local folder.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::direct_io::DirectIoFile;
use super::{FileStore, NewFile, partial};
use crate::PRIVATE_FILE_MODE;

/// A file store in a local folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFiles {
    folder: PathBuf,
}

impl LocalFiles {
    /// Creates a store for a folder, which may not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Syncs the folder, so that created and renamed files survive a power failure.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

impl FileStore for LocalFiles {
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
        Ok(Box::new(crate::open_regular(&self.path(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>> {
        let temporary = self.path(&partial(name));
        let file = crate::create_replacing(&temporary, PRIVATE_FILE_MODE)?;
        Ok(LocalFile::new(file, self.path(name), temporary))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.create(name)?;
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

/// A file that has a temporary name until it is finished.
struct LocalFile {
    file: DirectIoFile,
    path: PathBuf,
    temporary: PathBuf,
    renamed: bool,
}

impl LocalFile {
    fn new(file: File, path: PathBuf, temporary: PathBuf) -> Box<Self> {
        Box::new(Self { file: DirectIoFile::new(file), path, temporary, renamed: false })
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // No one reads the file before it is finished, so `flush` does not have to write anything.
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
            // Ignore an error, because a later attempt to write this file replaces the temporary file.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_are_not_followed_and_pipes_do_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let files = LocalFiles::new(folder.path().join("dump"));
        crate::create_private_folder(&files.folder).unwrap();
        // An attacker who knows the names of the dump files could create links at the names of the temporary
        // files, so that the dump overwrites another file.
        for name in ["manifest.json", "a.tsv"] {
            symlink(&victim, files.path(&partial(name))).unwrap();
        }
        files.put("manifest.json", b"{}").unwrap();
        let mut rows = files.create("a.tsv").unwrap();
        rows.write_all(b"1\n").unwrap();
        rows.finish(true).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        for name in ["manifest.json", "a.tsv"] {
            let made = fs::symlink_metadata(files.path(name)).unwrap();
            assert!(made.is_file() && made.permissions().mode() & 0o777 == 0o600, "{name}");
        }
        let pipe = files.path("b.tsv");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(files.open("b.tsv").map(drop).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        symlink("/dev/zero", files.path("c.tsv")).unwrap();
        assert_eq!(files.open("c.tsv").map(drop).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // A user may have moved a file to another disk and left a link to it. So reading follows links.
        symlink(&victim, files.path("d.tsv")).unwrap();
        assert!(files.open("d.tsv").is_ok());
    }
}
