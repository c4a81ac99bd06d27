//! Values as the target's column takes them.

use tailwater_wire::print::PrintError;
use tailwater_wire::print::sql_value::{Use, put_hex, put_value};
use tailwater_wire::rows::{Cell, Image, JsonBinary, TableMap, Value};

use super::mapping::Place;

/// The most bytes that a compressed value or a JSON document may take.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// What a literal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Literal {
    /// To be stored.
    Assigned,
    /// To find a row by a key, as the key's index compares.
    Key,
    /// To find a row without a key: by bytes.
    Compared,
}

/// Appends a value; `before` is what partial updates refer to. Returns whether a strict server refuses to store it.
pub(super) fn put_literal(
    text: &mut Vec<u8>,
    map: &TableMap,
    place: &Place,
    cell: &Cell<'_>,
    before: Option<&Image<'_>>,
    literal: Literal,
) -> Result<bool, PrintError> {
    let Some(column) = map.columns.get(cell.index) else { return Ok(false) };
    match cell.value(&map.columns)? {
        Value::Bytes(bytes) if needs_character_set(place, literal) => put_text(text, place, bytes, literal),
        Value::Compressed(compressed) if needs_character_set(place, literal) => {
            put_text(text, place, &compressed.decompress(VALUE_BYTES_MAX)?, literal);
        }
        Value::Json(document) if place.json_text => put_json(text, &document.to_text()?, literal),
        Value::JsonDiff(diffs) if place.json_text => {
            let before = match before {
                Some(before) => before.cell(cell.index)?.map(|cell| cell.value(&map.columns)).transpose()?,
                None => None,
            };
            let Some(Value::Json(document)) = before else {
                return Err(PrintError::NotExact {
                    what: format!("column {}", place.quoted),
                    reason: "a partial update without the document before it".to_owned(),
                });
            };
            let after = diffs.apply(document, VALUE_BYTES_MAX)?;
            put_json(text, &JsonBinary::parse(&after)?.to_text()?, literal);
        }
        Value::Enum(0) if literal == Literal::Assigned => {
            text.push(b'0');
            return Ok(true);
        }
        _ => {
            let how = if literal == Literal::Assigned { Use::Assigned } else { Use::Compared };
            put_value(text, map, column, cell, before, how)?;
        }
    }
    Ok(false)
}

/// Whether text must be said to be in its character set: to be converted, or to be looked for in an index.
fn needs_character_set(place: &Place, literal: Literal) -> bool {
    place.converted_from.is_some() || literal == Literal::Key && place.character_set.is_some()
}

fn put_text(text: &mut Vec<u8>, place: &Place, bytes: &[u8], literal: Literal) {
    let own = place.character_set.as_deref();
    let from = place.converted_from.or(own).unwrap_or("binary");
    let compared = literal == Literal::Compared;
    if compared {
        text.extend_from_slice(b"CAST(CONVERT(");
    }
    text.extend_from_slice(format!("_{from} ").as_bytes());
    put_hex(text, bytes);
    if compared {
        text.extend_from_slice(format!(" USING {}) AS BINARY)", own.unwrap_or("utf8mb4")).as_bytes());
    }
}

fn put_json(text: &mut Vec<u8>, document: &[u8], literal: Literal) {
    if literal != Literal::Compared {
        text.extend_from_slice(b"_utf8mb4 ");
    }
    put_hex(text, document);
}
