//! A log that lacks what the target has.

use std::time::Duration;

use tailwater_log::{LogHandle, LogPosition, blocking};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::watch;
use tracing::warn;

use super::applied_scan::AppliedScan;
use super::status::{ChannelFault, ChannelStatus};
use super::store::ChannelRecord;
use super::target_gtids;
use crate::error::ApplyError;
use crate::progress::AppliedSet;

/// So long is waited without a word.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits for the log to hold durably what the target has: its sync may still be to come, or a power cut has taken it, and it is captured
/// again. The log is read from no place beyond that. Whether that took so long that the target may be another by now; then it was said
/// why.
///
/// # Errors
/// [`ApplyError::TargetAhead`] if the log is closed; [`ApplyError::Log`].
pub(super) async fn wait_until_durable(
    channel: &str,
    log: &LogHandle,
    kept: &ChannelRecord,
    status: &watch::Sender<ChannelStatus>,
) -> Result<bool, ApplyError> {
    let Some(applied) = &kept.applied else { return Ok(false) };
    let high = applied.high();
    // A segment that has begun has done so durably, so what the log then lacks is no power cut's.
    if log.newest_segment().is_none_or(|newest| newest.number < high.segment) {
        return Ok(false);
    }
    if let Ok(is_durable) = tokio::time::timeout(QUIET_WAIT_MAX, log.wait_until_durable(high)).await {
        return if is_durable? { Ok(false) } else { Err(log_behind_error(channel, log, high)) };
    }
    let error = log_behind_error(channel, log, high);
    warn!(channel, code = error.code(), "{error}");
    let applied_gtids = blocking(|| applied_on_target(log, applied, kept));
    status.send_modify(|status| {
        status.fault = Some(ChannelFault::of(&error));
        // Who looks for a server that has the most is to know.
        if let Some(gtids) = applied_gtids {
            status.gtids = target_gtids::text(&gtids);
        }
    });
    if log.wait_until_durable(high).await? { Ok(true) } else { Err(error) }
}

fn log_behind_error(channel: &str, log: &LogHandle, high: LogPosition) -> ApplyError {
    let end = log.durable().position.to_string();
    ApplyError::TargetAhead { channel: channel.to_owned(), has: high.to_string(), end }
}

/// What the target is known to have: what of it is in the log, and the newest of all.
fn applied_on_target(log: &LogHandle, applied: &AppliedSet, kept: &ChannelRecord) -> Option<GtidSet> {
    let flavour = log.source()?.flavour;
    let origin = GtidSet::parse(flavour, &kept.origin_gtids).ok()?;
    let mut all = AppliedScan::of(log, applied, &origin).ok()?.applied;
    for newest in &kept.newest_gtids {
        all.insert(&Gtid::parse(flavour, newest).ok()?).ok()?;
    }
    Some(all)
}
