//! Binlog events: the 19-byte header that all share, and the bodies.

pub mod checksum;
pub mod compressed;
mod format_description;
mod gtid;
pub mod header;
mod mariadb_gtid;
mod query;
mod rotate;
mod rows_event;
mod serialization;
mod status_vars;
mod xa;

pub use checksum::{CHECKSUM_BYTES, ChecksumAlgorithm, ChecksumChecker, strip_checksum, verify_checksum};
pub use format_description::FormatDescription;
pub use gtid::{GtidEvent, LogicalClock};
pub use header::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader, EventType};
pub use mariadb_gtid::{GtidList, MariadbGtidEvent};
pub use query::QueryEvent;
pub use rotate::{BINLOG_FILE_NAME_BYTES_MAX, Heartbeat, Rotate};
pub use rows_event::{RowsEvent, RowsKind};
pub(crate) use rows_event::{ends_statement as rows_end_statement, layout as rows_layout};
pub use status_vars::{AutoIncrement, GtidFlags, Invoker, SessionCharset, StatusVars, UpdatedDatabases};
pub use xa::{XaPrepare, Xid, parse_xid_event};
