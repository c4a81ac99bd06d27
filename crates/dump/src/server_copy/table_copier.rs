//! Copies rows from connections of the source's snapshot to connections of the target, in chunks and in
//! parallel.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tailwater_session::{Connection, LoadPiece, SessionError};
use tailwater_wire::protocol::ServerStatus;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::warn;

use crate::dump::chunk_queue::{DumpChunk, DumpTable};
use crate::dump::dump_worker::DumpContext;
use crate::dump_folder::{ObjectEntry, WrittenChunk};
use crate::load::data_file_loader::LoadTarget;
use crate::load::dump_contents::{DumpContents, FileCompression, LoadChunk};
use crate::load::live_row_source::LoadSource;
use crate::load::load_progress_table::{LoadRecord, WHOLE_TABLE};
use crate::load::retry_policy::{TRIES_MAX, backoff, is_temporary};
use crate::load::table_load_order::{LoadSize, TableOrder, TableToLoad};
use crate::load::{LoadOptions, deferred_indexes, target_session};
use futures_util::future::BoxFuture;
use tailwater_tables::chunker::chunk_queries::{ChunkStatement, check_row_count};
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::schema::{ObjectKind, TableName};
use tailwater_tables::snapshot::{Snapshot, SnapshotReader};
use tailwater_tables::tab_separated_rows::put_row;
use tailwater_wire::sql_quote::qualified_name;

/// Size in bytes of the pieces in which rows are passed from the source to the target.
const PIECE_BYTES: usize = 256 << 10;

/// The source of a copy, and the connections that read its rows.
#[derive(Debug)]
pub(crate) struct CopySource {
    shared: Arc<DumpContext>,
    readers: Mutex<Vec<SnapshotReader>>,
    tables_before: AtomicU64,
    restart: bool,
}

/// State that all workers of a copy share.
struct CopyContext {
    shared: Arc<DumpContext>,
    options: LoadOptions,
    record: LoadRecord,
    progress: Arc<BulkProgress>,
    /// How each table is stored on the target, by its index in [`DumpContext::tables`]; `None` if an earlier
    /// copy has finished the table.
    targets: Vec<Option<LoadTarget>>,
    order: Mutex<TableOrder>,
}

impl CopyContext {
    fn order(&self) -> MutexGuard<'_, TableOrder> {
        self.order.lock()
    }
}

impl LoadSource for CopySource {
    fn is_restart(&self) -> bool {
        self.restart
    }

    fn rows_estimate<'a>(&'a self, table: &'a TableName) -> BoxFuture<'a, u64> {
        Box::pin(self.table_estimate(table))
    }

    fn begin<'a>(
        &'a self,
        target: &'a mut Connection,
        record: &'a LoadRecord,
        one_point: bool,
    ) -> BoxFuture<'a, Result<usize, BulkError>> {
        Box::pin(self.prepare_target(target, record, one_point))
    }

    fn load_rows<'a>(
        &'a self,
        target: &'a mut Connection,
        contents: &'a DumpContents,
        options: &'a LoadOptions,
        record: &'a LoadRecord,
        progress: &'a Arc<BulkProgress>,
    ) -> BoxFuture<'a, Result<(), BulkError>> {
        Box::pin(self.copy(target, contents, options, record, progress))
    }
}

impl CopySource {
    /// Creates the source of a copy from a prepared dump.
    pub(crate) fn new(shared: Arc<DumpContext>, readers: Vec<SnapshotReader>, restart: bool) -> Self {
        Self { shared, readers: Mutex::new(readers), tables_before: AtomicU64::new(0), restart }
    }

    /// Returns the number of tables that an earlier copy had finished.
    pub(crate) fn tables_before(&self) -> u64 {
        self.tables_before.load(Relaxed)
    }

    /// Returns the estimated number of rows of a table.
    async fn table_estimate(&self, table: &TableName) -> u64 {
        match self.shared.tables.iter().find(|work| work.name == *table) {
            Some(work) => work.rows_estimate().await,
            None => 0,
        }
    }

    /// Prepares the target before tables are created. Drops the tables that an earlier copy did not finish,
    /// or all of them for a restart. Returns the number of tables that are kept.
    ///
    /// # Errors
    /// [`BulkError::GtidState`] if tables of an earlier copy are kept, but `one_point` requires one point in
    /// time for all tables; [`BulkError::Session`].
    async fn prepare_target(
        &self,
        target: &mut Connection,
        record: &LoadRecord,
        one_point: bool,
    ) -> Result<usize, BulkError> {
        let finished = match self.restart {
            true => HashSet::new(),
            false => record.finished_tables(target).await?,
        };
        if one_point && !finished.is_empty() {
            let reason = format!(
                "{} tables were copied before the interruption, at another point in time; start from scratch \
                 with --restart, which drops what was copied",
                finished.len()
            );
            return Err(BulkError::GtidState { reason });
        }
        let mut started: BTreeSet<_> = self.shared.tables.iter().map(|work| work.name.clone()).collect();
        if self.restart {
            self.drop_objects(target).await?;
            // Tables of the earlier copy are also dropped if they do not exist on the source any more.
            started.extend(record.chunks(target).await?.into_iter().map(|(table, _)| table));
        }
        for table in started.iter().filter(|table| !finished.contains(*table)) {
            record.delete_table(target, table).await?;
            record.delete_indexes(target, table).await?;
            drop_if_there(target, "TABLE", &table.schema, &table.name).await?;
            if self.restart {
                // A view with this name is dropped, too: when the earlier copy ran, the name may have
                // belonged to a view on the source.
                drop_if_there(target, "VIEW", &table.schema, &table.name).await?;
            }
        }
        Ok(finished.len())
    }

    /// Drops the views, routines, events and sequences that an earlier copy may have created. Otherwise these
    /// objects would keep their old definitions, because the copy skips objects that exist.
    async fn drop_objects(&self, target: &mut Connection) -> Result<(), BulkError> {
        let objects = self.shared.folder.lock().await.manifest().objects.clone();
        for ObjectEntry { kind, schema, name, .. } in &objects {
            let what = match kind {
                ObjectKind::Sequence => "SEQUENCE",
                ObjectKind::View => "VIEW",
                ObjectKind::Function => "FUNCTION",
                ObjectKind::Procedure => "PROCEDURE",
                ObjectKind::Event => "EVENT",
                ObjectKind::Package => "PACKAGE",
                // A trigger is dropped with its table, and a package body with its package.
                ObjectKind::Trigger | ObjectKind::PackageBody => continue,
            };
            if *kind == ObjectKind::Package {
                // MariaDB takes `PACKAGE` as a keyword only in this SQL mode.
                target
                    .execute("SET @tailwater_mode = @@SESSION.sql_mode, SESSION sql_mode = 'ORACLE'")
                    .await?;
            }
            drop_if_there(target, what, schema, name).await?;
            if *kind == ObjectKind::Package {
                target.execute("SET SESSION sql_mode = @tailwater_mode").await?;
            }
        }
        Ok(())
    }

    /// Copies all rows of the tables that are not in `finished`.
    async fn copy(
        &self,
        target: &mut Connection,
        contents: &DumpContents,
        options: &LoadOptions,
        record: &LoadRecord,
        progress: &Arc<BulkProgress>,
    ) -> Result<(), BulkError> {
        record.prepare_indexes(target).await?;
        let chunks = record.chunks(target).await?;
        let waiting = record.deferred_index_counts(target).await?;
        let mut targets = Vec::with_capacity(self.shared.tables.len());
        let mut unfinished = Vec::new();
        for (number, work) in self.shared.tables.iter().enumerate() {
            let whole = LoadSize::new(Some(work.rows_estimate().await), work.bytes_estimate);
            let indexes = waiting.get(&work.name).copied().unwrap_or(0);
            let to_load = TableToLoad { number, missing: whole, whole, indexes, one_by_one: false };
            if chunks.contains(&(work.name.clone(), WHOLE_TABLE)) {
                self.tables_before.fetch_add(1, Relaxed);
                self.shared.finished.add(&work.name);
                progress.table();
                targets.push(None);
                if indexes > 0 {
                    unfinished.push(TableToLoad { missing: LoadSize::default(), ..to_load });
                }
                continue;
            }
            let Some(table) = contents.tables.iter().find(|table| table.name == work.name) else {
                targets.push(None);
                continue;
            };
            let target = LoadTarget::of(target, table, options.inserts).await?;
            if target.is_skipped() {
                self.shared.finished.add(&work.name);
                progress.table();
                targets.push(None);
                continue;
            }
            unfinished.push(TableToLoad { one_by_one: !target.transactional, ..to_load });
            targets.push(Some(target));
        }
        let readers = std::mem::take(&mut *self.readers.lock());
        let copying = Arc::new(CopyContext {
            shared: Arc::clone(&self.shared),
            options: options.clone(),
            record: record.clone(),
            progress: Arc::clone(progress),
            targets,
            order: Mutex::new(TableOrder::new(readers.len(), unfinished)),
        });
        let mut workers = JoinSet::new();
        for (number, reader) in readers.into_iter().enumerate() {
            let worker = CopyWorker { copying: Arc::clone(&copying), reader, number };
            workers.spawn(worker.run());
        }
        // The first error ends the copy. Dropping the set aborts the other workers, and the target rolls back
        // their transactions.
        while let Some(joined) = workers.join_next().await {
            match joined {
                Ok(result) => result?,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        target.ping().await?;
        Ok(())
    }
}

/// Drops an object of the target, if the object and its database exist.
async fn drop_if_there(
    target: &mut Connection,
    what: &str,
    schema: &str,
    name: &str,
) -> Result<(), BulkError> {
    const UNKNOWN_DATABASE: u16 = 1049;
    match target.execute(&format!("DROP {what} IF EXISTS {}", qualified_name(schema, name))).await {
        Ok(_) => Ok(()),
        Err(SessionError::Server { error, .. }) if error.number == UNKNOWN_DATABASE => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A worker: one connection of the snapshot, and one connection to the target.
struct CopyWorker {
    copying: Arc<CopyContext>,
    reader: SnapshotReader,
    number: usize,
}

impl CopyWorker {
    async fn run(mut self) -> Result<(), BulkError> {
        let copying = Arc::clone(&self.copying);
        let CopyContext { shared, record, progress, options, .. } = &*copying;
        let mut slot = None;
        loop {
            options.throttle.pass(progress).await;
            let Some(at) = copying.order().next() else { break };
            let work = &shared.tables[at];
            let Some(target) = &copying.targets[at] else {
                // An earlier copy has copied all rows of this table.
                copying.order().end(at);
                self.create_indexes(&mut slot, &work.name).await?;
                continue;
            };
            let guess = copying.order().take_chunk(at);
            let Some(task) = work.take(&mut self.reader.connection, &shared.folder).await? else {
                copying.order().end(at);
                continue;
            };
            let chunk = self.chunk(&mut slot, work, target, &task).await?;
            progress.chunk(chunk.bytes);
            copying.order().taken(at, guess, LoadSize::new(Some(chunk.rows), chunk.bytes));
            if work.done(&task, chunk, Vec::new(), &shared.folder).await? {
                shared.finished.add(&work.name);
                if let Some(connection) = &mut slot {
                    record.record_chunk(connection, &work.name, WHOLE_TABLE).await?;
                }
                // After the release, the definition of the table may change on the source while indexes are
                // created on the target.
                self.reader.release(&shared.finished).await?;
                self.create_indexes(&mut slot, &work.name).await?;
                progress.table();
            }
            self.reader.release(&shared.finished).await?;
        }
        Snapshot::check_open(&mut self.reader.connection).await?;
        self.reader.connection.close().await;
        if let Some(connection) = slot {
            connection.close().await;
        }
        Ok(())
    }

    async fn create_indexes(
        &self,
        slot: &mut Option<Connection>,
        table: &TableName,
    ) -> Result<(), BulkError> {
        let CopyContext { options, record, .. } = &*self.copying;
        let mut connection = target_session::take_or_connect(slot, options).await?;
        deferred_indexes::create_deferred(&mut connection, record, table, options).await?;
        *slot = Some(connection);
        Ok(())
    }

    /// Copies a chunk. Tries again if the target is unavailable or if rows are locked there.
    async fn chunk(
        &mut self,
        slot: &mut Option<Connection>,
        work: &DumpTable,
        target: &LoadTarget,
        task: &DumpChunk,
    ) -> Result<WrittenChunk, BulkError> {
        let statement = work.statement(task, self.reader.connection.server()).await;
        let mut backoff = backoff(self.number as u64);
        let mut tries = 0;
        loop {
            let error = match self.try_chunk(slot, target, &statement, task.number).await {
                Ok(chunk) => return Ok(chunk),
                Err(error) => error,
            };
            tries += 1;
            // A chunk of a table without transactions is not tried again: the table keeps the rows that were
            // loaded before the error, and a new attempt would load these rows twice.
            if tries == TRIES_MAX || !is_temporary(&error) || !target.transactional {
                return Err(error);
            }
            let delay = backoff.next_delay();
            warn!(code = error.code(), %error, ?delay, "copying a chunk failed; trying again");
            tokio::time::sleep(delay).await;
        }
    }

    async fn try_chunk(
        &mut self,
        slot: &mut Option<Connection>,
        target: &LoadTarget,
        statement: &ChunkStatement,
        number: u32,
    ) -> Result<WrittenChunk, BulkError> {
        let CopyContext { options, record, progress, .. } = &*self.copying;
        let mut connection = target_session::take_or_connect(slot, options).await?;
        let chunk = LoadChunk {
            number,
            path: format!("chunk {number} of the source").into(),
            packing: FileCompression::None,
            rows: None,
            bytes: None,
            crc32: None,
            file_bytes: 0,
        };
        let mut sent = SentRows::default();
        let (reader, counted) = (&mut self.reader.connection, &mut sent);
        let loaded = target
            .load_from(&mut connection, record, &chunk, move |sender| {
                send(reader, &target.table, statement, sender, counted)
            })
            .await?;
        if loaded.is_none() {
            // An earlier attempt had committed the chunk, but the target's response was lost. The attempt
            // loaded the rows of this same snapshot, so they are only counted.
            sent = count(&mut self.reader.connection, &target.table, statement).await?;
        }
        progress.rows(sent.rows, sent.bytes);
        *slot = Some(connection);
        let SentRows { rows, bytes } = sent;
        Ok(WrittenChunk { rows, bytes, crc32: 0, file_bytes: bytes, snapshot: 0 })
    }
}

/// The rows that were sent to the target for a chunk.
#[derive(Debug, Clone, Copy, Default)]
struct SentRows {
    rows: u64,
    bytes: u64,
}

/// Sends the rows of a statement, and returns their number. If the receiver is dropped, the function still
/// reads the remaining rows: the connection must stay usable, because its transaction has the snapshot.
async fn send(
    reader: &mut Connection,
    table: &TableName,
    statement: &ChunkStatement,
    to: mpsc::Sender<LoadPiece>,
    sent: &mut SentRows,
) -> Result<Option<u64>, BulkError> {
    let server = reader.endpoint().to_owned();
    let mut rows = statement.rows(reader).await?;
    let mut piece = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
    while let Some(batch) = rows.next_batch().await? {
        for row in batch.iter() {
            sent.rows += 1;
            if to.is_closed() {
                continue;
            }
            put_row(&mut piece, &row)?;
            if piece.len() >= PIECE_BYTES {
                sent.bytes += piece.len() as u64;
                let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4));
                // An error means that the receiver was dropped. For the next row, the loop detects that with
                // `is_closed`.
                let _ = to.send(LoadPiece::Bytes(Bytes::from(full))).await;
            }
        }
    }
    // If the server ended the snapshot's transaction, the statement has read current rows instead of the
    // snapshot.
    if !rows.end().is_some_and(|end| end.status.has(ServerStatus::IN_TRANS)) {
        return Err(BulkError::SnapshotLost { server });
    }
    check_row_count(reader, table, sent.rows).await?;
    sent.bytes += piece.len() as u64;
    let _ = to.send(LoadPiece::Bytes(Bytes::from(piece))).await;
    let _ = to.send(LoadPiece::End).await;
    Ok(Some(sent.rows))
}

/// Returns the number of rows of a statement, and their size in bytes.
async fn count(
    reader: &mut Connection,
    table: &TableName,
    statement: &ChunkStatement,
) -> Result<SentRows, BulkError> {
    let (sender, mut receiver) = mpsc::channel(1);
    let mut sent = SentRows::default();
    let drain = async { while receiver.recv().await.is_some() {} };
    let (counted, ()) = tokio::join!(send(reader, table, statement, sender, &mut sent), drain);
    counted?;
    Ok(sent)
}
