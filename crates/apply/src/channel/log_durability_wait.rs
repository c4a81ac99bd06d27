//! Waits until the log durably contains all transactions that the target has applied.

use std::time::Duration;

use tailwater_log::{LogHandle, LogPosition, blocking};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;
use tracing::warn;

use super::applied_gtids_from_log::AppliedScan;
use super::channel_status::{ChannelFault, ChannelStatus};
use super::progress_store::ChannelRecord;
use super::target_gtid_queries;
use crate::applied_transactions::AppliedSet;
use crate::error::ApplyError;

/// How long to wait for the log before logging a warning.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits until the log durably contains the transactions that the target has applied. The wait is needed if
/// the log's sync is pending, or if a power failure has removed the log's end and the relay captures it
/// again. The channel never reads the log beyond its durable end. Returns true if the wait was so long that a
/// warning was logged; the target may have changed meanwhile.
///
/// # Errors
/// [`ApplyError::TargetAhead`] if the log is closed; [`ApplyError::Log`].
pub(super) async fn wait_until_durable(
    channel: &str,
    log: &LogHandle,
    record: &ChannelRecord,
    status: &watch::Sender<ChannelStatus>,
) -> Result<bool, ApplyError> {
    let Some(applied) = &record.applied else { return Ok(false) };
    let high = applied.high();
    // The start of a new segment is always durable. A missing segment is therefore not the effect of a power
    // failure.
    if log.newest_segment().is_none_or(|newest| newest.number < high.segment) {
        return Ok(false);
    }
    if let Ok(is_durable) = tokio::time::timeout(QUIET_WAIT_MAX, log.wait_until_durable(high)).await {
        return if is_durable? { Ok(false) } else { Err(log_behind_error(channel, log, high)) };
    }
    let error = log_behind_error(channel, log, high);
    warn!(channel, code = error.code(), "{error}");
    let applied_gtids = blocking(|| applied_on_target(log, applied, record));
    status.send_modify(|status| {
        status.fault = Some(ChannelFault::of(&error));
        // Show the target's GTIDs in the status: during a failover, a client that searches for the most
        // advanced server needs them.
        if let Some(gtids) = applied_gtids {
            status.gtids = target_gtid_queries::text(&gtids);
        }
    });
    if log.wait_until_durable(high).await? { Ok(true) } else { Err(error) }
}

fn log_behind_error(channel: &str, log: &LogHandle, high: LogPosition) -> ApplyError {
    let end = log.durable().position.to_string();
    ApplyError::TargetAhead { channel: channel.to_owned(), has: high.to_string(), end }
}

/// Returns the GTIDs that the target is known to have: the GTIDs of the applied part of the log, and of the
/// newest transactions in the channel's progress.
fn applied_on_target(log: &LogHandle, applied: &AppliedSet, record: &ChannelRecord) -> Option<GtidSet> {
    let flavour = log.source()?.flavour;
    let origin = GtidSet::parse(flavour, &record.origin_gtids).ok()?;
    let mut all = AppliedScan::run(log, applied, &origin).ok()?.applied;
    for newest in &record.newest_gtids {
        all.insert(&Gtid::parse(flavour, newest).ok()?).ok()?;
    }
    Some(all)
}
