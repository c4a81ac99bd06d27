//! Finds updates of one event that change a row which an earlier update of the same event has written.
//!
//! MySQL can log such updates: an `UPDATE` may reach a row twice, through two aliases of its table or through
//! the index whose key it changes. If the before images have no primary key, a server that applies the event
//! looks up all its rows at once. If the two versions of the row differ only in TEXT or BLOB columns, MySQL
//! (seen with 9.7) then silently skips the later update. So the later update must be in another event.

use std::hash::Hasher;

use rustc_hash::{FxHashSet, FxHasher};
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::row_event::Image;

use crate::source_transaction::RowChanges;

/// The rows that the updates of one event have written, as hashes. If different rows have equal hashes, the
/// only effect is one more event.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    hashes: FxHashSet<u64>,
    /// Whether an update has written a row whose values are unknown. This row may be equal to any other row.
    unknown: bool,
}

impl WrittenRows {
    /// Adds row `index` of an event. Returns whether this row is an update of a row that an earlier update of
    /// the event has written. If so, this row becomes the first row of a new event.
    pub fn add(&mut self, changes: &RowChanges, index: usize) -> bool {
        if !matches!(changes.kind, RowsKind::Update | RowsKind::PartialUpdate) {
            return false;
        }
        let hashes = hashes(changes, index);
        let is_chained = self.unknown
            || hashes.map_or(!self.hashes.is_empty(), |(before, _)| self.hashes.contains(&before));
        if is_chained {
            *self = Self::default();
        }
        match hashes {
            Some((_, after)) => _ = self.hashes.insert(after),
            None => self.unknown = true,
        }
        is_chained
    }
}

/// Returns the hashes of a row before and after an update, both over the columns of the before image. `None`
/// if an image cannot be read, or holds only the changes of a JSON value.
fn hashes(changes: &RowChanges, index: usize) -> Option<(u64, u64)> {
    let (before, after) = changes.images_of(index)?;
    let table = &changes.table.map;
    let before = Image::parse(table, &changes.columns_present, false, before).ok()?;
    let partial = changes.kind == RowsKind::PartialUpdate;
    let after = Image::parse(table, &changes.columns_present_after, partial, after).ok()?;
    let mut new = after.cells().peekable();
    let (mut of_before, mut of_after) = (FxHasher::default(), FxHasher::default());
    for old in before.cells() {
        let old = old.ok()?;
        let mut value = old.raw;
        while let Some(cell) = new.next_if(|cell| cell.as_ref().is_ok_and(|cell| cell.index <= old.index)) {
            let cell = cell.ok().filter(|cell| !cell.partial)?;
            if cell.index == old.index {
                value = cell.raw;
            }
        }
        write_value(&mut of_before, old.raw);
        write_value(&mut of_after, value);
    }
    Some((of_before.finish(), of_after.finish()))
}

fn write_value(hasher: &mut FxHasher, value: Option<&[u8]>) {
    match value {
        None => hasher.write_u8(0),
        Some(value) => {
            hasher.write_usize(value.len() + 1);
            hasher.write(value);
        }
    }
}
