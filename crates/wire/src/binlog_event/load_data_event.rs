//! The events of `LOAD DATA` in statement format: first the blocks of the loaded file, then the statement.

use super::event_header::EventType;
use super::format_description::FormatDescription;
use super::query_event::QueryEvent;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

/// One block of a loaded file: `BEGIN_LOAD_QUERY_EVENT` holds the first, `APPEND_BLOCK_EVENT` each later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadBlock<'a> {
    /// The number of the loaded file that the block belongs to.
    pub file_id: u32,
    /// The bytes of the file.
    pub data: &'a [u8],
}

impl<'a> LoadBlock<'a> {
    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there is no file id.
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut cursor = ByteCursor::new("load data block", body);
        Ok(Self { file_id: cursor.u32()?, data: cursor.rest() })
    }
}

/// Parses the body, without its checksum, of a `DELETE_FILE_EVENT`. Returns the id of the loaded file whose
/// blocks the replica can delete.
///
/// # Errors
/// [`WireError::Truncated`] if there are fewer than 4 bytes.
pub fn parse_delete_file(body: &[u8]) -> Result<u32, WireError> {
    ByteCursor::new("delete file event", body).u32()
}

/// What `LOAD DATA` does with a row whose key already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadDuplicates {
    /// The statement fails.
    Error,
    /// The old row is kept.
    Ignore,
    /// The new row replaces the old one.
    Replace,
}

/// `EXECUTE_LOAD_QUERY_EVENT`: the `LOAD DATA` statement that loads the blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecuteLoadQuery<'a> {
    /// The statement and the session variables that it depends on.
    pub query: QueryEvent<'a>,
    /// The number of the file whose blocks the statement loads.
    pub file_id: u32,
    /// Offset in the statement at which the part with the file name starts, in bytes. The part includes
    /// `LOCAL` and the quotes. To execute the statement again, replace this part.
    pub file_name_start: u32,
    /// Offset in the statement at which the part with the file name ends, in bytes.
    pub file_name_end: u32,
    /// What the statement does with rows whose key already exists.
    pub duplicates: LoadDuplicates,
}

impl<'a> ExecuteLoadQuery<'a> {
    const FIXED_BYTES: usize = 26;
    const FILE_ID_OFFSET: usize = 13;

    /// Parses the event body, which must not include the checksum.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Malformed`] if the offsets of the file name are outside the
    /// statement.
    pub fn parse(body: &'a [u8], format: &FormatDescription) -> Result<Self, WireError> {
        const WHAT: &str = "execute load query event";
        format.post_header_length_of(EventType::EXECUTE_LOAD_QUERY, Self::FIXED_BYTES)?;
        // `QueryEvent::parse` skips the bytes of the fixed part that this method reads.
        let query = QueryEvent::parse(EventType::EXECUTE_LOAD_QUERY, body, format)?;
        let mut cursor = ByteCursor::new(WHAT, body);
        cursor.skip(Self::FILE_ID_OFFSET)?;
        let file_id = cursor.u32()?;
        let (file_name_start, file_name_end) = (cursor.u32()?, cursor.u32()?);
        let duplicates = match cursor.u8()? {
            0 => LoadDuplicates::Error,
            1 => LoadDuplicates::Ignore,
            2 => LoadDuplicates::Replace,
            other => {
                return Err(WireError::malformed(
                    WHAT,
                    format!("{other} is not a known way to handle duplicate keys"),
                ));
            }
        };
        if query.query.get(file_name_start as usize..file_name_end as usize).is_none() {
            let reason =
                format!("the file name at {file_name_start}..{file_name_end} is outside the statement");
            return Err(WireError::malformed(WHAT, reason));
        }
        Ok(Self { query, file_id, file_name_start, file_name_end, duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavour;
    use crate::binlog_event::ChecksumAlgorithm;

    #[test]
    fn load_data_blocks_and_statement_are_parsed() {
        let block = LoadBlock::parse(b"\x07\0\0\0a\tb\n").unwrap();
        assert_eq!(block, LoadBlock { file_id: 7, data: b"a\tb\n" });
        assert_eq!(parse_delete_file(b"\x07\0\0\0"), Ok(7));

        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let statement = b"LOAD DATA INFILE 'f' INTO TABLE t";
        let body = |start: u32, end: u32, duplicates: u8| {
            let mut body = b"\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\x07\0\0\0".to_vec();
            body.extend_from_slice(&start.to_le_bytes());
            body.extend_from_slice(&end.to_le_bytes());
            body.push(duplicates);
            body.extend_from_slice(b"d\0");
            body.extend_from_slice(statement);
            body
        };
        let bytes = body(10, 20, 2);
        let load = ExecuteLoadQuery::parse(&bytes, &format).unwrap();
        assert_eq!((load.query.query, load.query.database), (&statement[..], &b"d"[..]));
        assert_eq!((load.file_id, load.duplicates), (7, LoadDuplicates::Replace));
        assert_eq!(&load.query.query[10..20], b"INFILE 'f'");
        for (start, end, duplicates) in [(20, 10, 0), (10, 34, 0), (u32::MAX, u32::MAX, 0), (10, 20, 3)] {
            let bytes = body(start, end, duplicates);
            let result = ExecuteLoadQuery::parse(&bytes, &format);
            assert!(
                matches!(result, Err(WireError::Malformed { .. })),
                "invalid values must be refused (file name at {start}..{end}): {result:?}"
            );
        }
    }
}
