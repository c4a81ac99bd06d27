//! Tests which groups and rows a plan has.

use std::sync::Arc;

use tailwater_wire::binlog_event::RowsKind::{self, Delete, Update, Write};

use super::planned_row_changes::{PLAIN, WIDE_KEY};
use super::server_model::{Cells, History, KEYLESS, mapped};
use crate::batch::{BatchPlan, PlanOptions, plan};
use crate::target_table::TargetTable;

fn row(id: i32, unique: i32, value: i32) -> Cells {
    vec![Some(id), Some(unique), Some(value)]
}

fn kinds(plan: &BatchPlan<'_>) -> Vec<(RowsKind, usize)> {
    plan.groups.iter().map(|group| (group.kind, group.rows.len())).collect()
}

/// A history of changes of single rows in one table.
fn history(table: usize, changes: &[(Option<Cells>, Option<Cells>)]) -> History {
    let mut history = History::new(u64::MAX, u8::MAX);
    for (before, after) in changes {
        let told = history.told.len();
        history.change(table, before.clone(), after.clone(), 0);
        assert_eq!(history.told.len(), told + 1, "the model rejects the change {before:?} -> {after:?}");
    }
    history
}

fn planned(history: &History, options: PlanOptions) -> Vec<(RowsKind, usize)> {
    kinds(&plan(&history.changes, options).unwrap())
}

const APART: PlanOptions = PlanOptions { net_change: false, cut_images: false };

#[test]
fn rows_of_many_transactions_become_one_group() {
    let mut changes = Vec::new();
    for id in 0..100 {
        changes.push((None, Some(row(id, id, 0))));
    }
    for id in 0..50 {
        changes.push((Some(row(id, id, 0)), Some(row(id, id, 1))));
        changes.push((Some(row(id + 50, id + 50, 0)), None));
    }
    let history = history(PLAIN, &changes);
    assert_eq!(planned(&history, APART), [(Write, 100), (Update, 50), (Delete, 50)]);
    assert_eq!(planned(&history, PlanOptions::default()), [(Write, 50)]);
}

#[test]
fn a_row_that_changes_often_is_written_once() {
    let mut changes = vec![(None, Some(row(1, 1, 0)))];
    // Each update also changes the value of another unique key.
    for value in 0..40 {
        changes.push((Some(row(1, value + 1, value)), Some(row(1, value + 2, value + 1))));
    }
    let mut history = history(PLAIN, &changes);
    // The second unique key takes more values than the limit for one merged change. So the plan has a few
    // merged changes instead of one.
    let rows = plan(&history.changes, PlanOptions::default()).unwrap().rows();
    assert!((2..=4).contains(&rows), "the plan has a wrong number of rows: {rows}");

    history.changes.clear();
    for value in 40..140 {
        history.change(PLAIN, Some(row(1, 41, value)), Some(row(1, 41, value + 1)), 0);
    }
    let changes = &history.changes;
    let plan = plan(changes, PlanOptions::default()).unwrap();
    assert_eq!(kinds(&plan), [(Update, 1)]);
    let planned = plan.groups[0].rows[0];
    // The before image has only the key, and the after image only the changed column.
    assert_eq!(*plan.groups[0].columns_present, [0b001]);
    assert_eq!(*planned.image.to_bytes(), [0, 1, 0, 0, 0]);
    assert_eq!(*plan.groups[0].columns_present_after, [0b100]);
    assert_eq!(*planned.after.to_bytes(), [0, 140, 0, 0, 0]);
}

#[test]
fn a_row_that_changes_its_key_frees_the_old_value_first() {
    // Row 2 takes the unique value of row 1, and row 1 is inserted again with another value. The change of
    // row 2 prevents a merge.
    let changes = [(Some(row(1, 5, 0)), None), (None, Some(row(2, 5, 0))), (None, Some(row(1, 6, 0)))];
    let mut history = history(PLAIN, &[(None, Some(row(1, 5, 0)))]);
    history.changes.clear();
    for (before, after) in changes {
        history.change(PLAIN, before, after, 0);
    }
    assert_eq!(planned(&history, PlanOptions::default()), [(Delete, 1), (Write, 2)]);
}

#[test]
fn a_deleted_and_reinserted_row_is_updated() {
    let mut history = history(PLAIN, &[(None, Some(row(1, 5, 0)))]);
    history.changes.clear();
    history.change(PLAIN, Some(row(1, 5, 0)), None, 0);
    history.change(PLAIN, None, Some(row(1, 6, 7)), 0);
    assert_eq!(planned(&history, PlanOptions::default()), [(Update, 1)]);
}

#[test]
fn images_are_not_cut_if_the_key_has_separate_columns() {
    let cells = |value| vec![Some(1), Some(2), Some(3), Some(value)];
    let history = history(
        WIDE_KEY,
        &[(None, Some(cells(0))), (Some(cells(0)), Some(cells(1))), (Some(cells(1)), Some(cells(2)))],
    );
    let changes = &history.changes[1..];
    let plan = plan(changes, PlanOptions::default()).unwrap();
    assert_eq!(kinds(&plan), [(Update, 1)]);
    assert_eq!(*plan.groups[0].rows[0].image.to_bytes(), *changes[0].images_of(0).unwrap().0);
}

#[test]
fn rows_of_tables_without_a_key_stay_in_separate_events() {
    let cells = |value: i32| vec![Some(value), None];
    let history = history(
        KEYLESS,
        &[
            (None, Some(cells(1))),
            (None, Some(cells(2))),
            (Some(cells(1)), Some(cells(3))),
            (Some(cells(3)), Some(cells(4))),
        ],
    );
    assert_eq!(planned(&history, PlanOptions::default()), [(Write, 2), (Update, 1), (Update, 1)]);
}

#[test]
fn a_row_that_one_event_updates_twice_is_in_two_events() {
    let cells = |value: i32| vec![Some(value), Some(7)];
    // In `how`, bit 3 puts the change into the event of the previous change, and bits 0 and 1 select minimal
    // images.
    for how in [8, 8 | 3] {
        let mut history = History::new(u64::MAX, u8::MAX);
        for value in [1, 2, 9] {
            history.change(KEYLESS, None, Some(cells(value)), 0);
        }
        for (before, after) in [(9, 8), (1, 3), (3, 4), (2, 5)] {
            history.change(KEYLESS, Some(cells(before)), Some(cells(after)), how);
        }
        assert_eq!(history.changes.len(), 4, "all updates must be in one event");
        assert_eq!(planned(&history, PlanOptions::default()), [(Write, 3), (Update, 2), (Update, 2)]);
    }
}

#[test]
fn a_row_that_is_inserted_and_deleted_advances_the_counter() {
    let changes = [(None, Some(row(1, 5, 0))), (Some(row(1, 5, 0)), None)];
    let mut history = history(PLAIN, &changes);
    assert_eq!(planned(&history, PlanOptions::default()), []);
    let mut mapped = mapped(PLAIN);
    let mut target = TargetTable::clone(&mapped.target);
    target.columns[0].auto_increment = true;
    mapped.target = Arc::new(target);
    let counting = Arc::new(mapped);
    history.changes.iter_mut().for_each(|changes| changes.table = Arc::clone(&counting));
    assert_eq!(planned(&history, PlanOptions::default()), [(Write, 1), (Delete, 1)]);
}

#[test]
fn rows_without_columns_stay_in_separate_events() {
    let cells = vec![None, None];
    let mut history = History::new(u64::MAX, u8::MAX);
    // Rows that have only default values have empty minimal images.
    for _ in 0..3 {
        history.change(KEYLESS, None, Some(cells.clone()), 3);
    }
    assert_eq!(planned(&history, PlanOptions::default()), [(Write, 1), (Write, 1), (Write, 1)]);
}

#[test]
fn rows_of_a_group_are_in_key_order() {
    let cells = |id: i32, value| vec![Some(id / 10), Some(value), Some(id % 10), Some(0)];
    let ids = [72, 3, 300, 45, 9, 44];
    let inserted: Vec<_> = ids.iter().map(|id| (None, Some(cells(*id, 0)))).collect();
    let mut history = history(WIDE_KEY, &inserted);
    let ids_of = |plan: &BatchPlan<'_>| -> Vec<i32> {
        let of_row = |bytes: &[u8]| {
            let number = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            number(1) * 10 + number(9)
        };
        plan.groups.iter().flat_map(|group| &group.rows).map(|row| of_row(&row.image.to_bytes())).collect()
    };
    assert_eq!(ids_of(&plan(&history.changes, APART).unwrap()), [3, 9, 44, 45, 72, 300]);

    // Two changes of one row keep their order.
    history.changes.clear();
    for (id, before, after) in [(9, 0, 1), (3, 0, 7), (9, 1, 2)] {
        history.change(WIDE_KEY, Some(cells(id, before)), Some(cells(id, after)), 0);
    }
    let plan_apart = plan(&history.changes, APART).unwrap();
    assert_eq!((kinds(&plan_apart), ids_of(&plan_apart)), (vec![(Update, 3)], vec![3, 9, 9]));
    let values: Vec<u8> = plan_apart.groups[0].rows.iter().map(|row| row.after.to_bytes()[5]).collect();
    assert_eq!(values, [7, 1, 2]);

    // A row changes its key to the key that another row had before.
    history.changes.clear();
    history.change(WIDE_KEY, Some(cells(45, 0)), Some(cells(46, 0)), 0);
    history.change(WIDE_KEY, Some(cells(44, 0)), Some(cells(45, 0)), 0);
    assert_eq!(ids_of(&plan(&history.changes, APART).unwrap()), [45, 44]);
}
