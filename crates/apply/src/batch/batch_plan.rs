//! The plan of a batch: groups of rows.

use std::borrow::Cow;

use tailwater_wire::binlog_event::RowsKind;

use crate::source_to_target_table::MappedTable;

/// Options of the plan of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether several changes of one row are merged into one.
    pub net_change: bool,
    /// Whether before images are cut to the primary key, and after images to the changed columns, as with
    /// `binlog_row_image=MINIMAL`. If the target writes a binlog, that binlog then contains the cut images.
    pub cut_images: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { net_change: true, cut_images: true }
    }
}

/// The groups of rows that the target applies, in this order.
#[derive(Debug, Default)]
pub struct BatchPlan<'a> {
    /// The row groups, in the order in which the target applies them.
    pub groups: Vec<RowGroup<'a>>,
}

impl BatchPlan<'_> {
    /// Returns the number of changed rows.
    pub fn rows(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

/// Rows of one table with the same kind of change.
#[derive(Debug, Clone)]
pub struct RowGroup<'a> {
    /// The source's table, mapped to the target's table.
    pub table: &'a MappedTable,
    /// The kind of change: insert, update or delete.
    pub kind: RowsKind,
    /// The flags of the source's rows events, without the end-of-statement flag.
    pub flags: u16,
    /// The `server_id` from the headers of the source's events.
    pub server_id: u32,
    /// Time of the newest event, in seconds since 1970.
    pub timestamp: u32,
    /// Bitmap of the columns in the before images, or in the only image of inserts and deletes.
    pub columns_present: Cow<'a, [u8]>,
    /// Bitmap of the columns in the after images of updates; otherwise equal to `columns_present`.
    pub columns_present_after: Cow<'a, [u8]>,
    /// The rows, in the order in which they are written.
    pub rows: Vec<PlannedRow<'a>>,
}

/// One row of a group, with its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRow<'a> {
    /// The before image, or the only image of an insert or delete.
    pub image: RowImage<'a>,
    /// The after image of an update; otherwise empty.
    pub after: RowImage<'a>,
}

impl PlannedRow<'_> {
    /// Returns the length of the row in an event, in bytes.
    pub fn bytes(&self) -> usize {
        self.image.bytes() + self.after.bytes()
    }
}

/// A row image: whole, or cut to some columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowImage<'a> {
    /// The NULL bits of a cut image. For a whole image they are in `values`.
    pub nulls: NullBits,
    /// The values, and for a whole image also its NULL bits.
    pub values: &'a [u8],
}

impl<'a> RowImage<'a> {
    /// Returns a row image of the source, without cutting it.
    pub fn whole(image: &'a [u8]) -> Self {
        Self { nulls: NullBits::default(), values: image }
    }

    /// Returns the length of the image in an event, in bytes.
    pub fn bytes(&self) -> usize {
        self.nulls.as_bytes().len() + self.values.len()
    }

    /// Appends the image to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.nulls.as_bytes());
        out.extend_from_slice(self.values);
    }

    /// Returns the image as contiguous bytes.
    pub fn to_bytes(&self) -> Cow<'a, [u8]> {
        match self.nulls.as_bytes() {
            [] => Cow::Borrowed(self.values),
            nulls => Cow::Owned([nulls, self.values].concat()),
        }
    }
}

/// The NULL bits of an image with at most 64 columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NullBits {
    bits: [u8; 8],
    bytes: u8,
}

impl NullBits {
    /// Collects one bit per column. Returns `None` for more than 64 columns.
    pub fn gather(nulls: impl ExactSizeIterator<Item = bool>) -> Option<Self> {
        let mut bits = Self { bits: [0; 8], bytes: u8::try_from(nulls.len().div_ceil(8)).ok()? };
        for (index, null) in nulls.enumerate() {
            *bits.bits.get_mut(index / 8)? |= u8::from(null) << (index % 8);
        }
        Some(bits)
    }

    /// Returns the bits as they precede the values in an image.
    pub fn as_bytes(&self) -> &[u8] {
        self.bits.get(..usize::from(self.bytes)).unwrap_or_default()
    }
}
