//! `QUERY_EVENT`: a statement as text, with the session variables that it depends on.

use super::compressed_event;
use super::event_header::EventType;
use super::format_description::FormatDescription;
use super::query_status_variables::StatusVars;
use crate::WireError;
use crate::byte_cursor::ByteCursor;

const WHAT: &str = "query event";

/// Length of the fixed part, in bytes.
const FIXED_BYTES: usize = 13;

/// A `QUERY_EVENT` or MariaDB's `QUERY_COMPRESSED_EVENT`, without its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryEvent<'a> {
    /// The id of the connection that ran the statement. Temporary tables belong to a connection.
    pub thread_id: u32,
    /// How long the statement ran, in seconds.
    pub execution_seconds: u32,
    /// The error with which the statement failed on the source; 0 for none.
    pub error_code: u16,
    /// The status variables, not decoded: see [`QueryEvent::status_vars`].
    pub status_vars_bytes: &'a [u8],
    /// The default database, in UTF-8; empty for none.
    pub database: &'a [u8],
    /// The statement in the client's character set, compressed if the event is compressed.
    pub query: &'a [u8],
    /// Whether `query` is compressed: see [`QueryEvent::statement`].
    pub compressed: bool,
}

impl<'a> QueryEvent<'a> {
    /// Parses the event body, which must not include the checksum.
    ///
    /// Accepts a truncated body that ends within the statement. In this case `query` is incomplete.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the body ends before the statement; [`WireError::Malformed`] if no zero
    /// byte follows the database name.
    pub fn parse(
        event_type: EventType,
        body: &'a [u8],
        format: &FormatDescription,
    ) -> Result<Self, WireError> {
        let fixed = format.post_header_length_of(event_type, FIXED_BYTES)?;
        let mut cursor = ByteCursor::new(WHAT, body);
        let thread_id = cursor.u32()?;
        let execution_seconds = cursor.u32()?;
        let database_length = usize::from(cursor.u8()?);
        let error_code = cursor.u16()?;
        let status_vars_length = usize::from(cursor.u16()?);
        cursor.skip(fixed - FIXED_BYTES)?;
        let status_vars_bytes = cursor.bytes(status_vars_length)?;
        let database = cursor.bytes(database_length)?;
        if cursor.u8()? != 0 {
            return Err(WireError::malformed(WHAT, "no zero byte follows the database name"));
        }
        Ok(Self {
            thread_id,
            execution_seconds,
            error_code,
            status_vars_bytes,
            database,
            query: cursor.rest(),
            compressed: event_type == EventType::MARIADB_QUERY_COMPRESSED,
        })
    }

    /// Returns the session variables of the statement.
    ///
    /// # Errors
    /// As [`StatusVars::parse`].
    pub fn status_vars(&self) -> Result<StatusVars<'a>, WireError> {
        StatusVars::parse(self.status_vars_bytes)
    }

    /// Returns the text of the statement. Decompresses it if necessary.
    ///
    /// # Errors
    /// As [`compressed_event::decompress`]. [`WireError::TooLarge`] if the text is longer than `bytes_max`.
    pub fn statement(&self, bytes_max: usize) -> Result<std::borrow::Cow<'a, [u8]>, WireError> {
        if !self.compressed {
            return Ok(self.query.into());
        }
        let mut statement = Vec::new();
        compressed_event::decompress(self.query, bytes_max, &mut statement)?;
        Ok(statement.into())
    }

    /// Returns the body of a plain `QUERY_EVENT`, without a checksum.
    ///
    /// The database name is truncated to 255 bytes and the variables to 65,535 bytes, their maximum lengths.
    pub fn to_body(&self) -> Vec<u8> {
        let database = &self.database[..self.database.len().min(usize::from(u8::MAX))];
        let status_vars = &self.status_vars_bytes[..self.status_vars_bytes.len().min(usize::from(u16::MAX))];
        let mut body =
            Vec::with_capacity(FIXED_BYTES + status_vars.len() + database.len() + 1 + self.query.len());
        body.extend_from_slice(&self.thread_id.to_le_bytes());
        body.extend_from_slice(&self.execution_seconds.to_le_bytes());
        body.push(database.len() as u8);
        body.extend_from_slice(&self.error_code.to_le_bytes());
        body.extend_from_slice(&(status_vars.len() as u16).to_le_bytes());
        body.extend_from_slice(status_vars);
        body.extend_from_slice(database);
        body.push(0);
        body.extend_from_slice(self.query);
        body
    }
}
