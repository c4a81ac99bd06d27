//! A worker of a load: one connection that loads file after file.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tailwater_session::{Backoff, Connection};
use tracing::warn;

use super::data_file_loader::LoadTarget;
use super::data_file_queue::LoadQueue;
use super::dump_contents::LoadChunk;
use super::load_options::LoadOptions;
use super::load_progress_table::{CHUNK_STARTED, LoadRecord};
use super::retry_policy::{TRIES_MAX, is_temporary};
use super::{deferred_indexes, target_session};
use tailwater_files::file_store::FileStore;
use tailwater_tables::error::BulkError;
use tailwater_tables::progress_counters::BulkProgress;

/// The state of one worker.
pub(super) struct LoadWorker {
    pub(super) options: LoadOptions,
    pub(super) record: LoadRecord,
    pub(super) progress: Arc<BulkProgress>,
    /// Whether tables may have had rows before the load.
    pub(super) merge: bool,
    pub(super) files: Arc<dyn FileStore>,
    pub(super) queue: Arc<Mutex<LoadQueue>>,
    pub(super) backoff: Backoff,
}

impl LoadWorker {
    /// Loads data files until none is left.
    ///
    /// # Errors
    /// The same as for [`super::load`].
    pub(super) async fn run(mut self) -> Result<(), BulkError> {
        let mut connection = None;
        loop {
            self.options.throttle.pass(&self.progress).await;
            let next = self.queue.lock().take();
            let Some((table, chunk)) = next else { break };
            if let Some(chunk) = chunk {
                self.load(&mut connection, &table.target, &chunk).await?;
                count_loaded(&self.progress, &chunk);
                if table.left.fetch_sub(1, Relaxed) > 1 {
                    continue;
                }
            }
            // The worker that loads the last file of a table creates the table's indexes. The other workers
            // continue with other tables.
            let mut idle = target_session::take_or_connect(&mut connection, &self.options).await?;
            deferred_indexes::create_deferred(&mut idle, &self.record, &table.target.table, &self.options)
                .await?;
            connection = Some(idle);
        }
        if let Some(connection) = connection {
            connection.close().await;
        }
        Ok(())
    }

    /// Loads a file. If the target is unavailable or if rows are locked there, tries again on a new
    /// connection.
    async fn load(
        &mut self,
        slot: &mut Option<Connection>,
        target: &LoadTarget,
        chunk: &Arc<LoadChunk>,
    ) -> Result<(), BulkError> {
        let mut tries = 0;
        loop {
            let result = self.try_load(slot, target, chunk).await;
            let Err(error) = result else {
                self.backoff.reset();
                return Ok(());
            };
            tries += 1;
            // A file of a table without transactions is not tried again: the table keeps the rows that were
            // loaded before the error, and a new attempt would load these rows twice.
            if tries == TRIES_MAX || !is_temporary(&error) || !target.transactional {
                return Err(error);
            }
            let delay = self.backoff.next_delay();
            warn!(code = error.code(), %error, ?delay, "loading a data file failed; trying again");
            tokio::time::sleep(delay).await;
        }
    }

    async fn try_load(
        &self,
        slot: &mut Option<Connection>,
        target: &LoadTarget,
        chunk: &Arc<LoadChunk>,
    ) -> Result<(), BulkError> {
        let mut connection = target_session::take_or_connect(slot, &self.options).await?;
        if self.merge && !target.transactional {
            // This record is written before the rows. If the load is interrupted, only this record shows that
            // some rows of the file may be in the table.
            self.record.record_chunk(&mut connection, &target.table, CHUNK_STARTED | chunk.number).await?;
        }
        let loaded = target.load(&mut connection, &self.files, &self.record, chunk).await?;
        // The dump does not record the number of rows of its files.
        if let Some(rows) = loaded.filter(|_| chunk.rows.is_none()) {
            self.progress.rows(rows, 0);
        }
        *slot = Some(connection);
        Ok(())
    }
}

/// Counts a file that is already loaded in the progress.
pub(super) fn count_loaded(progress: &BulkProgress, chunk: &LoadChunk) {
    progress.rows(chunk.rows.unwrap_or(0), chunk.bytes.unwrap_or(0));
    progress.chunk(chunk.file_bytes);
}
