//! Row changes as queries.

use std::sync::Arc;

use proptest::prelude::*;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{ChecksumAlgorithm, EventType, FormatDescription};
use tailwater_wire::row_event::table_map_column::type_code;
use tailwater_wire::row_event::{BinlogColumn, ColumnType, TableMap};

use crate::change_decoder::LoggedRows;
use crate::row_reads::{PlannedRows, count_rows, entry_query, plan_rows};
use crate::table_indexes::{IndexedColumn, ReadableIndex, TableIndexes};

/// Table `s.t`: `id` INT UNSIGNED, `a` INT, `b` VARCHAR(10) in latin1, `c` INT without an index.
fn map() -> Arc<TableMap> {
    let int = |_| BinlogColumn::new(ColumnType::Long, type_code::LONG, 0, true);
    let text = BinlogColumn::new(ColumnType::VarChar { bytes_max: 10 }, type_code::VARCHAR, 10, true);
    Arc::new(TableMap {
        flavour: Flavour::MariaDb,
        table_id: 7,
        flags: 1,
        schema: "s".into(),
        table: "t".into(),
        columns: vec![int(0), int(1), text, int(3)],
        metadata: Default::default(),
    })
}

fn table(indexes: &[(&str, &[usize])]) -> Arc<TableIndexes> {
    let column = |name: &str| IndexedColumn { name: name.into(), ..IndexedColumn::default() };
    let id = IndexedColumn { is_unsigned: true, ..column("id") };
    let text = IndexedColumn { character_set: Some("latin1".into()), ..column("b") };
    let has_primary_key = indexes.first().is_some_and(|(name, _)| *name == "PRIMARY");
    Arc::new(TableIndexes {
        schema: "s".into(),
        table: "t".into(),
        columns: vec![id, column("a"), text, column("c")],
        indexes: indexes
            .iter()
            .map(|(name, columns)| ReadableIndex { name: (*name).into(), columns: columns.to_vec() })
            .collect(),
        has_row_index: has_primary_key,
        has_primary_key,
        rows_estimate: 1_000,
    })
}

/// A value of each column; `None` for NULL.
type RowValues = (u32, Option<i32>, Option<&'static str>, Option<i32>);

fn image((id, a, b, c): RowValues) -> Vec<u8> {
    let nulls = u8::from(a.is_none()) << 1 | u8::from(b.is_none()) << 2 | u8::from(c.is_none()) << 3;
    let mut bytes = vec![nulls];
    bytes.extend(id.to_le_bytes());
    a.iter().for_each(|a| bytes.extend(a.to_le_bytes()));
    if let Some(b) = b {
        bytes.push(b.len() as u8);
        bytes.extend(b.as_bytes());
    }
    c.iter().for_each(|c| bytes.extend(c.to_le_bytes()));
    bytes
}

fn logged(event_type: EventType, images: &[RowValues]) -> LoggedRows {
    // Table id, flags, extra data, number of columns, columns present.
    let mut body = vec![7, 0, 0, 0, 0, 0, 1, 0, 2, 0, 4, 0x0f];
    if event_type == EventType::UPDATE_ROWS_V2 {
        body.push(0x0f);
    }
    images.iter().for_each(|row| body.extend(image(*row)));
    let format = Arc::new(FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off));
    LoggedRows { map: map(), event_type, format, body }
}

fn queries(planned: &PlannedRows) -> Vec<String> {
    planned.entries.iter().map(|entry| entry_query(std::slice::from_ref(entry)).unwrap()).collect()
}

const INDEXES: &[(&str, &[usize])] = &[("PRIMARY", &[0]), ("on_a", &[1]), ("on_b", &[2, 1])];

#[test]
fn an_inserted_row_touches_all_indexes() {
    let rows = logged(EventType::WRITE_ROWS_V2, &[(4_000_000_000, Some(-2), Some("é'x"), None)]);
    let planned = plan_rows(&rows, &table(INDEXES)).unwrap();
    assert_eq!(
        queries(&planned),
        [
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `id`=4000000000",
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`on_a`) WHERE `a`=-2 AND `id`=4000000000",
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`on_b`) WHERE `b`=_latin1 X'C3A92778' AND `a`=-2 AND \
             `id`=4000000000",
        ]
    );
    assert_eq!((planned.rows, planned.null_keys), (1, 0));
}

#[test]
fn an_update_touches_the_row_and_the_indexes_that_change() {
    let rows = logged(
        EventType::UPDATE_ROWS_V2,
        &[(1, Some(2), Some("x"), Some(3)), (1, Some(5), Some("x"), Some(3))],
    );
    let planned = plan_rows(&rows, &table(&INDEXES[..2])).unwrap();
    assert_eq!(
        queries(&planned),
        [
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `id`=1",
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`on_a`) WHERE `a`=2 AND `id`=1",
            "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`on_a`) WHERE `a`=5 AND `id`=1",
        ]
    );
    let unindexed =
        logged(EventType::UPDATE_ROWS_V2, &[(1, Some(2), None, Some(3)), (1, Some(2), None, Some(4))]);
    let planned = plan_rows(&unindexed, &table(INDEXES)).unwrap();
    assert_eq!(queries(&planned).len(), 1, "no index has column c");
    let moved =
        logged(EventType::UPDATE_ROWS_V2, &[(1, Some(2), Some("x"), None), (9, Some(2), Some("x"), None)]);
    let planned = plan_rows(&moved, &table(INDEXES)).unwrap();
    assert_eq!(queries(&planned).len(), 6, "another primary key moves all entries");
}

#[test]
fn keys_with_null_are_skipped() {
    let rows = logged(EventType::DELETE_ROWS_V2, &[(1, None, Some("x"), None)]);
    let planned = plan_rows(&rows, &table(INDEXES)).unwrap();
    assert_eq!(queries(&planned), ["SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE `id`=1"]);
    assert_eq!(planned.null_keys, 2);
}

#[test]
fn a_table_without_a_primary_key_is_read_by_its_indexes() {
    let rows = logged(EventType::DELETE_ROWS_V2, &[(1, Some(4), None, None)]);
    let planned = plan_rows(&rows, &table(&[("on_a", &[1])])).unwrap();
    assert_eq!(queries(&planned), ["SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`on_a`) WHERE `a`=4"]);
    assert!(plan_rows(&rows, &table(&[])).unwrap().entries.is_empty());
}

#[test]
fn several_keys_share_a_query() {
    let rows = logged(EventType::WRITE_ROWS_V2, &[(1, None, None, None), (2, None, None, None)]);
    let planned = plan_rows(&rows, &table(&INDEXES[..1])).unwrap();
    assert_eq!(
        entry_query(&planned.entries).unwrap(),
        "SELECT COUNT(*) FROM `s`.`t` FORCE INDEX (`PRIMARY`) WHERE (`id`=1) OR (`id`=2)"
    );
}

#[test]
fn a_definition_fits_by_its_columns() {
    let (table, map) = (table(INDEXES), map());
    assert!(table.fits(&map));
    let mut named = TableMap::clone(&map);
    for (column, name) in named.columns.iter_mut().zip(["ID", "a", "b", "c"]) {
        column.name = Some(name.into());
    }
    assert!(table.fits(&named), "names of columns are compared without case");
    named.columns[3].name = Some("d".into());
    assert!(!table.fits(&named));
    named.columns.pop();
    assert!(!table.fits(&named));
}

proptest! {
    /// Each row's own entry is read, equal entries have equal hashes, and the number of rows is right.
    #[test]
    fn every_row_is_read_by_its_key(ids in proptest::collection::vec(0u32..6, 1..20)) {
        let images: Vec<RowValues> = ids.iter().map(|id| (*id, Some(1), None, None)).collect();
        let rows = logged(EventType::DELETE_ROWS_V2, &images);
        let planned = plan_rows(&rows, &table(INDEXES)).unwrap();
        prop_assert_eq!(planned.rows, ids.len() as u64);
        prop_assert_eq!(count_rows(&rows).unwrap(), ids.len() as u64);
        for id in &ids {
            let condition = format!("`id`={id}");
            prop_assert!(planned.entries.iter().any(|entry| entry.index == 0 && entry.condition == condition));
        }
        for entry in &planned.entries {
            for other in &planned.entries {
                let same = entry.index == other.index && entry.condition == other.condition;
                prop_assert_eq!(entry.hash == other.hash, same);
            }
        }
    }

    /// Bytes that are no rows event are an error, and never a panic.
    #[test]
    fn malformed_rows_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut rows = logged(EventType::UPDATE_ROWS_V2, &[]);
        rows.body.extend(bytes);
        let _ = plan_rows(&rows, &table(INDEXES));
    }
}
