//! Copies a whole server as its files lie on disk, by the server's own means: faster than rows for large data, and
//! possible only between servers of one release series.
//!
//! - [`clone_plugin`]: MySQL's clone plugin, from server to server over the network.
//! - [`mariadb_backup`]: `mariadb-backup`, into a folder of this machine.
//! - [`version_check`]: what either of them needs, told from what servers and tools say of themselves.

pub mod clone_plugin;
pub mod mariadb_backup;
mod version_check;

use tailwater_session::Connection;

use crate::error::BulkError;
use crate::snapshot::channel_target;

/// Where the copied data stands in the source's history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BinaryCopyPosition {
    /// The GTID set; `None` if it is unknown or empty.
    pub gtid_set: Option<String>,
    /// The binlog file; `None` if the source has no binlog.
    pub binlog_file: Option<String>,
    /// The position in it.
    pub binlog_position: Option<u64>,
}

/// Refuses a server that a channel feeds past its binlog: the GTIDs that would come with its files are behind its data.
///
/// # Errors
/// [`BulkError::BinaryUnsupported`]; [`BulkError::Session`].
async fn not_fed(source: &mut Connection) -> Result<(), BulkError> {
    let channels = channel_target::unlogged_channels(source).await?;
    if channels.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "the channel {} of Tailwater feeds {} past its binlog, and the GTIDs that a copy would name are behind its data; copy \
         the channel's source, or dump with the channel paused (`dump --pause-channel`) and load that. If there is no such channel any \
         more, delete its row in tailwater.apply_unlogged",
        channels.join(", "),
        source.endpoint()
    );
    Err(BulkError::BinaryUnsupported { reason })
}
