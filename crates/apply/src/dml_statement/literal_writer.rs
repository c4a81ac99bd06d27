//! Writes values as literals for the target's columns.

use tailwater_wire::event_printer::PrintError;
use tailwater_wire::event_printer::sql_literal::{LiteralUse, put_changes, put_hex, put_value};
use tailwater_wire::row_event::{BinlogValue, Image, ImageCell, JsonBinary, JsonDiffs, TableMap};

use super::json_number_precision;
use super::source_to_target_columns::ColumnTarget;
use super::sql_text_with_long_values::SqlText;

/// The maximum length of a decompressed value or a JSON document, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// What a literal is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiteralRole {
    /// The literal is assigned to a column.
    Assigned,
    /// The literal is compared with a key column, by the rules of the key's index.
    Key,
    /// The literal is compared byte by byte, to find a row without a key.
    Compared,
}

/// Appends a value as a literal. `before` is the before image, for partial updates. Returns whether a strict
/// server would reject the value.
pub(super) fn put_literal<'v>(
    text: &mut SqlText<'v>,
    map: &TableMap,
    place: &ColumnTarget,
    cell: &ImageCell<'v>,
    before: Option<&Image<'_>>,
    literal: LiteralRole,
) -> Result<bool, PrintError> {
    let Some(column) = map.columns.get(cell.index) else { return Ok(false) };
    let refused = |reason: String| PrintError::NotExact { what: format!("column {}", place.quoted), reason };
    match cell.value(&map.columns)? {
        BinlogValue::Bytes(bytes) if place.json_of_text => {
            if let Some(number) =
                json_number_precision::rounded(bytes).filter(|_| literal == LiteralRole::Assigned)
            {
                let reason = format!(
                    "MySQL rounds the number {number} in a JSON document; change it on the source, for instance into a \
                     string, or give the column of the target type LONGTEXT"
                );
                return Err(refused(reason));
            }
            put_json_of_text(text, place, bytes, literal);
        }
        BinlogValue::Float(zero)
            if place.plain_zero && literal == LiteralRole::Assigned && is_negative_zero(zero.into()) =>
        {
            return Err(refused(NEGATIVE_ZERO.to_owned()));
        }
        BinlogValue::Double(zero)
            if place.plain_zero && literal == LiteralRole::Assigned && is_negative_zero(zero) =>
        {
            return Err(refused(NEGATIVE_ZERO.to_owned()));
        }
        BinlogValue::Bytes(bytes) if needs_character_set(place, literal) => {
            put_text(text, place, literal, |text| text.put_hex(bytes));
        }
        BinlogValue::Compressed(compressed) if needs_character_set(place, literal) => {
            let bytes = compressed.decompress(VALUE_BYTES_MAX)?;
            put_text(text, place, literal, |text| put_hex(&mut text.bytes, &bytes));
        }
        BinlogValue::Bytes(bytes) | BinlogValue::Geometry(bytes) if text.is_kept(bytes) => {
            text.put_hex(bytes)
        }
        BinlogValue::Json(document) if place.json_text => put_json(text, &document.to_text()?, literal),
        BinlogValue::JsonDiff(diffs) if place.json_text => {
            let after = changed_document(map, place, cell.index, diffs, before)?;
            put_json(text, &JsonBinary::parse(&after)?.to_text()?, literal);
        }
        // The source did not log the old document, so apply the JSON change to the document on the target.
        BinlogValue::JsonDiff(diffs) if before.is_none_or(|before| !before.has(cell.index)) => {
            put_changes(&mut text.bytes, &place.quoted, diffs)?;
        }
        BinlogValue::Enum(0) if literal == LiteralRole::Assigned => {
            text.put("0");
            return Ok(true);
        }
        _ => {
            let how =
                if literal == LiteralRole::Assigned { LiteralUse::Assigned } else { LiteralUse::Compared };
            put_value(&mut text.bytes, map, column, cell, before, how)?;
        }
    }
    Ok(false)
}

const NEGATIVE_ZERO: &str = "MariaDB has no expression for a negative zero; write 0 on the source";

/// Returns the JSON document after a partial update. `before` is the before image.
fn changed_document(
    map: &TableMap,
    place: &ColumnTarget,
    column: usize,
    diffs: JsonDiffs<'_>,
    before: Option<&Image<'_>>,
) -> Result<Vec<u8>, PrintError> {
    let before = match before {
        Some(before) => before.cell(column)?.map(|cell| cell.value(&map.columns)).transpose()?,
        None => None,
    };
    let Some(BinlogValue::Json(document)) = before else {
        return Err(PrintError::NotExact {
            what: format!("column {}", place.quoted),
            reason: "the log has a partial JSON update without the document that it changes".to_owned(),
        });
    };
    Ok(diffs.apply(document, VALUE_BYTES_MAX)?)
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Appends a JSON document that the source stores as text. A comparison with this literal compares the
/// documents, not their texts.
fn put_json_of_text<'v>(text: &mut SqlText<'v>, place: &ColumnTarget, bytes: &'v [u8], literal: LiteralRole) {
    let from = place.converted_from.unwrap_or("utf8mb4");
    if literal == LiteralRole::Assigned {
        text.put(format!("_{from} "));
        text.put_hex(bytes);
    } else {
        text.put(format!("CAST(_{from} "));
        text.put_hex(bytes);
        text.put(" AS JSON)");
    }
}

/// Returns whether the literal of a text must name its character set. This is needed for a conversion, and
/// for an index lookup.
fn needs_character_set(place: &ColumnTarget, literal: LiteralRole) -> bool {
    place.converted_from.is_some() || literal == LiteralRole::Key && place.character_set.is_some()
}

/// Appends text. `put_bytes` writes the bytes of the text.
fn put_text<'v>(
    text: &mut SqlText<'v>,
    place: &ColumnTarget,
    literal: LiteralRole,
    put_bytes: impl FnOnce(&mut SqlText<'v>),
) {
    let own = place.character_set.as_deref();
    let from = place.converted_from.or(own).unwrap_or("binary");
    let compared = literal == LiteralRole::Compared;
    if compared {
        text.put("CAST(CONVERT(");
    }
    text.put(format!("_{from} "));
    put_bytes(text);
    if compared {
        text.put(format!(" USING {}) AS BINARY)", own.unwrap_or("utf8mb4")));
    }
}

fn put_json(text: &mut SqlText<'_>, document: &[u8], literal: LiteralRole) {
    if literal != LiteralRole::Compared {
        text.put("_utf8mb4 ");
    }
    put_hex(&mut text.bytes, document);
}
