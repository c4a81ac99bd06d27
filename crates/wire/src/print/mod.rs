//! Events for people and for programs: text in the manner of `mysqlbinlog -vv`, JSON, one object per line, and SQL that
//! a stock client replays.
//!
//! All printers take whole events in the order of a file and keep what later ones need: the format description and
//! the table maps of the statement. Compressed transactions and events are shown unpacked. Output is written row by
//! row, so that memory is bounded by the largest event, whatever its text takes.

pub mod charset;
mod event_text;
mod float;
pub mod json;
mod json_value;
mod json_writer;
mod row_text;
pub mod sql;
mod sql_session;
pub mod sql_value;
mod stream;
mod table_scan;
pub mod text;

pub use table_scan::TableScan;

use std::{fmt, io};

use crate::WireError;
use crate::printable::printable;

/// The name of a collation's character set; `None` for a number that no server is known to use.
pub fn charset_name(collation: u32) -> Option<&'static str> {
    charset::character_set(collation)
}

/// The text of bytes in a collation's character set; `None` if they are binary, not valid, or of a set that is not converted here.
pub fn text_in(bytes: &[u8], collation: u32) -> Option<String> {
    charset::to_text(bytes, Some(collation))
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLocation<'a> {
    /// The file's name, as it is to be shown.
    pub file: &'a str,
    /// Offset of the event's first byte in it.
    pub offset: u64,
}

/// An event for which [`EventPrinter::event`] has ended with an error.
#[derive(Debug, Clone, Copy)]
pub struct SkippedEvent<'a> {
    /// Where it is.
    pub place: EventLocation<'a>,
    /// The event: header, body, checksum and all.
    pub event: &'a [u8],
    /// Why it cannot be printed.
    pub error: &'a PrintError,
}

impl fmt::Display for SkippedEvent<'_> {
    /// One line for people: which event is left out, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = crate::event::EventHeader::parse(self.event).map(|header| header.event_type.to_string());
        let kind = kind.unwrap_or_else(|_| "malformed".to_owned());
        let (EventLocation { file, offset }, error) = (self.place, self.error);
        let text = format!("{kind} event at {file}:{offset} is left out: {error} ({})", error.code());
        f.write_str(&printable(&text))
    }
}

/// A printer of events.
pub trait EventPrinter {
    /// Prints one event: header, body, checksum and all.
    ///
    /// # Errors
    /// [`PrintError::Event`] if the event cannot be understood; what was written of it then stands. The printer can
    /// go on with the next event.
    fn event(
        &mut self,
        place: EventLocation<'_>,
        event: &[u8],
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError>;

    /// Prints that an event is left out, and whatever keeps what surrounds it valid: of SQL, nothing of its transaction is executed.
    ///
    /// # Errors
    /// [`PrintError::Output`].
    fn print_skipped(
        &mut self,
        left_out: &SkippedEvent<'_>,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError>;

    /// Prints what is to stand behind the last event.
    ///
    /// # Errors
    /// [`PrintError::Output`].
    fn end(&mut self, _out: &mut dyn io::Write) -> Result<(), PrintError> {
        Ok(())
    }
}

/// Which tables' rows are printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableFilter {
    /// Schema and table; a table of `None` stands for all of the schema. Empty: every table.
    pub tables: Vec<(String, Option<String>)>,
}

impl TableFilter {
    /// Whether some tables are left out.
    pub fn is_active(&self) -> bool {
        !self.tables.is_empty()
    }

    /// Whether rows of the table are printed.
    pub fn shows(&self, schema: &str, table: &str) -> bool {
        self.tables.is_empty()
            || self.tables.iter().any(|(in_schema, wanted)| {
                in_schema == schema && wanted.as_deref().is_none_or(|wanted| wanted == table)
            })
    }
}

/// Why an event was not printed, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum PrintError {
    /// The event cannot be understood.
    #[error(transparent)]
    Event(#[from] WireError),
    /// The output cannot be written.
    #[error("cannot write the printed events")]
    Output(#[from] io::Error),
    /// What was asked for as SQL cannot be said exactly, and is not said roughly.
    #[error("{what} cannot be written exactly as SQL: {reason}")]
    NotExact {
        /// What it is.
        what: String,
        /// Why not, and what would help.
        reason: String,
    },
}

impl PrintError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Event(error) => error.code(),
            Self::Output(_) => "TW-WIRE-0006",
            Self::NotExact { .. } => "TW-WIRE-0007",
        }
    }
}

/// Bounds on what a printer unpacks.
const UNPACKED_BYTES_MAX: usize = 1 << 30;
