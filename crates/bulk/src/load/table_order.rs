//! Whose rows come next, so that the target has enough to do until the end. No I/O.
//!
//! Rows of a table go in on all connections; its indexes, made behind them, are one statement, which MariaDB runs on one
//! thread. Where the table whose indexes take longest gets its last rows last, these are made alone in the end. So the rows that
//! come next are those of the table with the longest way to go: its rows by all connections, then its indexes by one. Tables
//! whose ways are equally long take turns, so that connections work on different tables.

/// What a row costs whatever its length, in what a byte of it costs.
const ROW: u64 = 128;
/// What an entry of an index costs that is made behind the rows. Measured with rows of ten kinds of types into MariaDB 10.11: 5.8
/// microseconds for a row of 250 bytes, 1.0 for an entry.
const INDEX_ENTRY: u64 = 80;
/// How long a row is taken to be where nothing says how many there are.
const ROW_BYTES: u64 = 192;
/// The share of a table that its first chunk is taken for, as long as none says how long they are.
const FIRST_SHARE: u64 = 16;

/// Rows, as far as their number is known, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    rows: u64,
    bytes: u64,
}

impl Size {
    pub(crate) fn new(rows: Option<u64>, bytes: u64) -> Self {
        Self { rows: rows.unwrap_or(bytes / ROW_BYTES), bytes }
    }

    fn cost(self) -> u64 {
        self.rows.saturating_mul(ROW).saturating_add(self.bytes)
    }
}

impl std::iter::Sum for Size {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            rows: sum.rows.saturating_add(size.rows),
            bytes: sum.bytes.saturating_add(size.bytes),
        })
    }
}

/// A table as an order is made of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableToLoad {
    /// What it is called by.
    pub(crate) number: usize,
    /// Rows that are not there yet.
    pub(crate) missing: Size,
    /// All that it will have.
    pub(crate) whole: Size,
    /// How many indexes are made behind them.
    pub(crate) indexes: usize,
    /// Whether only one connection at a time adds rows: engines without transactions lock the table.
    pub(crate) one_by_one: bool,
}

/// What is left of a table.
#[derive(Debug, Clone, Copy)]
struct Left {
    table: usize,
    /// How many connections its rows go in by.
    connections: u64,
    /// Rows that nobody has taken.
    rows: u64,
    /// Indexes that are made behind them.
    indexes: u64,
    /// What a chunk is taken for.
    chunk: u64,
}

impl Left {
    fn way(&self) -> u64 {
        (self.rows / self.connections).saturating_add(self.indexes)
    }
}

/// Tables whose rows are not all taken.
#[derive(Debug)]
pub(crate) struct Order {
    connections: usize,
    /// Those that rows were taken of: no more than there are connections, so that a table's indexes are made while its rows are
    /// in the target's memory.
    begun: Vec<Left>,
    /// The others, the one with the longest way last.
    waiting: Vec<Left>,
}

impl Order {
    /// Of tables of which something is to be done.
    pub(crate) fn new(connections: usize, tables: impl IntoIterator<Item = TableToLoad>) -> Self {
        let connections = connections.max(1);
        let left = |table: TableToLoad| {
            let rows = table.missing.cost();
            let entries = table.whole.rows.saturating_mul(table.indexes as u64);
            Left {
                table: table.number,
                connections: if table.one_by_one { 1 } else { connections as u64 },
                rows,
                indexes: entries.saturating_mul(INDEX_ENTRY),
                chunk: rows / FIRST_SHARE,
            }
        };
        let mut waiting: Vec<_> = tables.into_iter().map(left).collect();
        // Of equal ones the first comes first.
        waiting.reverse();
        waiting.sort_by_key(Left::way);
        Self { connections, begun: Vec::new(), waiting }
    }

    /// The table that a connection takes rows of next; `None` if there are no more.
    pub(crate) fn next(&mut self) -> Option<usize> {
        // Of equal ones the first is it: `max_by_key` takes the last.
        let longest = self.begun.iter().rev().max_by_key(|left| left.way());
        let another = self.waiting.last().filter(|_| self.begun.len() < self.connections);
        match (longest, another) {
            (Some(longest), None) => Some(longest.table),
            (Some(longest), Some(another)) if longest.way() > another.way() => Some(longest.table),
            _ => {
                let another = self.waiting.pop()?;
                self.begun.push(another);
                Some(another.table)
            }
        }
    }

    fn begun(&mut self, table: usize) -> Option<&mut Left> {
        self.begun.iter_mut().find(|left| left.table == table)
    }

    /// Some rows were taken.
    pub(crate) fn take(&mut self, table: usize, size: Size) {
        if let Some(left) = self.begun(table) {
            left.rows = left.rows.saturating_sub(size.cost());
        }
    }

    /// A chunk was taken of which nobody knows yet how many rows it has. What it is taken for, for [`Self::taken`].
    pub(crate) fn take_chunk(&mut self, table: usize) -> u64 {
        let Some(left) = self.begun(table) else { return 0 };
        let guess = left.chunk.min(left.rows);
        left.rows -= guess;
        guess
    }

    /// What a chunk was that had been taken for something.
    pub(crate) fn taken(&mut self, table: usize, guess: u64, size: Size) {
        if let Some(left) = self.begun(table) {
            left.chunk = size.cost();
            left.rows = left.rows.saturating_add(guess).saturating_sub(left.chunk);
        }
    }

    /// All rows of a table are taken.
    pub(crate) fn end(&mut self, table: usize) {
        self.begun.retain(|left| left.table != table);
    }
}

#[cfg(test)]
mod tests;
