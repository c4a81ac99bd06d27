//! Loads the data files of all tables over several connections.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use tailwater_session::{Connection, SessionError};
use tokio::task::JoinSet;

use super::data_file_loader::LoadTarget;
use super::data_file_queue::{LoadQueue, QueuedTable, TableLoad, size};
use super::dump_contents::{LoadChunk, TableFiles};
use super::load_phases::LoadRun;
use super::load_progress_table::CHUNK_STARTED;
use super::load_worker::{LoadWorker, count_loaded};
use super::retry_policy::backoff;
use super::target_session;
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;
use tailwater_wire::sql_quote::qualified_name;

impl LoadRun<'_> {
    /// Loads all files that are not loaded yet. Returns how many files an earlier load had loaded.
    ///
    /// # Errors
    /// The same as for [`super::load`].
    pub(super) async fn load_rows(&self, connection: &mut Connection, merge: bool) -> Result<u64, BulkError> {
        let tables = self.queued_tables(connection, merge).await?;
        let before = self.progress.figures().chunks;
        let queue = Arc::new(Mutex::new(LoadQueue::new(self.options.workers, tables)));
        let mut workers = JoinSet::new();
        for seed in 0..self.options.workers.max(1) {
            let worker = LoadWorker {
                options: self.options.clone(),
                record: self.record.clone(),
                progress: self.progress.clone(),
                merge,
                files: self.contents.files.clone(),
                queue: queue.clone(),
                backoff: backoff(seed as u64),
            };
            workers.spawn(worker.run());
        }
        // The first error ends the load. Dropping the set aborts the other workers, and the target rolls back
        // their transactions.
        while let Some(joined) = workers.join_next().await {
            match joined {
                Ok(result) => result?,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        // This connection was idle during the load of the rows, so a firewall may have dropped it.
        connection.ping().await?;
        Ok(before)
    }

    /// Returns the tables with their files that are not loaded yet. Counts the loaded files in the progress.
    async fn queued_tables(
        &self,
        connection: &mut Connection,
        merge: bool,
    ) -> Result<Vec<QueuedTable>, BulkError> {
        self.record.prepare_indexes(connection).await?;
        let mut done = self.record.chunks(connection).await?;
        let indexes = self.record.deferred_index_counts(connection).await?;
        let mut tables = Vec::new();
        for table in &self.contents.tables {
            let target = LoadTarget::of(connection, table, self.options.inserts).await?;
            let is_done = |chunk: &LoadChunk, done: &HashSet<(TableName, u32)>| {
                done.contains(&(table.name.clone(), chunk.number))
            };
            if !table.chunks.is_empty() && target.is_skipped() {
                continue;
            }
            let whole = table.chunks.iter().all(|chunk| is_done(chunk, &done));
            if !target.transactional && !whole && merge {
                self.refuse_partial_load(table, &done)?;
            } else if !target.transactional && !whole {
                // A killed load may leave some rows of a file in a table without transactions. It is unknown
                // which rows these are, so the table is emptied and loaded from scratch.
                self.empty(connection, table).await?;
                table.chunks.iter().for_each(|chunk| {
                    done.remove(&(table.name.clone(), chunk.number));
                });
            }
            let (before, missing): (Vec<_>, Vec<_>) =
                table.chunks.iter().partition(|chunk| is_done(chunk, &done));
            before.into_iter().for_each(|chunk| count_loaded(self.progress, chunk));
            tables.push(QueuedTable {
                whole: table.chunks.iter().map(size).sum(),
                indexes: indexes.get(&table.name).copied().unwrap_or(0),
                loading: Arc::new(TableLoad { target, left: AtomicUsize::new(missing.len()) }),
                missing: missing.into_iter().cloned().map(Arc::new).collect(),
            });
        }
        Ok(tables)
    }

    /// Refuses to load a file again if an earlier load of it was interrupted. The table had rows before the
    /// load, so it cannot be emptied.
    fn refuse_partial_load(
        &self,
        table: &TableFiles,
        done: &HashSet<(TableName, u32)>,
    ) -> Result<(), BulkError> {
        let is_recorded = |number: u32| done.contains(&(table.name.clone(), number));
        let is_half =
            |chunk: &&LoadChunk| is_recorded(CHUNK_STARTED | chunk.number) && !is_recorded(chunk.number);
        match table.chunks.iter().find(is_half) {
            None => Ok(()),
            Some(chunk) => Err(BulkError::PartialLoad {
                table: table.name.to_string(),
                path: chunk.path.clone(),
                forget: self.record.delete_chunk_statement(&table.name, CHUNK_STARTED | chunk.number),
            }),
        }
    }

    /// Deletes all rows of a table. Tables of some engines, such as ARCHIVE, must be dropped and created
    /// again.
    async fn empty(&self, connection: &mut Connection, table: &TableFiles) -> Result<(), BulkError> {
        const NO_SUCH_OPTION: u16 = 1031;
        let name = qualified_name(&table.name.schema, &table.name.name);
        let has_rows = !connection.query(&format!("SELECT 1 FROM {name} LIMIT 1")).await?.rows.is_empty();
        if has_rows {
            match connection.execute(&format!("TRUNCATE TABLE {name}")).await {
                Err(SessionError::Server { error, .. }) if error.number == NO_SUCH_OPTION => {
                    connection.execute(&format!("DROP TABLE {name}")).await?;
                    self.create(connection, &table.definition, true).await?;
                    target_session::set_up(connection, self.options).await?;
                }
                done => drop(done?),
            }
        }
        self.record.delete_table(connection, &table.name).await
    }
}
