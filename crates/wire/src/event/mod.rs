//! Binlog events: the common 19-byte header, and the event bodies.
//!
//! [`BinlogEvent::parse`] parses a complete event into an [`EventBody`]; each body also has its own parser.
//! [`crate::rows`] parses table maps and row images. Bodies borrow from the bytes of the event.

mod body;
mod builder;
pub mod checksum;
pub mod compressed;
mod format_description;
mod gtid;
pub mod header;
mod incident;
mod load;
mod mariadb_control;
mod mariadb_gtid;
pub mod payload;
mod query;
mod rotate;
mod rows_event;
mod serialization;
mod status_vars;
#[cfg(test)]
mod tests;
mod variables;
mod xa;

pub use body::{BinlogEvent, EventBody};
pub use builder::EventBuilder;
pub use checksum::{
    CHECKSUM_BYTES, ChecksumAlgorithm, ChecksumChecker, compute_checksum, strip_checksum, verify_checksum,
};
pub use format_description::FormatDescription;
pub use gtid::{GtidEvent, LogicalClock};
pub use header::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET};
pub use incident::Incident;
pub use load::{ExecuteLoadQuery, LoadBlock, LoadDuplicates};
pub use mariadb_control::{PartialRowData, StartEncryption};
pub use mariadb_gtid::MariadbGtidEvent;
pub use payload::{PayloadCompression, PayloadDecoder, PayloadEvents, PayloadLimits, TransactionPayload};
pub use query::QueryEvent;
pub use rotate::{BINLOG_FILE_NAME_BYTES_MAX, Heartbeat, Rotate};
pub use rows_event::{RowsEvent, RowsKind};
pub(crate) use rows_event::{ends_statement as rows_end_statement, layout as rows_layout};
pub use status_vars::{AutoIncrement, GtidFlags, Invoker, SessionCharset, StatusVars, UpdatedDatabases};
pub use variables::{IntVar, RandSeeds, UserVar, UserVarValue};
pub use xa::{XaPrepare, Xid};
