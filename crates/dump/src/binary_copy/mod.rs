//! Copies all data files of a server with the tools of its vendor. For large data this is faster than copying
//! rows. It only works between servers of the same release series.
//!
//! - [`clone_plugin`]: MySQL's clone plugin, from server to server over the network.
//! - [`mariadb_backup`]: `mariadb-backup`, into a folder on this machine.
//! - [`version_check`]: whether versions of servers and tools are compatible.

pub mod clone_plugin;
pub mod mariadb_backup;
mod version_check;

use tailwater_session::Connection;

use tailwater_tables::error::BulkError;
use tailwater_tables::snapshot::gtids_applied_without_binlog;

/// The position of the copied data in the history of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BinaryCopyPosition {
    /// The GTID set of the data; `None` if it is unknown or empty.
    pub gtid_set: Option<String>,
    /// The binlog file of the source; `None` if the source has no binlog.
    pub binlog_file: Option<String>,
    /// The position in the binlog file, in bytes.
    pub binlog_position: Option<u64>,
}

/// Refuses to copy a server to which a channel applies transactions without writing the server's binlog. The
/// GTIDs in the files of such a server lag its data, so a replica of the copy would start at a wrong
/// position.
///
/// # Errors
/// [`BulkError::BinaryUnsupported`]; [`BulkError::Session`].
async fn refuse_channel_target(source: &mut Connection) -> Result<(), BulkError> {
    let channels = gtids_applied_without_binlog::unlogged_channels(source).await?;
    if channels.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the channel {} of Tailwater applies to {} without writing its binlog, so the GTIDs in a copy would lag its data; copy \
         the channel's source, or dump with the channel paused (`dump --pause-channel`) and load the dump. If there is no such channel any \
         more, delete its row in tailwater.apply_unlogged",
        channels.join(", "),
        source.endpoint()
    );
    Err(BulkError::BinaryUnsupported { reason })
}
