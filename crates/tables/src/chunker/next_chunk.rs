//! Decides which chunk comes next. Each range starts where the previous range ends. The first range has no
//! lower limit, and the last range has no upper limit. So the ranges cover every row once, whatever the
//! server answers. The answers only decide how even the chunks are.

use super::chunk_key::ChunkKey;
use super::chunk_sizer::{ChunkSizeLimits, ChunkSizer};
use super::key_range::{ChunkRange, KeyLiteral, KeyRange};
use super::sparse_key_search::WidthSearch;
use super::table_coverage_check::first_gap;

/// Maximum number of key values per row for which integer keys count as dense. Ranges of dense keys are cut
/// without queries.
const DENSE_KEYS_PER_ROW: u128 = 2;

/// What the chunker needs to know about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkPlan {
    /// The key to cut by. Without a key, the table is a single chunk.
    pub key: Option<ChunkKey>,
    /// The partitions, which are cut one after the other; empty for a table without partitions.
    pub partitions: Vec<String>,
    /// Estimated number of rows. A wrong estimate only changes the number of queries, not which rows the
    /// chunks cover.
    pub rows_estimate: u64,
    /// Limits for the size of a chunk.
    pub limits: ChunkSizeLimits,
}

/// A question to the server. The chunker needs the answer before it can cut the next chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkQuery {
    /// What are the lowest and the highest integer key?
    Extent,
    /// How many rows are there, as an estimate, from one integer key to another, both included?
    Estimate {
        /// The lowest key of the range.
        from: i128,
        /// The highest key of the range.
        to: i128,
    },
    /// In key order, what is the key of the row that is `rows` rows after the key `after`?
    Boundary {
        /// The key after which rows are counted; `None` to count from the first row.
        after: Option<Vec<KeyLiteral>>,
        /// Number of rows; 1 means the next row.
        rows: u64,
    },
}

/// The server's answer to a [`ChunkQuery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkQueryResult {
    /// The answer to [`ChunkQuery::Extent`]; `None` if there are no rows.
    Extent(Option<(i128, i128)>),
    /// The answer to [`ChunkQuery::Estimate`].
    Estimate(u64),
    /// The answer to [`ChunkQuery::Boundary`]; `None` if fewer rows follow than the query asked for.
    Boundary(Option<Vec<KeyLiteral>>),
}

/// What the caller of the chunker must do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkStep {
    /// Send this query for a partition, or for the whole table if `None`, and pass the result to
    /// [`Chunker::answer`].
    Ask(Option<String>, ChunkQuery),
    /// Process this chunk.
    Chunk(ChunkRange),
    /// All chunks have been returned.
    Done,
}

/// How far the current partition has been cut into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartitionPosition {
    /// No chunk of the partition has been cut yet.
    Start,
    /// The next chunk starts at an integer key. If the key is nullable, the chunk for NULL has already been
    /// cut.
    Integers {
        from: Option<i128>,
    },
    Keys {
        after: Option<Vec<KeyLiteral>>,
    },
    /// All chunks of the partition have been cut.
    End,
}

/// Cuts one table into chunks.
#[derive(Debug, Clone)]
pub struct Chunker {
    plan: ChunkPlan,
    chunk_sizer: ChunkSizer,
    /// The index of the current partition.
    partition: usize,
    position: PartitionPosition,
    /// Whether the table has no rows to read.
    empty: bool,
    /// The lowest and the highest key of the current partition. The outer `None` means that they are not
    /// known yet, and the inner `None` that there are no rows.
    extent: Option<Option<(i128, i128)>>,
    search: Option<WidthSearch>,
    /// The end of the next chunk, once it is known: an integer range or a key. The inner `None` of a key
    /// means that the chunk has no upper limit.
    found: Option<ChunkEnd>,
    /// The width of the last chunk's range, in key values.
    width: u128,
    /// Minimum width of a chunk's range, in key values. Each empty chunk doubles it, whatever the server's
    /// estimates are.
    width_min: u128,
}

#[derive(Debug, Clone)]
enum ChunkEnd {
    Width(u128),
    Key(Option<Vec<KeyLiteral>>),
}

impl Chunker {
    /// Creates a chunker for a table without rows to read.
    pub fn empty(plan: ChunkPlan) -> Self {
        let partition = plan.partitions.len().saturating_sub(1);
        Self { position: PartitionPosition::End, empty: true, partition, ..Self::new(plan) }
    }

    /// Creates a chunker that begins at the first row.
    pub fn new(plan: ChunkPlan) -> Self {
        let chunk_sizer = ChunkSizer::new(plan.limits);
        let width = u128::from(chunk_sizer.rows());
        Self {
            plan,
            chunk_sizer,
            partition: 0,
            position: PartitionPosition::Start,
            empty: false,
            extent: None,
            search: None,
            found: None,
            width,
            width_min: 1,
        }
    }

    /// Creates a chunker that continues after the last chunk of interrupted work.
    ///
    /// # Errors
    /// The reason why it cannot continue: the chunk does not fit this key and these partitions.
    pub fn resume(plan: ChunkPlan, last: Option<&ChunkRange>) -> Result<Self, String> {
        let mut chunker = Self::new(plan);
        let Some(last) = last else { return Ok(chunker) };
        chunker.partition = match &last.partition {
            None if chunker.plan.partitions.is_empty() => 0,
            Some(name) if chunker.plan.partitions.contains(name) => {
                chunker.plan.partitions.iter().position(|partition| partition == name).unwrap_or(0)
            }
            _ => return Err("the partitions of the table have changed".to_owned()),
        };
        let key = chunker.plan.key.as_ref();
        let integer = key.is_some_and(ChunkKey::is_integer);
        chunker.position = match &last.keys {
            KeyRange::All if key.is_none() => PartitionPosition::End,
            KeyRange::Nulls if key.is_some_and(ChunkKey::is_nullable) => {
                PartitionPosition::after_nulls(integer)
            }
            KeyRange::Integers { to: None, .. } if integer => PartitionPosition::End,
            KeyRange::Integers { to: Some(to), .. } if integer => {
                PartitionPosition::Integers { from: Some(to + 1) }
            }
            KeyRange::Keys { to: None, .. } if key.is_some() && !integer => PartitionPosition::End,
            KeyRange::Keys { to: Some(to), .. }
                if !integer && key.is_some_and(|key| key.columns.len() == to.len()) =>
            {
                PartitionPosition::Keys { after: Some(to.clone()) }
            }
            _ => return Err("the key of the table has changed".to_owned()),
        };
        Ok(chunker)
    }

    /// Describes the first gap or overlap among the chunks that were cut; `None` if they cover the whole
    /// table.
    pub fn first_gap(&self, ranges: &[&ChunkRange]) -> Option<String> {
        if self.empty && ranges.is_empty() {
            return None;
        }
        let nullable = self.plan.key.as_ref().is_some_and(ChunkKey::is_nullable);
        first_gap(ranges, &self.plan.partitions, nullable)
    }

    /// Returns the plan of this chunker.
    pub fn plan(&self) -> &ChunkPlan {
        &self.plan
    }

    /// Returns whether all chunks were returned.
    pub fn is_done(&self) -> bool {
        self.position == PartitionPosition::End && self.partition + 1 >= self.plan.partitions.len()
    }

    /// Records how many rows a chunk had, and what it cost.
    pub fn record_chunk(&mut self, rows: u64, cost: u64) {
        self.chunk_sizer.record_chunk(rows, cost);
        self.width_min = if rows == 0 { self.width_min.saturating_mul(2) } else { 1 };
    }

    /// Takes the server's answer to the last query.
    pub fn answer(&mut self, answer: ChunkQueryResult) {
        match answer {
            ChunkQueryResult::Extent(extent) => self.extent = Some(extent),
            ChunkQueryResult::Estimate(rows) => {
                if let Some(width) = self.search.as_mut().and_then(|search| search.estimated(rows)) {
                    self.found = Some(ChunkEnd::Width(width));
                    self.search = None;
                }
            }
            ChunkQueryResult::Boundary(key) => self.found = Some(ChunkEnd::Key(key)),
        }
    }

    /// Returns the next step. A query is returned again until it is answered; each chunk is returned once.
    pub fn step(&mut self) -> ChunkStep {
        loop {
            match self.position.clone() {
                PartitionPosition::Start => {
                    let Some(key) = &self.plan.key else {
                        self.position = PartitionPosition::End;
                        return self.chunk(KeyRange::All);
                    };
                    let nullable = key.is_nullable();
                    self.position = PartitionPosition::after_nulls(key.is_integer());
                    if nullable {
                        return self.chunk(KeyRange::Nulls);
                    }
                }
                PartitionPosition::Integers { from } => return self.integers(from),
                PartitionPosition::Keys { after } => return self.keys(after),
                PartitionPosition::End if self.partition + 1 < self.plan.partitions.len() => {
                    self.partition += 1;
                    self.position = PartitionPosition::Start;
                    self.extent = None;
                }
                PartitionPosition::End => return ChunkStep::Done,
            }
        }
    }

    fn name(&self) -> Option<String> {
        self.plan.partitions.get(self.partition).cloned()
    }

    fn chunk(&self, keys: KeyRange) -> ChunkStep {
        ChunkStep::Chunk(ChunkRange { partition: self.name(), keys })
    }

    fn ask(&self, question: ChunkQuery) -> ChunkStep {
        ChunkStep::Ask(self.name(), question)
    }

    fn keys(&mut self, after: Option<Vec<KeyLiteral>>) -> ChunkStep {
        let Some(ChunkEnd::Key(to)) = self.found.take() else {
            return self.ask(ChunkQuery::Boundary { after, rows: self.chunk_sizer.rows() });
        };
        self.position =
            to.clone().map_or(PartitionPosition::End, |to| PartitionPosition::Keys { after: Some(to) });
        self.chunk(KeyRange::Keys { after, to })
    }

    fn integers(&mut self, from: Option<i128>) -> ChunkStep {
        let Some(extent) = self.extent else { return self.ask(ChunkQuery::Extent) };
        // Rows may have been inserted outside the extent after the extent was read. They belong to the first
        // chunk, which has no lower limit, or to the last chunk, which has no upper limit.
        let Some((low, high)) = extent else { return self.last_integers(from) };
        let begin = from.unwrap_or(low);
        let rest = match u128::try_from(high - begin) {
            Ok(rest) => rest + 1,
            Err(_) => return self.last_integers(from),
        };
        let width = match self.found.take() {
            Some(ChunkEnd::Width(width)) => width,
            _ if self.is_dense(low, high) || rest <= u128::from(self.chunk_sizer.rows()) => {
                u128::from(self.chunk_sizer.rows())
            }
            _ => {
                let (rows, guess) = (self.chunk_sizer.rows(), self.width.max(self.width_min));
                let search = self.search.get_or_insert_with(|| WidthSearch::new(rows, guess, rest));
                let to = begin.saturating_add_unsigned(search.width() - 1);
                return self.ask(ChunkQuery::Estimate { from: begin, to });
            }
        };
        let width = width.max(self.width_min);
        self.width = width;
        if width >= rest {
            return self.last_integers(from);
        }
        let to = begin.saturating_add_unsigned(width - 1);
        self.position = PartitionPosition::Integers { from: Some(to + 1) };
        self.chunk(KeyRange::Integers { from, to: Some(to) })
    }

    fn last_integers(&mut self, from: Option<i128>) -> ChunkStep {
        self.position = PartitionPosition::End;
        self.chunk(KeyRange::Integers { from, to: None })
    }

    fn is_dense(&self, low: i128, high: i128) -> bool {
        let partitions = self.plan.partitions.len().max(1) as u128;
        high.abs_diff(low) <= u128::from(self.plan.rows_estimate) * DENSE_KEYS_PER_ROW / partitions
    }
}

impl PartitionPosition {
    fn after_nulls(integer: bool) -> Self {
        if integer { Self::Integers { from: None } } else { Self::Keys { after: None } }
    }
}

#[cfg(test)]
mod tests;
