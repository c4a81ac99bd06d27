//! Recognizes the prepare or commit of an XA transaction from a few of its events. This detector is used for
//! transactions that are too large for memory.

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{EventHeader, EventType};

use super::Decoder;
use super::streaming_decoder::{TransactionEnding, TransactionReader};
use crate::error::ApplyError;
use crate::source_transaction::TransactionContent;

/// How many events to read at the start: the GTID event and the statement that starts the transaction, or the
/// compressed payload. These events show whether the transaction is an XA transaction. Only the last event
/// shows whether the transaction is prepared, or committed in one phase.
const OPENING_EVENTS: u32 = 2;

/// Reads the events of one transaction.
#[derive(Debug)]
pub struct XaPartReader {
    reader: TransactionReader,
    passed: u32,
}

impl XaPartReader {
    /// Returns a reader for the transaction of `entry`.
    pub fn new(entry: &LogEntry) -> Self {
        Self { reader: TransactionReader::new(entry), passed: 0 }
    }

    /// Counts the next event and returns whether the reader needs its body.
    pub fn wants(&mut self, header: &EventHeader) -> bool {
        self.passed = self.passed.saturating_add(1);
        match header.event_type {
            EventType::XA_PREPARE => true,
            EventType::TABLE_MAP => false,
            event_type => self.passed <= OPENING_EVENTS && !event_type.is_rows(),
        }
    }

    /// Supplies an event.
    ///
    /// # Errors
    /// As [`Decoder::transaction`].
    pub fn event(&mut self, event: Bytes, decoder: &Decoder) -> Result<(), ApplyError> {
        self.reader.look_at(event, decoder)
    }

    /// Returns whether later events cannot change the result.
    pub fn is_over(&self) -> bool {
        self.passed >= OPENING_EVENTS && *self.reader.ending() == TransactionEnding::Commit
    }

    /// Returns which part of an XA transaction the events contain; `None` if they contain a normal
    /// transaction.
    ///
    /// # Errors
    /// [`ApplyError::Event`] if the events of an XA transaction do not show how it ends.
    pub fn finish(self) -> Result<Option<TransactionContent>, ApplyError> {
        Ok(match self.reader.ending().clone() {
            TransactionEnding::XaPrepare(xid) if xid.is_empty() => {
                let reason =
                    "the events of the XA transaction do not show whether it is prepared or committed";
                return Err(self.reader.error(WireError::malformed("XA transaction", reason)));
            }
            TransactionEnding::XaPrepare(xid) => Some(TransactionContent::XaPrepare { xid }),
            TransactionEnding::XaCommit(xid) => Some(TransactionContent::XaCommit { xid }),
            TransactionEnding::XaRollback(xid) => Some(TransactionContent::XaRollback { xid }),
            TransactionEnding::Commit => None,
        })
    }
}
