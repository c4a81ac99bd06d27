//! XA transactions that are prepared and neither committed nor rolled back.

use std::collections::HashMap;

use tailwater_log::LogEntry;
use tailwater_wire::binlog_event::FormatDescription;

use crate::log_position_range::LogSpan;

/// The prepared XA transactions, by XID.
pub(super) type PreparedXas = HashMap<Vec<u8>, PreparedXa>;

/// A prepared XA transaction that waits for its commit or rollback.
#[derive(Debug)]
pub(super) struct PreparedXa {
    pub(super) span: LogSpan,
    pub(super) source: RowSource,
}

/// Where the rows of a transaction are in the log.
#[derive(Debug)]
pub(super) struct RowSource {
    /// The log entry that contains the rows.
    pub(super) entry: LogEntry,
    /// The event format of the rows, if this format differs from the current format. The source may have
    /// changed the format after the XA PREPARE, for example with `binlog_checksum`.
    pub(super) format: Option<FormatDescription>,
}
