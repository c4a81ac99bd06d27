//! Returns the images of a row as contiguous bytes.

use std::borrow::Cow;

use crate::batch::PlannedRow;

/// The image bytes of a row.
#[derive(Debug)]
pub struct RowImageBytes<'a> {
    pub(super) image: Cow<'a, [u8]>,
    pub(super) after: Cow<'a, [u8]>,
}

impl<'a> RowImageBytes<'a> {
    /// Returns the images of `row`. An image is copied only if columns were cut from it.
    pub fn of(row: &PlannedRow<'a>) -> Self {
        Self { image: row.image.to_bytes(), after: row.after.to_bytes() }
    }
}
