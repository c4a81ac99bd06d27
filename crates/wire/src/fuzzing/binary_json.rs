//! Checks of MySQL's binary JSON, and of the diffs of partial updates.

use super::split_mode;
use crate::row_event::binary_json::{JsonNode, JsonPath, JsonValue};
use crate::row_event::{JsonBinary, JsonDiffs};

/// The maximum size of an edited document in bytes.
const DOCUMENT_BYTES_MAX: usize = 1 << 16;

pub(super) fn check(data: &[u8]) {
    match split_mode(data, 3) {
        Some((0, bytes)) => {
            if let Ok(document) = JsonBinary::parse(bytes) {
                check_document(document);
            }
        }
        Some((1, bytes)) => edit(bytes),
        Some((_, text)) => drop(JsonPath::parse(text)),
        None => {}
    }
}

/// Checks that a document's text has a bounded length and is valid JSON.
pub(super) fn check_document(document: JsonBinary<'_>) {
    let Ok(text) = document.to_text() else { return };
    // The largest expansions are control characters (from 1 byte to 6) and doubles (from 11 bytes to 24).
    let bytes = document.bytes().len();
    assert!(text.len() <= 8 * bytes + 64, "the text of a document of {bytes} bytes has {} bytes", text.len());
    let mut finite = true;
    visit(document.root(), &mut finite);
    if finite && let Ok(text) = std::str::from_utf8(&text) {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(text);
        assert!(parsed.is_ok(), "the text of a document is not JSON: {parsed:?}: {text}");
    }
    let mut unquoted = Vec::new();
    document
        .write_text(&mut unquoted, false)
        .expect("the text of a string document begins and ends with a quote");
    assert!(unquoted.len() <= text.len());
}

/// Visits all values of a document that was printed as text without an error, and clears `finite` if a number
/// is not finite.
fn visit(value: JsonValue<'_>, finite: &mut bool) {
    match value.decode().expect("every value of a printed document can be decoded") {
        JsonNode::Double(double) => *finite &= double.is_finite(),
        JsonNode::Array(array) => {
            for index in 0..array.len() {
                visit(array.get(index).expect("every value of a printed document can be decoded"), finite);
            }
            assert!(array.get(array.len()).is_err());
        }
        JsonNode::Object(object) => {
            for index in 0..object.len() {
                let (key, member) =
                    object.member(index).expect("every value of a printed document can be decoded");
                // A hostile document may have unsorted keys, so the lookup may not find the key. But the
                // lookup must not panic.
                let _ = object.get(key);
                visit(member, finite);
            }
        }
        _ => {}
    }
}

/// Checks an input that consists of the length of a document, the document, and diffs.
fn edit(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(bytes.len());
    let (document, diffs) = bytes.split_at(length);
    let diffs = JsonDiffs::new(diffs);
    assert!(diffs.iter().count() <= diffs.bytes().len());
    let Ok(before) = JsonBinary::parse(document) else { return };
    if let Ok(after) = diffs.apply(before, DOCUMENT_BYTES_MAX) {
        assert!(after.len() <= DOCUMENT_BYTES_MAX);
        check_document(JsonBinary::parse(&after).expect("the result of an edit is a valid document"));
    }
}
