//! Binlog events: the common 19-byte header, and the event bodies.
//!
//! [`BinlogEvent::parse`] parses a complete event into an [`EventBody`]. Each type of body also has a parser
//! of its own. [`crate::row_event`] parses table maps and row images. Bodies borrow from the bytes of the
//! event.

pub mod checksum;
pub mod compressed_event;
mod event_body;
mod event_builder;
pub mod event_header;
mod format_description;
mod incident_event;
mod intvar_rand_user_var_event;
mod load_data_event;
mod mariadb_checkpoint_encryption_partial_row_event;
mod mariadb_gtid_event;
mod mysql_gtid_event;
mod mysql_serialization;
mod query_event;
mod query_status_variables;
mod rotate_and_heartbeat_event;
mod rows_event;
#[cfg(test)]
mod tests;
pub mod transaction_payload_event;
mod xid_and_xa_prepare_event;

pub use checksum::{
    CHECKSUM_BYTES, ChecksumAlgorithm, ChecksumChecker, compute_checksum, strip_checksum, verify_checksum,
};
pub use event_body::{BinlogEvent, EventBody};
pub use event_builder::EventBuilder;
pub use event_header::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET};
pub use format_description::FormatDescription;
pub use incident_event::Incident;
pub use intvar_rand_user_var_event::{IntVar, RandSeeds, UserVar, UserVarValue};
pub use load_data_event::{ExecuteLoadQuery, LoadBlock, LoadDuplicates};
pub use mariadb_checkpoint_encryption_partial_row_event::{PartialRowData, StartEncryption};
pub use mariadb_gtid_event::MariadbGtidEvent;
pub use mysql_gtid_event::{GtidEvent, LogicalClock};
pub use query_event::QueryEvent;
pub use query_status_variables::{
    AutoIncrement, GtidFlags, Invoker, SessionCharset, StatusVars, UpdatedDatabases,
};
pub use rotate_and_heartbeat_event::{BINLOG_FILE_NAME_BYTES_MAX, Heartbeat, Rotate};
pub use rows_event::{RowsEvent, RowsKind};
pub(crate) use rows_event::{ends_statement as rows_end_statement, layout as rows_layout};
pub use transaction_payload_event::{
    PayloadCompression, PayloadDecoder, PayloadEvents, PayloadLimits, TransactionPayload,
};
pub use xid_and_xa_prepare_event::{XaPrepare, Xid};
