//! Decides after which errors the load of a file is tried again.

use std::time::Duration;

use tailwater_session::{Backoff, SessionError, SessionRetry};

use tailwater_tables::error::BulkError;

/// Maximum number of attempts to load a file if the target is unavailable or rows are locked.
pub(crate) const TRIES_MAX: u32 = 6;

/// Returns the pauses between two attempts.
pub(crate) fn backoff(seed: u64) -> Backoff {
    Backoff::new(Duration::from_millis(250), Duration::from_secs(8), seed)
}

/// Returns whether another attempt may succeed.
pub(crate) fn is_temporary(error: &BulkError) -> bool {
    let session = |error: &SessionError| error.retry() == SessionRetry::Later;
    match error {
        BulkError::Session(error) => session(error),
        BulkError::RowsRejected { error, .. } => session(error),
        // The next attempt loads the rows by another method.
        BulkError::RowExceedsPacket { .. } => true,
        _ => false,
    }
}
