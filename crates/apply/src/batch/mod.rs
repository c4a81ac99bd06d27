//! The row changes of a batch of transactions as few groups of many rows: what the target then does in one go.
//!
//! Rows move freely past rows with which they share no key, and never past others. So all that may be is put into one group
//! per table and kind of change ([`order`] says how far), and changes of one row follow each other closely enough to be made
//! one ([`net`]): what the target sees is where the batch began and where it ends, in an order that breaks no unique key on
//! the way.
//!
//! Nothing is copied: rows are slices of the log entries that they came in. Work and memory are a few words per row.

mod key_columns;
mod net;
mod order;
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
    /// Whether before images are cut to the primary key, as `binlog_row_image=MINIMAL` has them. A target that writes a
    /// binlog of its own then writes such images into it.
    pub cut_images: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { net_change: true, cut_images: true }
    }
}

/// What a target is to do, in this order.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The groups.
    pub groups: Vec<Group<'a>>,
}

impl Plan<'_> {
    /// How many rows are changed.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

/// Rows of one table to which the same is done.
#[derive(Debug, Clone)]
pub struct Group<'a> {
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
    pub rows: Vec<Row<'a>>,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The before image, or the only one.
    pub image: RowImage<'a>,
    /// The after image of an update; otherwise empty.
    pub after: &'a [u8],
}

impl Row<'_> {
    /// Its length in an event, in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.image.zeros) + self.image.values.len() + self.after.len()
    }
}

/// An image of a row, as it stands in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowImage<'a> {
    /// How many zero bytes stand in front: the NULL bits of an image that was cut to its key.
    pub zeros: u8,
    /// All else.
    pub values: &'a [u8],
}

/// Puts the changes of a batch together, in the order of the log.
///
/// # Errors
/// [`WireError::Malformed`] if a row does not stand where its changes say.
pub fn plan<'a>(
    changes: impl IntoIterator<Item = &'a RowChanges>,
    options: PlanOptions,
) -> Result<Plan<'a>, WireError> {
    let mut planner = Planner::new(options);
    for changes in changes {
        planner.add(changes)?;
    }
    Ok(planner.finish())
}
