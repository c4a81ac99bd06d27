//! Prepared XA transactions.

use std::collections::HashMap;

use tailwater_log::LogEntry;
use tailwater_wire::event::FormatDescription;

use crate::log_span::LogSpan;

/// XA transactions that are prepared and not completed yet, by XID.
pub(super) type PreparedXas = HashMap<Vec<u8>, PreparedXa>;

/// A prepared XA transaction.
#[derive(Debug)]
pub(super) struct PreparedXa {
    pub(super) span: LogSpan,
    pub(super) source: RowSource,
}

/// Where the rows of a transaction are.
#[derive(Debug)]
pub(super) struct RowSource {
    /// Their log entry.
    pub(super) entry: LogEntry,
    /// The event format of the rows, if it is not the current one: the source may have changed it after the
    /// prepare, as with `binlog_checksum`.
    pub(super) format: Option<FormatDescription>,
}
