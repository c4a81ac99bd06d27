//! The row changes of a batch of transactions as few groups of many rows: what the target then does in one go.
//!
//! Rows move freely past rows with which they share no key, and never past others. So all that may be is put into one group
//! per table and kind of change ([`order`] says how far), and changes of one row follow each other closely enough to be made
//! one ([`net`]): what the target sees is where the batch began and where it ends, in an order that breaks no unique key on
//! the way. Of an update it sees the key and what changed ([`narrow`]).
//!
//! Nothing is copied: rows are slices of the log entries that they came in. Work and memory are a few words per row.

mod after_image;
mod coalesce;
mod conflict_levels;
mod key_columns;
mod key_rank;
mod planner;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

use tailwater_wire::WireError;
use tailwater_wire::event::RowsKind;

use crate::transaction::{MappedTable, RowChanges};
use planner::Planner;

/// What a plan may do beyond putting rows together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether several changes of a row become one.
    pub net_change: bool,
    /// Whether before images are cut to the primary key and after images to what changed, as `binlog_row_image=MINIMAL`
    /// has them. A target that writes a binlog of its own then writes such images into it.
    pub cut_images: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { net_change: true, cut_images: true }
    }
}

/// What a target is to do, in this order.
#[derive(Debug, Default)]
pub struct BatchPlan<'a> {
    /// The groups.
    pub groups: Vec<RowGroup<'a>>,
}

impl BatchPlan<'_> {
    /// How many rows are changed.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

/// Rows of one table to which the same is done.
#[derive(Debug, Clone)]
pub struct RowGroup<'a> {
    /// The table.
    pub table: &'a MappedTable,
    /// What is done to its rows.
    pub kind: RowsKind,
    /// The events' flags, without that of a statement's end.
    pub flags: u16,
    /// The `server_id` in the events' headers.
    pub server_id: u32,
    /// The newest event's time, in seconds since 1970.
    pub timestamp: u32,
    /// The columns in the before images, or in the only ones.
    pub columns_present: Cow<'a, [u8]>,
    /// The columns in the after images of updates; otherwise as `columns_present`.
    pub columns_present_after: Cow<'a, [u8]>,
    /// The rows, in order.
    pub rows: Vec<PlannedRow<'a>>,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRow<'a> {
    /// The before image, or the only one.
    pub image: RowImage<'a>,
    /// The after image of an update; otherwise empty.
    pub after: RowImage<'a>,
}

impl PlannedRow<'_> {
    /// Its length in an event, in bytes.
    pub fn bytes(&self) -> usize {
        self.image.bytes() + self.after.bytes()
    }
}

/// An image of a row, as it stands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowImage<'a> {
    /// The NULL bits of an image that was cut; of a whole one they stand in `values`.
    pub nulls: NullBits,
    /// All else.
    pub values: &'a [u8],
}

impl<'a> RowImage<'a> {
    /// An image as it stands in an event of the source.
    pub fn whole(image: &'a [u8]) -> Self {
        Self { nulls: NullBits::default(), values: image }
    }

    /// Its length in an event, in bytes.
    pub fn bytes(&self) -> usize {
        self.nulls.as_bytes().len() + self.values.len()
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.nulls.as_bytes());
        out.extend_from_slice(self.values);
    }

    /// Its bytes in one piece.
    pub fn to_bytes(&self) -> Cow<'a, [u8]> {
        match self.nulls.as_bytes() {
            [] => Cow::Borrowed(self.values),
            nulls => Cow::Owned([nulls, self.values].concat()),
        }
    }
}

/// Which of the first columns of an image are NULL, for up to 64 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NullBits {
    bits: [u8; 8],
    bytes: u8,
}

impl NullBits {
    /// One bit per column; `None` if they are too many.
    pub fn gather(nulls: impl ExactSizeIterator<Item = bool>) -> Option<Self> {
        let mut bits = Self { bits: [0; 8], bytes: u8::try_from(nulls.len().div_ceil(8)).ok()? };
        for (index, null) in nulls.enumerate() {
            *bits.bits.get_mut(index / 8)? |= u8::from(null) << (index % 8);
        }
        Some(bits)
    }

    /// As they stand in front of the values.
    pub fn as_bytes(&self) -> &[u8] {
        self.bits.get(..usize::from(self.bytes)).unwrap_or_default()
    }
}

/// Puts the changes of a batch together, in the order of the log.
///
/// # Errors
/// [`WireError::Malformed`] if a row does not stand where its changes say.
pub fn plan<'a>(
    changes: impl IntoIterator<Item = &'a RowChanges>,
    options: PlanOptions,
) -> Result<BatchPlan<'a>, WireError> {
    let changes: Vec<&RowChanges> = changes.into_iter().collect();
    let mut planner = Planner::new(options, changes.iter().map(|changes| changes.rows.len()).sum());
    for changes in changes {
        planner.add(changes)?;
    }
    Ok(planner.finish())
}
