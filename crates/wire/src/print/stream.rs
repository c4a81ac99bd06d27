//! What a printer remembers from event to event.

use std::collections::HashMap;

use crate::event::{
    ChecksumAlgorithm, Event, EventBody, EventHeader, EventType, FormatDescription, RowsEvent,
};
use crate::rows::TableMap;
use crate::{Flavour, WireError};

/// The most tables that one statement can have mapped at once; far beyond the 61 of a join.
const TABLES_MAX: usize = 65_536;

/// The state of a stream of events.
#[derive(Debug, Default)]
pub(super) struct Stream {
    format: Option<Formats>,
    tables: HashMap<u64, TableMap>,
}

#[derive(Debug)]
struct Formats {
    outside: FormatDescription,
    /// Of events inside a transaction payload, which carry no checksum.
    inside: FormatDescription,
}

impl Stream {
    /// Parses an event; `inside` says that it stands in a transaction payload.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if no format description came first; else as [`Event::parse`].
    pub(super) fn parse<'a>(&mut self, bytes: &'a [u8], inside: bool) -> Result<Event<'a>, WireError> {
        let header = EventHeader::parse(bytes)?;
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            // The format it is parsed by does not matter.
            let event =
                Event::parse(bytes, &FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off))?;
            if let EventBody::FormatDescription(format) = &event.body {
                let inside = FormatDescription { checksum: Some(ChecksumAlgorithm::Off), ..format.clone() };
                self.format = Some(Formats { outside: format.clone(), inside });
                self.tables.clear();
            }
            return Ok(event);
        }
        let Some(formats) = &self.format else {
            return Err(WireError::malformed("event stream", "no format description event stands first"));
        };
        let event = Event::parse(bytes, if inside { &formats.inside } else { &formats.outside })?;
        if matches!(event.body, EventBody::Gtid(_) | EventBody::MariadbGtid(_)) {
            // A statement whose last row event could not be read leaves its table maps behind.
            self.tables.clear();
        }
        Ok(event)
    }

    /// The flavour of what wrote the stream.
    pub(super) fn flavour(&self) -> Flavour {
        self.format.as_ref().map_or(Flavour::MySql, |formats| formats.outside.flavour())
    }

    /// Whether events outside of payloads end with a checksum.
    pub(super) fn has_checksums(&self) -> bool {
        self.format.as_ref().is_some_and(|formats| formats.outside.has_checksums())
    }

    /// Parses a table map and keeps it.
    pub(super) fn map_table(&mut self, body: &[u8]) -> Result<&TableMap, WireError> {
        let table = TableMap::parse(body, self.flavour())?;
        if self.tables.len() >= TABLES_MAX {
            return Err(WireError::TooLarge {
                what: "number of tables mapped by one statement",
                size: self.tables.len() as u64 + 1,
                size_max: TABLES_MAX as u64,
            });
        }
        let id = table.table_id;
        self.tables.insert(id, table);
        Ok(&self.tables[&id])
    }

    /// The table that a rows event names; `None` for the event that only ends its statement.
    pub(super) fn table_of(&self, event: &RowsEvent<'_>) -> Result<Option<&TableMap>, WireError> {
        match self.tables.get(&event.table_id) {
            Some(table) => Ok(Some(table)),
            None if event.table_id == RowsEvent::TABLE_ID_DUMMY => Ok(None),
            None => Err(WireError::malformed(
                "rows event",
                format!("no table map for table id {}", event.table_id),
            )),
        }
    }

    /// Forgets the table maps when a statement ends.
    pub(super) fn end_statement(&mut self) {
        self.tables.clear();
    }
}
