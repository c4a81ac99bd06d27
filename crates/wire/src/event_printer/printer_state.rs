//! The state that a printer keeps between events.

use std::collections::HashMap;

use crate::binlog_event::{
    BinlogEvent, ChecksumAlgorithm, EventBody, EventHeader, EventType, FormatDescription, RowsEvent,
};
use crate::row_event::{BinlogColumn, TableMap};
use crate::{Flavour, WireError};

/// The maximum memory for the table maps of one statement, in bytes. A join of 61 tables with 4096 columns
/// each takes a quarter of this.
const TABLES_BYTES_MAX: usize = 128 << 20;

/// The state of a stream of events.
#[derive(Debug, Default)]
pub(super) struct PrintState {
    format: Option<Formats>,
    tables: HashMap<u64, PrintedTable>,
    /// The memory of `tables` in bytes, as estimated by [`PrintedTable::bytes`].
    tables_bytes: usize,
}

/// A table map of the current statement.
#[derive(Debug)]
struct PrintedTable {
    table: TableMap,
    /// The approximate memory of the table map in bytes. A column takes much more memory than its bytes in
    /// the event.
    bytes: usize,
}

impl PrintedTable {
    fn new(table: TableMap, body: &[u8]) -> Self {
        let bytes = size_of::<Self>() + body.len() + table.columns.len() * size_of::<BinlogColumn>();
        Self { table, bytes }
    }
}

#[derive(Debug)]
struct Formats {
    outside: FormatDescription,
    /// The format of the events inside a transaction payload, which have no checksum.
    inside: FormatDescription,
}

impl PrintState {
    /// Parses an event. `inside` is true for an event inside a transaction payload.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if no format description came before the event; otherwise the errors of
    /// [`BinlogEvent::parse`].
    pub(super) fn parse<'a>(&mut self, bytes: &'a [u8], inside: bool) -> Result<BinlogEvent<'a>, WireError> {
        let header = EventHeader::parse(bytes)?;
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            // For a format description event, the parser ignores the format that is passed here.
            let event = BinlogEvent::parse(
                bytes,
                &FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off),
            )?;
            if let EventBody::FormatDescription(format) = &event.body {
                let inside = FormatDescription { checksum: Some(ChecksumAlgorithm::Off), ..format.clone() };
                self.format = Some(Formats { outside: format.clone(), inside });
                self.end_statement();
            }
            return Ok(event);
        }
        let Some(formats) = &self.format else {
            return Err(WireError::malformed(
                "event stream",
                "no format description event precedes the event",
            ));
        };
        let event = BinlogEvent::parse(bytes, if inside { &formats.inside } else { &formats.outside })?;
        if matches!(event.body, EventBody::Gtid(_) | EventBody::MariadbGtid(_)) {
            // If the last row event of the previous statement could not be parsed, `tables` still contains
            // the table maps of that statement.
            self.tables.clear();
        }
        Ok(event)
    }

    /// Returns the flavour of the server that wrote the stream.
    pub(super) fn flavour(&self) -> Flavour {
        self.format.as_ref().map_or(Flavour::MySql, |formats| formats.outside.flavour())
    }

    /// Returns whether events outside of payloads end with a checksum.
    pub(super) fn has_checksums(&self) -> bool {
        self.format.as_ref().is_some_and(|formats| formats.outside.has_checksums())
    }

    /// Parses and stores a table map.
    pub(super) fn map_table(&mut self, body: &[u8]) -> Result<&TableMap, WireError> {
        let mapped = PrintedTable::new(TableMap::parse(body, self.flavour())?, body);
        let id = mapped.table.table_id;
        let replaced = self.tables.get(&id).map_or(0, |mapped| mapped.bytes);
        let bytes = self.tables_bytes - replaced + mapped.bytes;
        if bytes > TABLES_BYTES_MAX {
            return Err(WireError::TooLarge {
                what: "tables mapped by one statement",
                size: bytes as u64,
                size_max: TABLES_BYTES_MAX as u64,
            });
        }
        self.tables_bytes = bytes;
        self.tables.insert(id, mapped);
        Ok(&self.tables[&id].table)
    }

    /// Returns the table of a rows event, or `None` for a rows event that only ends its statement.
    pub(super) fn table_of(&self, event: &RowsEvent<'_>) -> Result<Option<&TableMap>, WireError> {
        match self.tables.get(&event.table_id) {
            Some(mapped) => Ok(Some(&mapped.table)),
            None if event.table_id == RowsEvent::TABLE_ID_DUMMY => Ok(None),
            None => Err(WireError::malformed(
                "rows event",
                format!("no table map precedes the rows of table id {}", event.table_id),
            )),
        }
    }

    /// Removes the table maps at the end of a statement.
    pub(super) fn end_statement(&mut self) {
        self.tables.clear();
        self.tables_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a table map with this many TINYINT columns.
    fn table_map(id: u32, columns: u16) -> Vec<u8> {
        let mut body = [&id.to_le_bytes()[..], &[0, 0, 1, 0], b"\x01s\0\x01t\0\xfc"].concat();
        body.extend_from_slice(&columns.to_le_bytes());
        body.resize(body.len() + usize::from(columns), 1);
        body.push(0);
        body.resize(body.len() + usize::from(columns).div_ceil(8), 0);
        body
    }

    #[test]
    fn memory_for_mapped_tables_is_bounded() {
        let mut stream = PrintState::default();
        let mut id = 0;
        let error = loop {
            match stream.map_table(&table_map(id, 4096)) {
                Ok(table) => assert_eq!(table.columns.len(), 4096),
                Err(error) => break error,
            }
            id += 1;
        };
        assert_eq!(error.code(), "TW-WIRE-0005", "unexpected error: {error}");
        assert!(id > 61, "only {id} tables with the maximum number of columns fit in the limit");
        assert!(
            stream.map_table(&table_map(0, 4096)).is_ok(),
            "a new table map with the same table id must replace the old one"
        );
        stream.end_statement();
        assert!(stream.tables.is_empty() && stream.map_table(&table_map(id, 4096)).is_ok());
    }
}
