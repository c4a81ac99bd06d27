//! Prints binlog events: as text like `mysqlbinlog -vv`, as JSON with one object per line, and as SQL that a
//! standard client replays.
//!
//! All printers take complete events in the order of the file. They keep the format description and the table
//! maps of the current statement, because later events need them. They decompress compressed transactions and
//! events. They write row by row. So the largest event bounds the memory, and not the length of its text.

pub mod charset;
mod event_text;
mod float_format;
mod json_column_value;
pub mod json_lines_output;
mod json_writer;
pub mod mysqlbinlog_output;
mod printer_state;
mod row_text;
pub mod sql_literal;
pub mod sql_output;
mod sql_session_settings;
mod table_filter;

pub use table_filter::TableScan;

use std::{fmt, io};

use crate::WireError;
use crate::display_escape::printable;

/// Returns the character set of a collation, or `None` for an unknown number.
pub fn charset_name(collation: u32) -> Option<&'static str> {
    charset::character_set(collation)
}

/// Decodes bytes in a collation's character set. Returns `None` if the bytes are binary or invalid, or if
/// this crate does not support the character set.
pub fn text_in(bytes: &[u8], collation: u32) -> Option<String> {
    charset::to_text(bytes, Some(collation))
}

/// The position of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLocation<'a> {
    /// The file name to print.
    pub file: &'a str,
    /// Offset of the event's first byte in the file.
    pub offset: u64,
}

/// An event for which [`EventPrinter::event`] failed.
#[derive(Debug, Clone, Copy)]
pub struct SkippedEvent<'a> {
    /// The position of the event.
    pub place: EventLocation<'a>,
    /// The bytes of the event: header, body and checksum.
    pub event: &'a [u8],
    /// Why the event was not printed.
    pub error: &'a PrintError,
}

impl fmt::Display for SkippedEvent<'_> {
    /// Prints one line that names the skipped event and the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind =
            crate::binlog_event::EventHeader::parse(self.event).map(|header| header.event_type.to_string());
        let kind = kind.unwrap_or_else(|_| "malformed".to_owned());
        let (EventLocation { file, offset }, error) = (self.place, self.error);
        let text = format!("{kind} event at {file}:{offset} is left out: {error} ({})", error.code());
        f.write_str(&printable(&text))
    }
}

/// A printer of events.
pub trait EventPrinter {
    /// Prints one event. `event` holds its header, body and checksum.
    ///
    /// # Errors
    /// [`PrintError::Event`] if the event cannot be parsed. The printer may have printed a part of the event.
    /// It can continue with the next event.
    fn event(
        &mut self,
        place: EventLocation<'_>,
        event: &[u8],
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError>;

    /// Prints that an event was left out, and keeps the rest of the output valid. The SQL printer rolls back
    /// the whole transaction of the event.
    ///
    /// # Errors
    /// [`PrintError::Output`].
    fn print_skipped(
        &mut self,
        left_out: &SkippedEvent<'_>,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError>;

    /// Prints the end of the output.
    ///
    /// # Errors
    /// [`PrintError::Output`].
    fn end(&mut self, _out: &mut dyn io::Write) -> Result<(), PrintError> {
        Ok(())
    }
}

/// Selects the tables whose rows are printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// The selected schemas and tables. If the table is `None`, all tables of the schema are selected. An
    /// empty list selects every table.
    pub tables: Vec<(String, Option<String>)>,
}

impl TableFilter {
    /// Returns whether the filter excludes at least one table.
    pub fn is_active(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Returns whether the rows of the table are printed.
    pub fn shows(&self, schema: &str, table: &str) -> bool {
        self.tables.is_empty()
            || self.tables.iter().any(|(in_schema, wanted)| {
                in_schema == schema && wanted.as_deref().is_none_or(|wanted| wanted == table)
            })
    }
}

/// Why an event was not printed completely.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The event cannot be parsed.
    #[error(transparent)]
    Event(#[from] WireError),
    /// The output cannot be written.
    #[error("cannot write the printed events")]
    Output(#[from] io::Error),
    /// The event has no exact form in SQL. The printer does not print approximate SQL.
    #[error("{what} cannot be written exactly as SQL: {reason}")]
    NotExact {
        /// The event or value that has no exact form.
        what: String,
        /// The cause and the remedy.
        reason: String,
    },
}

impl PrintError {
    /// Returns the stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Event(error) => error.code(),
            Self::Output(_) => "TW-WIRE-0006",
            Self::NotExact { .. } => "TW-WIRE-0007",
        }
    }
}

/// The maximum length of data that a printer decompresses, in bytes.
const UNPACKED_BYTES_MAX: usize = 1 << 30;
