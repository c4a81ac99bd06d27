//! The values of one scrape.

use std::collections::BTreeSet;

use tailwater_apply::channel::{ChannelState, ChannelStatus};
use tailwater_capture::CaptureState;
use tailwater_capture::semi_sync_monitor::SemiSyncAlarm;
use tailwater_log::LogPosition;
use tailwater_manager::FailoverReadiness;
use tailwater_manager::analysis::FailureCode;

use crate::control::{DaemonState, SourceHandle};

/// The values of one scrape. Names and codes only: no GTID, no value of a row, no statement and no text of a server.
#[derive(Debug, Default)]
pub struct MetricsSnapshot {
    /// The clusters that this daemon manages.
    pub clusters: Vec<ClusterMetrics>,
    /// The sources that it captures.
    pub captures: Vec<CaptureMetrics>,
    /// The channels that it applies.
    pub channels: Vec<ChannelMetrics>,
}

/// A cluster, as its manager sees it.
#[derive(Debug)]
pub struct ClusterMetrics {
    /// The name of its source.
    pub cluster: String,
    /// Whether this manager may act.
    pub holds_lease: bool,
    /// Whether a failover would go through if the primary died now.
    pub readiness: FailoverReadiness,
    /// The findings, each with the name of its server. A set, since two samples of the same labels are no valid exposition.
    pub findings: BTreeSet<(FailureCode, String)>,
}

/// The capture of a source, and its log.
#[derive(Debug)]
pub struct CaptureMetrics {
    /// The source's name.
    pub source: String,
    /// One of [`CAPTURE_STATES`].
    pub state: &'static str,
    /// How long ago an event or a heartbeat last came from the source, in milliseconds; nothing if none ever did.
    pub heard_ago_ms: Option<u64>,
    /// Whether commits on the source wait for this log, as of the last check of the source; nothing without `semi_sync`.
    pub semi_sync_in_force: Option<bool>,
    /// The codes of what the last check of the source found wrong with semi-sync.
    pub semi_sync_alarms: BTreeSet<&'static str>,
    /// Transactions appended to the log since the daemon started.
    pub transactions_total: u64,
    /// Bytes of events appended to the log since the daemon started.
    pub event_bytes_total: u64,
    /// Semi-sync ACKs sent since the daemon started.
    pub acks_total: u64,
    /// Streams opened since the daemon started.
    pub connections_total: u64,
    /// The durable end of the log.
    pub durable: LogPosition,
}

/// A channel.
#[derive(Debug)]
pub struct ChannelMetrics {
    /// Its name.
    pub channel: String,
    /// The source whose log it applies.
    pub source: String,
    /// One of [`CHANNEL_STATES`].
    pub state: &'static str,
    /// How far its target is behind the log, in seconds; nothing while that is not known.
    pub lag_seconds: Option<f64>,
    /// The code of the error that it failed with or tries again after.
    pub fault: Option<String>,
    /// Transactions applied since the daemon started.
    pub transactions_total: u64,
    /// Rows applied since the daemon started.
    pub rows_total: u64,
    /// Transactions on the target that these were committed in.
    pub commits_total: u64,
}

/// All states of a capture.
pub const CAPTURE_STATES: [&str; 6] =
    ["connecting", "streaming", "waiting", "refused", "stopped_by_order", "stopped"];

/// All states of a channel.
pub const CHANNEL_STATES: [&str; 4] = ["connecting", "running", "stopped", "failed"];

impl MetricsSnapshot {
    /// Reads the state of `daemon_state`. `semi_sync` tells whether a source is configured with `semi_sync`.
    pub fn of(controlled: &DaemonState, semi_sync: impl Fn(&str) -> bool) -> Self {
        let clusters = controlled.manager.iter().flat_map(|manager| manager.clusters());
        let captures =
            controlled.sources.iter().map(|(name, source)| CaptureMetrics::of(name, source, semi_sync(name)));
        let channels = controlled.channels.iter().map(|(name, (channel, log))| {
            let source = controlled.sources.iter().find(|(_, source)| source.log.path() == log.path());
            let source = source.map_or("", |(source, _)| source);
            ChannelMetrics::of(name, source, &channel.status().borrow())
        });
        Self {
            clusters: clusters.map(|(_, cluster)| cluster.metrics()).collect(),
            captures: captures.collect(),
            channels: channels.collect(),
        }
    }
}

impl CaptureMetrics {
    fn of(name: &str, source: &SourceHandle, semi_sync: bool) -> Self {
        let status = source.status.snapshot();
        let is_streaming = status.state == CaptureState::Streaming;
        Self {
            source: name.to_owned(),
            state: capture_state(&status.state),
            heard_ago_ms: source.status.received_ago_ms(),
            semi_sync_in_force: semi_sync.then(|| is_streaming && is_semi_sync_on(&status.alarms)),
            semi_sync_alarms: status.alarms.iter().map(SemiSyncAlarm::code).collect(),
            transactions_total: status.transactions,
            event_bytes_total: status.event_bytes,
            acks_total: status.acks,
            connections_total: status.connections,
            durable: source.log.durable().position,
        }
    }
}

impl ChannelMetrics {
    fn of(name: &str, source: &str, status: &ChannelStatus) -> Self {
        Self {
            channel: name.to_owned(),
            source: source.to_owned(),
            state: channel_state(status.state),
            lag_seconds: status.lag_seconds,
            fault: status.fault.as_ref().map(|fault| fault.code.clone()),
            transactions_total: status.transactions_total,
            rows_total: status.rows_total,
            commits_total: status.commits_total,
        }
    }
}

/// Whether commits on the source wait at all. Other alarms are of how long and when they wait.
fn is_semi_sync_on(alarms: &[SemiSyncAlarm]) -> bool {
    !alarms.iter().any(|alarm| matches!(alarm, SemiSyncAlarm::Disabled | SemiSyncAlarm::FallenBack))
}

fn capture_state(state: &CaptureState) -> &'static str {
    match state {
        CaptureState::Connecting => "connecting",
        CaptureState::Streaming => "streaming",
        CaptureState::Waiting(_) => "waiting",
        CaptureState::Refused(_) => "refused",
        CaptureState::StoppedByOrder(_) => "stopped_by_order",
        CaptureState::Stopped => "stopped",
    }
}

fn channel_state(state: ChannelState) -> &'static str {
    match state {
        ChannelState::Connecting => "connecting",
        ChannelState::Running => "running",
        ChannelState::Stopped => "stopped",
        ChannelState::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tailwater_apply::channel::ChannelFault;
    use tailwater_capture::persisted_orders::StopOrder;

    use super::*;

    #[test]
    fn every_state_is_listed() {
        let stop = StopOrder { token: 7, since_ms: 0 };
        let captures = [
            CaptureState::Connecting,
            CaptureState::Streaming,
            CaptureState::Waiting(String::new()),
            CaptureState::Refused(String::new()),
            CaptureState::StoppedByOrder(stop),
            CaptureState::Stopped,
        ];
        assert_eq!(captures.each_ref().map(capture_state), CAPTURE_STATES);
        let channels =
            [ChannelState::Connecting, ChannelState::Running, ChannelState::Stopped, ChannelState::Failed];
        assert_eq!(channels.map(channel_state), CHANNEL_STATES);
    }

    #[test]
    fn semi_sync_is_in_force_unless_it_is_off_or_has_fallen_back() {
        assert!(is_semi_sync_on(&[]));
        let short = SemiSyncAlarm::TimeoutShort(Duration::from_secs(1));
        assert!(is_semi_sync_on(&[SemiSyncAlarm::WaitsAfterCommit, short.clone()]));
        assert!(!is_semi_sync_on(&[SemiSyncAlarm::Disabled]));
        assert!(!is_semi_sync_on(&[short, SemiSyncAlarm::FallenBack]));
    }

    #[test]
    fn only_the_code_of_a_fault_is_kept() {
        let fault = ChannelFault {
            code: "TW-APP-0002".to_owned(),
            message: "key 'secret'".to_owned(),
            has_detail: true,
            detail: Some("INSERT INTO t VALUES ('secret')".to_owned()),
        };
        let gtids = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9".to_owned();
        let status = ChannelStatus {
            state: ChannelState::Failed,
            fault: Some(fault),
            gtids,
            ..ChannelStatus::default()
        };
        let metrics = format!("{:?}", ChannelMetrics::of("reports", "orders", &status));
        assert!(metrics.contains("TW-APP-0002"), "{metrics}");
        assert!(!metrics.contains("secret") && !metrics.contains("3e11fa47"), "{metrics}");
    }
}
