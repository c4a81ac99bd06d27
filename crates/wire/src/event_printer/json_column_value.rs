//! Prints column values as JSON.

use super::UNPACKED_BYTES_MAX;
use super::charset;
use super::json_writer::JsonWriter;
use crate::WireError;
use crate::row_event::binary_json::{JsonDiffOperation, JsonDiffs};
use crate::row_event::column_value::vector_elements;
use crate::row_event::table_map_column::{BinlogColumn, ColumnType};
use crate::row_event::temporal_value::{self, Time, Timestamp};
use crate::row_event::{BinlogValue, Image, JsonBinary};

/// Returns the name of a column, or `@` and its number from 1 if the source did not log the name.
pub(super) fn column_name(column: &BinlogColumn, index: usize) -> String {
    column.name.clone().unwrap_or_else(|| format!("@{}", index + 1))
}

/// Prints a row image as a JSON object. Partial updates are applied to the documents of the image `before`.
pub(super) fn put_image(
    json: &mut JsonWriter,
    image: &Image<'_>,
    before: Option<&Image<'_>>,
) -> Result<(), WireError> {
    let columns = &image.table().columns;
    json.begin('{');
    for cell in image.cells() {
        let cell = cell?;
        let Some(column) = columns.get(cell.index) else { continue };
        json.key(&column_name(column, cell.index));
        match cell.value(columns)? {
            BinlogValue::JsonDiff(diffs) => {
                let before = match before {
                    Some(before) => before.cell(cell.index)?.map(|cell| cell.value(columns)).transpose()?,
                    None => None,
                };
                match before {
                    Some(BinlogValue::Json(document)) => {
                        let after = diffs.apply(document, UNPACKED_BYTES_MAX)?;
                        put_document(json, JsonBinary::parse(&after)?)?;
                    }
                    _ => put_diffs(json, diffs)?,
                }
            }
            value => put_value(json, value, column)?,
        }
    }
    json.end('}');
    Ok(())
}

fn put_value(json: &mut JsonWriter, value: BinlogValue<'_>, column: &BinlogColumn) -> Result<(), WireError> {
    let fraction = match column.column_type {
        ColumnType::Time { fraction }
        | ColumnType::DateTime { fraction }
        | ColumnType::Timestamp { fraction }
        | ColumnType::TimeOld { fraction }
        | ColumnType::DateTimeOld { fraction }
        | ColumnType::TimestampOld { fraction } => fraction,
        _ => 0,
    };
    match value {
        BinlogValue::Null => json.plain("null"),
        BinlogValue::Int(int) => json.plain(int),
        BinlogValue::UInt(int) | BinlogValue::Bit { value: int, .. } => json.plain(int),
        BinlogValue::Float(float) => json.float(float),
        BinlogValue::Double(double) => json.float(double),
        BinlogValue::Decimal(decimal) => json.string(&decimal.to_string()),
        BinlogValue::Year(year) => json.plain(year),
        BinlogValue::Date(date) => json.string(&date.to_string()),
        BinlogValue::Time(time) => json.string(&time_text(time, fraction)),
        BinlogValue::DateTime(value) => {
            let mut text = String::new();
            let _ = value.write(&mut text, fraction);
            json.string(&text);
        }
        BinlogValue::Timestamp(timestamp) => json.string(&timestamp_text(timestamp, fraction)),
        BinlogValue::Bytes(bytes) => put_text(json, bytes, column.collation),
        BinlogValue::FixedBytes { .. } => json.base64(&value.padded().unwrap_or_default()),
        BinlogValue::Compressed(compressed) => {
            put_text(json, &compressed.decompress(UNPACKED_BYTES_MAX)?, column.collation);
        }
        BinlogValue::Enum(ordinal) => put_enum(json, ordinal, column),
        BinlogValue::Set(set) => put_set(json, set, column),
        BinlogValue::Json(document) => put_document(json, document)?,
        BinlogValue::JsonDiff(diffs) => put_diffs(json, diffs)?,
        BinlogValue::Geometry(bytes) => json.base64(bytes),
        BinlogValue::Vector(bytes) => {
            json.begin('[');
            for element in vector_elements(bytes) {
                json.item();
                json.float(element);
            }
            json.end(']');
        }
    }
    Ok(())
}

fn time_text(time: Time, fraction: u8) -> String {
    let mut text = String::new();
    let _ = time.write(&mut text, fraction);
    text
}

/// Returns the time in the format of RFC 3339, in UTC. The zero TIMESTAMP, which is not a time, is printed as
/// a zero DATETIME.
fn timestamp_text(timestamp: Timestamp, fraction: u8) -> String {
    let utc = timestamp.to_utc();
    let mut text = String::new();
    if timestamp.is_zero() {
        let _ = utc.write(&mut text, fraction);
        return text;
    }
    text = format!("{}T{:02}:{:02}:{:02}", utc.date, utc.hour, utc.minute, utc.second);
    let _ = temporal_value::write_fraction(&mut text, utc.micros, fraction);
    text.push('Z');
    text
}

/// Prints the bytes of a character column as a string, or in base64 if they are not text.
pub(super) fn put_text(json: &mut JsonWriter, bytes: &[u8], collation: Option<u32>) {
    match charset::to_text(bytes, collation) {
        Some(text) => json.string(&text),
        None => json.base64(bytes),
    }
}

/// Prints the name of the ENUM member if the source logged the names, otherwise its number.
fn put_enum(json: &mut JsonWriter, ordinal: u16, column: &BinlogColumn) {
    let member = usize::from(ordinal).checked_sub(1);
    match (&column.members, member) {
        (Some(_), None) => json.string(""),
        (Some(members), Some(index)) => match members.get(index) {
            Some(name) => put_text(json, name, column.collation),
            None => json.plain(ordinal),
        },
        (None, _) => json.plain(ordinal),
    }
}

/// Prints the names of the SET members if the source logged the names, otherwise the bits as a number.
fn put_set(json: &mut JsonWriter, set: u64, column: &BinlogColumn) {
    let Some(members) = &column.members else {
        json.plain(set);
        return;
    };
    json.begin('[');
    for bit in (0..64).filter(|bit| set >> bit & 1 != 0) {
        json.item();
        match members.get(bit) {
            Some(name) => put_text(json, name, column.collation),
            None => json.plain(bit),
        }
    }
    json.end(']');
}

fn put_document(json: &mut JsonWriter, document: JsonBinary<'_>) -> Result<(), WireError> {
    let text = document.to_text()?;
    match std::str::from_utf8(&text) {
        Ok(text) => json.plain(text),
        Err(_) => json.base64(document.bytes()),
    }
    Ok(())
}

fn put_diffs(json: &mut JsonWriter, diffs: JsonDiffs<'_>) -> Result<(), WireError> {
    json.begin('{');
    json.key("json_diff");
    json.begin('[');
    for diff in diffs.iter() {
        let diff = diff?;
        json.item();
        json.begin('{');
        json.key("operation");
        json.string(match diff.operation {
            JsonDiffOperation::Replace => "replace",
            JsonDiffOperation::Insert => "insert",
            JsonDiffOperation::Remove => "remove",
        });
        json.key("path");
        json.string_or_base64(diff.path);
        if let Some(value) = diff.value {
            json.key("value");
            put_document(json, value)?;
        }
        json.end('}');
    }
    json.end(']');
    json.end('}');
    Ok(())
}
