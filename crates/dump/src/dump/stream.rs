//! A dump as one stream of statements, which the stock client loads in one pass.
//!
//! For the rest of the dump it is a file store. Definitions are kept until they are needed; the pieces of
//! data files, each of whole statements, are written in the order in which connections have them. A stream
//! cannot be resumed.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::folder::names::journal_number;
use crate::folder::{DumpedFlavour, Manifest};
use tailwater_files::store::{FileStore, NewFile};
use tailwater_tables::error::BulkError;
use tailwater_tables::error::file_error;
use tailwater_tables::schema::ObjectKind;

/// The start of the last line of a complete stream.
pub const END: &str = "-- End of the dump: ";

/// Receives the statements.
pub(super) struct StatementStream {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    /// Small files that were written.
    kept: Mutex<HashMap<String, Vec<u8>>>,
}

impl fmt::Debug for StatementStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl StatementStream {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Arc::new(Mutex::new(out)), kept: Mutex::default() }
    }

    /// Writes everything that precedes the rows.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn begin(&self, manifest: &Manifest) -> Result<(), BulkError> {
        let mut head = b"-- A dump by tailwater ".to_vec();
        let family = match manifest.server.flavour {
            DumpedFlavour::MySql => "MySQL",
            DumpedFlavour::MariaDb => "MariaDB",
        };
        head.extend_from_slice(
            format!("{} of {family} {}\n", manifest.tailwater, manifest.server.version).as_bytes(),
        );
        for point in &manifest.snapshots {
            let file = point.binlog_file.as_deref().unwrap_or("no binlog");
            let position = point.binlog_position.unwrap_or(0);
            let gtids = point.gtid_set.as_deref().unwrap_or("none").replace(['\r', '\n'], "");
            head.extend_from_slice(
                format!("-- The position of the data is {file}:{position}, GTIDs {gtids}\n").as_bytes(),
            );
        }
        let sequences = manifest.objects.iter().filter(|object| object.kind == ObjectKind::Sequence);
        let schemas = manifest.schemas.iter().map(|schema| &schema.file);
        let tables = manifest.tables.iter().map(|table| &table.file);
        for file in schemas.chain(sequences.map(|object| &object.file)).chain(tables) {
            head.extend(self.definition(file));
        }
        self.write(&head)
    }

    /// Writes everything that follows the rows, and the last line.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn end(&self, manifest: &Manifest) -> Result<(), BulkError> {
        let mut rest = Vec::new();
        for object in manifest.objects.iter().filter(|object| object.kind != ObjectKind::Sequence) {
            rest.extend(self.definition(&object.file));
        }
        let accounts = manifest.accounts.iter();
        let scripts =
            accounts.clone().map(|account| &account.file).chain(accounts.map(|account| &account.grants_file));
        scripts.for_each(|file| rest.extend(self.definition(file)));
        let rows: u64 = manifest.tables.iter().map(|table| table.rows).sum();
        rest.extend_from_slice(format!("{END}{rows} rows of {} tables\n", manifest.tables.len()).as_bytes());
        self.write(&rest)
    }

    fn definition(&self, file: &str) -> Vec<u8> {
        self.kept.lock().remove(file).unwrap_or_default()
    }

    fn write(&self, bytes: &[u8]) -> Result<(), BulkError> {
        let mut out = self.out.lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(file_error("write", &self.path("")))
    }
}

impl FileStore for StatementStream {
    fn path(&self, _name: &str) -> PathBuf {
        "standard output".into()
    }

    fn folder(&self) -> Option<&Path> {
        None
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let kept = self.kept.lock();
        Ok(kept.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let kept = self.kept.lock();
        match kept.get(name) {
            Some(bytes) => Ok(Box::new(io::Cursor::new(bytes.clone()))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, _name: &str) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(StatementFile { out: Arc::clone(&self.out), bytes: 0 }))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if journal_number(name).is_none() {
            let mut kept = self.kept.lock();
            kept.insert(name.to_owned(), bytes.to_vec());
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.kept.lock().remove(name);
        Ok(())
    }
}

/// A data file of the stream: each write has whole statements.
struct StatementFile {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    bytes: u64,
}

impl Write for StatementFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.lock().write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for StatementFile {
    fn finish(self: Box<Self>, _durable: bool) -> io::Result<u64> {
        Ok(self.bytes)
    }
}
