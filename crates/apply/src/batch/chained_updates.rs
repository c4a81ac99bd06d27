//! Finds updates of one event that change a row which an earlier update of the same event has written.
//!
//! MySQL can log them: an `UPDATE` may reach a row twice, through two aliases of its table or through the
//! index whose key it changes. If the before images have no primary key, a server that applies the event
//! looks up all its rows at once. MySQL (seen with 9.7) then leaves the later update of such a row out
//! without an error, if the two versions of the row differ only in TEXT or BLOB columns. So the later update
//! must be in another event.

use std::hash::Hasher;

use rustc_hash::{FxHashSet, FxHasher};
use tailwater_wire::binlog_event::RowsKind;
use tailwater_wire::row_event::BinlogColumn;

use super::minimal_after_image::take;
use super::primary_key_values::{bit, count};

/// The rows that the updates of one event have written, as hashes. Equal hashes of different rows only lead
/// to one more event.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    hashes: FxHashSet<u64>,
    /// Whether a row was written whose columns are unknown. It may be any row.
    unknown: bool,
}

impl WrittenRows {
    /// Adds an update. Returns whether it changes a row that an earlier update has written; then it is the
    /// first one of a new event.
    pub fn add(
        &mut self,
        kind: RowsKind,
        columns: &[BinlogColumn],
        (before_present, before): (&[u8], &[u8]),
        (after_present, after): (&[u8], &[u8]),
    ) -> bool {
        let after = match (kind, after) {
            (RowsKind::Update, after) => Some(after),
            // The options of the image come first. If there are none, the image has whole values only.
            (RowsKind::PartialUpdate, [0, after @ ..]) => Some(after),
            (RowsKind::PartialUpdate, _) => None,
            (RowsKind::Write | RowsKind::Delete, _) => return false,
        };
        let hashes = after.and_then(|after| {
            hashes(columns, ImageValues::new(before_present, before), ImageValues::new(after_present, after))
        });
        let is_written = |before: &u64| self.hashes.contains(before);
        let is_chained = match &hashes {
            Some((before, _)) => self.unknown || is_written(before),
            None => self.unknown || !self.hashes.is_empty(),
        };
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
/// if an image is malformed.
fn hashes(
    columns: &[BinlogColumn],
    mut before: ImageValues<'_>,
    mut after: ImageValues<'_>,
) -> Option<(u64, u64)> {
    let (mut of_before, mut of_after) = (FxHasher::default(), FxHasher::default());
    for (index, column) in columns.iter().enumerate() {
        let old = before.next(index, column)?;
        let new = after.next(index, column)?;
        if let Some(old) = old {
            write_value(&mut of_before, old);
            write_value(&mut of_after, new.unwrap_or(old));
        }
    }
    let are_whole = before.rest?.is_empty() && after.rest?.is_empty();
    are_whole.then(|| (of_before.finish(), of_after.finish()))
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

/// Reads the values of an image in the order of its columns.
struct ImageValues<'a> {
    present: &'a [u8],
    image: &'a [u8],
    /// The values that have not been read.
    rest: Option<&'a [u8]>,
    /// The number of columns of the image that have been read.
    read: usize,
}

impl<'a> ImageValues<'a> {
    fn new(present: &'a [u8], image: &'a [u8]) -> Self {
        Self { present, image, rest: image.get(count(present).div_ceil(8)..), read: 0 }
    }

    /// Returns the value of the column: `Some(None)` if the image does not contain it, `Some(Some(None))` for
    /// NULL. `None` if the image is malformed.
    fn next(&mut self, index: usize, column: &BinlogColumn) -> Option<Option<Option<&'a [u8]>>> {
        let mut rest = self.rest?;
        if !bit(self.present, index) {
            return Some(None);
        }
        let value = take(bit(self.image, self.read), column, &mut rest)?;
        (self.rest, self.read) = (Some(rest), self.read + 1);
        Some(Some(value))
    }
}
