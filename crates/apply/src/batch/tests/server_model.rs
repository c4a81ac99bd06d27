//! A model of a server with a few tables of integers, which checks keys after every change. Also generates
//! random histories of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::row_event::TableMap;
use tailwater_wire::row_event::table_map_column::type_code;

use tailwater_apply::source_to_target_table::MappedTable;
use tailwater_apply::source_transaction::{RowChanges, RowPlace};
use tailwater_apply::target_table::{ForeignKey, IndexPart, TargetColumn, TargetTable, UniqueIndex};
use tailwater_apply::writeset::{Access, IndexId, WritesetKey};

pub type Cells = Vec<Option<i32>>;

/// A table: its number of columns and its unique indexes. The first index is the primary key.
pub struct Shape {
    pub columns: usize,
    pub unique: &'static [&'static [usize]],
}

pub const KEYLESS: usize = 2;
/// The number of a table whose column 1 references the primary key of [`PARENT`].
pub const CHILD: usize = 3;
pub const PARENT: usize = 4;

pub const SHAPES: [Shape; 5] = [
    Shape { columns: 3, unique: &[&[0], &[1]] },
    // The key columns are not adjacent.
    Shape { columns: 4, unique: &[&[0, 2]] },
    Shape { columns: 2, unique: &[] },
    Shape { columns: 3, unique: &[&[0]] },
    Shape { columns: 2, unique: &[&[0]] },
];

fn index_id(table: usize, index: usize) -> IndexId {
    IndexId((table * 10 + index) as u32)
}

/// The index ID that represents all rows of a table. A change of a parent row accesses this ID of the child
/// table.
const ROWS: usize = 8;
const CHILD_ROWS: usize = 9;

pub fn mapped(table: usize) -> MappedTable {
    let shape = &SHAPES[table];
    let name = format!("t{table}");
    // The body of a table map: table ID and flags, two names, the types, no metadata, the nullable columns.
    let columns = shape.columns as u8;
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 1, b's', 0, 2];
    body.extend(name.bytes().chain([0, columns]).chain(vec![type_code::LONG; shape.columns]));
    body.extend([0, (1 << columns) - 1]);
    let map = TableMap::parse(&body, Flavour::MySql).unwrap();
    let body = Bytes::from(body);
    let column = |index| TargetColumn {
        name: format!("c{index}"),
        column_type: "int".into(),
        collation: None,
        nullable: true,
        generated: false,
        stored: false,
        period: None,
        auto_increment: false,
    };
    let unique = |(number, columns): (usize, &&[usize])| UniqueIndex {
        id: index_id(table, number),
        name: if number == 0 { "PRIMARY".into() } else { format!("u{number}") },
        parts: columns.iter().map(|column| IndexPart { column: *column, prefix: None }).collect(),
        opaque: false,
    };
    let foreign = ForeignKey {
        parent_index: index_id(PARENT, 0),
        parent_columns: vec![0],
        child_columns: vec![1],
        child_rows: index_id(CHILD, CHILD_ROWS),
    };
    let target = TargetTable {
        transactional: true,
        engine: "INNODB".to_owned(),
        partitioned: false,
        flavour: Flavour::MySql,
        schema: "s".into(),
        table: name,
        columns: (0..shape.columns).map(column).collect(),
        rows: index_id(table, ROWS),
        unique: shape.unique.iter().enumerate().map(unique).collect(),
        has_primary_key: !shape.unique.is_empty(),
        parents: if table == CHILD { vec![foreign.clone()] } else { Vec::new() },
        children: if table == PARENT { vec![foreign] } else { Vec::new() },
        cascades: Vec::new(),
    };
    let mut mapped = MappedTable::new(map, body, Arc::new(target))
        .expect("the target must have all columns of the source");
    mapped.same_shape = true;
    mapped
}

/// Returns an image of a row with the columns `present`.
pub fn image(cells: &[Option<i32>], present: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; present.len().div_ceil(8)];
    for (bit, column) in present.iter().enumerate() {
        match cells[*column] {
            None => bytes[bit / 8] |= 1 << (bit % 8),
            Some(value) => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes
}

pub fn bitmap(present: &[usize]) -> Bytes {
    Bytes::from(vec![present.iter().fold(0, |bits, column| bits | 1 << column)])
}

/// Parses an image. Returns its values and the remaining bytes.
pub fn read<'b>(bitmap: &[u8], mut bytes: &'b [u8]) -> (Vec<(usize, Option<i32>)>, &'b [u8]) {
    let present: Vec<usize> = (0..8).filter(|column| bitmap[0] >> column & 1 != 0).collect();
    let mut nulls = 0;
    if !present.is_empty() {
        (nulls, bytes) = (bytes[0], &bytes[1..]);
    }
    let cells = present.iter().enumerate().map(|(bit, column)| {
        if nulls >> bit & 1 != 0 {
            return (*column, None);
        }
        let (value, rest) = bytes.split_at(4);
        bytes = rest;
        (*column, Some(i32::from_le_bytes(value.try_into().unwrap())))
    });
    let cells = cells.collect();
    (cells, bytes)
}

/// The rows of all tables of the modelled server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    pub tables: Vec<Vec<Cells>>,
}

impl Store {
    pub fn new() -> Self {
        Self { tables: vec![Vec::new(); SHAPES.len()] }
    }

    /// Checks that the rows of a table violate no unique or foreign key.
    pub fn check(&self) -> Result<(), String> {
        for (table, rows) in self.tables.iter().enumerate() {
            for index in SHAPES[table].unique {
                let mut seen = BTreeSet::new();
                for row in rows {
                    let key: Cells = index.iter().map(|column| row[*column]).collect();
                    if !key.contains(&None) && !seen.insert(key.clone()) {
                        return Err(format!("table t{table} has the key {key:?} twice"));
                    }
                }
            }
        }
        for row in &self.tables[CHILD] {
            if row[1].is_some() && !self.tables[PARENT].iter().any(|parent| parent[0] == row[1]) {
                return Err(format!("the child row {row:?} has no parent row"));
            }
        }
        Ok(())
    }

    /// Sorts the rows, so that two stores with the same rows are equal.
    pub fn sorted(mut self) -> Self {
        self.tables.iter_mut().for_each(|rows| rows.sort());
        self
    }
}

/// A requested change of a row. The server model may be unable to make the change.
#[derive(Debug, Clone)]
pub struct Wish {
    pub table: u8,
    /// Insert, update, delete, or a change of the key.
    pub kind: u8,
    pub values: [u8; 4],
    /// Flag bits: minimal images (two bits), another event flag, unknown keys, same event as the previous
    /// change.
    pub how: u8,
}

/// A history of changes in log order.
pub struct History {
    pub store: Store,
    pub changes: Vec<RowChanges>,
    pub told: Vec<String>,
    tables: Vec<Arc<MappedTable>>,
    /// How many different hashes there are: a small number makes different keys collide.
    hashes: u64,
    /// The column value whose writeset key is [`WritesetKey::ANY`].
    wild: i32,
}

impl History {
    pub fn new(hashes: u64, wild: u8) -> Self {
        let tables = (0..SHAPES.len()).map(|table| Arc::new(mapped(table))).collect();
        let (changes, told) = (Vec::new(), Vec::new());
        Self { store: Store::new(), changes, told, tables, hashes, wild: i32::from(wild) }
    }

    /// Applies those of the requested changes that the model can make.
    pub fn write(&mut self, wishes: &[Wish]) {
        self.told.clear();
        for wish in wishes {
            self.grant(wish);
        }
        self.store = self.store.clone().sorted();
    }

    fn grant(&mut self, wish: &Wish) {
        let table = usize::from(wish.table);
        let columns = SHAPES[table].columns;
        // The value 4 means NULL in a nullable column.
        let in_key = |column: usize| SHAPES[table].unique.first().is_some_and(|key| key.contains(&column));
        let value = |column: usize| {
            let value = i32::from(wish.values[column]);
            (value != 4 || in_key(column)).then_some(value)
        };
        let wished: Cells = (0..columns).map(value).collect();
        let rows = &self.store.tables[table];
        let same_key = |row: &&Cells| match SHAPES[table].unique.first() {
            Some(key) => key.iter().all(|column| row[*column] == wished[*column]),
            None => row[0] == wished[0],
        };
        let found = rows.iter().find(same_key).cloned();
        // Take values that differ from the row's values, so that the row's key changes.
        let other = rows.first().filter(|row| Some(*row) != found.as_ref()).cloned();
        let (before, after) = match wish.kind {
            0 => (None, Some(wished)),
            1 => (found, Some(wished)),
            2 => (found, None),
            _ => (other, Some(wished)),
        };
        if before.is_none() && (wish.kind != 0 || after.is_none()) {
            return;
        }
        self.change(table, before, after, wish.how);
    }

    /// Makes a change of one row, unless the change violates a key.
    pub fn change(&mut self, table: usize, before: Option<Cells>, after: Option<Cells>, how: u8) {
        let mut store = self.store.clone();
        let rows = &mut store.tables[table];
        if let Some(before) = &before {
            let Some(place) = rows.iter().position(|row| row == before) else { return };
            rows.remove(place);
        }
        rows.extend(after.clone());
        if store.check().is_err() {
            return;
        }
        self.store = store;
        self.told.push(format!("t{table} {before:?} -> {after:?} {how:#b}"));
        self.log(table, before.as_ref(), after.as_ref(), how);
    }

    fn log(&mut self, table: usize, before: Option<&Cells>, after: Option<&Cells>, how: u8) {
        let all: Vec<usize> = (0..SHAPES[table].columns).collect();
        let key = SHAPES[table].unique.first().map_or(all.clone(), |key| {
            let mut key = key.to_vec();
            key.sort_unstable();
            key
        });
        let minimal = how & 3 == 3;
        let (kind, present, present_after, first, second) = match (before, after) {
            (None, Some(after)) => {
                let given = |column: &usize| !minimal || after[*column].is_some();
                let present: Vec<usize> = all.into_iter().filter(given).collect();
                (RowsKind::Write, present.clone(), present.clone(), image(after, &present), vec![])
            }
            (Some(before), None) => {
                let present = if minimal { key } else { all };
                (RowsKind::Delete, present.clone(), present.clone(), image(before, &present), vec![])
            }
            (Some(before), Some(after)) => {
                let changed: Vec<usize> =
                    all.iter().copied().filter(|column| before[*column] != after[*column]).collect();
                let (present, present_after) = if minimal { (key, changed) } else { (all.clone(), all) };
                let (first, second) = (image(before, &present), image(after, &present_after));
                (RowsKind::Update, present, present_after, first, second)
            }
            (None, None) => return,
        };
        let flags = if how & 4 != 0 && how & 2 != 0 { 2 } else { 0 };
        let unknown = how & 0b11000 == 0b11000 && how & 7 == 0;
        let accesses = if unknown { Vec::new() } else { self.accesses(table, before, after) };
        let (columns_present, columns_present_after) = (bitmap(&present), bitmap(&present_after));
        let joins = how & 8 != 0
            && !unknown
            && self.changes.last().is_some_and(|last| {
                last.kind == kind
                    && Arc::ptr_eq(&last.table, &self.tables[table])
                    && last.flags == flags
                    && last.columns_present == columns_present
                    && last.columns_present_after == columns_present_after
                    && !last.accesses.is_empty()
            });
        if joins && let Some(last) = self.changes.last_mut() {
            let start = last.images.len() as u32;
            let middle = start + first.len() as u32;
            let place = RowPlace {
                start,
                middle,
                end: middle + second.len() as u32,
                accesses_start: last.accesses.len() as u32,
            };
            last.images = [&last.images[..], &first, &second].concat().into();
            last.rows.push(place);
            last.accesses.extend(accesses);
            return;
        }
        let (middle, end) = (first.len() as u32, (first.len() + second.len()) as u32);
        self.changes.push(RowChanges {
            table: Arc::clone(&self.tables[table]),
            kind,
            flags,
            timestamp: 1,
            server_id: 1,
            columns_present,
            columns_present_after,
            images: [first, second].concat().into(),
            rows: smallvec![RowPlace { start: 0, middle, end, accesses_start: 0 }],
            accesses: accesses.into(),
        });
    }

    fn accesses(&self, table: usize, before: Option<&Cells>, after: Option<&Cells>) -> Vec<Access> {
        let rows = WritesetKey { index: index_id(table, ROWS), hash: 1 };
        let mut all = vec![Access { key: rows, shared: !SHAPES[table].unique.is_empty() }];
        let mut add = |access| {
            if !all.contains(&access) {
                all.push(access);
            }
        };
        for row in [before, after].into_iter().flatten() {
            for (number, index) in SHAPES[table].unique.iter().enumerate() {
                let values: Cells = index.iter().map(|column| row[*column]).collect();
                if let Some(key) = self.key(index_id(table, number), &values) {
                    add(Access { key, shared: false });
                }
            }
            if table == CHILD {
                if let Some(key) = self.key(index_id(PARENT, 0), &row[1..2]) {
                    add(Access { key, shared: true });
                }
                add(Access {
                    key: WritesetKey { index: index_id(CHILD, CHILD_ROWS), hash: 1 },
                    shared: true,
                });
            }
        }
        let goes = before.is_some_and(|before| after.is_none_or(|after| after[0] != before[0]));
        if table == PARENT && goes {
            add(Access { key: WritesetKey { index: index_id(CHILD, CHILD_ROWS), hash: 1 }, shared: false });
        }
        all
    }

    /// Returns the key for `values`; `None` if a value is NULL.
    fn key(&self, index: IndexId, values: &[Option<i32>]) -> Option<WritesetKey> {
        let mut hash = 0u64;
        for value in values {
            let value = (*value)?;
            if value == self.wild {
                return Some(WritesetKey { index, hash: WritesetKey::ANY });
            }
            hash = hash * 10 + value as u64;
        }
        Some(WritesetKey { index, hash: hash % self.hashes + 1 })
    }
}

/// Generates up to `count_max` random requests for changes.
pub fn wishes(count_max: usize) -> impl Strategy<Value = Vec<Wish>> {
    let wish = (0u8..5, 0u8..4, proptest::array::uniform4(0u8..5), 0u8..32)
        .prop_map(|(table, kind, values, how)| Wish { table, kind, values, how });
    proptest::collection::vec(wish, 1..count_max)
}
