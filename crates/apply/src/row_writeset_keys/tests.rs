//! Tests the key accesses of rows of a few tables.

use proptest::prelude::*;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{RowsEvent, RowsKind};
use tailwater_wire::row_event::table_map_column::type_code;
use tailwater_wire::row_event::{BinlogColumn, ColumnType, RowChangeIter};

use super::*;
use crate::target_table::{ForeignKey, IndexPart, TargetColumn, UniqueIndex};

const PRIMARY: IndexId = IndexId(1);
const UNIQUE: IndexId = IndexId(2);
const ROWS: IndexId = IndexId(3);
const PARENT: IndexId = IndexId(4);
const REFERENCED: IndexId = IndexId(5);
const CHILD_ROWS: IndexId = IndexId(6);

const INT: (ColumnType, &str, Option<&str>) = (ColumnType::Long, "int", None);
const TEXT: (ColumnType, &str, Option<&str>) =
    (ColumnType::VarChar { bytes_max: 200 }, "varchar(50)", Some("utf8mb4_general_ci"));

fn column(name: &str, column_type: &str, collation: Option<&str>, nullable: bool) -> TargetColumn {
    TargetColumn {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        collation: collation.map(str::to_owned),
        nullable,
        generated: false,
        stored: false,
        period: None,
        auto_increment: false,
    }
}

fn index(id: IndexId, columns: &[usize]) -> UniqueIndex {
    let parts = columns.iter().map(|column| IndexPart { column: *column, prefix: None }).collect();
    UniqueIndex { id, name: format!("{id:?}"), parts, opaque: false }
}

/// A table with columns `(type, type name on the target, collation)`. All columns but the first may be NULL.
struct Table {
    map: TableMap,
    target: TargetTable,
    /// Flags of the rows event.
    flags: u16,
}

impl Table {
    fn new(columns: &[(ColumnType, &str, Option<&str>)], unique: Vec<UniqueIndex>) -> Self {
        let of_map = columns.iter().map(|(kind, ..)| BinlogColumn::new(*kind, type_code::LONG, 0, true));
        let of_target = columns.iter().enumerate().map(|(place, (_, spelled, collation))| {
            column(&format!("c{place}"), spelled, *collation, place > 0)
        });
        Self {
            map: TableMap {
                flavour: Flavour::MySql,
                table_id: 1,
                flags: 1,
                schema: "s".to_owned(),
                table: "t".to_owned(),
                columns: of_map.collect(),
                metadata: Default::default(),
            },
            target: TargetTable {
                transactional: true,
                engine: "INNODB".to_owned(),
                partitioned: false,
                flavour: Flavour::MySql,
                schema: "s".to_owned(),
                table: "t".to_owned(),
                columns: of_target.collect(),
                rows: ROWS,
                has_primary_key: true,
                unique,
                parents: Vec::new(),
                children: Vec::new(),
                cascades: Vec::new(),
            },
            flags: RowsEvent::FLAG_STATEMENT_END,
        }
    }

    /// Returns the key accesses of a row of `kind`. An image lists its columns in order, with `None` for
    /// columns that it does not contain.
    fn accesses(&self, kind: RowsKind, before: &[Option<Cell>], after: &[Option<Cell>]) -> Vec<Access> {
        let (mut images, present) = image(before);
        let present_after = match after {
            [] => present.clone(),
            after => {
                let (bytes, present) = image(after);
                images.extend(bytes);
                present
            }
        };
        let event = RowsEvent {
            kind,
            version: 2,
            table_id: 1,
            flags: self.flags,
            extra_data: &[],
            column_count: self.map.columns.len(),
            columns_present: &present,
            columns_present_after: &present_after,
            rows: &[],
            compressed: false,
        };
        let places: Vec<usize> = (0..self.map.columns.len()).collect();
        let mut keys = RowKeys::new(&self.map, &self.target, &places, true, 9);
        let mut out = Accesses::new();
        for row in RowChangeIter::new(&self.map, &event, &images).unwrap() {
            let row = row.unwrap();
            keys.row(row.before, row.after, event.flags, &mut out);
        }
        out.into_vec()
    }

    fn insert(&self, row: &[Cell]) -> Vec<Access> {
        self.accesses(RowsKind::Write, &whole(row), &[])
    }

    fn delete(&self, row: &[Cell]) -> Vec<Access> {
        self.accesses(RowsKind::Delete, &whole(row), &[])
    }

    fn update(&self, before: &[Cell], after: &[Cell]) -> Vec<Access> {
        self.accesses(RowsKind::Update, &whole(before), &whole(after))
    }
}

/// A column value in a row image.
#[derive(Clone, Debug)]
enum Cell {
    Null,
    Int(i32),
    Text(&'static str),
    Raw(Vec<u8>),
}
use Cell::{Int, Null, Raw, Text};

fn whole(row: &[Cell]) -> Vec<Option<Cell>> {
    row.iter().cloned().map(Some).collect()
}

fn image(row: &[Option<Cell>]) -> (Vec<u8>, Vec<u8>) {
    let (mut present, mut nulls, mut values) = (vec![0u8; row.len().div_ceil(8)], Vec::new(), Vec::new());
    for (place, cell) in row.iter().enumerate() {
        let Some(cell) = cell else { continue };
        present[place / 8] |= 1 << (place % 8);
        nulls.push(matches!(cell, Null));
        match cell {
            Null => {}
            Int(number) => values.extend(number.to_le_bytes()),
            Text(text) => {
                values.push(text.len() as u8);
                values.extend(text.as_bytes());
            }
            Raw(bytes) => values.extend(bytes),
        }
    }
    let mut bytes = vec![0u8; nulls.len().div_ceil(8)];
    for (place, null) in nulls.iter().enumerate() {
        bytes[place / 8] |= u8::from(*null) << (place % 8);
    }
    bytes.extend(values);
    (bytes, present)
}

fn conflict(one: &[Access], other: &[Access]) -> bool {
    one.iter().any(|one| other.iter().any(|other| one.conflicts(*other)))
}

/// Counts the accesses to an index, and how many of them have the key ANY.
fn of(accesses: &[Access], index: IndexId) -> (usize, usize) {
    let of_index = accesses.iter().filter(|access| access.key.index == index);
    (of_index.clone().count(), of_index.filter(|access| access.key.is_any()).count())
}

fn keyed() -> Table {
    Table::new(&[INT, TEXT, INT], vec![index(PRIMARY, &[0]), index(UNIQUE, &[1, 2])])
}

#[test]
fn rows_conflict_if_they_share_a_unique_value() {
    let table = keyed();
    let one = table.insert(&[Int(1), Text("a"), Int(7)]);
    assert_eq!(one.len(), 2);
    assert!(one.iter().all(|access| !access.shared && !access.key.is_any()));
    assert!(!conflict(&one, &table.insert(&[Int(2), Text("a"), Int(8)])));
    assert!(conflict(&one, &table.insert(&[Int(2), Text("A  "), Int(7)])));
    assert!(conflict(&one, &table.delete(&[Int(1), Text("b"), Int(7)])));
    // A row whose key changes accesses the old key and the new key.
    let moved = table.update(&[Int(1), Text("a"), Int(7)], &[Int(3), Text("a"), Int(7)]);
    assert_eq!((of(&moved, PRIMARY), of(&moved, UNIQUE)), ((2, 0), (1, 0)));
    assert!(conflict(&moved, &table.insert(&[Int(1), Text("c"), Int(1)])));
    assert!(conflict(&moved, &table.insert(&[Int(3), Text("c"), Int(1)])));
    // A NULL is not equal to any value.
    let null = table.insert(&[Int(4), Text("a"), Null]);
    assert_eq!(null.len(), 1);
    // A value that cannot be hashed conflicts with all values of the index.
    let other = table.insert(&[Int(5), Text("ä"), Int(1)]);
    assert_eq!(of(&other, UNIQUE), (1, 1));
    assert!(conflict(&other, &one) && !conflict(&other, &null));
}

#[test]
fn a_missing_column_conflicts_with_all_values_or_is_unchanged() {
    let table = keyed();
    let key_only = [Some(Int(1)), None, None];
    let touched = |after: &[Option<Cell>]| table.accesses(RowsKind::Update, &key_only, after);
    // Only the third column changed. It is part of the second index, and its old value is unknown.
    let changed = touched(&[None, None, Some(Int(9))]);
    assert_eq!((of(&changed, PRIMARY), of(&changed, UNIQUE)), ((1, 0), (1, 1)));
    let four = Table::new(&[INT, TEXT, INT, INT], vec![index(PRIMARY, &[0]), index(UNIQUE, &[1, 2])]);
    let unrelated =
        four.accesses(RowsKind::Update, &[Some(Int(1)), None, None, None], &[None, None, None, Some(Int(2))]);
    assert_eq!((of(&unrelated, PRIMARY), of(&unrelated, UNIQUE)), ((1, 0), (0, 0)));
    // If the after image lacks a key column, the value is taken from the before image.
    let before = whole(&[Int(1), Text("a"), Int(7)]);
    let half = table.accesses(RowsKind::Update, &before, &[None, None, Some(Int(8))]);
    assert_eq!(of(&half, UNIQUE), (2, 0));
    assert!(conflict(&half, &table.insert(&[Int(2), Text("a"), Int(8)])));
    let gone = table.accesses(RowsKind::Delete, &key_only, &[]);
    assert_eq!((of(&gone, PRIMARY), of(&gone, UNIQUE)), ((1, 0), (1, 1)));
}

#[test]
fn rows_without_a_key_have_the_whole_table_as_key() {
    let keyless = Table::new(&[INT, INT], Vec::new());
    let row = keyless.insert(&[Int(1), Int(2)]);
    assert_eq!(of(&row, ROWS), (1, 0));
    assert!(conflict(&row, &keyless.delete(&[Int(3), Int(4)])));
    // A unique index with nullable columns identifies only rows without NULL in these columns.
    let nullable = Table::new(&[INT, INT], vec![index(UNIQUE, &[1])]);
    let named = nullable.insert(&[Int(1), Int(2)]);
    assert_eq!((of(&named, UNIQUE), of(&named, ROWS)), ((1, 0), (0, 0)));
    let nameless = nullable.insert(&[Int(1), Null]);
    assert_eq!((of(&nameless, UNIQUE), of(&nameless, ROWS)), ((0, 0), (1, 0)));
    let loses_name = nullable.update(&[Int(1), Int(2)], &[Int(1), Null]);
    assert!(conflict(&loses_name, &named) && conflict(&loses_name, &nameless));
}

fn parent_and_child() -> (Table, Table) {
    let mut parent = Table::new(&[INT, TEXT], vec![index(PARENT, &[0])]);
    parent.target.children = vec![
        ForeignKey {
            parent_index: PARENT,
            parent_columns: vec![0],
            child_columns: Vec::new(),
            child_rows: CHILD_ROWS,
        },
        ForeignKey {
            parent_index: REFERENCED,
            parent_columns: vec![1],
            child_columns: Vec::new(),
            child_rows: CHILD_ROWS,
        },
    ];
    parent.target.cascades = vec![CHILD_ROWS];
    let mut child = Table::new(&[INT, INT], vec![index(PRIMARY, &[0])]);
    child.target.rows = CHILD_ROWS;
    child.target.parents = vec![ForeignKey {
        parent_index: PARENT,
        parent_columns: Vec::new(),
        child_columns: vec![1],
        child_rows: CHILD_ROWS,
    }];
    (parent, child)
}

#[test]
fn a_child_row_shares_its_parent_key_and_conflicts_with_cascades() {
    let (mut parent, child) = parent_and_child();
    let (one, other) = (child.insert(&[Int(1), Int(50)]), child.insert(&[Int(2), Int(50)]));
    assert!(!conflict(&one, &other), "two child rows of one parent must not conflict");
    assert!(conflict(&parent.insert(&[Int(50), Text("x")]), &one));
    assert!(!conflict(&parent.insert(&[Int(51), Text("x")]), &one));
    // Child rows of another parent, or without a parent, conflict with the parent's deletion too, because a
    // cascade may free a key that they need.
    let (stranger, orphan) = (child.insert(&[Int(3), Int(99)]), child.insert(&[Int(4), Null]));
    for accesses in [
        parent.delete(&[Int(50), Text("x")]),
        parent.update(&[Int(50), Text("x")], &[Int(52), Text("x")]),
        parent.update(&[Int(50), Text("x")], &[Int(50), Text("y")]),
    ] {
        assert_eq!(of(&accesses, CHILD_ROWS), (1, 0));
        assert!(conflict(&accesses, &stranger) && conflict(&accesses, &orphan));
    }
    for accesses in
        [parent.insert(&[Int(50), Text("x")]), parent.update(&[Int(50), Text("x")], &[Int(50), Text("X")])]
    {
        assert!(!conflict(&accesses, &stranger) && !conflict(&accesses, &orphan));
    }
    // The old value of the referenced column is unknown, so the column may have changed.
    let minimal = parent.accesses(RowsKind::Update, &[Some(Int(50)), None], &[None, Some(Text("y"))]);
    assert!(conflict(&minimal, &stranger));
    // If the source logs cascades, a parent row does not conflict with child rows of other parents.
    parent.flags |= RowsEvent::FLAG_SQL_FOREIGN_KEYS;
    let seen = parent.delete(&[Int(50), Text("x")]);
    assert!(conflict(&seen, &one) && !conflict(&seen, &stranger));
}

/// Returns whether two values of a column have the same key.
fn same(kind: ColumnType, spelled: &str, collation: Option<&str>, one: &[u8], other: &[u8]) -> bool {
    let table = Table::new(&[(kind, spelled, collation)], vec![index(PRIMARY, &[0])]);
    let [one, other] = [one, other].map(|bytes| table.insert(&[Raw(bytes.to_vec())]));
    assert_eq!((one.len(), other.len()), (1, 1));
    one[0].key == other[0].key && !one[0].key.is_any()
}

#[test]
fn equal_values_have_equal_keys() {
    let double = |number: f64| number.to_le_bytes();
    assert!(same(ColumnType::Double, "double", None, &double(0.0), &double(-0.0)));
    assert!(!same(ColumnType::Double, "double", None, &double(1.0), &double(-1.0)));
    let float = |number: f32| number.to_le_bytes();
    assert!(same(ColumnType::Float, "float", None, &float(0.0), &float(-0.0)));
    // For BINARY(4), MariaDB removes trailing zeros in the log.
    let fixed = ColumnType::Char { bytes_max: 4 };
    assert!(same(fixed, "binary(4)", None, b"\x02ab", b"\x04ab\0\0"));
    assert!(!same(fixed, "binary(4)", None, b"\x02ab", b"\x02ac"));
    let text = ColumnType::Blob { length_bytes: 2 };
    assert!(same(text, "text", Some("utf8mb4_bin"), b"\x01\0a", b"\x03\0a  "));
    // ASCII letters are hashed in one case, as in a table whose layout differs between source and target.
    assert!(same(text, "text", Some("utf8mb4_bin"), b"\x01\0a", b"\x01\0A"));
    assert!(!same(text, "text", Some("utf8mb4_bin"), b"\x01\0a", b"\x01\0b"));
    // Values with a language collation are not hashed.
    let lithuanian = Table::new(&[(text, "text", Some("utf8mb4_lithuanian_ci"))], vec![index(PRIMARY, &[0])]);
    assert_eq!(of(&lithuanian.insert(&[Raw(b"\x01\0i".to_vec())]), PRIMARY), (1, 1));
    let json = ColumnType::Json { length_bytes: 4 };
    let opaque = Table::new(&[INT, (json, "json", None)], vec![index(PRIMARY, &[0]), index(UNIQUE, &[1])]);
    assert_eq!(of(&opaque.insert(&[Int(1), Raw(vec![1, 0, 0, 0, 9])]), UNIQUE), (1, 1));
}

#[test]
fn a_child_column_of_another_length_finds_its_parent() {
    let (long, short) = (ColumnType::VarChar { bytes_max: 800 }, ColumnType::VarChar { bytes_max: 200 });
    let collation = Some("utf8mb4_0900_ai_ci");
    let parent = Table::new(&[(long, "varchar(200)", collation)], vec![index(PARENT, &[0])]);
    let mut child = Table::new(&[INT, (short, "varchar(50)", collation)], vec![index(PRIMARY, &[0])]);
    child.target.parents = parent_and_child().1.target.parents;
    let parent = parent.insert(&[Raw(b"\x03\0Key".to_vec())]);
    assert!(conflict(&parent, &child.insert(&[Int(1), Text("key")])));
    assert!(!conflict(&parent, &child.insert(&[Int(1), Text("keys")])));
}

#[test]
fn only_the_index_prefix_of_a_value_is_hashed() {
    let mut table = Table::new(&[TEXT], vec![index(PRIMARY, &[0])]);
    table.target.unique[0].parts[0].prefix = Some(3);
    let key = table.insert(&[Text("abcd")]);
    assert!(conflict(&key, &table.insert(&[Text("ABCx")])));
    assert!(!conflict(&key, &table.insert(&[Text("abd")])));
    // Characters after the index prefix are ignored.
    assert!(conflict(&key, &table.insert(&[Text("abcä")])));
    assert_eq!(of(&table.insert(&[Text("abcä")]), PRIMARY), (1, 0));
    assert_eq!(of(&table.insert(&[Text("abä")]), PRIMARY), (1, 1));
}

#[test]
fn tables_of_another_shape_are_hashed_only_where_it_is_safe() {
    let wider = column("a", "bigint", None, false);
    assert_eq!(ValueKind::of(ColumnType::Long, &wider, false), ValueKind::Opaque);
    let same = column("a", "int unsigned", None, false);
    assert_eq!(ValueKind::of(ColumnType::Long, &same, false), ValueKind::Integer);
    let text = column("a", "varchar(9)", Some("utf8mb4_bin"), false);
    assert_eq!(ValueKind::of(TEXT.0, &text, false), ValueKind::Ascii);
    assert_eq!(ValueKind::of(TEXT.0, &text, true), ValueKind::Folded);
    // A foreign key may connect a table with the source's layout and a table with another layout, so the
    // hashes must be equal.
    let hash = |kind, value: &[u8]| {
        let hashes = super::index_value_hash::Hashes::new(7);
        let mut hash = hashes.begin();
        hash.add(kind, None, value).then(|| hash.finish())
    };
    assert_eq!(hash(ValueKind::Folded, b"Key 7"), hash(ValueKind::Ascii, b"Key 7"));
    assert_ne!(hash(ValueKind::Folded, b"Key 7"), hash(ValueKind::Folded, b"Key 8"));
    let wide = column("a", "varchar(9)", Some("utf16_bin"), false);
    assert_eq!(ValueKind::of(TEXT.0, &wide, false), ValueKind::Opaque);
}

proptest! {
    /// Every row has keys, and equal images have equal keys.
    #[test]
    fn equal_rows_have_equal_keys(first: i32, text in "[ -~]{0,20}", second: Option<i32>) {
        let table = keyed();
        let second = second.map_or(Null, Int);
        let mut raw = vec![text.len() as u8];
        raw.extend(text.as_bytes());
        let row = [Int(first), Raw(raw), second];
        let (one, other) = (table.insert(&row), table.delete(&row));
        prop_assert_eq!(&one, &other);
        prop_assert!(conflict(&one, &other));
        prop_assert!(one.iter().all(|access| !access.key.is_any()));
        prop_assert_eq!(table.update(&row, &row), one);
    }
}
