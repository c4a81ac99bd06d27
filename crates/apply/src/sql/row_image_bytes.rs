//! The images of a row in one piece each.

use std::borrow::Cow;

use crate::batch::PlannedRow;

/// The image bytes of a row.
#[derive(Debug)]
pub struct RowImageBytes<'a> {
    pub(super) image: Cow<'a, [u8]>,
    pub(super) after: Cow<'a, [u8]>,
}

impl<'a> RowImageBytes<'a> {
    /// The images of `row`. They are copied only if columns were cut.
    pub fn of(row: &PlannedRow<'a>) -> Self {
        Self { image: row.image.to_bytes(), after: row.after.to_bytes() }
    }
}
