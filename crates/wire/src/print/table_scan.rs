//! Whether a transaction is about a table, before it is printed.

use super::stream::Stream;
use super::{TableFilter, UNPACKED_BYTES_MAX};
use crate::WireError;
use crate::event::{EventBody, PayloadLimits};
use crate::rows::TableMap;

/// Looks at the events of a transaction for those of certain tables.
#[derive(Debug, Default)]
pub struct TableScan {
    stream: Stream,
    filter: TableFilter,
    has_rows: bool,
    found: bool,
}

impl TableScan {
    /// A scan for the tables that `filter` shows.
    pub fn new(filter: TableFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Takes an event: a format description, or the next one of the transaction.
    ///
    /// # Errors
    /// [`WireError`] if it cannot be understood.
    pub fn event(&mut self, event: &[u8]) -> Result<(), WireError> {
        self.look(event, false)
    }

    /// Whether the transaction that the events were of changes one of the tables, or, as DDL does, names no table at
    /// all. Begins anew.
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
