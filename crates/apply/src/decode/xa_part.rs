//! Whether a transaction is part of an XA transaction, told from the few events that say so: for those that are too large to
//! be held until their end.

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_wire::WireError;
use tailwater_wire::event::{EventHeader, EventType};

use super::Decoder;
use super::reader::{TransactionEnding, TransactionReader, is_rows};
use crate::error::ApplyError;
use crate::transaction::TransactionContent;

/// The GTID, and the statement that begins the transaction, or all of it compressed: by then it is known whether it is an XA
/// transaction. Whether that is prepared or committed at once, its last event says.
const OPENING_EVENTS: u32 = 2;

/// Looks at the events of one transaction.
#[derive(Debug)]
pub struct XaPartReader {
    reader: TransactionReader,
    passed: u32,
}

impl XaPartReader {
    /// For the transaction that is `entry`.
    pub fn new(entry: &LogEntry) -> Self {
        Self { reader: TransactionReader::new(entry), passed: 0 }
    }

    /// Passes the next event; whether it must be given.
    pub fn wants(&mut self, header: &EventHeader) -> bool {
        self.passed = self.passed.saturating_add(1);
        match header.event_type {
            EventType::XA_PREPARE => true,
            EventType::TABLE_MAP => false,
            event_type => self.passed <= OPENING_EVENTS && !is_rows(event_type),
        }
    }

    /// Takes an event.
    ///
    /// # Errors
    /// As [`Decoder::transaction`].
    pub fn event(&mut self, event: Bytes, decoder: &Decoder) -> Result<(), ApplyError> {
        self.reader.look_at(event, decoder)
    }

    /// Whether what comes says nothing more.
    pub fn is_over(&self) -> bool {
        self.passed >= OPENING_EVENTS && *self.reader.ending() == TransactionEnding::Commit
    }

    /// What it is, if it is a part of an XA transaction; `None` if it commits by itself.
    ///
    /// # Errors
    /// [`ApplyError::Event`] if an XA transaction does not say how it ends.
    pub fn finish(self) -> Result<Option<TransactionContent>, ApplyError> {
        Ok(match self.reader.ending().clone() {
            TransactionEnding::XaPrepare(xid) if xid.is_empty() => {
                let reason = "it does not say whether it is prepared or committed";
                return Err(self.reader.error(WireError::malformed("XA transaction", reason)));
            }
            TransactionEnding::XaPrepare(xid) => Some(TransactionContent::XaPrepare { xid }),
            TransactionEnding::XaCommit(xid) => Some(TransactionContent::XaCommit { xid }),
            TransactionEnding::XaRollback(xid) => Some(TransactionContent::XaRollback { xid }),
            TransactionEnding::Commit => None,
        })
    }
}
