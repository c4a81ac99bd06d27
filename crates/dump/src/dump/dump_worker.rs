//! A worker of a dump: one connection that dumps chunk after chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tailwater_wire::protocol::ServerStatus;
use tokio::sync::Mutex;

use super::chunk_file_writer::ChunkFile;
use super::chunk_queue::{DumpChunk, DumpTable};
use crate::dump_folder::dump_file_names::chunk_file;
use crate::dump_folder::{DumpCompression, DumpFolder, NulledValues, WrittenChunk};
use tailwater_tables::chunker::chunk_queries::check_row_count;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;
use tailwater_tables::snapshot::{FinishedTables, Snapshot, SnapshotReader};
use tailwater_tables::throttle::Throttle;

/// State shared by all workers of a dump.
#[derive(Debug)]
pub(crate) struct DumpContext {
    /// Unfinished tables, in the order in which they are started.
    pub(crate) tables: Vec<DumpTable>,
    /// All chunks of the tables before this index are dumped or assigned to workers.
    pub(crate) first: AtomicUsize,
    pub(crate) folder: Mutex<DumpFolder>,
    /// Tables whose locks the connections can release.
    pub(crate) finished: FinishedTables,
    pub(crate) progress: Arc<BulkProgress>,
    pub(crate) throttle: Arc<Throttle>,
    /// The index of the current snapshot in the manifest.
    pub(crate) snapshot: usize,
    pub(crate) compression: DumpCompression,
    pub(crate) compression_level: i32,
    /// The extension of data file names.
    pub(crate) ending: &'static str,
}

pub(crate) struct DumpWorker {
    shared: Arc<DumpContext>,
    reader: SnapshotReader,
}

impl DumpWorker {
    pub(crate) fn new(shared: Arc<DumpContext>, reader: SnapshotReader) -> Self {
        Self { shared, reader }
    }

    /// Dumps chunks until none is left.
    ///
    /// # Errors
    /// [`BulkError`] of the connection, of the files, or of a lost snapshot.
    pub(crate) async fn run(mut self) -> Result<(), BulkError> {
        let shared = Arc::clone(&self.shared);
        while let Some((table, task)) = self.next(&shared).await? {
            let (chunk, nulled) = self.dump(table, &task).await?;
            self.shared.progress.chunk(chunk.file_bytes);
            if table.done(&task, chunk, nulled, &shared.folder).await? {
                shared.finished.add(&table.name);
                shared.progress.table();
            }
            // Release the locks on finished tables early: a session that alters such a table waits until
            // every connection of the dump has released its lock.
            self.reader.release(&shared.finished).await?;
        }
        Snapshot::check_open(&mut self.reader.connection).await?;
        self.reader.connection.close().await;
        Ok(())
    }

    async fn next<'a>(
        &mut self,
        shared: &'a DumpContext,
    ) -> Result<Option<(&'a DumpTable, DumpChunk)>, BulkError> {
        loop {
            shared.throttle.pass(&shared.progress).await;
            let first = shared.first.load(Relaxed);
            let Some(table) = shared.tables.get(first) else { return Ok(None) };
            if let Some(task) = table.take(&mut self.reader.connection, &shared.folder).await? {
                return Ok(Some((table, task)));
            }
            // Another worker may have increased the index already; then this worker leaves it unchanged. The
            // index never decreases.
            let _ = shared.first.compare_exchange(first, first + 1, Relaxed, Relaxed);
        }
    }

    async fn dump(
        &mut self,
        table: &DumpTable,
        task: &DumpChunk,
    ) -> Result<(WrittenChunk, Vec<NulledValues>), BulkError> {
        let DumpContext { progress, compression, compression_level, ending, snapshot, .. } = &*self.shared;
        let name = chunk_file(&table.name.schema, &table.name.name, task.number, ending);
        let files = Arc::clone(self.shared.folder.lock().await.files());
        let statement = table.statement(task, self.reader.connection.server()).await;
        let server = self.reader.connection.endpoint().to_owned();
        let mut rows = statement.rows(&mut self.reader.connection).await?;
        let mut file =
            ChunkFile::create(files.as_ref(), &name, &table.rows, *compression, *compression_level)?;
        while let Some(batch) = rows.next_batch().await? {
            let (mut rows, mut bytes) = (0, 0);
            for row in batch.iter() {
                bytes += file.put(&row)?;
                rows += 1;
            }
            progress.rows(rows, bytes);
            // The chunk file has copied the bytes of the batch. The batch is dropped here, because a batch
            // with a huge row must not keep its memory.
            drop(batch);
            if file.is_group() {
                file = blocking(move || file.write_group().map(|()| file)).await?;
            }
        }
        // If the server ended the snapshot's transaction, the statement has read current rows instead of the
        // snapshot.
        if !rows.end().is_some_and(|end| end.status.has(ServerStatus::IN_TRANS)) {
            return Err(BulkError::SnapshotLost { server });
        }
        let snapshot = *snapshot;
        let (chunk, nulled) = blocking(move || file.finish(snapshot)).await?;
        check_row_count(&mut self.reader.connection, &table.name, chunk.rows).await?;
        Ok((chunk, nulled))
    }
}

/// Runs slow work on a thread where it does not block other tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BulkError> + Send + 'static,
) -> Result<T, BulkError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(BulkError::Interrupted),
    }
}
