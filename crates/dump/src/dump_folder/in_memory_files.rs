//! Keeps the files of a dump in memory. A copy between two servers keeps everything that it transfers in
//! these files, except rows.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use tailwater_files::file_store::{FileStore, NewFile};

/// Files in memory: definitions and a journal, but no rows.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl MemoryFiles {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.files.lock()
    }
}

impl FileStore for MemoryFiles {
    fn path(&self, name: &str) -> PathBuf {
        Path::new("the source").join(name)
    }

    fn folder(&self) -> Option<&Path> {
        None
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.files().iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        match self.files().get(name) {
            Some(bytes) => Ok(Box::new(Cursor::new(bytes.clone()))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(NewMemoryFile { files: self.clone(), name: name.to_owned(), bytes: Vec::new() }))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name);
        Ok(())
    }
}

struct NewMemoryFile {
    files: MemoryFiles,
    name: String,
    bytes: Vec<u8>,
}

impl Write for NewMemoryFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for NewMemoryFile {
    fn finish(self: Box<Self>, _durable: bool) -> io::Result<u64> {
        let Self { files, name, bytes } = *self;
        let length = bytes.len() as u64;
        files.files().insert(name, bytes);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_does_not_exist_before_it_is_finished() {
        let files = MemoryFiles::default();
        let mut file = files.create("a").expect("the file is created");
        file.write_all(b"text").expect("the text is written");
        assert!(files.open("a").is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
        assert_eq!(file.finish(true).expect("the file is finished"), 4);
        assert_eq!(files.list().expect("the files are listed"), [("a".to_owned(), 4)]);
        let mut text = String::new();
        files.open("a").and_then(|mut file| file.read_to_string(&mut text)).expect("the file is read");
        assert_eq!(text, "text");
        files.remove("a").expect("the file is removed");
        assert_eq!(files.list().expect("the files are listed"), []);
    }
}
