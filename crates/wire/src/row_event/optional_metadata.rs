//! The optional metadata of a table map: signedness, character sets, names and keys. `binlog_row_metadata`
//! determines which of these properties a source logs.
//!
//! The metadata is a list of fields. Each field has a type byte, a length and its bytes. Unknown fields are
//! kept without decoding, because the servers guarantee that readers may skip them.

use crate::byte_cursor::ByteCursor;
use crate::row_event::table_map_column::{BinlogColumn, ColumnType};
use crate::{Flavour, WireError};

/// The type bytes of the metadata fields.
mod field {
    pub const SIGNEDNESS: u8 = 1;
    pub const DEFAULT_CHARSET: u8 = 2;
    pub const COLUMN_CHARSET: u8 = 3;
    pub const COLUMN_NAME: u8 = 4;
    pub const SET_STR_VALUE: u8 = 5;
    pub const ENUM_STR_VALUE: u8 = 6;
    pub const GEOMETRY_TYPE: u8 = 7;
    pub const SIMPLE_PRIMARY_KEY: u8 = 8;
    pub const PRIMARY_KEY_WITH_PREFIX: u8 = 9;
    pub const ENUM_AND_SET_DEFAULT_CHARSET: u8 = 10;
    pub const ENUM_AND_SET_COLUMN_CHARSET: u8 = 11;
    pub const COLUMN_VISIBILITY: u8 = 12;
    pub const VECTOR_DIMENSIONALITY: u8 = 13;
}

const WHAT: &str = "table map metadata";

/// One column of the primary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPart {
    /// Index of the column, from 0.
    pub column: u16,
    /// For a prefix key, the length of the prefix in characters, or in bytes for binary columns. 0 if the key
    /// contains the whole column.
    pub prefix: u32,
}

/// The optional metadata that belongs to the whole table, and not to one column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableMetadata {
    /// The columns of the primary key in key order. `None` if the source did not log them or there is no
    /// primary key.
    pub primary_key: Option<Vec<KeyPart>>,
    /// The fields of unknown type, in the order of the event: type byte and undecoded bytes.
    pub unknown: Vec<(u8, Vec<u8>)>,
}

/// Reads all fields of `bytes`, fills in `columns`, and returns the fields that belong to the table.
pub(super) fn read(
    bytes: &[u8],
    columns: &mut [BinlogColumn],
    flavour: Flavour,
) -> Result<TableMetadata, WireError> {
    let is_character = |column: ColumnType| is_character(column, flavour);
    let mut table = TableMetadata::default();
    let mut cursor = ByteCursor::new(WHAT, bytes);
    while !cursor.is_empty() {
        let field_type = cursor.u8()?;
        let value = cursor.lenenc_bytes()?;
        let mut value = ByteCursor::new(WHAT, value);
        match field_type {
            field::SIGNEDNESS => {
                let signed = columns.iter_mut().filter(|column| column.column_type.has_signedness());
                each_bit(&mut value, signed, |column, unsigned| column.unsigned = Some(unsigned))?;
            }
            field::DEFAULT_CHARSET => default_collations(&mut value, columns, is_character)?,
            field::COLUMN_CHARSET => each_collation(&mut value, columns, is_character)?,
            field::ENUM_AND_SET_DEFAULT_CHARSET => default_collations(&mut value, columns, is_enum_or_set)?,
            field::ENUM_AND_SET_COLUMN_CHARSET => each_collation(&mut value, columns, is_enum_or_set)?,
            field::COLUMN_NAME => {
                for column in &mut *columns {
                    column.name = Some(utf8(value.lenenc_bytes()?)?);
                }
            }
            field::SET_STR_VALUE => {
                each_members(&mut value, columns, |column| matches!(column, ColumnType::Set { .. }))?;
            }
            field::ENUM_STR_VALUE => {
                each_members(&mut value, columns, |column| matches!(column, ColumnType::Enum { .. }))?;
            }
            field::GEOMETRY_TYPE => {
                let geometries = columns
                    .iter_mut()
                    .filter(|column| matches!(column.column_type, ColumnType::Geometry { .. }));
                for column in geometries {
                    column.geometry_type = Some(number(&mut value)?);
                }
            }
            field::SIMPLE_PRIMARY_KEY | field::PRIMARY_KEY_WITH_PREFIX => {
                let mut key = Vec::new();
                while !value.is_empty() {
                    let column = key_column(&mut value, columns.len())?;
                    let prefix =
                        if field_type == field::PRIMARY_KEY_WITH_PREFIX { number(&mut value)? } else { 0 };
                    key.push(KeyPart { column, prefix });
                }
                table.primary_key = Some(key);
            }
            field::COLUMN_VISIBILITY => {
                each_bit(&mut value, columns.iter_mut(), |column, visible| column.visible = Some(visible))?;
            }
            field::VECTOR_DIMENSIONALITY => {
                let vectors = columns
                    .iter_mut()
                    .filter(|column| matches!(column.column_type, ColumnType::Vector { .. }));
                for column in vectors {
                    column.vector_dimensions = Some(number(&mut value)?);
                }
            }
            other => table.unknown.push((other, value.rest().to_vec())),
        }
    }
    Ok(table)
}

/// Returns whether the fields COLUMN_CHARSET and DEFAULT_CHARSET count the column as a character column.
/// MariaDB counts GEOMETRY, and MySQL does not. MySQL counts VECTOR. Neither counts MySQL's JSON. MariaDB's
/// JSON is a LONGTEXT, and both count LONGTEXT.
fn is_character(column: ColumnType, flavour: Flavour) -> bool {
    match column {
        ColumnType::Char { .. }
        | ColumnType::VarChar { .. }
        | ColumnType::VarCharCompressed { .. }
        | ColumnType::Blob { .. }
        | ColumnType::BlobCompressed { .. }
        | ColumnType::Vector { .. } => true,
        ColumnType::Geometry { .. } => flavour == Flavour::MariaDb,
        _ => false,
    }
}

fn is_enum_or_set(column: ColumnType) -> bool {
    matches!(column, ColumnType::Enum { .. } | ColumnType::Set { .. })
}

fn number(value: &mut ByteCursor<'_>) -> Result<u32, WireError> {
    let number = value.lenenc_int()?;
    u32::try_from(number)
        .map_err(|_| WireError::malformed(WHAT, format!("the number {number} is out of range")))
}

fn utf8(bytes: &[u8]) -> Result<String, WireError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(WireError::malformed(WHAT, "a name is not UTF-8")),
    }
}

fn key_column(value: &mut ByteCursor<'_>, columns: usize) -> Result<u16, WireError> {
    let column = value.lenenc_int()?;
    match u16::try_from(column) {
        Ok(index) if usize::from(index) < columns => Ok(index),
        _ => Err(WireError::malformed(
            WHAT,
            format!("the primary key names column {column}, but there are {columns} columns"),
        )),
    }
}

/// Calls a function for each column, with the column's bit. The first column has the highest bit.
fn each_bit<'c>(
    value: &mut ByteCursor<'_>,
    columns: impl Iterator<Item = &'c mut BinlogColumn>,
    mut set: impl FnMut(&mut BinlogColumn, bool),
) -> Result<(), WireError> {
    let mut byte = 0;
    for (index, column) in columns.enumerate() {
        if index % 8 == 0 {
            byte = value.u8()?;
        }
        set(column, byte & 0x80 >> (index % 8) != 0);
    }
    Ok(())
}

/// Reads one collation for all columns that `counts` selects. For the exceptions, pairs of an index (among
/// the selected columns) and a collation follow.
fn default_collations(
    value: &mut ByteCursor<'_>,
    columns: &mut [BinlogColumn],
    counts: impl Fn(ColumnType) -> bool,
) -> Result<(), WireError> {
    let default = number(value)?;
    let mut counted: Vec<&mut BinlogColumn> =
        columns.iter_mut().filter(|column| counts(column.column_type)).collect();
    for column in &mut counted {
        column.collation = Some(default);
    }
    while !value.is_empty() {
        let (index, collation) = (number(value)?, number(value)?);
        match counted.get_mut(index as usize) {
            Some(column) => column.collation = Some(collation),
            None => {
                return Err(WireError::malformed(
                    WHAT,
                    format!(
                        "the metadata has a collation for character column {index}, which does not exist"
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn each_collation(
    value: &mut ByteCursor<'_>,
    columns: &mut [BinlogColumn],
    counts: impl Fn(ColumnType) -> bool,
) -> Result<(), WireError> {
    for column in columns.iter_mut().filter(|column| counts(column.column_type)) {
        column.collation = Some(number(value)?);
    }
    Ok(())
}

fn each_members(
    value: &mut ByteCursor<'_>,
    columns: &mut [BinlogColumn],
    counts: impl Fn(ColumnType) -> bool,
) -> Result<(), WireError> {
    for column in columns.iter_mut().filter(|column| counts(column.column_type)) {
        let count = value.lenenc_int()?;
        // Each member takes at least one byte, its length. So a count that is higher than the number of
        // remaining bytes is wrong.
        if count > value.remaining() as u64 {
            return Err(WireError::malformed(
                WHAT,
                format!(
                    "the metadata states {count} members, but has only {} bytes for them",
                    value.remaining()
                ),
            ));
        }
        let members = (0..count).map(|_| value.lenenc_bytes().map(<[u8]>::to_vec));
        column.members = Some(members.collect::<Result<_, _>>()?);
    }
    Ok(())
}
