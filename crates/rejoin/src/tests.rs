//! Tests undo and reapply on a model of a server whose tables have lost all changes after an unknown moment.

use proptest::prelude::*;
use tailwater_log::LogPosition;
use tailwater_wire::binlog_event::RowsKind;

use crate::server_model::{Cells, History, KEYLESS, SHAPES, Store, Wish, read, wishes};
use crate::{EngineState, inverse, reapply};
use tailwater_apply::batch::{PlanOptions, PlannedRow, RowGroup, plan};
use tailwater_apply::source_transaction::{LogSpan, RowChanges, Transaction, TransactionContent};

/// Writes one row as a server does in idempotent mode.
fn write_over(store: &mut Store, group: &RowGroup<'_>, row: &PlannedRow<'_>) {
    let name = &group.table.target.table;
    let table = (0..SHAPES.len())
        .find(|index| *name == format!("t{index}"))
        .expect("the name of the table must be t and an index of SHAPES");
    let of = |bitmap: &[u8], bytes: &[u8]| {
        let mut cells: Cells = vec![None; SHAPES[table].columns];
        read(bitmap, bytes).0.into_iter().for_each(|(column, value)| cells[column] = value);
        cells
    };
    let first = of(&group.columns_present, &row.image.to_bytes());
    let rows = &mut store.tables[table];
    // If the table has a primary key, a server finds the row by it and ignores the other columns of the
    // image.
    let is_found = |other: &Cells| match SHAPES[table].unique.first() {
        Some(key) => key.iter().all(|column| other[*column] == first[*column]),
        None => *other == first,
    };
    let found = rows.iter().position(is_found);
    let written = match group.kind {
        RowsKind::Write => Some(first.clone()),
        RowsKind::Delete => {
            found.map(|found| rows.remove(found));
            None
        }
        RowsKind::Update | RowsKind::PartialUpdate => {
            // An update of a row that does not exist has no effect.
            let after = found.map(|_| of(&group.columns_present_after, &row.after.to_bytes()));
            found.map(|found| rows.remove(found));
            after
        }
    };
    if let Some(written) = written {
        let collides = |other: &Cells| {
            SHAPES[table].unique.iter().any(|index| {
                index.iter().all(|column| other[*column].is_some() && other[*column] == written[*column])
            })
        };
        rows.retain(|other| !collides(other));
        rows.push(written);
    }
}

fn write(store: &mut Store, changes: &[RowChanges]) {
    let options = PlanOptions { net_change: false, cut_images: false };
    for group in &plan(changes, options).expect("the rows must form valid row changes").groups {
        group.rows.iter().for_each(|row| write_over(store, group, row));
    }
}

fn transaction(changes: Vec<RowChanges>) -> Transaction {
    let span = LogSpan { start: LogPosition::ZERO, end: LogPosition::ZERO };
    Transaction { content: TransactionContent::Rows(changes), ..Transaction::empty(span, None, 0) }
}

/// Builds a history in which each change is one transaction. Returns the transactions, and the state of the
/// tables at every moment between them.
fn happen(history: &mut History, wishes: &[Wish]) -> (Vec<Transaction>, Vec<Store>) {
    let mut moments = vec![history.store.clone()];
    for wish in wishes {
        // Bit 0 of `how` asks for a partial row image. Clear it, because these tests need full row images.
        let wish = Wish { how: wish.how & !1, ..wish.clone() };
        history.write(std::slice::from_ref(&wish));
        moments.push(history.store.clone());
    }
    let changes = std::mem::take(&mut history.changes);
    (changes.into_iter().map(|changes| transaction(vec![changes])).collect(), moments)
}

fn build_undo(tail: &[Transaction], kept: EngineState) -> Vec<RowChanges> {
    tail.iter()
        .rev()
        .flat_map(|transaction| inverse(transaction, kept).expect("the row images must be full"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn an_undo_restores_the_rows(before in wishes(30), tail in wishes(60)) {
        let mut history = History::new(u64::MAX, 5);
        happen(&mut history, &before);
        let start = history.store.clone();
        let (tail, _) = happen(&mut history, &tail);
        let mut store = history.store.clone();
        write(&mut store, &build_undo(&tail, EngineState::MatchesBinlog));
        prop_assert_eq!(store.sorted(), start, "{:#?}", history.told);
    }

}

proptest! {
    // Each case repairs the server from dozens of moments, so fewer cases suffice.
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_server_with_any_part_of_the_changes_is_repaired_to_the_end_of_the_log(
        before in wishes(30),
        logged in wishes(40),
        tail in wishes(20),
        hashes in prop_oneof![Just(1u64), Just(3), Just(u64::MAX)],
    ) {
        let keyed = |wishes: &[Wish]| -> Vec<Wish> {
            wishes.iter().filter(|wish| usize::from(wish.table) != KEYLESS).cloned().collect()
        };
        let mut history = History::new(hashes, 5);
        happen(&mut history, &keyed(&before));
        let (logged, mut moments) = happen(&mut history, &keyed(&logged));
        let end = history.store.clone();
        let (tail, more) = happen(&mut history, &keyed(&tail));
        moments.extend(more);
        let undo = build_undo(&tail, EngineState::Uncertain);
        let repeating: Vec<_> =
            logged.iter().flat_map(|transaction| reapply(transaction).expect("the row images must be full")).collect();
        for kept in moments {
            let mut store = kept.clone();
            write(&mut store, &undo);
            write(&mut store, &repeating);
            // The repair is killed in the middle of the reapply. The next repair then repeats the whole
            // reapply.
            write(&mut store, &repeating[..repeating.len() / 2]);
            write(&mut store, &repeating);
            prop_assert_eq!(store.sorted(), end.clone(), "the repair left the wrong rows on a server that had kept {:#?}", kept);
        }
    }
}

#[test]
fn transactions_without_full_before_images_cannot_be_undone() {
    let mut history = History::new(u64::MAX, 5);
    let minimal = Wish { table: 0, kind: 0, values: [1, 4, 2, 0], how: 3 };
    history.write(&[minimal]);
    let cut = transaction(std::mem::take(&mut history.changes));
    let refused = inverse(&cut, EngineState::MatchesBinlog)
        .expect_err("an undo must be refused if the before image lacks a column");
    assert_eq!(refused.code(), "TW-APP-0040");
    assert!(
        refused.to_string().contains("s.t0: the rows were logged without column c1"),
        "the undo was refused with the wrong error: {refused}"
    );

    let keyless = Wish { table: KEYLESS as u8, kind: 0, values: [1, 1, 1, 1], how: 0 };
    history.write(&[keyless]);
    let keyless = transaction(std::mem::take(&mut history.changes));
    assert!(inverse(&keyless, EngineState::MatchesBinlog).is_ok());
    let refused = inverse(&keyless, EngineState::Uncertain)
        .expect_err("an undo in a table without a key must be refused if the server may have lost the row");
    assert!(
        refused.to_string().contains("s.t2 has no primary key"),
        "the undo was refused with the wrong error: {refused}"
    );
    assert!(reapply(&keyless).is_err());
}
