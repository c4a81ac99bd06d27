//! Remembers queries that read many rows, so that they are not repeated.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use rustc_hash::FxHashMap;

/// When a query counts as slow, and for how long it is not repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowQueryLimits {
    /// How many queries are remembered. The oldest is forgotten first.
    pub entries_max: usize,
    /// A query that returns more rows is slow.
    pub rows_max: u64,
    /// A query that returns more than this share of its table's rows is slow, if these are at least
    /// [`SHARE_ROWS_MIN`].
    pub selectivity_max: f64,
    /// How long a slow query is not repeated, in seconds.
    pub keep_seconds: u64,
}

/// Below this number of rows, the share of the table does not matter.
pub const SHARE_ROWS_MIN: u64 = 100;

impl Default for SlowQueryLimits {
    fn default() -> Self {
        Self { entries_max: 10_000, rows_max: 1_000, selectivity_max: 0.05, keep_seconds: 600 }
    }
}

/// What identifies queries that are probably as slow as each other: an index, or a statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueryShape(pub String);

impl QueryShape {
    /// The shape of a statement without its literals: see [`crate::statement_reads::shape_of`]. It is a hash,
    /// because statements may be long.
    pub fn of_statement(text: &str) -> Self {
        Self(format!("statement {:016x}", FixedState::default().hash_one(text)))
    }
}

/// The slow queries of the last minutes.
#[derive(Debug)]
pub struct SlowQueryCache {
    limits: SlowQueryLimits,
    /// When each shape may run again, in seconds.
    until: FxHashMap<QueryShape, u64>,
    order: VecDeque<(u64, QueryShape)>,
}

impl SlowQueryCache {
    /// Returns an empty cache.
    pub fn new(limits: SlowQueryLimits) -> Self {
        Self { limits, until: FxHashMap::default(), order: VecDeque::new() }
    }

    /// Takes the result of a query that read `keys` index entries and returned `rows` rows of a table with
    /// about `table_rows` rows. Returns whether the query is slow.
    pub fn finished(
        &mut self,
        shape: QueryShape,
        keys: u64,
        rows: u64,
        table_rows: u64,
        is_too_long: bool,
        now_seconds: u64,
    ) -> bool {
        let per_key = rows / keys.max(1);
        let is_share = per_key >= SHARE_ROWS_MIN
            && table_rows > 0
            && per_key as f64 > table_rows as f64 * self.limits.selectivity_max;
        if !(is_too_long || per_key > self.limits.rows_max || is_share) {
            return false;
        }
        self.forget_expired(now_seconds);
        let until = now_seconds + self.limits.keep_seconds;
        if self.until.insert(shape.clone(), until).is_none() {
            self.order.push_back((until, shape));
        }
        while self.until.len() > self.limits.entries_max {
            let Some((_, oldest)) = self.order.pop_front() else { break };
            self.until.remove(&oldest);
        }
        true
    }

    /// Whether a query with this shape was slow within the last [`SlowQueryLimits::keep_seconds`].
    pub fn is_slow(&self, shape: &QueryShape, now_seconds: u64) -> bool {
        self.until.get(shape).is_some_and(|until| *until > now_seconds)
    }

    /// The number of queries that are remembered.
    pub fn len(&self) -> usize {
        self.until.len()
    }

    /// Whether no query is remembered.
    pub fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    fn forget_expired(&mut self, now_seconds: u64) {
        while let Some((until, shape)) = self.order.front() {
            let current = self.until.get(shape).copied().unwrap_or(0);
            if *until > now_seconds {
                return;
            }
            // A query that was slow again in the meantime stays, with its new time.
            let (shape, renewed) = (shape.clone(), current > now_seconds);
            self.order.pop_front();
            match renewed {
                true => self.order.push_back((current, shape)),
                false => drop(self.until.remove(&shape)),
            }
        }
    }
}
