//! The point in time of a snapshot.

use serde::{Deserialize, Serialize};

/// A point in the history of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotPoint {
    /// The GTID set of the data, in the notation of the server's flavour; absent if the server has no GTIDs.
    pub gtid_set: Option<String>,
    /// The binlog file; absent if the server has no binlog.
    pub binlog_file: Option<String>,
    /// The position in the binlog file, in bytes.
    pub binlog_position: Option<u64>,
    /// When the snapshot was taken, in RFC 3339 format and UTC.
    pub taken_at: String,
}
