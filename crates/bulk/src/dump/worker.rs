//! One connection that dumps chunk after chunk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tailwater_wire::protocol::ServerStatus;
use tokio::sync::Mutex;

use super::chunk_file::ChunkFile;
use super::chunk_queue::{TableWork, Task};
use crate::chunker::queries::check_row_count;
use crate::error::BulkError;
use crate::folder::names::chunk_file;
use crate::folder::{DumpCompression, DumpFolder, NulledValues, WrittenChunk};
use crate::progress::BulkProgress;
use crate::snapshot::{FinishedTables, Snapshot, SnapshotReader};
use crate::throttle::Throttle;

/// What all workers of a dump share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// In the order in which they are begun.
    pub(crate) tables: Vec<TableWork>,
    /// Before this one all tables are in hand or dumped.
    pub(crate) first: AtomicUsize,
    pub(crate) folder: Mutex<DumpFolder>,
    /// What connections need not hold any more.
    pub(crate) finished: FinishedTables,
    pub(crate) progress: Arc<BulkProgress>,
    pub(crate) throttle: Arc<Throttle>,
    /// The number of the snapshot that is read.
    pub(crate) snapshot: usize,
    pub(crate) compression: DumpCompression,
    pub(crate) compression_level: i32,
    /// Of the names of files.
    pub(crate) ending: &'static str,
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    reader: SnapshotReader,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, reader: SnapshotReader) -> Self {
        Self { shared, reader }
    }

    /// Works until no chunk is left to be begun.
    ///
    /// # Errors
    /// [`BulkError`] of the connection, the files, or a snapshot that did not last.
    pub(crate) async fn run(mut self) -> Result<(), BulkError> {
        let shared = Arc::clone(&self.shared);
        while let Some((table, task)) = self.next(&shared).await? {
            let (chunk, nulled) = self.dump(table, &task).await?;
            self.shared.progress.chunk(chunk.file_bytes);
            if table.done(&task, chunk, nulled, &shared.folder).await? {
                shared.finished.add(&table.name);
                shared.progress.table();
            }
            // Who wants to change a finished table waits until each connection is here.
            self.reader.release(&shared.finished).await?;
        }
        Snapshot::check_open(&mut self.reader.connection).await?;
        self.reader.connection.close().await;
        Ok(())
    }

    async fn next<'a>(&mut self, shared: &'a Shared) -> Result<Option<(&'a TableWork, Task)>, BulkError> {
        loop {
            shared.throttle.pass(&shared.progress).await;
            let first = shared.first.load(Relaxed);
            let Some(table) = shared.tables.get(first) else { return Ok(None) };
            if let Some(task) = table.take(&mut self.reader.connection, &shared.folder).await? {
                return Ok(Some((table, task)));
            }
            // Others may have been faster; nobody goes back.
            let _ = shared.first.compare_exchange(first, first + 1, Relaxed, Relaxed);
        }
    }

    async fn dump(
        &mut self,
        table: &TableWork,
        task: &Task,
    ) -> Result<(WrittenChunk, Vec<NulledValues>), BulkError> {
        let Shared { progress, compression, compression_level, ending, snapshot, .. } = &*self.shared;
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
            // A giant row is in the file's hands now.
            drop(batch);
            if file.is_group() {
                file = blocking(move || file.write_group().map(|()| file)).await?;
            }
        }
        // Outside of its transaction the statement has read what is there now.
        if !rows.end().is_some_and(|end| end.status.has(ServerStatus::IN_TRANS)) {
            return Err(BulkError::SnapshotLost { server });
        }
        let snapshot = *snapshot;
        let (chunk, nulled) = blocking(move || file.finish(snapshot)).await?;
        check_row_count(&mut self.reader.connection, &table.name, chunk.rows).await?;
        Ok((chunk, nulled))
    }
}

/// Does what takes long without keeping others waiting.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BulkError> + Send + 'static,
) -> Result<T, BulkError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(BulkError::Interrupted),
    }
}
