//! Results of COM_QUERY: a column count, column definitions, and rows whose values are text.

use std::ops::Range;

use crate::WireError;
use crate::byte_cursor::{ByteCursor, put_lenenc_bytes, put_lenenc_int};

/// The maximum number of columns of a result. Servers allow 4096 per table.
pub const COLUMNS_MAX: u64 = 65_535;

/// The byte that represents NULL in a text row.
const NULL: u8 = 0xfb;

/// Parses the packet that begins a result with rows. Returns the number of columns, at least 1.
///
/// # Errors
/// [`WireError::TooLarge`] beyond [`COLUMNS_MAX`]; [`WireError::Truncated`] or [`WireError::Malformed`].
pub fn parse_column_count(payload: &[u8]) -> Result<usize, WireError> {
    let mut cursor = ByteCursor::new("column count", payload);
    let count = cursor.lenenc_int()?;
    if count == 0 || !cursor.is_empty() {
        return Err(WireError::malformed(
            "column count",
            format!("the column count is {count}, and {} bytes follow it", cursor.remaining()),
        ));
    }
    if count > COLUMNS_MAX {
        return Err(WireError::TooLarge { what: "column count", size: count, size_max: COLUMNS_MAX });
    }
    Ok(count as usize)
}

/// The definition of a result column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColumnDefinition {
    /// The database; empty for expressions.
    pub schema: String,
    /// The alias of the table in the query.
    pub table: String,
    /// The real name of the table, without the alias.
    pub table_original: String,
    /// The alias of the column in the query.
    pub name: String,
    /// The real name of the column, without the alias.
    pub name_original: String,
    /// The collation id. It is [`super::COLLATION_BINARY`] for bytes and numbers.
    pub collation: u16,
    /// The maximum length of a value in bytes, as the server estimates it.
    pub length_max: u32,
    /// The type of the column, a `MYSQL_TYPE_*` code.
    pub column_type: u8,
    /// Column flags (not null, key, unsigned, ...).
    pub flags: u16,
    /// The number of digits after the decimal point.
    pub decimals: u8,
}

impl ColumnDefinition {
    /// Parses a column definition. The connection must not use MariaDB's extended metadata.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(payload: &[u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("column definition", payload);
        cursor.lenenc_bytes()?; // the catalogue, always "def"
        let mut text = || cursor.lenenc_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let (schema, table, table_original, name, name_original) =
            (text()?, text()?, text()?, text()?, text()?);
        let fixed_bytes = cursor.lenenc_int()?;
        if fixed_bytes < 10 {
            return Err(WireError::malformed(
                "column definition",
                format!("the column definition has {fixed_bytes} fixed bytes"),
            ));
        }
        Ok(Self {
            schema,
            table,
            table_original,
            name,
            name_original,
            collation: cursor.u16()?,
            length_max: cursor.u32()?,
            column_type: cursor.u8()?,
            flags: cursor.u16()?,
            decimals: cursor.u8()?,
        })
    }

    /// Appends the payload of the definition.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for text in ["def", &self.schema, &self.table, &self.table_original, &self.name, &self.name_original]
        {
            put_lenenc_bytes(out, text.as_bytes());
        }
        put_lenenc_int(out, 12);
        out.extend_from_slice(&self.collation.to_le_bytes());
        out.extend_from_slice(&self.length_max.to_le_bytes());
        out.push(self.column_type);
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&[self.decimals, 0, 0]);
    }
}

/// Parses a text row. Returns the range of each value in `payload`, or `None` for NULL.
///
/// # Errors
/// [`WireError::Truncated`] or [`WireError::Malformed`]. Bytes after the last value are also an error.
pub fn parse_text_row(payload: &[u8], columns: usize) -> Result<Vec<Option<Range<usize>>>, WireError> {
    // Each value takes at least one byte. With this check, a wrong number of columns cannot cause an
    // allocation larger than the input.
    if columns > payload.len() {
        let needed = columns - payload.len();
        return Err(WireError::Truncated { what: "text row", offset: payload.len(), needed });
    }
    let mut cursor = ByteCursor::new("text row", payload);
    let mut values = Vec::with_capacity(columns);
    for _ in 0..columns {
        if cursor.peek_u8() == Some(NULL) {
            cursor.skip(1)?;
            values.push(None);
        } else {
            let length = cursor.lenenc_bytes()?.len();
            values.push(Some(cursor.position() - length..cursor.position()));
        }
    }
    if !cursor.is_empty() {
        let reason = format!("{} bytes follow the last of {columns} values", cursor.remaining());
        return Err(WireError::malformed("text row", reason));
    }
    Ok(values)
}

/// Iterates over the values of a text row, with `None` for NULL. Does not build a list of ranges. Ends after
/// an error.
#[derive(Debug, Clone)]
pub struct TextRowValues<'a> {
    cursor: ByteCursor<'a>,
    left: usize,
}

impl<'a> TextRowValues<'a> {
    /// Creates an iterator over the values of a row with this many columns.
    pub fn new(payload: &'a [u8], columns: usize) -> Self {
        Self { cursor: ByteCursor::new("text row", payload), left: columns }
    }

    fn value(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        if self.cursor.peek_u8() == Some(NULL) {
            self.cursor.skip(1)?;
            return Ok(None);
        }
        self.cursor.lenenc_bytes().map(Some)
    }
}

impl<'a> Iterator for TextRowValues<'a> {
    type Item = Result<Option<&'a [u8]>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut value = self.value();
        if value.is_ok() && self.left == 0 && !self.cursor.is_empty() {
            let reason = format!("{} bytes follow the last value", self.cursor.remaining());
            value = Err(WireError::malformed("text row", reason));
        }
        if value.is_err() {
            self.left = 0;
        }
        Some(value)
    }
}

/// Appends the payload of a text row.
pub fn encode_text_row<'a>(values: impl IntoIterator<Item = Option<&'a [u8]>>, out: &mut Vec<u8>) {
    for value in values {
        match value {
            Some(bytes) => put_lenenc_bytes(out, bytes),
            None => out.push(NULL),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_wrong_number_of_columns_is_refused() {
        assert!(parse_text_row(&[0xfb, 0xfb], 1 << 40).is_err());
        assert!(parse_column_count(&[0xfe, 0, 0, 0, 0, 1, 0, 0, 0]).is_err());
        assert!(parse_column_count(&[0]).is_err());
        assert_eq!(parse_column_count(&[0xfc, 0, 16]), Ok(4096));
    }

    proptest! {
        #[test]
        fn rows_round_trip(values: Vec<Option<Vec<u8>>>) {
            let mut out = Vec::new();
            encode_text_row(values.iter().map(Option::as_deref), &mut out);
            let ranges = parse_text_row(&out, values.len()).unwrap();
            let one_by_one: Result<Vec<_>, _> = TextRowValues::new(&out, values.len()).collect();
            prop_assert_eq!(one_by_one.unwrap(), values.iter().map(Option::as_deref).collect::<Vec<_>>());
            let read: Vec<_> = ranges.into_iter().map(|range| range.map(|range| out[range].to_vec())).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn column_definitions_round_trip(
            names in prop::array::uniform5(".{0,20}"), collation: u16, length_max: u32, column_type: u8, flags: u16,
            decimals: u8,
        ) {
            let [schema, table, table_original, name, name_original] = names;
            let column = ColumnDefinition {
                schema, table, table_original, name, name_original, collation, length_max, column_type, flags, decimals,
            };
            let mut out = Vec::new();
            column.encode(&mut out);
            prop_assert_eq!(ColumnDefinition::parse(&out).unwrap(), column);
        }

        #[test]
        fn any_bytes_parse_without_panic(bytes: Vec<u8>, columns in 0usize..20) {
            let _ = ColumnDefinition::parse(&bytes);
            let listed = parse_text_row(&bytes, columns);
            let one_by_one: Result<Vec<_>, _> = TextRowValues::new(&bytes, columns).collect();
            prop_assert!(columns == 0 || listed.is_ok() == one_by_one.is_ok());
            let _ = parse_column_count(&bytes);
        }
    }
}
