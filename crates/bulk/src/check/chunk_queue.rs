//! Which chunk of which table is compared next, for workers that finish in any order.

use std::time::Duration;

use tailwater_session::Connection;
use tokio::sync::Mutex;

use super::difference::RowDifference;
use super::pair::TablePair;
use super::state::{State, TableState};
use crate::chunker::queries::next_chunk;
use crate::chunker::{ChunkPlan, ChunkRange, ChunkSizeLimits, Chunker};
use crate::error::BulkError;

/// A table that is not compared yet.
#[derive(Debug)]
pub(super) struct TableWork {
    pub(super) pair: TablePair,
    differences_max: u64,
    cutting: Mutex<Cutting>,
}

#[derive(Debug)]
struct Cutting {
    walk: Chunker,
    /// Chunks that were cut before an interruption and not compared; the next one last.
    again: Vec<Task>,
    next_number: u32,
    /// Chunks that workers have in hand.
    in_hand: usize,
    differences: u64,
    finished: bool,
    /// No more chunks: too many differences.
    given_up: bool,
    /// No more chunks: a server does not read the table.
    unreadable: bool,
}

/// A chunk to be compared.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) number: u32,
    pub(super) range: ChunkRange,
}

/// What comparing a chunk gave.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) rows: u64,
    pub(super) found: Vec<RowDifference>,
    /// There was more, which was not looked at.
    pub(super) more: bool,
    /// How long the slower of the servers worked on the chunk.
    pub(super) took: Duration,
}

impl TableWork {
    /// What is left of a table.
    ///
    /// # Errors
    /// Why it cannot be gone on with.
    pub(super) fn new(
        pair: TablePair,
        limits: ChunkSizeLimits,
        differences_max: u64,
        state: &TableState,
    ) -> Result<Self, String> {
        // Ranges are put to the target too, whose partitions may be others: they go across partitions.
        let plan = ChunkPlan {
            key: pair.key.as_ref().map(|key| key.source.clone()),
            partitions: Vec::new(),
            rows_estimate: pair.rows_estimate,
            limits,
        };
        let walk = Chunker::resume(plan, state.last.as_ref().map(|(_, range)| range))?;
        let open = state.open.iter().rev();
        let again = open.map(|(&number, range)| Task { number, range: range.clone() }).collect();
        let next_number = state.last.as_ref().map_or(0, |(number, _)| number.saturating_add(1));
        let cutting = Cutting {
            walk,
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

    /// The next chunk; `None` if all are compared or in other hands.
    ///
    /// # Errors
    /// [`BulkError`] of the question or the record.
    pub(super) async fn take(
        &self,
        connection: &mut Connection,
        state: &Mutex<State>,
    ) -> Result<Option<Task>, BulkError> {
        let mut cutting = self.cutting.lock().await;
        if cutting.given_up || cutting.unreadable {
            return Ok(None);
        }
        if let Some(task) = cutting.again.pop() {
            cutting.in_hand += 1;
            return Ok(Some(task));
        }
        if cutting.walk.is_done() {
            return Ok(None);
        }
        let name = &self.pair.name;
        let Some(range) = next_chunk(&mut cutting.walk, connection, &name.schema, &name.name).await? else {
            return Ok(None);
        };
        let number = cutting.next_number;
        state.lock().await.planned(name, number, &range)?;
        cutting.next_number += 1;
        cutting.in_hand += 1;
        Ok(Some(Task { number, range }))
    }

    /// Records a chunk; whether the table is done with it.
    ///
    /// # Errors
    /// [`BulkError`] of the record.
    pub(super) async fn done(
        &self,
        task: &Task,
        compared: Compared,
        state: &Mutex<State>,
    ) -> Result<bool, BulkError> {
        let mut cutting = self.cutting.lock().await;
        let Compared { rows, found, more, took } = compared;
        cutting.walk.record_chunk(rows, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        cutting.in_hand -= 1;
        cutting.differences += found.len() as u64;
        cutting.given_up |= more || cutting.differences > self.differences_max;
        let mut state = state.lock().await;
        state.compared(&self.pair.name, task.number, rows, found)?;
        let is_all = cutting.given_up || (cutting.again.is_empty() && cutting.walk.is_done());
        if cutting.finished || cutting.unreadable || cutting.in_hand > 0 || !is_all {
            return Ok(false);
        }
        cutting.finished = true;
        state.table_done(&self.pair.name, cutting.given_up)?;
        Ok(true)
    }

    /// Gives up a table that a server does not read; whether no worker has given it up before. In the state it stays
    /// unfinished, so that a check that resumes tries it again.
    pub(super) async fn give_up(&self) -> bool {
        let mut cutting = self.cutting.lock().await;
        !std::mem::replace(&mut cutting.unreadable, true)
    }

    /// How many more differences are asked for.
    pub(super) async fn differences_left(&self) -> usize {
        let found = self.cutting.lock().await.differences;
        usize::try_from(self.differences_max.saturating_sub(found)).unwrap_or(usize::MAX)
    }
}
