//! Several changes of one row as one.
//!
//! A change and a later one of the same row become one where no row behind the first conflicts with it: then it might as well
//! have happened just before the second, where both together are one change. Whatever other unique keys the row has may
//! move on the way, since the one change counts as touching all that the two touched.
//!
//! A row that comes and goes within a batch is not there at all, unless its table counts rows (AUTO_INCREMENT): a target
//! that never saw it would give its number away again, once somebody writes to it.
//!
//! Rows are the same if their primary keys' bytes are. Other rows may have the same hash, or be the same to a collation; they
//! conflict, and so keep their order.

use std::borrow::Cow;
use std::collections::HashMap;

use tailwater_wire::event::RowsKind;

use super::key_columns::{holds, is_full};
use super::planner::{RowClass, SlotAddress};
use super::{PlannedRow, RowImage};
use crate::transaction::RowChanges;
use crate::writeset::Access;

/// How much a change may touch that the last of its parts does not: a counter with a moving unique key would gather all that
/// it ever was.
const TOUCHED_MAX: usize = 16;

/// The last change of a row.
#[derive(Debug)]
pub(super) struct PendingChange<'a> {
    pub placed: SlotAddress,
    /// The last change in it.
    pub changes: &'a RowChanges,
    pub index: usize,
    /// Whether one of the changes in it gave the row another key.
    pub moved: bool,
    /// What the others touched beyond it.
    pub touched: Vec<Access>,
}

impl PendingChange<'_> {
    /// What it touches.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.changes.accesses_of(self.index).iter().chain(&self.touched)
    }

    /// What it touches and `others` do not; `None` if that is too much.
    pub fn touched_beyond(&self, others: &[Access]) -> Option<Vec<Access>> {
        let beyond: Vec<_> = self.accesses().filter(|access| !others.contains(access)).copied().collect();
        (beyond.len() <= TOUCHED_MAX).then_some(beyond)
    }
}

/// The last changes of rows, by table and key.
#[derive(Debug, Default)]
pub(super) struct PendingChanges<'a> {
    living: HashMap<(u32, Cow<'a, [u8]>), PendingChange<'a>, foldhash::fast::RandomState>,
}

impl<'a> PendingChanges<'a> {
    /// For about so many rows.
    pub fn of_rows(rows: usize) -> Self {
        Self { living: HashMap::with_capacity_and_hasher(rows, foldhash::fast::RandomState::default()) }
    }

    /// The last change of the row with this key. It is forgotten.
    pub fn take(&mut self, table: u32, key: &Cow<'a, [u8]>) -> Option<PendingChange<'a>> {
        self.living.remove(&(table, key.clone()))
    }

    /// Notes the last change of the row with this key.
    pub fn put(&mut self, table: u32, key: Cow<'a, [u8]>, living: PendingChange<'a>) {
        self.living.insert((table, key), living);
    }
}

/// What two changes come to.
#[derive(Debug)]
pub(super) enum CombinedChange<'a> {
    /// The row was not there and is not.
    Nothing,
    /// One change.
    Row { class: RowClass<'a>, row: PlannedRow<'a> },
}

/// One change of two that follow each other, if there is one. `whole` are the images of the later one, uncut.
pub(super) fn combine<'a>(
    (earlier, first): (&RowClass<'a>, &PlannedRow<'a>),
    (later, whole): (&RowClass<'a>, (&'a [u8], &'a [u8])),
    columns: usize,
) -> Option<CombinedChange<'a>> {
    use RowsKind::{Delete, PartialUpdate, Update, Write};
    if (earlier.flags, earlier.server_id) != (later.flags, later.server_id) {
        return None;
    }
    // The class, from who gives the first image's columns and the last's.
    let class = |kind, columns_present: &Cow<'a, [u8]>, columns_present_after: &Cow<'a, [u8]>| RowClass {
        kind,
        columns_present: columns_present.clone(),
        columns_present_after: columns_present_after.clone(),
        ..later.clone()
    };
    Some(match (earlier.kind, later.kind) {
        (Write, Delete) => CombinedChange::Nothing,
        (Write, Update) if holds(&later.columns_present_after, &earlier.columns_present) => {
            let columns = &later.columns_present_after;
            CombinedChange::Row {
                class: class(Write, columns, columns),
                row: PlannedRow { image: RowImage::whole(whole.1), after: RowImage::default() },
            }
        }
        (Update | PartialUpdate, Update)
            if holds(&later.columns_present_after, &earlier.columns_present_after) =>
        {
            CombinedChange::Row {
                class: class(Update, &earlier.columns_present, &later.columns_present_after),
                row: PlannedRow { image: first.image, after: RowImage::whole(whole.1) },
            }
        }
        (Update | PartialUpdate, Delete) => CombinedChange::Row {
            class: class(Delete, &earlier.columns_present, &earlier.columns_present),
            row: PlannedRow { image: first.image, after: RowImage::default() },
        },
        (Delete, Write) if is_full(&later.columns_present, columns) => CombinedChange::Row {
            class: class(Update, &earlier.columns_present, &later.columns_present),
            row: PlannedRow { image: first.image, after: RowImage::whole(whole.0) },
        },
        _ => return None,
    })
}
