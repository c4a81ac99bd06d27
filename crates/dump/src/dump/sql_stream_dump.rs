//! Writes a dump as one stream of statements, which the `mysql` or `mariadb` client loads in one pass.
//!
//! The other modules use the stream as a file store. The stream keeps definitions in memory until it writes
//! them at their place. Connections write pieces of data files as soon as they have them; each piece consists
//! of whole statements. A stream cannot be resumed.
//!
//! Rows with document identifiers ([`DOCUMENT_ID`]) come before the full-text indexes of their table.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::dump_folder::dump_file_names::journal_number;
use crate::dump_folder::{DumpedFlavour, Manifest, TableEntry};
use tailwater_files::file_store::{FileStore, NewFile};
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::schema::ObjectKind;
use tailwater_tables::schema::index_definitions::{DOCUMENT_ID, deferrable};
use tailwater_tables::schema::sql_script::Script;
use tailwater_wire::sql_quote::{qualified_name, quote_identifier};

/// The first words of the last line of a complete stream.
pub const END: &str = "-- End of the dump: ";

/// Writes the statements of the stream in their order.
pub(super) struct StatementStream {
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    /// The contents of small files, such as definitions, until they are written to the stream.
    kept: Mutex<HashMap<String, Vec<u8>>>,
    /// Statements that create the full-text indexes after the rows.
    late_indexes: Mutex<Vec<String>>,
}

impl fmt::Debug for StatementStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl StatementStream {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out: Arc::new(Mutex::new(out)), kept: Mutex::default(), late_indexes: Mutex::default() }
    }

    /// Writes the definitions and settings that precede the rows.
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
        for file in schemas.chain(sequences.map(|object| &object.file)) {
            head.extend(self.definition(file));
        }
        for table in &manifest.tables {
            let definition = self.definition(&table.file);
            let drop = self.defer_fulltext_indexes(table, &definition);
            head.extend(definition);
            head.extend(drop);
        }
        self.write(&head)
    }

    /// Writes the indexes and objects that follow the rows, and the last line.
    ///
    /// # Errors
    /// [`BulkError::File`]
    pub(super) fn end(&self, manifest: &Manifest) -> Result<(), BulkError> {
        let late = self.late_indexes.lock().drain(..).fold(Script::default(), Script::then);
        let mut rest = late.into_bytes();
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

    /// If the rows of a table have document identifiers, records the full-text indexes of the table. They are
    /// created at the end of the stream. Returns the script that drops these indexes while the table is
    /// empty.
    fn defer_fulltext_indexes(&self, table: &TableEntry, definition: &[u8]) -> Vec<u8> {
        if table.columns.iter().all(|column| column.name != DOCUMENT_ID) {
            return Vec::new();
        }
        let definition = String::from_utf8_lossy(definition);
        // Servers print full-text keys last, so dropping and adding them keeps the order of all keys.
        let keys = deferrable(&definition, &HashSet::new(), false);
        let altered = format!("ALTER TABLE {}", qualified_name(&table.schema, &table.table));
        let mut script = Script::default();
        let mut late = self.late_indexes.lock();
        for key in keys {
            script = script.then(format!("{altered} DROP KEY {}", quote_identifier(&key.name)));
            late.push(format!("{altered} ADD {}", key.definition));
        }
        script.into_bytes()
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

/// A data file of the stream. Each write to it consists of whole statements.
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
