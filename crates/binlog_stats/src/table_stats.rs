//! The tables that table map events describe, and the changes to each table.

use std::collections::HashMap;

use tailwater_wire::row_event::{RowLayout, TableMap};
use tailwater_wire::{Flavour, WireError};

use crate::stats_report::{RowCounts, TableShare, TableTotals};

/// The maximum number of tables that are counted separately. Further tables are added up.
const TABLES_MAX: usize = 10_000;

/// The maximum length of a schema name and a table name together, in bytes; tables with longer names are not
/// counted separately. No server allows more than 64 characters for each of these two names.
const NAME_BYTES_MAX: usize = 600;

/// The maximum memory for all stored table maps, in bytes.
const MAPPED_BYTES_MAX: usize = 64 << 20;

/// The number of a table in these statistics. [`TableNumber::OTHERS`] represents all tables that are not
/// counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableNumber(usize);

impl TableNumber {
    pub(crate) const OTHERS: Self = Self(usize::MAX);
}

/// The changes to one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    pub(crate) rows: RowCounts,
    /// The size of the table's events in bytes, decompressed.
    pub(crate) bytes: u64,
}

impl TableCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.rows.add(&other.rows);
        self.bytes += other.bytes;
    }
}

#[derive(Debug)]
struct TableRecord {
    schema: String,
    table: String,
    counts: TableCounts,
    transactions: u64,
    primary_key: Option<bool>,
}

/// A table map that the next row events may refer to.
#[derive(Debug)]
struct ActiveTableMap {
    /// The body of the table map event. Servers repeat the event for each statement, and an equal body need
    /// not be parsed again.
    body: Vec<u8>,
    number: TableNumber,
    shape: RowLayout,
}

/// All tables that occurred.
#[derive(Debug, Default)]
pub(crate) struct TableRegistry {
    known: Vec<TableRecord>,
    numbers: HashMap<(String, String), usize>,
    others: TableCounts,
    mapped: HashMap<u64, ActiveTableMap>,
    mapped_bytes: usize,
}

impl TableRegistry {
    /// Processes the body of a table map event. Returns the table.
    pub(crate) fn map(&mut self, body: &[u8], flavour: Flavour) -> Result<TableNumber, WireError> {
        let id = TableMap::peek_table_id(body)?;
        if let Some(mapped) = self.mapped.get(&id)
            && mapped.body == body
        {
            return Ok(mapped.number);
        }
        let table = TableMap::parse(body, flavour)?;
        let number = self.number_of(&table);
        let mapped = ActiveTableMap { body: body.to_vec(), number, shape: RowLayout::new(&table)? };
        let bytes = |mapped: &ActiveTableMap| size_of::<ActiveTableMap>() + 2 * mapped.body.len();
        if self.mapped_bytes + bytes(&mapped) > MAPPED_BYTES_MAX {
            // Forgetting all table maps is safe: a statement writes its table maps before its rows, so they
            // are read again before they are needed. The exception is a statement with so many tables that
            // their maps alone exceed the limit.
            self.forget_maps();
        }
        self.mapped_bytes += bytes(&mapped);
        if let Some(replaced) = self.mapped.insert(id, mapped) {
            self.mapped_bytes -= bytes(&replaced);
        }
        Ok(number)
    }

    /// The table with this table id, and the layout of its rows.
    pub(crate) fn mapped(&self, id: u64) -> Option<(TableNumber, &RowLayout)> {
        self.mapped.get(&id).map(|mapped| (mapped.number, &mapped.shape))
    }

    /// Forgets the table maps. A table id is valid only until the server restarts.
    pub(crate) fn forget_maps(&mut self) {
        self.mapped.clear();
        self.mapped_bytes = 0;
    }

    fn number_of(&mut self, table: &TableMap) -> TableNumber {
        // If column names are present, all optional metadata is present. Then a table without primary key
        // metadata has no primary key.
        let primary_key = match &table.metadata.primary_key {
            Some(_) => Some(true),
            None if table.has_generated_invisible_primary_key() => Some(true),
            None => table.columns.first().and_then(|column| column.name.as_ref()).map(|_| false),
        };
        let key = (table.schema.clone(), table.table.clone());
        if let Some(number) = self.numbers.get(&key) {
            self.known[*number].primary_key = primary_key.or(self.known[*number].primary_key);
            return TableNumber(*number);
        }
        if self.known.len() >= TABLES_MAX || key.0.len() + key.1.len() > NAME_BYTES_MAX {
            return TableNumber::OTHERS;
        }
        let number = self.known.len();
        self.known.push(TableRecord {
            schema: key.0.clone(),
            table: key.1.clone(),
            counts: TableCounts::default(),
            transactions: 0,
            primary_key,
        });
        self.numbers.insert(key, number);
        TableNumber(number)
    }

    /// Adds the changes of one transaction to a table.
    pub(crate) fn add(&mut self, number: TableNumber, counts: &TableCounts) {
        match self.known.get_mut(number.0) {
            Some(known) => {
                known.counts.add(counts);
                known.transactions += 1;
            }
            None => self.others.add(counts),
        }
    }

    /// The schema and name of a table; `None` for tables that are not counted separately.
    pub(crate) fn name(&self, number: TableNumber) -> Option<(&str, &str)> {
        self.known.get(number.0).map(|known| (known.schema.as_str(), known.table.as_str()))
    }

    /// The changes to a table in the form of the report.
    pub(crate) fn share(&self, number: TableNumber, counts: &TableCounts, transactions: u64) -> TableShare {
        let (schema, table) = self.name(number).unwrap_or(("", ""));
        TableShare {
            schema: schema.to_owned(),
            table: table.to_owned(),
            rows: counts.rows,
            bytes: counts.bytes,
            transactions,
            primary_key: self.known.get(number.0).and_then(|known| known.primary_key),
        }
    }

    /// Returns the `top` tables with the most bytes, those with the most rows, and the sum of all other
    /// tables.
    pub(crate) fn report(&self, top: usize) -> TableTotals {
        let mut touched: Vec<usize> =
            (0..self.known.len()).filter(|number| self.known[*number].transactions > 0).collect();
        let share = |number: &usize| {
            let known = &self.known[*number];
            self.share(TableNumber(*number), &known.counts, known.transactions)
        };
        let counts = |number: &usize| self.known[*number].counts;
        touched.sort_by_key(|number| std::cmp::Reverse((counts(number).rows.total(), counts(number).bytes)));
        let by_rows = touched.iter().take(top).map(share).collect();
        touched.sort_by_key(|number| std::cmp::Reverse((counts(number).bytes, counts(number).rows.total())));
        let mut others = self.others;
        touched.iter().skip(top).for_each(|number| others.add(&counts(number)));
        TableTotals {
            count: touched.len() as u64,
            by_bytes: touched.iter().take(top).map(share).collect(),
            by_rows,
            others_rows: others.rows,
            others_bytes: others.bytes,
        }
    }
}
