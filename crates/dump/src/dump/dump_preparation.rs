//! Prepares a dump before it reads the first row: the inventory, the folder, the snapshot, and all
//! definitions.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use flate2::read::MultiGzDecoder;
use tailwater_session::{Connection, SessionError, UserPrivileges};
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::chunk_queue::DumpTable;
use super::dump_worker::DumpContext;
use super::omitted_objects::{self, Omission};
use super::row_encoder::{self, TableRows};
use super::{DumpOptions, now, source_identity};
use crate::dump_folder::dump_file_names::{account_files, object_file, schema_file, table_file};
use crate::dump_folder::small_file_reader::document;
use crate::dump_folder::{
    AccountEntry, ColumnEntry, DumpCompression, DumpFolder, DumpSelection, DumpedServer, FORMAT,
    JournalEntry, Manifest, ObjectEntry, SchemaEntry, TableEntry, WrittenChunk,
};
use tailwater_files::file_store::FileStore;
use tailwater_tables::chunker::table_info::ColumnInfo;
use tailwater_tables::chunker::{ChunkKey, ChunkPlan, Chunker, TableInfo};
use tailwater_tables::data_file_field_conversion::is_slow_to_print;
use tailwater_tables::error::{BulkError, file_error};
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::account_scripts::Account;
use tailwater_tables::schema::{self, SchemaInventory, SchemaObject, Selection, TableName, VisibilityScope};
use tailwater_tables::snapshot::{FinishedTables, Snapshot, SnapshotOptions, SnapshotPoint, SnapshotReader};

/// Maximum number of attempts to list the objects. They are listed again if one was dropped before it was
/// locked, or created before the snapshot.
const LIST_TRIES_MAX: u32 = 20;

/// Everything that the workers of a dump need.
pub(crate) struct PreparedDump {
    pub(crate) shared: Arc<DumpContext>,
    pub(crate) snapshot: SnapshotTaken,
    pub(crate) not_in_snapshot: Vec<TableName>,
    pub(crate) left_out: Vec<Omission>,
}

/// A snapshot that was taken, with its locks on the tables.
pub(crate) struct SnapshotTaken {
    pub(crate) readers: Vec<SnapshotReader>,
    pub(crate) method: tailwater_tables::snapshot::SnapshotMethod,
    pub(crate) stall: std::time::Duration,
}

/// Prepares a new dump, or the remaining part of an interrupted dump.
///
/// # Errors
/// The same as for [`super::dump`].
pub(crate) async fn prepare(
    options: &DumpOptions,
    progress: &Arc<BulkProgress>,
) -> Result<PreparedDump, BulkError> {
    let mut connection = Connection::connect(&options.connect).await?;
    schema::prepare(&mut connection).await?;
    // The selection is checked before anything is written. After an error about a name or a missing
    // privilege, the user can then run the same command again.
    let resumes = options.resume && DumpFolder::is_one(options.files.as_ref())?;
    let checked = match resumes {
        true => None,
        false => Some(check_selection(&mut connection, &options.selection, options.accounts).await?),
    };
    let mut folder = open_folder(options, source_identity::of(&mut connection).await?)?;
    let by_older = folder.manifest().asked.is_none();
    let asked = asked(options, folder.manifest()).map_err(resume_error)?;
    let DumpSelection { selection, accounts } = folder.manifest_mut().asked.insert(asked).clone();
    let VisibleSelection { granted, .. } = match checked {
        Some(checked) => checked,
        None => {
            // Even a complete dump is marked as unfinished: one of its files may be missing, or new tables
            // may match the selection.
            folder.manifest_mut().finished_at = None;
            check_selection(&mut connection, &selection, accounts).await?
        }
    };
    check_finished_files(&mut folder)?;
    let snapshot = take_snapshot(options, &selection, &folder).await?;
    let Snapshot { readers, inventory, tables: left, definitions, point, method, stall } = snapshot;
    options.snapshot_taken.cancel();
    for table in schema::hidden_triggers(&granted, &inventory) {
        warn!(%table, "the account lacks the privilege TRIGGER, so any triggers of the table are omitted");
    }
    let mut left_out = Vec::new();
    if selection.tables.is_empty() {
        left_out.extend(omitted_objects::libraries(&mut connection, &inventory.schemas).await?);
    }
    let definitions = DefinitionWriter { connection: &mut connection, folder: &mut folder, definitions };
    let infos = definitions.write(&inventory, &left, accounts).await?;
    record_snapshot(&mut folder, point, left.is_empty())?;
    let number = folder.manifest().snapshots.len() - 1;
    let not_in_snapshot = not_in_snapshot(&infos);
    left_out.extend(omitted_objects::of_tables(&infos));
    for Omission { of, what } in &left_out {
        warn!(of, "the dump omits a part of this object: {}", what.words());
    }
    let mut tables = work(options, &folder, infos, by_older)?;
    progress.expect(tables.len() as u64, tables.iter().map(|(_, rows)| rows).sum());
    let finished = FinishedTables::default();
    for name in finish_complete_tables(&mut tables, &mut folder).await? {
        progress.table();
        finished.add(&name);
    }
    let shared = Arc::new(DumpContext {
        tables: tables.into_iter().map(|(table, _)| table).collect(),
        first: AtomicUsize::new(0),
        folder: Mutex::new(folder),
        finished,
        progress: Arc::clone(progress),
        throttle: Arc::clone(&options.throttle),
        snapshot: number,
        compression: options.compression,
        compression_level: options.compression_level.unwrap_or(options.compression.level_usual()),
        ending: options.rows.ending(options.compression),
    });
    Ok(PreparedDump { shared, snapshot: SnapshotTaken { readers, method, stall }, not_in_snapshot, left_out })
}

/// The result of [`check_selection`].
pub(super) struct VisibleSelection {
    /// The selected objects that exist on the server.
    pub(super) inventory: SchemaInventory,
    /// The privileges of the account.
    pub(super) granted: UserPrivileges,
}

/// Refuses an empty selection, and a selection with objects that the account cannot see.
///
/// # Errors
/// [`BulkError::NotFound`], [`BulkError::NothingSelected`], [`BulkError::MissingPrivilege`];
/// [`BulkError::Session`].
pub(super) async fn check_selection(
    connection: &mut Connection,
    selection: &Selection,
    accounts: bool,
) -> Result<VisibleSelection, BulkError> {
    let mut tries = 0;
    let inventory = loop {
        tries += 1;
        match schema::inventory(connection, selection).await {
            Err(BulkError::SchemaChanged { .. }) if tries < LIST_TRIES_MAX => {}
            listed => break listed?,
        }
    };
    let granted =
        schema::check_visible(connection, &inventory.schemas, selection, VisibilityScope::Definitions)
            .await?;
    match inventory.is_empty(selection) && !accounts {
        true => Err(BulkError::NothingSelected { server: connection.endpoint().to_owned() }),
        false => Ok(VisibleSelection { inventory, granted }),
    }
}

/// Records the point in time of a snapshot. `is_finished` means that no table is left to be read.
///
/// # Errors
/// [`BulkError::ResumeImpossible`] if an earlier point in time of the dump is not in the server's history;
/// [`BulkError::File`].
fn record_snapshot(
    folder: &mut DumpFolder,
    point: SnapshotPoint,
    is_finished: bool,
) -> Result<(), BulkError> {
    // If no finished chunk comes from a snapshot, its point in time is removed from the manifest.
    let used = folder.manifest().snapshots_used();
    source_identity::check_history(folder.manifest(), &point).map_err(resume_error)?;
    if used.is_empty() {
        folder.manifest_mut().snapshots.clear();
        folder.manifest_mut().snapshots.push(point);
        return folder.checkpoint();
    }
    folder.checkpoint()?;
    // The new snapshot is recorded only if it is used: if all tables are finished, no chunk is read from it.
    if !is_finished {
        folder.record(JournalEntry::Snapshot(point))?;
        let points = used.len() + 1;
        warn!(
            points,
            "the dump resumes with a new snapshot, so its tables show the data of different points in time"
        );
    }
    Ok(())
}

/// Takes a snapshot, with locks on all tables that are still to be read. Lists the objects again if some have
/// changed since they were listed.
///
/// # Errors
/// The same as for [`super::dump`].
async fn take_snapshot(
    options: &DumpOptions,
    selection: &Selection,
    folder: &DumpFolder,
) -> Result<Snapshot, BulkError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_snapshot(options, selection, folder).await {
            Err(error)
                if (is_dropped(&error) || matches!(error, BulkError::SchemaChanged { .. }))
                    && tries < LIST_TRIES_MAX =>
            {
                info!(%error, "objects on the server have changed since they were listed; listing them again");
            }
            other => return other,
        }
    }
}

/// Tries once to take the snapshot.
///
/// # Errors
/// The same as for [`super::dump`]; also an error if a listed table is dropped before the snapshot is taken,
/// see [`is_dropped`].
async fn try_snapshot(
    options: &DumpOptions,
    selection: &Selection,
    folder: &DumpFolder,
) -> Result<Snapshot, BulkError> {
    let entries = folder.manifest().tables.iter();
    let finished = entries.filter(|entry| entry.finished);
    let options = SnapshotOptions {
        connect: options.connect.clone(),
        connections: options.connections.max(1),
        lock_wait_max: options.lock_wait_max,
        selection: selection.clone(),
        finished: finished.map(|entry| TableName::new(&entry.schema, &entry.table)).collect(),
        channels_stopped: options.channels_stopped.clone(),
    };
    Snapshot::take(&options).await
}

/// Returns whether the error means that an object was dropped after the dump listed it: a database, table,
/// view, routine, trigger, event or sequence.
fn is_dropped(error: &BulkError) -> bool {
    const GONE: [u16; 6] = [1049, 1146, 1305, 1360, 1539, 4091];
    matches!(error, BulkError::Session(SessionError::Server { error, .. }) if GONE.contains(&error.number))
}

fn resume_error(reason: String) -> BulkError {
    BulkError::ResumeImpossible { what: "the dump".into(), reason }
}

fn open_folder(options: &DumpOptions, origin: DumpedServer) -> Result<DumpFolder, BulkError> {
    if options.resume && DumpFolder::is_one(options.files.as_ref())? {
        let folder = DumpFolder::open(Arc::clone(&options.files))?;
        let Manifest { server, compression, rows, .. } = folder.manifest();
        source_identity::check_server(server, &origin).map_err(resume_error)?;
        if *compression != options.compression {
            return Err(resume_error("the files of the interrupted dump have another compression".into()));
        }
        if *rows != options.rows {
            return Err(resume_error("the files of the interrupted dump have another row format".into()));
        }
        return Ok(folder);
    }
    let manifest = Manifest {
        format: FORMAT,
        tailwater: env!("CARGO_PKG_VERSION").to_owned(),
        server: origin,
        started_at: now(),
        finished_at: None,
        compression: options.compression,
        rows: options.rows,
        asked: None,
        snapshots: Vec::new(),
        schemas: Vec::new(),
        tables: Vec::new(),
        accounts: Vec::new(),
        objects: Vec::new(),
    };
    DumpFolder::create(Arc::clone(&options.files), manifest)
}

/// Returns what to dump. A resumed dump takes the selection of the interrupted one, so that the user need not
/// repeat it.
///
/// # Errors
/// If the options select other tables or accounts than the interrupted dump did, so that its
/// finished part would have too few or too many of them.
fn asked(options: &DumpOptions, manifest: &Manifest) -> Result<DumpSelection, String> {
    let now = DumpSelection { selection: options.selection.clone(), accounts: options.accounts };
    let Some(before) = &manifest.asked else {
        // A manifest of an older version only shows whether the dump has accounts, not which tables were
        // selected.
        return Ok(DumpSelection { accounts: now.accounts || !manifest.accounts.is_empty(), ..now });
    };
    if now.selection != Selection::default() && now.selection != before.selection {
        return Err("the interrupted dump was started with another selection of databases and tables".into());
    }
    if now.accounts && !before.accounts {
        return Err("the interrupted dump was started without --users".into());
    }
    Ok(before.clone())
}

/// Checks the files of finished chunks, which a power failure or a user may have changed. A chunk whose file
/// differs from its entry in the manifest is dumped again. All files are checked by length, and the last
/// finished ones also by their contents.
fn check_finished_files(folder: &mut DumpFolder) -> Result<(), BulkError> {
    let files = Arc::clone(folder.files());
    let listed = files.list().map_err(file_error("list", &files.path("")))?;
    let lengths: HashMap<_, _> = listed.into_iter().collect();
    let last: HashSet<_> = folder.last_files().iter().cloned().collect();
    let packing = folder.manifest().packing();
    for table in &mut folder.manifest_mut().tables {
        for chunk in &mut table.chunks {
            let Some(written) = chunk.written else { continue };
            let good = lengths.get(&chunk.file) == Some(&written.file_bytes)
                && (!last.contains(&chunk.file)
                    || crc32(files.as_ref(), &chunk.file, packing, &written) == Some(written.crc32));
            if !good {
                warn!(file = chunk.file, "the file is damaged; its chunk will be dumped again");
                chunk.written = None;
                chunk.nulled.clear();
                table.finished = false;
            }
        }
        table.rows = table.chunks.iter().filter_map(|chunk| chunk.written).map(|chunk| chunk.rows).sum();
    }
    Ok(())
}

/// Returns the CRC32 of the uncompressed contents of a file; `None` if the file cannot be read or is longer
/// than recorded.
fn crc32(files: &dyn FileStore, name: &str, packing: DumpCompression, written: &WrittenChunk) -> Option<u32> {
    // This function does not decompress Parquet files, so it reads such a file up to the size of the file
    // itself.
    let mut left = written.bytes.max(written.file_bytes);
    let file = files.open(name).ok()?;
    let mut content: Box<dyn Read> = match packing {
        DumpCompression::None => Box::new(file),
        DumpCompression::Zstd => Box::new(zstd::Decoder::new(file).ok()?),
        DumpCompression::Gzip => Box::new(MultiGzDecoder::new(file)),
    };
    let mut checksum = crc32fast::Hasher::new();
    let mut piece = vec![0; 256 << 10];
    loop {
        match content.read(&mut piece).ok()? {
            0 => return Some(checksum.finalize()),
            count => {
                left = left.checked_sub(count as u64)?;
                checksum.update(&piece[..count]);
            }
        }
    }
}

/// Writes the definitions of all objects while the tables are locked.
struct DefinitionWriter<'a> {
    connection: &'a mut Connection,
    folder: &'a mut DumpFolder,
    /// Definitions that were read at the snapshot's point in time.
    definitions: HashMap<SchemaObject, Vec<u8>>,
}

impl DefinitionWriter<'_> {
    /// Writes the files of all definitions, and records them in the manifest. Returns the descriptions of the
    /// tables in `left`, whose rows are still to be read.
    async fn write(
        mut self,
        inventory: &SchemaInventory,
        left: &[TableName],
        with_accounts: bool,
    ) -> Result<Vec<(TableName, TableInfo)>, BulkError> {
        let mut schemas = Vec::new();
        for name in &inventory.schemas {
            let file = schema_file(name);
            self.write_one(&file, &SchemaObject::Schema(name.clone())).await?;
            schemas.push(SchemaEntry { name: name.clone(), file });
        }
        let mut objects = Vec::new();
        for object in &inventory.objects {
            let SchemaObject::Other { kind, schema, name } = object else { continue };
            let file = object_file(*kind, schema, name);
            match self.write_one(&file, object).await {
                // A sequence has no lock, so it can be dropped after it was listed.
                Err(error) if is_dropped(&error) => {
                    warn!(%error, "{} {schema}.{name} was dropped after the dump had listed it; the dump leaves it out", kind.name());
                    continue;
                }
                done => done?,
            }
            objects.push(ObjectEntry { kind: *kind, schema: schema.clone(), name: name.clone(), file });
        }
        let mut accounts = Vec::new();
        if with_accounts {
            for Account { user, host, create, grants } in
                schema::account_scripts::accounts(self.connection).await?
            {
                let (file, grants_file) = account_files(&user, &host);
                self.folder.write_private(&file, &create)?;
                self.folder.write_private(&grants_file, &grants)?;
                accounts.push(AccountEntry { user, host, file, grants_file });
            }
        }
        self.folder.manifest_mut().accounts = accounts;
        let mut infos = Vec::with_capacity(left.len());
        for name in left {
            infos.push((name.clone(), self.table(name).await?));
        }
        let manifest = self.folder.manifest_mut();
        (manifest.schemas, manifest.objects) = (schemas, objects);
        for entry in &manifest.tables {
            let name = TableName::new(&entry.schema, &entry.table);
            if !entry.finished && !left.contains(&name) {
                let reason =
                    "the table was partly dumped, but does not exist on the server any more or is not selected"
                        .into();
                return Err(BulkError::ResumeImpossible { what: format!("table {name}"), reason });
            }
        }
        Ok(infos)
    }

    async fn write_one(&mut self, file: &str, object: &SchemaObject) -> Result<(), BulkError> {
        let definition = match self.definitions.remove(object) {
            Some(definition) => definition,
            None => schema::ddl(self.connection, object).await?,
        };
        self.folder.write(file, &definition)
    }

    async fn table(&mut self, name: &TableName) -> Result<TableInfo, BulkError> {
        let file = table_file(&name.schema, &name.name);
        let definition = schema::ddl(self.connection, &SchemaObject::Table(name.clone())).await?;
        let missing =
            BulkError::NotFound { what: format!("table {name}"), server: self.connection.endpoint().into() };
        let info = TableInfo::read(self.connection, &name.schema, &name.name).await?.ok_or(missing)?;
        match self.folder.manifest_mut().table_mut(&name.schema, &name.name) {
            Some(entry) if !entry.chunks.is_empty() => {
                let before = document(self.folder.files().as_ref(), &file)?;
                if without_auto_increment(&before) != without_auto_increment(&definition) {
                    let reason = "the definition of the table has changed since the dump began".into();
                    return Err(BulkError::ResumeImpossible { what: format!("table {name}"), reason });
                }
            }
            Some(entry) => entry.columns = columns(&info),
            None => self.folder.manifest_mut().tables.push(TableEntry {
                schema: name.schema.clone(),
                table: name.name.clone(),
                file: file.clone(),
                columns: columns(&info),
                rows: 0,
                chunks: Vec::new(),
                finished: false,
            }),
        }
        self.folder.write(&file, &definition)?;
        Ok(info)
    }
}

fn columns(info: &TableInfo) -> Vec<ColumnEntry> {
    let entry =
        |column: &ColumnInfo| ColumnEntry { name: column.name.clone(), data_type: column.data_type.clone() };
    info.columns.iter().map(entry).collect()
}

/// Returns a definition without the AUTO_INCREMENT counter, which every insert changes.
fn without_auto_increment(definition: &[u8]) -> Vec<u8> {
    const COUNTER: &[u8] = b" AUTO_INCREMENT=";
    let Some(at) = definition.windows(COUNTER.len()).rposition(|window| window == COUNTER) else {
        return definition.to_vec();
    };
    let after = &definition[at + COUNTER.len()..];
    let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [&definition[..at], &after[digits..]].concat()
}

fn not_in_snapshot(infos: &[(TableName, TableInfo)]) -> Vec<TableName> {
    let outside = infos.iter().filter(|(_, info)| !info.is_transactional());
    let names: Vec<_> = outside.map(|(name, _)| name.clone()).collect();
    for name in &names {
        warn!(table = %name, "the snapshot does not cover this table, because its engine has no snapshots; each row is dumped as it is when it is read");
    }
    names
}

/// Returns the queue of remaining chunks of each table, and the table's estimated number of rows.
fn work(
    options: &DumpOptions,
    folder: &DumpFolder,
    infos: Vec<(TableName, TableInfo)>,
    by_older: bool,
) -> Result<Vec<(DumpTable, u64)>, BulkError> {
    let entries = &folder.manifest().tables;
    let mut tables = Vec::with_capacity(infos.len());
    for (name, info) in infos {
        let entry = entries.iter().find(|entry| entry.schema == name.schema && entry.table == name.name);
        let Some(entry) = entry else { continue };
        let expression = |column: &ColumnInfo| row_encoder::expression(options.rows, column);
        let expressions: Vec<_> = info.columns.iter().map(expression).collect();
        // A table may have only generated columns, which are not selected.
        let expressions = if expressions.is_empty() { "1".to_owned() } else { expressions.join(", ") };
        let keeps_rows = info.keeps_rows() || !entry.chunks.is_empty();
        let key = ChunkKey::choose(&info.keys).cloned();
        let descending = key.as_ref().is_some_and(|key| key.columns.iter().any(|column| column.descending));
        if by_older && descending && !entry.chunks.is_empty() {
            return Err(BulkError::ResumeImpossible {
                what: format!("table {name}"),
                reason: "an older version cut its chunks in another key order".into(),
            });
        }
        let plan = ChunkPlan {
            key,
            partitions: info.partitions,
            rows_estimate: info.rows_estimate,
            limits: options.chunk_size_limits(info.rows_estimate, info.bytes_estimate),
        };
        let what = format!("table {name}");
        let rows = TableRows::new(options.rows, &name, &info.columns)?;
        let as_values = info.columns.iter().any(|column| is_slow_to_print(&column.data_type));
        let chunker = match keeps_rows {
            true => Chunker::resume(plan, entry.chunks.last().map(|chunk| &chunk.range)),
            false => Ok(Chunker::empty(plan)),
        };
        let bytes = info.bytes_estimate;
        let table = chunker
            .and_then(|chunker| DumpTable::new(name, expressions, as_values, rows, bytes, chunker, entry));
        let table = table.map_err(|reason| BulkError::ResumeImpossible { what, reason })?;
        tables.push((table, info.rows_estimate));
    }
    Ok(tables)
}

/// Records each table as finished if all its chunks are finished. A process that was killed after the last
/// chunk of a table may not have written that record.
async fn finish_complete_tables(
    tables: &mut Vec<(DumpTable, u64)>,
    folder: &mut DumpFolder,
) -> Result<Vec<TableName>, BulkError> {
    let (mut left, mut finished) = (Vec::with_capacity(tables.len()), Vec::new());
    for (table, rows) in tables.drain(..) {
        if table.finish_if_all(folder).await? {
            finished.push(table.name);
        } else {
            left.push((table, rows));
        }
    }
    *tables = left;
    Ok(finished)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_auto_increment_counter_is_not_a_changed_definition() {
        let definition =
            |counter| format!("CREATE TABLE `t` (`i` int) ENGINE=InnoDB{counter} DEFAULT CHARSET=latin1");
        let one = without_auto_increment(definition(" AUTO_INCREMENT=17").as_bytes());
        assert_eq!(one, definition("").into_bytes());
        assert_eq!(one, without_auto_increment(definition("").as_bytes()));
        assert_eq!(without_auto_increment(b" AUTO_INCREMENT="), b"");
    }
}
