//! MySQL's binary JSON.

use crate::WireError;

/// A JSON document in MySQL's binary form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonBinary<'a> {
    bytes: &'a [u8],
}

impl<'a> JsonBinary<'a> {
    /// A document over `bytes`, the value of a JSON column without its length.
    ///
    /// # Errors
    /// [`WireError`] if the type byte is unknown.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { bytes })
    }

    /// The whole document.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// What changed in a JSON document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonDiffs<'a> {
    bytes: &'a [u8],
}

impl<'a> JsonDiffs<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The diffs as they stand in the event.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}
