//! Runs `PURGE BINARY LOGS`.

use std::time::{Duration, UNIX_EPOCH};

use tailwater_log::PurgeLimit;
use tracing::info;

use super::client_error::ClientError;
use super::client_statement::PurgeBefore;
use super::listener::ServerShared;
use super::stream_start::LogHistory;

/// `ER_LOG_IN_USE`, the servers' error for a file that a reader still needs.
const ER_LOG_IN_USE: u16 = 1378;

/// Purges the oldest files. Purges either all files that the statement requests, or none.
pub(super) fn purge(shared: &ServerShared, before: &PurgeBefore) -> Result<(), ClientError> {
    let limit = match before {
        PurgeBefore::Time(seconds) => PurgeLimit::Before(UNIX_EPOCH + Duration::from_secs(*seconds)),
        PurgeBefore::File(file) => {
            let log = shared.log_snapshot();
            let nothing = || ClientError::new(1373, "Target log not found in binlog index");
            PurgeLimit::To(log.ok_or_else(nothing)?.catalog().purge_to(file)?)
        }
    };
    let purged = tokio::task::block_in_place(|| shared.served.log.purge_by(limit));
    let purged =
        purged.map_err(|error| ClientError::new(ER_LOG_IN_USE, format!("{}: {error}", error.code())))?;
    info!(segments = purged.segments.len(), bytes = purged.bytes, "a client purged segments");
    match (purged.pinned_by, purged.not_archived) {
        (Some(reader), _) => Err(ClientError::new(
            ER_LOG_IN_USE,
            format!("A purgeable log is in use, will not purge: {reader} still needs it"),
        )),
        (None, Some(segment)) => Err(ClientError::new(
            ER_LOG_IN_USE,
            format!("A purgeable log is in use, will not purge: segment {segment} is not archived yet"),
        )),
        (None, None) => Ok(()),
    }
}
