//! Finds out, before a transaction is printed, whether it changes certain tables.

use super::printer_state::PrintState;
use super::{TableFilter, UNPACKED_BYTES_MAX};
use crate::WireError;
use crate::binlog_event::{EventBody, PayloadLimits};
use crate::row_event::TableMap;

/// Searches the events of a transaction for certain tables.
#[derive(Debug, Default)]
pub struct TableScan {
    stream: PrintState,
    filter: TableFilter,
    has_rows: bool,
    found: bool,
}

impl TableScan {
    /// Creates a scan for the tables of `filter`.
    pub fn new(filter: TableFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Processes an event: a format description, or the next event of the transaction.
    ///
    /// # Errors
    /// [`WireError`] if the event cannot be parsed.
    pub fn event(&mut self, event: &[u8]) -> Result<(), WireError> {
        self.look(event, false)
    }

    /// Returns whether the transaction changes one of the tables of the filter. Also returns true if the
    /// transaction has no table maps, as with DDL. Resets the scan.
    pub fn finish(&mut self) -> bool {
        let (has_rows, found) = (self.has_rows, self.found);
        (self.has_rows, self.found) = (false, false);
        found || !has_rows
    }

    fn look(&mut self, bytes: &[u8], inside: bool) -> Result<(), WireError> {
        let event = self.stream.parse(bytes, inside)?;
        match &event.body {
            EventBody::TableMap(body) => {
                let table = TableMap::parse(body, self.stream.flavour())?;
                self.has_rows = true;
                self.found |= self.filter.shows(&table.schema, &table.table);
            }
            EventBody::TransactionPayload(payload) if !inside => {
                let limits =
                    PayloadLimits { event_bytes_max: UNPACKED_BYTES_MAX as u64, ..PayloadLimits::default() };
                let mut events = payload.events(limits)?;
                while let Some(event) = events.next_event()? {
                    self.look(event, true)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
