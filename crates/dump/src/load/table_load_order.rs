//! Decides from which table the next rows are loaded, so that the target has enough work until the end. No
//! I/O.
//!
//! All connections can load rows of one table. The indexes of a table are created afterwards by one
//! statement, which MariaDB runs on one thread. If the table with the longest index creation got its last
//! rows at the very end, its indexes would be created while all other connections are idle.
//!
//! So the next rows are those of the table with the longest remaining time: the time for its rows on all
//! connections, plus the time for its indexes on one connection. Tables with equal remaining times take
//! turns, so that connections work on different tables.

/// Fixed cost of loading a row. The unit of all costs is the cost of one byte of a row.
const ROW: u64 = 128;
/// Cost of an index entry that is created after the rows. Measured in MariaDB 10.11 with rows that have ten
/// kinds of column types: 5.8 microseconds for a row of 250 bytes, 1.0 microsecond for an index entry.
const INDEX_ENTRY: u64 = 80;
/// Assumed size of a row in bytes, if the number of rows is unknown.
const ROW_BYTES: u64 = 192;
/// Until the size of a chunk is known, a chunk of a table is assumed to have the table's cost divided by this
/// number.
const FIRST_SHARE: u64 = 16;

/// A number of rows, if it is known, and their size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LoadSize {
    rows: u64,
    bytes: u64,
}

impl LoadSize {
    pub(crate) fn new(rows: Option<u64>, bytes: u64) -> Self {
        Self { rows: rows.unwrap_or(bytes / ROW_BYTES), bytes }
    }

    fn cost(self) -> u64 {
        self.rows.saturating_mul(ROW).saturating_add(self.bytes)
    }
}

impl std::iter::Sum for LoadSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            rows: sum.rows.saturating_add(size.rows),
            bytes: sum.bytes.saturating_add(size.bytes),
        })
    }
}

/// A table to be loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableToLoad {
    /// The number by which the caller identifies the table.
    pub(crate) number: usize,
    /// The rows that are not loaded yet.
    pub(crate) missing: LoadSize,
    /// All rows of the table.
    pub(crate) whole: LoadSize,
    /// Number of deferred indexes of the table.
    pub(crate) indexes: usize,
    /// Whether only one connection at a time can insert rows, because engines without transactions lock the
    /// table.
    pub(crate) one_by_one: bool,
}

/// The remaining work of a table.
#[derive(Debug, Clone, Copy)]
struct RemainingTable {
    table: usize,
    /// Number of connections that can insert rows of the table at a time.
    connections: u64,
    /// Cost of the rows that are not assigned to a connection yet.
    rows: u64,
    /// Cost of creating the deferred indexes.
    indexes: u64,
    /// Assumed cost of a chunk.
    chunk: u64,
}

impl RemainingTable {
    fn remaining_cost(&self) -> u64 {
        (self.rows / self.connections).saturating_add(self.indexes)
    }
}

/// The tables with rows that are not assigned to a connection yet.
#[derive(Debug)]
pub(crate) struct TableOrder {
    connections: usize,
    /// Tables whose load has started. There are at most as many as connections, so that the indexes of a
    /// table are created while its rows are still in the target's memory.
    started: Vec<RemainingTable>,
    /// Tables whose load has not started. The one with the longest remaining time is last.
    waiting: Vec<RemainingTable>,
}

impl TableOrder {
    /// Creates the order for tables that have rows to load or indexes to create.
    pub(crate) fn new(connections: usize, tables: impl IntoIterator<Item = TableToLoad>) -> Self {
        let connections = connections.max(1);
        let left = |table: TableToLoad| {
            let rows = table.missing.cost();
            let entries = table.whole.rows.saturating_mul(table.indexes as u64);
            RemainingTable {
                table: table.number,
                connections: if table.one_by_one { 1 } else { connections as u64 },
                rows,
                indexes: entries.saturating_mul(INDEX_ENTRY),
                chunk: rows / FIRST_SHARE,
            }
        };
        let mut waiting: Vec<_> = tables.into_iter().map(left).collect();
        // Of tables with equal remaining times, the first one is started first.
        waiting.reverse();
        waiting.sort_by_key(RemainingTable::remaining_cost);
        Self { connections, started: Vec::new(), waiting }
    }

    /// Returns the number of the table whose rows a connection loads next; `None` if there are no rows left.
    pub(crate) fn next(&mut self) -> Option<usize> {
        // Of tables with equal remaining times, the first one is chosen. The iterator is reversed because
        // `max_by_key` returns the last one.
        let longest = self.started.iter().rev().max_by_key(|left| left.remaining_cost());
        let another = self.waiting.last().filter(|_| self.started.len() < self.connections);
        match (longest, another) {
            (Some(longest), None) => Some(longest.table),
            (Some(longest), Some(another)) if longest.remaining_cost() > another.remaining_cost() => {
                Some(longest.table)
            }
            _ => {
                let another = self.waiting.pop()?;
                self.started.push(another);
                Some(another.table)
            }
        }
    }

    fn started(&mut self, table: usize) -> Option<&mut RemainingTable> {
        self.started.iter_mut().find(|left| left.table == table)
    }

    /// Records that rows of a table were assigned to a connection.
    pub(crate) fn take(&mut self, table: usize, size: LoadSize) {
        if let Some(left) = self.started(table) {
            left.rows = left.rows.saturating_sub(size.cost());
        }
    }

    /// Records that a chunk of unknown size was assigned to a connection. Returns the assumed cost, for
    /// [`Self::taken`].
    pub(crate) fn take_chunk(&mut self, table: usize) -> u64 {
        let Some(left) = self.started(table) else { return 0 };
        let guess = left.chunk.min(left.rows);
        left.rows -= guess;
        guess
    }

    /// Replaces the assumed cost of a chunk by the cost of its known size.
    pub(crate) fn taken(&mut self, table: usize, guess: u64, size: LoadSize) {
        if let Some(left) = self.started(table) {
            left.chunk = size.cost();
            left.rows = left.rows.saturating_add(guess).saturating_sub(left.chunk);
        }
    }

    /// Records that all rows of a table were assigned to connections.
    pub(crate) fn end(&mut self, table: usize) {
        self.started.retain(|left| left.table != table);
    }
}

#[cfg(test)]
mod tests;
