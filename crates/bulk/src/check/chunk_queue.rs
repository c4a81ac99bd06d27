//! Decides which chunk of which table is compared next, for workers that finish in any order.

use std::time::Duration;

use tailwater_session::Connection;
use tokio::sync::Mutex;

use super::difference::RowDifference;
use super::pair::TablePair;
use super::state::{CheckState, TableState};
use crate::chunker::queries::next_chunk;
use crate::chunker::{ChunkPlan, ChunkRange, ChunkSizeLimits, Chunker};
use crate::error::BulkError;

/// A table that is still to be compared.
#[derive(Debug)]
pub(super) struct CheckTable {
    pub(super) pair: TablePair,
    differences_max: u64,
    cutting: Mutex<CheckTableState>,
}

#[derive(Debug)]
struct CheckTableState {
    chunker: Chunker,
    /// Chunks that were cut before an interruption and not compared; the next one is last.
    again: Vec<CheckChunk>,
    next_number: u32,
    /// Chunks that workers are comparing.
    in_hand: usize,
    differences: u64,
    finished: bool,
    /// No more chunks, because of too many differences.
    given_up: bool,
    /// No more chunks, because a server cannot read the table.
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
    /// Whether there were more differences than the limit.
    pub(super) more: bool,
    /// How long the slower of the two servers took for the chunk.
    pub(super) took: Duration,
}

impl CheckTable {
    /// The rest of a table.
    ///
    /// # Errors
    /// Why an interrupted check cannot continue.
    pub(super) fn new(
        pair: TablePair,
        limits: ChunkSizeLimits,
        differences_max: u64,
        state: &TableState,
    ) -> Result<Self, String> {
        // Ranges are also used on the target, whose partitions may differ, so they span all partitions.
        let plan = ChunkPlan {
            key: pair.key.as_ref().map(|key| key.source.clone()),
            partitions: Vec::new(),
            rows_estimate: pair.rows_estimate,
            limits,
        };
        let chunker = Chunker::resume(plan, state.last.as_ref().map(|(_, range)| range))?;
        let open = state.open.iter().rev();
        let again = open.map(|(&number, range)| CheckChunk { number, range: range.clone() }).collect();
        let next_number = state.last.as_ref().map_or(0, |(number, _)| number.saturating_add(1));
        let cutting = CheckTableState {
            chunker,
            again,
            next_number,
            in_hand: 0,
            differences: state.differences,
            finished: false,
            given_up: false,
            unreadable: false,
        };
        Ok(Self { pair, differences_max, cutting: Mutex::new(cutting) })
    }

    /// The next chunk; `None` if all chunks are compared or assigned to workers.
    ///
    /// # Errors
    /// [`BulkError`] of a query, or of writing the state.
    pub(super) async fn take(
        &self,
        connection: &mut Connection,
        state: &Mutex<CheckState>,
    ) -> Result<Option<CheckChunk>, BulkError> {
        let mut cutting = self.cutting.lock().await;
        if cutting.given_up || cutting.unreadable {
            return Ok(None);
        }
        if let Some(task) = cutting.again.pop() {
            cutting.in_hand += 1;
            return Ok(Some(task));
        }
        if cutting.chunker.is_done() {
            return Ok(None);
        }
        let name = &self.pair.name;
        let Some(range) = next_chunk(&mut cutting.chunker, connection, &name.schema, &name.name).await?
        else {
            return Ok(None);
        };
        let number = cutting.next_number;
        state.lock().await.planned(name, number, &range)?;
        cutting.next_number += 1;
        cutting.in_hand += 1;
        Ok(Some(CheckChunk { number, range }))
    }

    /// Records a compared chunk. Returns whether it completes the table.
    ///
    /// # Errors
    /// [`BulkError`] of writing the state.
    pub(super) async fn done(
        &self,
        task: &CheckChunk,
        compared: ComparedChunk,
        state: &Mutex<CheckState>,
    ) -> Result<bool, BulkError> {
        let mut cutting = self.cutting.lock().await;
        let ComparedChunk { rows, found, more, took } = compared;
        cutting.chunker.record_chunk(rows, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        cutting.in_hand -= 1;
        cutting.differences += found.len() as u64;
        cutting.given_up |= more || cutting.differences > self.differences_max;
        let mut state = state.lock().await;
        state.compared(&self.pair.name, task.number, rows, found)?;
        let is_all = cutting.given_up || (cutting.again.is_empty() && cutting.chunker.is_done());
        if cutting.finished || cutting.unreadable || cutting.in_hand > 0 || !is_all {
            return Ok(false);
        }
        cutting.finished = true;
        state.table_done(&self.pair.name, cutting.given_up)?;
        Ok(true)
    }

    /// Gives up a table that a server cannot read. Returns whether this worker is the first to do so. The
    /// table stays unfinished in the state, so that a resumed check tries it again.
    pub(super) async fn give_up(&self) -> bool {
        let mut cutting = self.cutting.lock().await;
        !std::mem::replace(&mut cutting.unreadable, true)
    }

    /// How many more differences may be collected.
    pub(super) async fn differences_left(&self) -> usize {
        let found = self.cutting.lock().await.differences;
        usize::try_from(self.differences_max.saturating_sub(found)).unwrap_or(usize::MAX)
    }
}
