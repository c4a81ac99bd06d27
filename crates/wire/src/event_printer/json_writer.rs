//! Writes JSON text in pieces. It does not use serde, whose data model has no raw JSON values.

use std::fmt::{Debug, Display};
use std::io::Write as _;

use crate::row_event::binary_json::base64;

/// Appends JSON to a buffer and writes the commas between members.
#[derive(Debug, Default)]
pub(super) struct JsonWriter {
    out: Vec<u8>,
    /// Whether the innermost container already has a member.
    has_members: bool,
}

impl JsonWriter {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Opens an object or an array with `bracket`.
    pub(super) fn begin(&mut self, bracket: char) {
        self.plain(bracket);
        self.has_members = false;
    }

    /// Closes an object or an array with `bracket`.
    pub(super) fn end(&mut self, bracket: char) {
        self.plain(bracket);
        self.has_members = true;
    }

    /// Starts a member of an array.
    pub(super) fn item(&mut self) {
        if self.has_members {
            self.out.push(b',');
        }
        self.has_members = true;
    }

    /// Starts a member of an object.
    pub(super) fn key(&mut self, key: &str) {
        self.item();
        self.string(key);
        self.out.push(b':');
    }

    pub(super) fn string(&mut self, text: &str) {
        // Writing a string to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut self.out, text);
    }

    /// Writes a value whose text is already valid JSON, such as a number, `true`, or a document.
    pub(super) fn plain(&mut self, text: impl Display) {
        let _ = write!(self.out, "{text}");
    }

    /// Writes the shortest digits that parse to the same number, or `null` for a number that JSON cannot
    /// represent.
    pub(super) fn float(&mut self, number: impl Into<f64> + Debug + Copy) {
        match number.into().is_finite() {
            // `Debug` uses an exponent for numbers for which `Display` would print hundreds of digits.
            true => self.plain(format_args!("{number:?}")),
            false => self.plain("null"),
        }
    }

    /// Writes bytes as `{"base64": "..."}`.
    pub(super) fn base64(&mut self, bytes: &[u8]) {
        self.begin('{');
        self.key("base64");
        let mut text = String::new();
        base64::encode(bytes, &mut text);
        self.string(&text);
        self.end('}');
    }

    /// Writes a string if the bytes are UTF-8, otherwise base64.
    pub(super) fn string_or_base64(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.string(text),
            Err(_) => self.base64(bytes),
        }
    }
}
