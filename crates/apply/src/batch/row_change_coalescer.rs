//! Merges several changes of one row into one.
//!
//! Two changes of the same row are merged if no change between them conflicts with the first one. The first
//! change can then move to just before the second, so that both become one change. The merged change accesses
//! all keys of both changes. So it is correct even if the row's other unique keys differ between the two
//! changes.
//!
//! If a row is inserted and deleted within a batch, the target gets neither change. Tables with an
//! AUTO_INCREMENT column are an exception. If the insert into such a table were skipped, the target would
//! assign the number of the skipped row again once clients write to the target.
//!
//! Two changes affect the same row if the bytes of their primary keys are equal. Rows with equal hashes, or
//! with keys that are equal only in a collation, conflict and keep their order.

use std::borrow::Cow;
use std::collections::HashMap;

use tailwater_wire::binlog_event::RowsKind;

use super::batch_plan::{PlannedRow, RowImage};
use super::primary_key_values::{holds, is_full};
use super::row_grouping_criteria::{RowClass, SlotAddress};
use crate::source_transaction::RowChanges;
use crate::writeset::Access;

/// The maximum number of key accesses that a merged change may have in addition to the key accesses of its
/// last change. Without a limit, a row whose unique key changes with every update would collect all earlier
/// values of that key.
const TOUCHED_MAX: usize = 16;

/// The latest pending change of a row. Several changes of the row may be merged into it.
#[derive(Debug)]
pub(super) struct PendingChange<'a> {
    pub placed: SlotAddress,
    /// The event of the latest merged change.
    pub changes: &'a RowChanges,
    pub index: usize,
    /// Whether one of the merged changes has changed the primary key of the row.
    pub moved: bool,
    /// The key accesses of the earlier merged changes, without those that the latest change has too.
    pub touched: Vec<Access>,
}

impl PendingChange<'_> {
    /// Returns all key accesses.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.changes.accesses_of(self.index).iter().chain(&self.touched)
    }

    /// Returns the key accesses that `others` does not contain; `None` if there are more than
    /// [`TOUCHED_MAX`].
    pub fn touched_beyond(&self, others: &[Access]) -> Option<Vec<Access>> {
        let beyond: Vec<_> = self.accesses().filter(|access| !others.contains(access)).copied().collect();
        (beyond.len() <= TOUCHED_MAX).then_some(beyond)
    }
}

/// The latest pending change of each row, by table and key.
#[derive(Debug, Default)]
pub(super) struct PendingChanges<'a> {
    pending: HashMap<(u32, Cow<'a, [u8]>), PendingChange<'a>, foldhash::fast::RandomState>,
}

impl<'a> PendingChanges<'a> {
    /// Returns an empty map with capacity for `rows` rows.
    pub fn of_rows(rows: usize) -> Self {
        Self { pending: HashMap::with_capacity_and_hasher(rows, foldhash::fast::RandomState::default()) }
    }

    /// Removes and returns the latest change of the row with this key.
    pub fn take(&mut self, table: u32, key: &Cow<'a, [u8]>) -> Option<PendingChange<'a>> {
        self.pending.remove(&(table, key.clone()))
    }

    /// Stores the latest change of the row with this key.
    pub fn put(&mut self, table: u32, key: Cow<'a, [u8]>, pending: PendingChange<'a>) {
        self.pending.insert((table, key), pending);
    }
}

/// The result of merging two changes.
#[derive(Debug)]
pub(super) enum CombinedChange<'a> {
    /// The row existed neither before the first change nor after the second.
    Nothing,
    /// One change remains, which has the effect of both changes.
    Row { class: RowClass<'a>, row: PlannedRow<'a> },
}

/// Merges two consecutive changes of a row, if possible. `whole` contains the uncut images of the later
/// change.
pub(super) fn combine<'a>(
    (earlier, first): (&RowClass<'a>, &PlannedRow<'a>),
    (later, whole): (&RowClass<'a>, (&'a [u8], &'a [u8])),
    columns: usize,
) -> Option<CombinedChange<'a>> {
    use RowsKind::{Delete, PartialUpdate, Update, Write};
    if (earlier.flags, earlier.server_id) != (later.flags, later.server_id) {
        return None;
    }
    // The properties of the merged row that determine its row group: it has the columns of the first and of
    // the last image.
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
