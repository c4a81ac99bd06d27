//! Tables by number: those that the events describe, and what was done to each.

use std::collections::HashMap;

use tailwater_wire::rows::{RowLayout, TableMap};
use tailwater_wire::{Flavour, WireError};

use super::report::{RowCounts, TableShare, TableTotals};

/// So many tables are told apart; those that come later are added up.
const TABLES_MAX: usize = 10_000;

/// Longer names than any server allows (64 characters each) are not kept.
const NAME_BYTES_MAX: usize = 600;

/// What the table maps that are kept may take together, in bytes.
const MAPPED_BYTES_MAX: usize = 64 << 20;

/// A table's number. [`TableNumber::OTHERS`] stands for all that are not told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TableNumber(usize);

impl TableNumber {
    pub(super) const OTHERS: Self = Self(usize::MAX);
}

/// What was done to one table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TableCounts {
    pub(super) rows: RowCounts,
    /// Of its events, unpacked.
    pub(super) bytes: u64,
}

impl TableCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.rows.add(&other.rows);
        self.bytes += other.bytes;
    }
}

#[derive(Debug)]
struct Known {
    schema: String,
    table: String,
    counts: TableCounts,
    transactions: u64,
    primary_key: Option<bool>,
}

/// A table map in force.
#[derive(Debug)]
struct Mapped {
    /// As it stood in its event: servers repeat it for each statement, and it need not be parsed again.
    body: Vec<u8>,
    number: TableNumber,
    shape: RowLayout,
}

/// All tables seen.
#[derive(Debug, Default)]
pub(super) struct TableRegistry {
    known: Vec<Known>,
    numbers: HashMap<(String, String), usize>,
    others: TableCounts,
    mapped: HashMap<u64, Mapped>,
    mapped_bytes: usize,
}

impl TableRegistry {
    /// Takes the body of a table map event, and says which table it is.
    pub(super) fn map(&mut self, body: &[u8], flavour: Flavour) -> Result<TableNumber, WireError> {
        let id = TableMap::peek_table_id(body)?;
        if let Some(mapped) = self.mapped.get(&id)
            && mapped.body == body
        {
            return Ok(mapped.number);
        }
        let table = TableMap::parse(body, flavour)?;
        let number = self.number_of(&table);
        let mapped = Mapped { body: body.to_vec(), number, shape: RowLayout::new(&table)? };
        let bytes = |mapped: &Mapped| size_of::<Mapped>() + 2 * mapped.body.len();
        if self.mapped_bytes + bytes(&mapped) > MAPPED_BYTES_MAX {
            // A statement maps its tables before its rows, so those in use are mapped again before they are missed, but
            // for a join of tables whose maps alone take this much.
            self.forget_maps();
        }
        self.mapped_bytes += bytes(&mapped);
        if let Some(replaced) = self.mapped.insert(id, mapped) {
            self.mapped_bytes -= bytes(&replaced);
        }
        Ok(number)
    }

    /// The table behind an id of the events, and how its rows are passed over.
    pub(super) fn mapped(&self, id: u64) -> Option<(TableNumber, &RowLayout)> {
        self.mapped.get(&id).map(|mapped| (mapped.number, &mapped.shape))
    }

    /// Table ids mean nothing beyond the run of a server.
    pub(super) fn forget_maps(&mut self) {
        self.mapped.clear();
        self.mapped_bytes = 0;
    }

    fn number_of(&mut self, table: &TableMap) -> TableNumber {
        // Names are only there where all optional metadata is.
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
        self.known.push(Known {
            schema: key.0.clone(),
            table: key.1.clone(),
            counts: TableCounts::default(),
            transactions: 0,
            primary_key,
        });
        self.numbers.insert(key, number);
        TableNumber(number)
    }

    /// Adds what one transaction did to a table.
    pub(super) fn add(&mut self, number: TableNumber, counts: &TableCounts) {
        match self.known.get_mut(number.0) {
            Some(known) => {
                known.counts.add(counts);
                known.transactions += 1;
            }
            None => self.others.add(counts),
        }
    }

    /// Schema and table; `None` for those that are not told apart.
    pub(super) fn name(&self, number: TableNumber) -> Option<(&str, &str)> {
        self.known.get(number.0).map(|known| (known.schema.as_str(), known.table.as_str()))
    }

    /// What was done to a table, as the report has it.
    pub(super) fn share(&self, number: TableNumber, counts: &TableCounts, transactions: u64) -> TableShare {
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

    /// The hottest tables, by bytes and by rows, and the rest of them added up.
    pub(super) fn report(&self, top: usize) -> TableTotals {
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
