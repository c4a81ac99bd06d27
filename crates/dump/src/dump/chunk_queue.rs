//! Selects the next chunk of the dump for each worker; workers finish in any order.

use tailwater_session::{Connection, ServerInfo};
use tokio::sync::Mutex;

use super::row_encoder::TableRows;
use crate::dump_folder::{DumpFolder, JournalEntry, NulledValues, TableEntry, WrittenChunk};
use tailwater_tables::chunker::chunk_queries::{ChunkStatement, RangeScan, from_clause, next_chunk};
use tailwater_tables::chunker::key_range_condition::condition;
use tailwater_tables::chunker::{ChunkRange, Chunker};
use tailwater_tables::error::BulkError;
use tailwater_tables::schema::TableName;

/// A table whose rows are not all dumped yet.
#[derive(Debug)]
pub(crate) struct DumpTable {
    pub(crate) name: TableName,
    /// The SELECT list of the table's chunks.
    expressions: String,
    /// Whether the rows are read in the binary protocol.
    as_values: bool,
    /// The format in which the rows are written.
    pub(super) rows: TableRows,
    /// Estimated size of the table on the server, in bytes.
    pub(crate) bytes_estimate: u64,
    chunk_state: Mutex<DumpTableState>,
}

/// The chunks of a table: which are planned, which are being dumped, and which are dumped.
#[derive(Debug)]
struct DumpTableState {
    chunker: Chunker,
    /// Chunks that an interrupted dump had planned and not finished. The last element is dumped next.
    pending: Vec<DumpChunk>,
    next_number: u32,
    /// Number of chunks that workers are dumping now.
    in_progress: usize,
    finished: bool,
}

/// A chunk to dump.
#[derive(Debug, Clone)]
pub(crate) struct DumpChunk {
    pub(crate) number: u32,
    pub(crate) range: ChunkRange,
}

impl DumpTable {
    /// Creates the queue of a table's remaining chunks, from its manifest entry and its chunk plan.
    ///
    /// # Errors
    /// The reason why an interrupted dump cannot resume with this table.
    pub(crate) fn new(
        name: TableName,
        expressions: String,
        as_values: bool,
        rows: TableRows,
        bytes_estimate: u64,
        chunker: Chunker,
        entry: &TableEntry,
    ) -> Result<Self, String> {
        if entry.chunks.iter().any(|chunk| !chunk.range.keys.is_sound()) {
            return Err("the key ranges of its chunks are damaged".to_owned());
        }
        let planned = entry.chunks.iter().zip(0..);
        let unfinished = planned.filter(|(chunk, _)| chunk.written.is_none());
        let mut pending: Vec<_> =
            unfinished.map(|(chunk, number)| DumpChunk { number, range: chunk.range.clone() }).collect();
        pending.reverse();
        let next_number =
            u32::try_from(entry.chunks.len()).map_err(|_| "the table has too many chunks".to_owned())?;
        let chunk_state =
            Mutex::new(DumpTableState { chunker, pending, next_number, in_progress: 0, finished: false });
        Ok(Self { name, expressions, as_values, rows, bytes_estimate, chunk_state })
    }

    /// Returns the next chunk; `None` if all chunks are dumped or assigned to workers. A newly cut chunk is
    /// recorded in the journal before it is assigned.
    ///
    /// # Errors
    /// [`BulkError`] of a query, or of writing the journal.
    pub(crate) async fn take(
        &self,
        connection: &mut Connection,
        folder: &Mutex<DumpFolder>,
    ) -> Result<Option<DumpChunk>, BulkError> {
        let mut chunk_state = self.chunk_state.lock().await;
        if let Some(task) = chunk_state.pending.pop() {
            chunk_state.in_progress += 1;
            return Ok(Some(task));
        }
        if chunk_state.chunker.is_done() {
            return Ok(None);
        }
        let TableName { schema, name: table } = &self.name;
        let Some(range) = next_chunk(&mut chunk_state.chunker, connection, schema, table).await? else {
            return Ok(None);
        };
        let number = chunk_state.next_number;
        let (schema, table) = (schema.clone(), table.clone());
        folder.lock().await.record(JournalEntry::Planned { schema, table, number, range: range.clone() })?;
        chunk_state.next_number += 1;
        chunk_state.in_progress += 1;
        Ok(Some(DumpChunk { number, range }))
    }

    /// Records a finished chunk. Returns whether this finishes the table.
    ///
    /// # Errors
    /// [`BulkError`] of writing the journal.
    pub(crate) async fn done(
        &self,
        task: &DumpChunk,
        chunk: WrittenChunk,
        nulled: Vec<NulledValues>,
        folder: &Mutex<DumpFolder>,
    ) -> Result<bool, BulkError> {
        let mut chunk_state = self.chunk_state.lock().await;
        chunk_state.chunker.record_chunk(chunk.rows, chunk.bytes);
        chunk_state.in_progress -= 1;
        let (schema, table) = (self.name.schema.clone(), self.name.name.clone());
        let mut folder = folder.lock().await;
        folder.record(JournalEntry::Finished {
            schema: schema.clone(),
            table: table.clone(),
            number: task.number,
            chunk,
            nulled,
        })?;
        chunk_state.finish_if_all(&mut folder, schema, table)
    }

    /// Records that a table is finished, if all its chunks are finished. After an interruption, all chunks
    /// may be finished although this record is missing.
    ///
    /// # Errors
    /// [`BulkError`] of writing the journal.
    pub(crate) async fn finish_if_all(&self, folder: &mut DumpFolder) -> Result<bool, BulkError> {
        let (schema, table) = (self.name.schema.clone(), self.name.name.clone());
        self.chunk_state.lock().await.finish_if_all(folder, schema, table)
    }

    /// Returns the estimated number of rows of the table.
    pub(crate) async fn rows_estimate(&self) -> u64 {
        self.chunk_state.lock().await.chunker.plan().rows_estimate
    }

    /// Returns the statement that reads the rows of a chunk.
    pub(crate) async fn statement(&self, task: &DumpChunk, server: &ServerInfo) -> ChunkStatement {
        let chunk_state = self.chunk_state.lock().await;
        let key = chunk_state.chunker.plan().key.as_ref();
        let TableName { schema, name } = &self.name;
        let scan = RangeScan::new(server, &task.range.keys, chunk_state.chunker.plan().rows_estimate);
        let index = key.map(|key| (key, scan.hint));
        let from = from_clause(schema, name, task.range.partition.as_deref(), index);
        let holds = condition(key, &task.range.keys).map(|condition| format!(" WHERE {condition}"));
        let sql = format!("{} {} {from}{}", scan.select, self.expressions, holds.unwrap_or_default());
        ChunkStatement { sql, as_values: self.as_values }
    }
}

impl DumpTableState {
    fn finish_if_all(
        &mut self,
        folder: &mut DumpFolder,
        schema: String,
        table: String,
    ) -> Result<bool, BulkError> {
        if self.finished || self.in_progress > 0 || !self.pending.is_empty() || !self.chunker.is_done() {
            return Ok(false);
        }
        let entries = folder.manifest().tables.iter();
        let entry = entries.into_iter().find(|entry| entry.schema == schema && entry.table == table);
        let ranges: Vec<_> =
            entry.into_iter().flat_map(|entry| &entry.chunks).map(|chunk| &chunk.range).collect();
        if let Some(reason) = self.chunker.first_gap(&ranges) {
            return Err(BulkError::RowCountMismatch { table: format!("{schema}.{table}"), reason });
        }
        self.finished = true;
        folder.record(JournalEntry::TableFinished { schema, table })?;
        Ok(true)
    }
}
