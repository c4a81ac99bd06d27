//! Prints rows as the servers' own tools do with `-vv`: `###   @1=1 /* INT meta=0 nullable=0 is_null=0 */`.
//!
//! `mysqlbinlog` and `mariadb-binlog` have a common origin, but differ. Values and escapes are printed as the
//! tool of the source's flavour does. In two cases this printer prints more than the tools: `mysqlbinlog`
//! stops printing an event at a GEOMETRY value, and `mariadb-binlog` at a type that only MySQL has.

use std::io::Write as _;

use super::float_format;
use crate::row_event::binary_json::{JsonDiff, JsonDiffOperation, JsonDiffs, JsonNode};
use crate::row_event::column_value::vector_elements;
use crate::row_event::table_map_column::{BinlogColumn, ColumnType};
use crate::row_event::{BinlogValue, Image};
use crate::{Flavour, WireError};

/// Appends one row image, with a line for each column.
pub(super) fn write_image(out: &mut Vec<u8>, image: &Image<'_>) -> Result<(), WireError> {
    let table = image.table();
    for cell in image.cells() {
        let cell = cell?;
        let Some(column) = table.columns.get(cell.index) else { continue };
        put(out, format_args!("###   @{}=", cell.index + 1));
        match cell.raw {
            None => out.extend_from_slice(b"NULL"),
            Some(raw) => {
                let value = BinlogValue::decode(raw, column, cell.partial)?;
                write_value(out, value, raw, column, cell.index, table.flavour)?;
            }
        }
        put(
            out,
            format_args!(
                " /* {} meta={} nullable={} is_null={} */\n",
                type_name(column),
                column.metadata,
                u8::from(column.nullable),
                u8::from(cell.raw.is_none())
            ),
        );
    }
    Ok(())
}

/// Appends formatted text. Writing to a `Vec` cannot fail.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn type_name(column: &BinlogColumn) -> String {
    let blob = |length_bytes: u8| match length_bytes {
        1 => "TINYBLOB/TINYTEXT",
        2 => "BLOB/TEXT",
        3 => "MEDIUMBLOB/MEDIUMTEXT",
        _ => "LONGBLOB/LONGTEXT",
    };
    match column.column_type {
        ColumnType::Tiny => "TINYINT".to_owned(),
        ColumnType::Short => "SHORTINT".to_owned(),
        ColumnType::Int24 => "MEDIUMINT".to_owned(),
        ColumnType::Long => "INT".to_owned(),
        ColumnType::LongLong => "LONGINT".to_owned(),
        ColumnType::Float => "FLOAT".to_owned(),
        ColumnType::Double => "DOUBLE".to_owned(),
        ColumnType::Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
        ColumnType::Bit { bits } => format!("BIT({bits})"),
        ColumnType::Year => "YEAR".to_owned(),
        ColumnType::Date => "DATE".to_owned(),
        ColumnType::TimeOld { .. } => "TIME".to_owned(),
        ColumnType::DateTimeOld { .. } => "DATETIME".to_owned(),
        ColumnType::TimestampOld { .. } => "TIMESTAMP".to_owned(),
        ColumnType::Time { fraction } => format!("TIME({fraction})"),
        ColumnType::DateTime { fraction } => format!("DATETIME({fraction})"),
        ColumnType::Timestamp { fraction } => format!("TIMESTAMP({fraction})"),
        ColumnType::Char { bytes_max } => format!("STRING({bytes_max})"),
        ColumnType::VarChar { bytes_max } => format!("VARSTRING({bytes_max})"),
        ColumnType::VarCharCompressed { bytes_max } => format!("VARSTRING({bytes_max}) COMPRESSED"),
        ColumnType::Blob { length_bytes } => blob(length_bytes).to_owned(),
        ColumnType::BlobCompressed { length_bytes } => format!("{} COMPRESSED", blob(length_bytes)),
        ColumnType::Geometry { .. } => "GEOMETRY".to_owned(),
        ColumnType::Json { .. } => "JSON".to_owned(),
        ColumnType::Vector { .. } => format!("VECTOR({})", column.vector_dimensions.unwrap_or(0)),
        ColumnType::TypedArray { .. } => "TYPED ARRAY".to_owned(),
        ColumnType::Enum { bytes: 1 } => "ENUM(1 byte)".to_owned(),
        ColumnType::Enum { .. } => "ENUM(2 bytes)".to_owned(),
        ColumnType::Set { bytes } => format!("SET({bytes} bytes)"),
    }
}

fn write_value(
    out: &mut Vec<u8>,
    value: BinlogValue<'_>,
    raw: &[u8],
    column: &BinlogColumn,
    index: usize,
    flavour: Flavour,
) -> Result<(), WireError> {
    let quote = |out: &mut Vec<u8>, bytes: &[u8]| write_quoted(out, bytes, flavour);
    match value {
        BinlogValue::Null => out.extend_from_slice(b"NULL"),
        BinlogValue::Int(_) | BinlogValue::UInt(_) => write_integer(out, raw),
        BinlogValue::Float(float) => {
            put(out, format_args!("{:<20}", float_format::general(f64::from(float), 6)))
        }
        BinlogValue::Double(double) => out.extend_from_slice(float_format::general(double, 20).as_bytes()),
        BinlogValue::Decimal(decimal) => put(out, format_args!("{decimal}")),
        BinlogValue::Bit { bits, value } => {
            put(out, format_args!("b'{value:0width$b}'", width = usize::from(bits)))
        }
        // Both tools add 1900 to the stored byte. They do so even for the byte 0, which represents the year
        // 0000.
        BinlogValue::Year(year) => put(out, format_args!("{:04}", year.max(1900))),
        BinlogValue::Date(date) => {
            put(out, format_args!("'{:04}:{:02}:{:02}'", date.year, date.month, date.day))
        }
        BinlogValue::Time(time) => {
            let mut text = String::new();
            let _ = time.write(&mut text, fraction(column.column_type));
            put(out, format_args!("'{text}'"));
        }
        BinlogValue::DateTime(datetime) => {
            let mut text = String::new();
            let _ = datetime.write(&mut text, fraction(column.column_type));
            match (column.column_type, flavour) {
                (ColumnType::DateTimeOld { .. }, Flavour::MySql) => out.extend_from_slice(text.as_bytes()),
                _ => put(out, format_args!("'{text}'")),
            }
        }
        BinlogValue::Timestamp(timestamp) => {
            let mut text = timestamp.seconds.to_string();
            let _ = crate::row_event::temporal_value::write_fraction(
                &mut text,
                timestamp.micros,
                fraction(column.column_type),
            );
            out.extend_from_slice(text.as_bytes());
        }
        BinlogValue::Bytes(bytes) | BinlogValue::Geometry(bytes) => quote(out, bytes),
        BinlogValue::FixedBytes { stored, .. } => quote(out, stored),
        BinlogValue::Compressed(compressed) => quote(out, compressed.stored()),
        BinlogValue::Enum(ordinal) => put(out, format_args!("{ordinal}")),
        BinlogValue::Set(_) => {
            // The bytes of a SET are printed in their order in the event, so the byte of the first eight
            // members comes first.
            out.extend_from_slice(b"b'");
            raw.iter().for_each(|byte| put(out, format_args!("{byte:08b}")));
            out.push(b'\'');
        }
        BinlogValue::Json(document) => {
            let mut text = Vec::new();
            document.write_text(&mut text, false)?;
            quote(out, &text);
        }
        BinlogValue::JsonDiff(diffs) => write_diffs(out, diffs, index + 1, flavour)?,
        BinlogValue::Vector(bytes) => {
            let elements = vector_elements(bytes).map(|float| float_format::scientific(f64::from(float), 5));
            put(out, format_args!("[{}]", elements.collect::<Vec<_>>().join(",")));
        }
    }
    Ok(())
}

/// Prints a signed number. After a negative number, also prints its unsigned value, because the servers'
/// tools do not know whether the column is unsigned.
fn write_integer(out: &mut Vec<u8>, raw: &[u8]) {
    let unsigned = raw.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let shift = 64 - 8 * raw.len().clamp(1, 8) as u32;
    let signed = (unsigned << shift) as i64 >> shift;
    put(out, format_args!("{signed}"));
    if signed < 0 {
        put(out, format_args!(" ({unsigned})"));
    }
}

fn fraction(column_type: ColumnType) -> u8 {
    match column_type {
        ColumnType::Time { fraction }
        | ColumnType::DateTime { fraction }
        | ColumnType::Timestamp { fraction }
        | ColumnType::TimeOld { fraction }
        | ColumnType::DateTimeOld { fraction }
        | ColumnType::TimestampOld { fraction } => fraction,
        _ => 0,
    }
}

/// Prints bytes in quotes. MySQL's tool escapes a character with a letter, as in string literals, if there is
/// such an escape. MariaDB's tool escapes characters only with numbers, and does not escape quotes and
/// backslashes.
fn write_quoted(out: &mut Vec<u8>, bytes: &[u8], flavour: Flavour) {
    out.push(b'\'');
    for byte in bytes {
        let letter = match byte {
            b'\'' | b'\\' => *byte,
            0x08 => b'b',
            0x09 => b't',
            0x0a => b'n',
            0x0c => b'f',
            0x0d => b'r',
            _ => 0,
        };
        match (byte, flavour) {
            (_, Flavour::MySql) if letter != 0 => out.extend_from_slice(&[b'\\', letter]),
            (0..=0x1f, _) => put(out, format_args!("\\x{byte:02x}")),
            _ => out.push(*byte),
        }
    }
    out.push(b'\'');
}

/// Prints JSON diffs as nested function calls, like `mysqlbinlog`.
fn write_diffs(
    out: &mut Vec<u8>,
    diffs: JsonDiffs<'_>,
    column: usize,
    flavour: Flavour,
) -> Result<(), WireError> {
    const SEPARATOR: &str = "\n###      ";
    let diffs: Vec<JsonDiff<'_>> = diffs.iter().collect::<Result<_, _>>()?;
    let name = |diff: &JsonDiff<'_>| match diff.operation {
        JsonDiffOperation::Replace => "JSON_REPLACE",
        JsonDiffOperation::Remove => "JSON_REMOVE",
        JsonDiffOperation::Insert if diff.path.last() == Some(&b']') => "JSON_ARRAY_INSERT",
        JsonDiffOperation::Insert => "JSON_INSERT",
    };
    // Consecutive operations of one kind share one function call. The last call is the outermost.
    let mut first = true;
    for (index, diff) in diffs.iter().enumerate().rev() {
        if index == 0 || name(&diffs[index - 1]) != name(diff) {
            put(out, format_args!("{}{}(", if first { "" } else { SEPARATOR }, name(diff)));
            first = false;
        }
    }
    put(out, format_args!("@{column}"));
    if diffs.is_empty() {
        return Ok(());
    }
    out.extend_from_slice(b", ");
    for (index, diff) in diffs.iter().enumerate() {
        write_quoted(out, diff.path, flavour);
        if let Some(value) = diff.value {
            out.extend_from_slice(b", ");
            let mut text = Vec::new();
            value.write_text(&mut text, false)?;
            match value.root().decode()? {
                JsonNode::Null
                | JsonNode::Bool(_)
                | JsonNode::Int(_)
                | JsonNode::UInt(_)
                | JsonNode::Double(_)
                | JsonNode::Decimal(_) => out.extend_from_slice(&text),
                JsonNode::Array(_) | JsonNode::Object(_) => {
                    out.extend_from_slice(b"CAST(");
                    write_quoted(out, &text, flavour);
                    out.extend_from_slice(b" AS JSON)");
                }
                _ => write_quoted(out, &text, flavour),
            }
        }
        let last = index + 1 == diffs.len();
        if last || name(&diffs[index + 1]) != name(diff) {
            out.push(b')');
        }
        if !last {
            put(out, format_args!(",{SEPARATOR}"));
        }
    }
    Ok(())
}
