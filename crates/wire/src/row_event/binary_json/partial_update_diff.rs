//! The diffs of a JSON document: the value of a JSON column in a partial update
//! (`binlog_row_value_options=PARTIAL_JSON`).

use super::document_edit::JsonTree;
use super::{JsonBinary, JsonPath, WHAT};
use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// A list of changes of a document, which are applied in order. The changes are parsed during iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JsonDiffs<'a> {
    bytes: &'a [u8],
}

/// The operation of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JsonDiffOperation {
    /// Replaces the value at the path with a new one.
    Replace,
    /// Adds a missing member to an object, or a cell to an array. The new cell comes before another cell or
    /// at the end.
    Insert,
    /// Removes the member or cell at the path.
    Remove,
}

impl JsonDiffOperation {
    /// Returns the name of the operation for display.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Insert => "insert",
            Self::Remove => "remove",
        }
    }
}

/// One change of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonDiff<'a> {
    /// The operation.
    pub operation: JsonDiffOperation,
    /// The path as text: see [`JsonPath::parse`].
    pub path: &'a [u8],
    /// The new value; `None` if the operation removes a value.
    pub value: Option<JsonBinary<'a>>,
}

impl<'a> JsonDiffs<'a> {
    /// Wraps `bytes`, the value of a JSON column whose partial bit is set in an after image. `bytes` does not
    /// include the length prefix.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the bytes of the diffs in the event.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Iterates over the changes in order. Ends after an error.
    pub fn iter(&self) -> impl Iterator<Item = Result<JsonDiff<'a>, WireError>> + use<'a> {
        let mut cursor = ByteCursor::new("JSON diff", self.bytes);
        std::iter::from_fn(move || {
            if cursor.is_empty() {
                return None;
            }
            let diff = read(&mut cursor);
            if diff.is_err() {
                cursor.rest();
            }
            Some(diff)
        })
    }

    /// Applies the changes to `before` and returns the resulting document in binary form.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if a change does not fit the document: then the before image differs from the
    /// source's document; [`WireError::TooLarge`] if the result would exceed `bytes_max`.
    pub fn apply(&self, before: JsonBinary<'a>, bytes_max: usize) -> Result<Vec<u8>, WireError> {
        let mut tree = JsonTree::new(before);
        for diff in self.iter() {
            let diff = diff?;
            let path = JsonPath::parse(diff.path)?;
            let fits = match (diff.operation, diff.value) {
                (JsonDiffOperation::Replace, Some(value)) => tree.replace(&path, value)?,
                (JsonDiffOperation::Insert, Some(value)) => tree.insert(&path, value)?,
                _ => tree.remove(&path)?,
            };
            if !fits {
                let path = String::from_utf8_lossy(diff.path);
                return Err(WireError::malformed(
                    "JSON diff",
                    format!("{} at {path} does not fit the document", diff.operation.name()),
                ));
            }
        }
        tree.encode(bytes_max)
    }
}

fn read<'a>(cursor: &mut ByteCursor<'a>) -> Result<JsonDiff<'a>, WireError> {
    let operation = match cursor.u8()? {
        0 => JsonDiffOperation::Replace,
        1 => JsonDiffOperation::Insert,
        2 => JsonDiffOperation::Remove,
        other => return Err(WireError::malformed(WHAT, format!("{other} is not a diff operation"))),
    };
    let path = cursor.lenenc_bytes()?;
    let value = match operation {
        JsonDiffOperation::Remove => None,
        _ => Some(JsonBinary::parse(cursor.lenenc_bytes()?)?),
    };
    Ok(JsonDiff { operation, path, value })
}
