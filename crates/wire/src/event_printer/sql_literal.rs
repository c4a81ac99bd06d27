//! Prints column values as SQL literals that restore exactly the same bytes.

use super::charset;
use super::row_text::put;
use super::{PrintError, UNPACKED_BYTES_MAX};
use crate::row_event::binary_json::{JsonDiffOperation, JsonDiffs, JsonNode, JsonValue};
use crate::row_event::row_image::ImageCell;
use crate::row_event::table_map_column::{BinlogColumn, CHARSET_BINARY, ColumnType};
use crate::row_event::{BinlogValue, Image, JsonBinary, TableMap};

/// How a statement uses a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiteralUse {
    /// The literal is stored in a column.
    Assigned,
    /// The literal is compared with a column. The comparison uses the bytes and not the collation.
    Compared,
}

/// The maximum nesting depth of MySQL's JSON documents. The printed SQL expression is nested as deeply as the
/// document.
const JSON_DEPTH_MAX: usize = 100;

/// Appends a column value as a literal. Partial updates are applied to the documents of the image `before`.
///
/// The literal of a text has the character set of its column, so the server does not convert its bytes. The
/// session's time zone must be UTC.
///
/// # Errors
/// [`PrintError::NotExact`] for a value without an exact literal; [`PrintError::Event`] if the value is
/// malformed.
pub fn put_value(
    text: &mut Vec<u8>,
    table: &TableMap,
    column: &BinlogColumn,
    cell: &ImageCell<'_>,
    before: Option<&Image<'_>>,
    how: LiteralUse,
) -> Result<(), PrintError> {
    let refused = |reason: String| {
        let name = column.name.as_deref().unwrap_or("?");
        PrintError::NotExact { what: format!("column {name} of {}.{}", table.schema, table.table), reason }
    };
    let fraction = match column.column_type {
        ColumnType::Time { fraction }
        | ColumnType::DateTime { fraction }
        | ColumnType::Timestamp { fraction }
        | ColumnType::TimeOld { fraction }
        | ColumnType::DateTimeOld { fraction }
        | ColumnType::TimestampOld { fraction } => fraction,
        _ => 0,
    };
    match cell.value(&table.columns)? {
        BinlogValue::Null => text.extend_from_slice(b"NULL"),
        BinlogValue::Int(int) if int < 0 && column.unsigned.is_none() => {
            return Err(refused(format!(
                "the binlog does not show whether {int} is negative or a big unsigned number; set binlog_row_metadata"
            )));
        }
        BinlogValue::Int(int) => put(text, format_args!("{int}")),
        // Servers compare a SET value as a signed number.
        BinlogValue::Set(int) if how == LiteralUse::Compared => {
            put(text, format_args!("{}", int.cast_signed()))
        }
        BinlogValue::UInt(int) | BinlogValue::Bit { value: int, .. } | BinlogValue::Set(int) => {
            put(text, format_args!("{int}"))
        }
        BinlogValue::Enum(ordinal) => put(text, format_args!("{ordinal}")),
        // A DOUBLE can represent every FLOAT exactly, and servers store the FLOAT that is nearest to the
        // DOUBLE. So print the value as a DOUBLE.
        BinlogValue::Float(float) if float.is_finite() => put(text, format_args!("{:e}", f64::from(float))),
        BinlogValue::Double(double) if double.is_finite() => put(text, format_args!("{double:e}")),
        BinlogValue::Float(_) | BinlogValue::Double(_) => {
            return Err(refused("a number that is not finite".to_owned()));
        }
        BinlogValue::Decimal(decimal) => put(text, format_args!("{decimal}")),
        BinlogValue::Year(year) => put(text, format_args!("{year}")),
        BinlogValue::Date(date) => put(text, format_args!("'{date}'")),
        BinlogValue::Time(time) => {
            let mut literal = String::new();
            let _ = time.write(&mut literal, fraction);
            put(text, format_args!("'{literal}'"));
        }
        BinlogValue::DateTime(datetime) => {
            let mut literal = String::new();
            let _ = datetime.write(&mut literal, fraction);
            put(text, format_args!("'{literal}'"));
        }
        // The time zone of the session is UTC.
        BinlogValue::Timestamp(timestamp) => {
            let mut literal = String::new();
            let _ = timestamp.to_utc().write(&mut literal, fraction);
            put(text, format_args!("'{literal}'"));
        }
        BinlogValue::Bytes(bytes) => put_bytes(text, bytes, column, how),
        BinlogValue::Compressed(compressed) => {
            put_bytes(text, &compressed.decompress(UNPACKED_BYTES_MAX)?, column, how);
        }
        value @ BinlogValue::FixedBytes { .. } => put_hex(text, &value.padded().unwrap_or_default()),
        BinlogValue::Geometry(bytes) | BinlogValue::Vector(bytes) => put_hex(text, bytes),
        BinlogValue::Json(document) => {
            put_document(text, document).map_err(|error| in_column(error, &refused))?
        }
        BinlogValue::JsonDiff(diffs) => {
            let before = match before {
                Some(before) => {
                    before.cell(cell.index)?.map(|cell| cell.value(&table.columns)).transpose()?
                }
                None => None,
            };
            let Some(BinlogValue::Json(document)) = before else {
                return Err(refused("a partial update without the document before it".to_owned()));
            };
            let after = diffs.apply(document, UNPACKED_BYTES_MAX)?;
            put_document(text, JsonBinary::parse(&after)?).map_err(|error| in_column(error, &refused))?;
        }
    }
    Ok(())
}

fn in_column(error: PrintError, refused: &impl Fn(String) -> PrintError) -> PrintError {
    match error {
        PrintError::NotExact { what, reason } => refused(format!("{what}: {reason}")),
        error => error,
    }
}

/// Appends bytes as plain text if they mean the same in every character set, otherwise in hexadecimal. So the
/// server does not convert the bytes, and comparisons are exact.
fn put_bytes(text: &mut Vec<u8>, bytes: &[u8], column: &BinlogColumn, how: LiteralUse) {
    let plain = how == LiteralUse::Assigned
        && column
            .collation
            .is_some_and(|collation| collation != CHARSET_BINARY && charset::is_over_ascii(collation))
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\'));
    if plain {
        text.push(b'\'');
        text.extend_from_slice(bytes);
        text.push(b'\'');
    } else {
        put_hex(text, bytes);
    }
}

/// Appends bytes as a hexadecimal literal.
pub fn put_hex(text: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.extend_from_slice(b"X'");
    for byte in bytes {
        text.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    text.push(b'\'');
}

/// Appends the changes of a partial update, as a MySQL expression that changes the document in `column` (a
/// quoted name).
///
/// If a change does not fit the document, the server does not report an error.
///
/// # Errors
/// [`PrintError::NotExact`] for a value without an expression; [`PrintError::Event`] if the changes are
/// malformed.
pub fn put_changes(text: &mut Vec<u8>, column: &str, diffs: JsonDiffs<'_>) -> Result<(), PrintError> {
    let diffs = diffs.iter().collect::<Result<Vec<_>, _>>()?;
    // The first change is the innermost function call.
    for diff in diffs.iter().rev() {
        text.extend_from_slice(match diff.operation {
            JsonDiffOperation::Replace => b"JSON_REPLACE(",
            JsonDiffOperation::Insert if diff.path.ends_with(b"]") => b"JSON_ARRAY_INSERT(",
            JsonDiffOperation::Insert => b"JSON_INSERT(",
            JsonDiffOperation::Remove => b"JSON_REMOVE(",
        });
    }
    text.extend_from_slice(column.as_bytes());
    for diff in diffs {
        text.extend_from_slice(b",_utf8mb4 ");
        put_hex(text, diff.path);
        if let Some(value) = diff.value {
            text.push(b',');
            put_document(text, value)?;
        }
        text.push(b')');
    }
    Ok(())
}

/// Appends a document as text, if the text represents all its values exactly. Otherwise appends it as
/// function calls.
fn put_document(text: &mut Vec<u8>, document: JsonBinary<'_>) -> Result<(), PrintError> {
    let document_text = document.to_text()?;
    if is_plain(document.root(), 0)? {
        text.extend_from_slice(b"CAST(_utf8mb4 ");
        put_hex(text, &document_text);
        text.extend_from_slice(b" AS JSON)");
        return Ok(());
    }
    put_json(text, document.root(), 0)
}

fn refused(what: &str, reason: &str) -> PrintError {
    PrintError::NotExact { what: what.to_owned(), reason: reason.to_owned() }
}

fn deeper(depth: usize) -> Result<usize, PrintError> {
    match depth < JSON_DEPTH_MAX {
        true => Ok(depth + 1),
        false => Err(refused("a JSON document", "the document is nested too deeply")),
    }
}

/// Returns whether a server that parses the text of the document gets the same document.
fn is_plain(value: JsonValue<'_>, depth: usize) -> Result<bool, PrintError> {
    Ok(match value.decode()? {
        JsonNode::Null | JsonNode::Bool(_) | JsonNode::Int(_) | JsonNode::Double(_) | JsonNode::String(_) => {
            true
        }
        // An unsigned number that fits into a signed integer is not plain, because the server parses its text
        // as a signed number.
        JsonNode::UInt(int) => i64::try_from(int).is_err(),
        JsonNode::Array(array) => {
            let depth = deeper(depth)?;
            for index in 0..array.len() {
                if !is_plain(array.get(index)?, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        JsonNode::Object(object) => {
            let depth = deeper(depth)?;
            for index in 0..object.len() {
                if !is_plain(object.member(index)?.1, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => false,
    })
}

fn put_json(text: &mut Vec<u8>, value: JsonValue<'_>, depth: usize) -> Result<(), PrintError> {
    match value.decode()? {
        JsonNode::Null => text.extend_from_slice(b"CAST('null' AS JSON)"),
        JsonNode::Bool(bool) => put(text, format_args!("CAST('{bool}' AS JSON)")),
        JsonNode::Int(int) => put(text, format_args!("CAST({int} AS JSON)")),
        JsonNode::UInt(int) => put(text, format_args!("CAST(CAST({int} AS UNSIGNED) AS JSON)")),
        JsonNode::Double(double) => put(text, format_args!("CAST({double:e} AS JSON)")),
        JsonNode::String(string) => {
            text.extend_from_slice(b"CAST(JSON_QUOTE(_utf8mb4 ");
            put_hex(text, string);
            text.extend_from_slice(b") AS JSON)");
        }
        JsonNode::Decimal(decimal) => put(
            text,
            format_args!(
                "CAST(CAST({decimal} AS DECIMAL({},{})) AS JSON)",
                decimal.precision(),
                decimal.scale()
            ),
        ),
        JsonNode::Date(date) => put(text, format_args!("CAST(CAST('{date}' AS DATE) AS JSON)")),
        JsonNode::Time(time) => put(text, format_args!("CAST(CAST('{time}' AS TIME(6)) AS JSON)")),
        JsonNode::DateTime(datetime) => {
            put(text, format_args!("CAST(CAST('{datetime}' AS DATETIME(6)) AS JSON)"));
        }
        JsonNode::Timestamp(_) => {
            return Err(refused("a TIMESTAMP in a JSON document", "no SQL expression creates such a value"));
        }
        JsonNode::Opaque { field_type, .. } => {
            let what = format!("a value of SQL type {field_type} in a JSON document");
            return Err(refused(&what, "no SQL expression is certain to create such a value"));
        }
        JsonNode::Array(array) => {
            let depth = deeper(depth)?;
            text.extend_from_slice(b"JSON_ARRAY(");
            for index in 0..array.len() {
                if index > 0 {
                    text.push(b',');
                }
                put_json(text, array.get(index)?, depth)?;
            }
            text.push(b')');
        }
        JsonNode::Object(object) => {
            let depth = deeper(depth)?;
            text.extend_from_slice(b"JSON_OBJECT(");
            for index in 0..object.len() {
                let (key, value) = object.member(index)?;
                if index > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(b"_utf8mb4 ");
                put_hex(text, key);
                text.push(b',');
                put_json(text, value, depth)?;
            }
            text.push(b')');
        }
    }
    Ok(())
}
