//! Copies a whole server as its files lie on disk, by the server's own means: faster than rows for large data, and
//! possible only between servers of one release series.
//!
//! - [`cloning`]: MySQL's clone plugin, from server to server over the network.
//! - [`backup`]: `mariadb-backup`, into a folder of this machine.
//! - [`fit`]: what either of them needs, told from what servers and tools say of themselves.

pub mod backup;
pub mod cloning;
mod fit;

/// Where the copied data stands in the source's history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BinaryPoint {
    /// The GTID set; `None` if it is unknown or empty.
    pub gtid_set: Option<String>,
    /// The binlog file; `None` if the source has no binlog.
    pub binlog_file: Option<String>,
    /// The position in it.
    pub binlog_position: Option<u64>,
}
