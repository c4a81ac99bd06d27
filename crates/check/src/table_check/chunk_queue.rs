//! Selects the next chunk to compare, for workers that finish in any order.

use std::time::Duration;

use tailwater_session::Connection;
use tokio::sync::Mutex;

use super::check_progress_file::{CheckState, TableState};
use super::row_difference::RowDifference;
use super::table_pair::TablePair;
use tailwater_tables::chunker::chunk_queries::next_chunk;
use tailwater_tables::chunker::{ChunkPlan, ChunkRange, ChunkSizeLimits, Chunker};
use tailwater_tables::error::BulkError;

/// A table that is not completely compared yet.
#[derive(Debug)]
pub(super) struct CheckTable {
    pub(super) pair: TablePair,
    differences_max: u64,
    chunk_state: Mutex<CheckTableState>,
}

#[derive(Debug)]
struct CheckTableState {
    chunker: Chunker,
    /// Chunks that were cut before an interruption and are not compared yet. The last element is the next
    /// chunk.
    pending: Vec<CheckChunk>,
    next_number: u32,
    /// Number of chunks that workers are comparing now.
    in_progress: usize,
    differences: u64,
    finished: bool,
    /// No more chunks are compared, because the table has too many differences.
    given_up: bool,
    /// No more chunks are compared, because a server cannot read the table.
    unreadable: bool,
}

/// A chunk to compare.
#[derive(Debug, Clone)]
pub(super) struct CheckChunk {
    pub(super) number: u32,
    pub(super) range: ChunkRange,
}

/// The result of comparing a chunk.
#[derive(Debug, Default)]
pub(super) struct ComparedChunk {
    pub(super) rows: u64,
    pub(super) found: Vec<RowDifference>,
    /// Whether the chunk has more differences than the limit, so that some are not listed.
    pub(super) more: bool,
    /// How long the slower of the two servers needed for the chunk.
    pub(super) took: Duration,
}

impl CheckTable {
    /// Creates the queue of a table's chunks that are not compared yet.
    ///
    /// # Errors
    /// The reason why an interrupted check cannot continue.
    pub(super) fn new(
        pair: TablePair,
        limits: ChunkSizeLimits,
        differences_max: u64,
        state: &TableState,
    ) -> Result<Self, String> {
        // The ranges span all partitions, because they are also used on the target, whose partitions may
        // differ.
        let plan = ChunkPlan {
            key: pair.key.as_ref().map(|key| key.source.clone()),
            partitions: Vec::new(),
            rows_estimate: pair.rows_estimate,
            limits,
        };
        let chunker = Chunker::resume(plan, state.last.as_ref().map(|(_, range)| range))?;
        let open = state.open.iter().rev();
        let pending = open.map(|(&number, range)| CheckChunk { number, range: range.clone() }).collect();
        let next_number = state.last.as_ref().map_or(0, |(number, _)| number.saturating_add(1));
        let chunk_state = CheckTableState {
            chunker,
            pending,
            next_number,
            in_progress: 0,
            differences: state.differences,
            finished: false,
            given_up: false,
            unreadable: false,
        };
        Ok(Self { pair, differences_max, chunk_state: Mutex::new(chunk_state) })
    }

    /// Returns the next chunk; `None` if all chunks are compared or assigned to workers.
    ///
    /// # Errors
    /// [`BulkError`] of a query, or of writing the state.
    pub(super) async fn take(
        &self,
        connection: &mut Connection,
        state: &Mutex<CheckState>,
    ) -> Result<Option<CheckChunk>, BulkError> {
        let mut chunk_state = self.chunk_state.lock().await;
        if chunk_state.given_up || chunk_state.unreadable {
            return Ok(None);
        }
        if let Some(task) = chunk_state.pending.pop() {
            chunk_state.in_progress += 1;
            return Ok(Some(task));
        }
        if chunk_state.chunker.is_done() {
            return Ok(None);
        }
        let name = &self.pair.name;
        let Some(range) = next_chunk(&mut chunk_state.chunker, connection, &name.schema, &name.name).await?
        else {
            return Ok(None);
        };
        let number = chunk_state.next_number;
        state.lock().await.planned(name, number, &range)?;
        chunk_state.next_number += 1;
        chunk_state.in_progress += 1;
        Ok(Some(CheckChunk { number, range }))
    }

    /// Records that a chunk is compared. Returns whether this completes the table.
    ///
    /// # Errors
    /// [`BulkError`] of writing the state.
    pub(super) async fn done(
        &self,
        task: &CheckChunk,
        compared: ComparedChunk,
        state: &Mutex<CheckState>,
    ) -> Result<bool, BulkError> {
        let mut chunk_state = self.chunk_state.lock().await;
        let ComparedChunk { rows, found, more, took } = compared;
        chunk_state.chunker.record_chunk(rows, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        chunk_state.in_progress -= 1;
        chunk_state.differences += found.len() as u64;
        chunk_state.given_up |= more || chunk_state.differences > self.differences_max;
        let mut state = state.lock().await;
        state.compared(&self.pair.name, task.number, rows, found)?;
        let is_all =
            chunk_state.given_up || (chunk_state.pending.is_empty() && chunk_state.chunker.is_done());
        if chunk_state.finished || chunk_state.unreadable || chunk_state.in_progress > 0 || !is_all {
            return Ok(false);
        }
        chunk_state.finished = true;
        state.table_done(&self.pair.name, chunk_state.given_up)?;
        Ok(true)
    }

    /// Stops comparing a table that a server cannot read. Returns whether this worker is the first to do so.
    /// The table stays unfinished in the state, so that a resumed check tries it again.
    pub(super) async fn give_up(&self) -> bool {
        let mut chunk_state = self.chunk_state.lock().await;
        !std::mem::replace(&mut chunk_state.unreadable, true)
    }

    /// Returns how many more differences may be collected.
    pub(super) async fn differences_left(&self) -> usize {
        let found = self.chunk_state.lock().await.differences;
        usize::try_from(self.differences_max.saturating_sub(found)).unwrap_or(usize::MAX)
    }
}
