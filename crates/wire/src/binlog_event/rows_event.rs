//! The fixed part of row events: the table, the columns, and the row images as bytes. [`crate::row_event`]
//! parses the images.

use std::borrow::Cow;

use super::compressed_event;
use super::event_header::EventType;
use super::format_description::FormatDescription;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "rows event";

/// The maximum number of columns of a table in either flavour.
const COLUMNS_MAX: u64 = 4096;

/// What a row event does with its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowsKind {
    /// Inserts rows: each row is an after image.
    Write,
    /// Updates rows: each row is a before image and an after image.
    Update,
    /// As [`RowsKind::Update`], but JSON columns may hold diffs (MySQL 8).
    PartialUpdate,
    /// Deletes rows: each row is a before image.
    Delete,
}

/// Returns the kind, the layout version (1 or 2) and whether the images are compressed. `None` if the type is
/// not a row event of MySQL 5.1 GA or later.
pub(crate) fn layout(event_type: EventType) -> Option<(RowsKind, u8, bool)> {
    Some(match event_type {
        EventType::WRITE_ROWS_V1 => (RowsKind::Write, 1, false),
        EventType::UPDATE_ROWS_V1 => (RowsKind::Update, 1, false),
        EventType::DELETE_ROWS_V1 => (RowsKind::Delete, 1, false),
        EventType::WRITE_ROWS_V2 => (RowsKind::Write, 2, false),
        EventType::UPDATE_ROWS_V2 => (RowsKind::Update, 2, false),
        EventType::DELETE_ROWS_V2 => (RowsKind::Delete, 2, false),
        EventType::PARTIAL_UPDATE_ROWS => (RowsKind::PartialUpdate, 2, false),
        EventType::MARIADB_WRITE_ROWS_COMPRESSED_V1 => (RowsKind::Write, 1, true),
        EventType::MARIADB_UPDATE_ROWS_COMPRESSED_V1 => (RowsKind::Update, 1, true),
        EventType::MARIADB_DELETE_ROWS_COMPRESSED_V1 => (RowsKind::Delete, 1, true),
        EventType::MARIADB_WRITE_ROWS_COMPRESSED => (RowsKind::Write, 2, true),
        EventType::MARIADB_UPDATE_ROWS_COMPRESSED => (RowsKind::Update, 2, true),
        EventType::MARIADB_DELETE_ROWS_COMPRESSED => (RowsKind::Delete, 2, true),
        _ => return None,
    })
}

/// A row event without its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsEvent<'a> {
    /// What the event does with its rows.
    pub kind: RowsKind,
    /// The layout version, 1 or 2. Version 2 added `extra_data`.
    pub version: u8,
    /// The id of the table map that describes the rows.
    pub table_id: u64,
    /// The `FLAG_*` bits.
    pub flags: u16,
    /// The tagged fields of version 2 (NDB, partition ids), without the length before them. Empty in version
    /// 1.
    pub extra_data: &'a [u8],
    /// The number of columns. It equals the number of columns in the table map.
    pub column_count: usize,
    /// One bit per column, lowest bit first. The bit is set if the before image (update, delete) or the only
    /// image (write) contains the column.
    pub columns_present: &'a [u8],
    /// One bit per column for the after image of an update. For other kinds of events, the same slice as
    /// `columns_present`.
    pub columns_present_after: &'a [u8],
    /// The row images as they are in the event: see [`RowsEvent::images`].
    pub rows: &'a [u8],
    /// Whether `rows` is compressed (MariaDB).
    pub compressed: bool,
}

impl<'a> RowsEvent<'a> {
    /// This is the last row event of its statement. The table maps of the statement are not valid after it.
    pub const FLAG_STATEMENT_END: u16 = 0x0001;
    /// The session that changed the rows had `foreign_key_checks` off.
    pub const FLAG_NO_FOREIGN_KEY_CHECKS: u16 = 0x0002;
    /// The session that changed the rows had `unique_checks` off.
    pub const FLAG_RELAXED_UNIQUE_CHECKS: u16 = 0x0004;
    /// The row images hold all columns.
    pub const FLAG_COMPLETE_ROWS: u16 = 0x0008;
    /// The server also logs the cascades of foreign keys, as row events before the row events of the parent
    /// table (MySQL 9.7, unless `innodb_native_foreign_keys` is on). Without this flag, the binlog does not
    /// contain cascades.
    pub const FLAG_SQL_FOREIGN_KEYS: u16 = 0x0010;
    /// The session that changed the rows had `check_constraint_checks` off (MariaDB).
    pub const FLAG_NO_CHECK_CONSTRAINT_CHECKS: u16 = 0x0080;

    /// The table id of a row event that holds no rows and only ends its statement.
    pub const TABLE_ID_DUMMY: u64 = 0xff_ffff;

    /// Parses the body, without its checksum, of an event of type `event_type`.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`]; [`WireError::Unsupported`] if the type is not a
    /// row event, or is a row event of MySQL 5.1 before GA.
    pub fn parse(
        event_type: EventType,
        body: &'a [u8],
        format: &FormatDescription,
    ) -> Result<Self, WireError> {
        let Some((kind, version, compressed)) = layout(event_type) else {
            return Err(WireError::unsupported(WHAT, event_type.to_string()));
        };
        let mut cursor = ByteCursor::new(WHAT, body);
        let (table_id, flags) = read_table_id_and_flags(event_type, &mut cursor, format)?;
        let extra_data = match version {
            1 => &[][..],
            _ => {
                // The stated length of the extra data includes the two bytes of the length itself.
                let length = usize::from(cursor.u16()?);
                let Some(length) = length.checked_sub(2) else {
                    return Err(WireError::malformed(
                        WHAT,
                        format!("the event states extra data of {length} bytes"),
                    ));
                };
                cursor.bytes(length)?
            }
        };
        let column_count = cursor.lenenc_int()?;
        if column_count > COLUMNS_MAX {
            return Err(WireError::malformed(WHAT, format!("the event states {column_count} columns")));
        }
        let column_count = column_count as usize;
        let columns_present = cursor.bytes(column_count.div_ceil(8))?;
        let columns_present_after = match kind {
            RowsKind::Update | RowsKind::PartialUpdate => cursor.bytes(column_count.div_ceil(8))?,
            RowsKind::Write | RowsKind::Delete => columns_present,
        };
        Ok(Self {
            kind,
            version,
            table_id,
            flags,
            extra_data,
            column_count,
            columns_present,
            columns_present_after,
            rows: cursor.rest(),
            compressed,
        })
    }

    /// Returns whether this is the last row event of its statement.
    pub fn ends_statement(&self) -> bool {
        self.flags & Self::FLAG_STATEMENT_END != 0
    }

    /// Returns the concatenated row images. Decompresses `rows` if necessary.
    ///
    /// # Errors
    /// As [`compressed_event::decompress`]. [`WireError::TooLarge`] if the images are longer than
    /// `bytes_max`.
    pub fn images(&self, bytes_max: usize) -> Result<Cow<'a, [u8]>, WireError> {
        if !self.compressed {
            return Ok(Cow::Borrowed(self.rows));
        }
        let mut images = Vec::new();
        compressed_event::decompress(self.rows, bytes_max, &mut images)?;
        Ok(Cow::Owned(images))
    }
}

/// Returns whether a row event is the last of its statement. `body_prefix` holds the first bytes of its body.
pub(crate) fn ends_statement(
    event_type: EventType,
    body_prefix: &[u8],
    format: &FormatDescription,
) -> Result<bool, WireError> {
    let (_, flags) = read_table_id_and_flags(event_type, &mut ByteCursor::new(WHAT, body_prefix), format)?;
    Ok(flags & RowsEvent::FLAG_STATEMENT_END != 0)
}

fn read_table_id_and_flags(
    event_type: EventType,
    cursor: &mut ByteCursor<'_>,
    format: &FormatDescription,
) -> Result<(u64, u16), WireError> {
    // Early versions of MySQL 5.1 write a table id of four bytes in a fixed part of six bytes.
    let table_id = match format.post_header_length(event_type) {
        Some(6) => u64::from(cursor.u32()?),
        _ => cursor.u48()?,
    };
    Ok((table_id, cursor.u16()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavour;
    use crate::binlog_event::ChecksumAlgorithm;

    #[test]
    fn an_update_has_two_bitmaps_and_a_write_has_one() {
        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let mut body = vec![0x6a, 0, 0, 0, 0, 0, 1, 0, 4, 0, 0xaa, 0xbb, 9];
        body.extend_from_slice(&[0xff, 0x01, 0x0f, 0x00]);
        body.extend_from_slice(b"images");
        let update = RowsEvent::parse(EventType::UPDATE_ROWS_V2, &body, &format).unwrap();
        assert_eq!((update.table_id, update.column_count), (0x6a, 9));
        assert_eq!((update.columns_present, update.columns_present_after), (&[0xff, 1][..], &[0x0f, 0][..]));
        assert_eq!((update.extra_data, update.rows), (&[0xaa, 0xbb][..], &b"images"[..]));
        assert!(update.ends_statement());
        assert_eq!(update.images(0).unwrap(), &b"images"[..]);
        let write = RowsEvent::parse(EventType::WRITE_ROWS_V2, &body, &format).unwrap();
        assert_eq!(write.columns_present_after, &[0xff, 1]);
        assert_eq!(write.rows, b"\x0f\0images");
    }

    #[test]
    fn wrong_lengths_are_errors() {
        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        for body in [
            &[0u8, 0, 0, 0, 0, 0, 1, 0, 1, 0][..],
            &[0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 1],
            &[0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0xfd, 0xff, 0xff, 0xff],
            &[0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(RowsEvent::parse(EventType::DELETE_ROWS_V2, body, &format).is_err());
        }
    }
}
