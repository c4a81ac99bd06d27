//! Decides which table's rows come next, so that the target has enough work until the end. No I/O.
//!
//! Rows of a table are loaded by all connections. Its indexes, created afterwards, are one statement, which
//! MariaDB runs on one thread. If the table with the longest index creation got its last rows last, its
//! indexes would be created alone at the end. So the next rows are those of the table with the most remaining
//! time: its rows by all connections, then its indexes by one. Tables with equal remaining times take turns,
//! so that connections work on different tables.

/// Fixed cost of a row, in units of the cost of one byte.
const ROW: u64 = 128;
/// Cost of an index entry that is created after the rows. Measured with rows of ten kinds of types in MariaDB
/// 10.11: 5.8 microseconds for a row of 250 bytes, 1.0 for an entry.
const INDEX_ENTRY: u64 = 80;
/// Assumed size of a row if the number of rows is unknown.
const ROW_BYTES: u64 = 192;
/// Assumed share of a table in its first chunk, until the size of a chunk is known.
const FIRST_SHARE: u64 = 16;

/// A number of rows, as far as it is known, and their bytes.
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

/// A table as input of the order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableToLoad {
    /// The caller's number for the table.
    pub(crate) number: usize,
    /// Rows that are not loaded yet.
    pub(crate) missing: LoadSize,
    /// All its rows.
    pub(crate) whole: LoadSize,
    /// Number of deferred indexes.
    pub(crate) indexes: usize,
    /// Whether only one connection at a time inserts rows: engines without transactions lock the table.
    pub(crate) one_by_one: bool,
}

/// The remaining work of a table.
#[derive(Debug, Clone, Copy)]
struct RemainingTable {
    table: usize,
    /// Number of connections that insert its rows.
    connections: u64,
    /// Cost of rows that are not assigned yet.
    rows: u64,
    /// Cost of its deferred indexes.
    indexes: u64,
    /// Assumed cost of a chunk.
    chunk: u64,
}

impl RemainingTable {
    fn method(&self) -> u64 {
        (self.rows / self.connections).saturating_add(self.indexes)
    }
}

/// Tables with unassigned rows.
#[derive(Debug)]
pub(crate) struct TableOrder {
    connections: usize,
    /// Started tables: no more than there are connections, so that a table's indexes are created while its
    /// rows are in the target's memory.
    started: Vec<RemainingTable>,
    /// The other tables, the one with the longest remaining time last.
    waiting: Vec<RemainingTable>,
}

impl TableOrder {
    /// For tables with work to do.
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
        // Of equal tables the first comes first.
        waiting.reverse();
        waiting.sort_by_key(RemainingTable::method);
        Self { connections, started: Vec::new(), waiting }
    }

    /// The table whose rows a connection loads next; `None` if there are none.
    pub(crate) fn next(&mut self) -> Option<usize> {
        // Of equal tables the first is chosen: `max_by_key` returns the last.
        let longest = self.started.iter().rev().max_by_key(|left| left.method());
        let another = self.waiting.last().filter(|_| self.started.len() < self.connections);
        match (longest, another) {
            (Some(longest), None) => Some(longest.table),
            (Some(longest), Some(another)) if longest.method() > another.method() => Some(longest.table),
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

    /// Records that rows were assigned.
    pub(crate) fn take(&mut self, table: usize, size: LoadSize) {
        if let Some(left) = self.started(table) {
            left.rows = left.rows.saturating_sub(size.cost());
        }
    }

    /// Records that a chunk of unknown size was assigned. Returns the assumed cost, for [`Self::taken`].
    pub(crate) fn take_chunk(&mut self, table: usize) -> u64 {
        let Some(left) = self.started(table) else { return 0 };
        let guess = left.chunk.min(left.rows);
        left.rows -= guess;
        guess
    }

    /// Corrects the assumed cost of a chunk.
    pub(crate) fn taken(&mut self, table: usize, guess: u64, size: LoadSize) {
        if let Some(left) = self.started(table) {
            left.chunk = size.cost();
            left.rows = left.rows.saturating_add(guess).saturating_sub(left.chunk);
        }
    }

    /// Records that all rows of a table were assigned.
    pub(crate) fn end(&mut self, table: usize) {
        self.started.retain(|left| left.table != table);
    }
}

#[cfg(test)]
mod tests;
