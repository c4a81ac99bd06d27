//! The captures, channels and the manager of this process, and their snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tailwater_apply::channel::{Channel, ChannelStatus};
use tailwater_binlog_server::StreamReaders;
use tailwater_binlog_stats::LocalTime;
use tailwater_capture::persisted_manager_orders::PersistedOrders;
use tailwater_capture::semi_sync_monitor::SemiSyncAlarm;
use tailwater_capture::{CaptureAcker, CaptureState, CaptureStatus, StatusSnapshot};
use tailwater_log::{LogFigures, LogHandle, LogPosition, SYNC_SECONDS_BOUNDS};
use tailwater_topology::RelayReader;
use tailwater_wire::Flavour;
use tracing::warn;

use crate::api::captures::{
    CaptureAlarm, CaptureLogSnapshot, CaptureSnapshot, FollowedServer, LogReaderSnapshot, SemiSyncAckers,
    SourceReport,
};
use crate::api::channels::ChannelSnapshot;
use crate::api::clusters::ManagerSnapshot;
use crate::api::prefetches::PrefetchSnapshot;
use crate::chart_history::ChartHistory;
use crate::jobs::job_service::JobService;
use crate::manager::client_requests::Manager;
use crate::monitoring::Monitor;
use crate::replica_prefetch::RunningPrefetch;
use crate::segment_archiver::ArchiveStatus;
use crate::unwritable_files::FileFaults;

/// How long a daemon that stops waits for a channel to commit its running transactions.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The captures, channels and the manager of this process.
#[derive(Debug, Default)]
pub struct DaemonState {
    /// The channels by name, each with the log that it reads.
    pub channels: BTreeMap<String, (Arc<Channel>, LogHandle)>,
    /// The sources by name.
    pub sources: BTreeMap<String, SourceHandle>,
    /// Prefetches: those of replicas, then those of channels.
    pub prefetches: Vec<RunningPrefetch>,
    /// The manager, if one is configured.
    pub manager: Option<Manager>,
    /// Reads the log's disk, backups, and checks for drift.
    pub(crate) monitor: Monitor,
    /// The figures of the last hour and day; absent in tests.
    pub history: Option<Arc<ChartHistory>>,
    /// The files of the daemon that cannot be written at present.
    pub file_faults: FileFaults,
    /// The jobs of this process and of command lines.
    pub(crate) jobs: JobService,
}

/// A captured source.
#[derive(Debug)]
pub struct SourceHandle {
    /// Takes orders to the source's capture.
    pub acker: CaptureAcker,
    /// The source's log.
    pub log: LogHandle,
    /// The status of the source's capture.
    pub status: Arc<CaptureStatus>,
    /// The replicas that read the log, one entry for each listener.
    pub readers: Vec<StreamReaders>,
    /// The `server_id` of the source's capture.
    pub server_id: u32,
    /// Whether the source's capture acknowledges commits.
    pub semi_sync: bool,
    /// The name of the source's own server.
    pub own: String,
    /// What the archiver does with the log; absent without an archive.
    pub archive: Option<ArchiveStatus>,
}

impl DaemonState {
    /// Returns the state of all captures.
    pub fn captures(&self) -> Vec<CaptureSnapshot> {
        self.sources.iter().map(|(name, source)| source.snapshot(name)).collect()
    }

    /// Returns the state of all channels.
    pub fn channels(&self) -> Vec<ChannelSnapshot> {
        let snapshot = |(channel, log): &(Arc<Channel>, LogHandle)| {
            let source = self.sources.iter().find(|(_, source)| source.log.path() == log.path());
            let capture_problem = source.and_then(|(_, source)| source.problem());
            ChannelSnapshot {
                source: source.map(|(name, _)| name.clone()).unwrap_or_default(),
                status: ChannelStatus { capture_problem, ..channel.status().borrow().clone() },
            }
        };
        self.channels.values().map(snapshot).collect()
    }

    /// Returns the prefetches with their figures.
    pub fn prefetches(&self) -> Vec<PrefetchSnapshot> {
        self.prefetches.iter().map(RunningPrefetch::snapshot).collect()
    }

    /// Returns the manager's view of a source's cluster; `None` if this daemon does not manage the cluster.
    pub fn manager_snapshot(&self, source: &str) -> Option<ManagerSnapshot> {
        let cluster = self.manager.as_ref()?.cluster(source).ok()?;
        Some(ManagerSnapshot { holds_lease: cluster.holds_lease(), report: cluster.report() })
    }

    /// Stops the manager, and lets every channel commit its running transactions, for a limited time.
    /// Transactions that a channel does not commit in time are applied at the next start. Must be called
    /// while the logs are open.
    pub async fn stop(&self) {
        if let Some(manager) = &self.manager {
            manager.stop().await;
        }
        let pauses = self.channels.values().map(|(channel, _)| async {
            if tokio::time::timeout(PAUSE_MAX, channel.pause()).await.is_err() {
                warn!(
                    channel = channel.name(),
                    "the channel did not stop within {} s; the running transactions are applied at the next start",
                    PAUSE_MAX.as_secs()
                );
            }
        });
        futures_util::future::join_all(pauses).await;
    }
}

impl SourceHandle {
    /// Returns why the log receives nothing from the source; `None` if the log receives the source's stream.
    fn problem(&self) -> Option<String> {
        let state = self.status.snapshot().state;
        (state != CaptureState::Streaming).then(|| describe(&state))
    }

    /// Returns the server that the log follows, and whether it counts as the primary.
    fn followed(&self, state: &CaptureState, orders: PersistedOrders) -> FollowedServer {
        let withheld = match state {
            _ if orders.stopped.is_some() => Some("the log is stopped by order of the manager".to_owned()),
            CaptureState::StoppedByOrder(_) => Some("the log is stopped by order of the manager".to_owned()),
            // The capture refuses the server, for example because the server and the log have different
            // histories. New commits on the server are then not in the log.
            CaptureState::Refused(reason) => Some(format!("the log no longer follows the server: {reason}")),
            CaptureState::Stopped => Some("the daemon is stopping".to_owned()),
            CaptureState::Connecting | CaptureState::Streaming | CaptureState::Waiting(_) => None,
        };
        FollowedServer { server: orders.follows.unwrap_or_else(|| self.own.clone()), withheld }
    }

    fn snapshot(&self, name: &str) -> CaptureSnapshot {
        // The status is read once, so that the parts of the snapshot do not contradict each other.
        let (status, orders) = (self.status.snapshot(), self.status.orders());
        let is_streaming = status.state == CaptureState::Streaming;
        let durable = self.log.durable().position;
        let alarm = |alarm: &SemiSyncAlarm| CaptureAlarm { code: alarm.code(), text: alarm.to_string() };
        CaptureSnapshot {
            report: self.report(name, &status, &orders, durable),
            state: state_name(&status.state),
            followed: self.followed(&status.state, orders),
            server_id: self.server_id,
            semi_sync: self.semi_sync,
            semi_sync_in_force: self.semi_sync.then(|| is_streaming && is_semi_sync_on(&status.alarms)),
            alarms: status.alarms.iter().map(alarm).collect(),
            fault_code: status.fault_code,
            ackers: status.semi_sync.as_ref().map(|source| SemiSyncAckers {
                connected: source.clients,
                needed: source.acks_needed,
                waiting_commits: source.waiting_sessions,
            }),
            commits_without_ack_total: status.commits_without_ack,
            log: log_snapshot(self.log.figures(), self.archive.as_ref()),
            heartbeat_ms: self.status.heartbeat_ms(),
            transactions_total: status.transactions,
            event_bytes_total: status.event_bytes,
            acks_total: status.acks,
            connections_total: status.connections,
            durable_segment: durable.segment,
            durable_offset: durable.offset,
        }
    }

    fn report(
        &self,
        name: &str,
        status: &StatusSnapshot,
        orders: &PersistedOrders,
        durable: LogPosition,
    ) -> SourceReport {
        let readers = self.readers.iter().flat_map(StreamReaders::list).map(|reader| RelayReader {
            server_id: reader.server_id,
            uuid: Some(reader.uuid).filter(|uuid| !uuid.is_empty()),
            peer: reader.peer.to_string(),
            sent: format!("{}:{}", reader.sent.0, reader.sent.1),
        });
        SourceReport {
            source: name.to_owned(),
            is_streaming: status.state == CaptureState::Streaming,
            follows: orders.follows.clone(),
            is_stopped_by_order: orders.stopped.is_some(),
            doing: describe(&status.state),
            heard_ago_ms: self.status.received_ago_ms(),
            is_mariadb: self.log.source().map(|source| source.flavour == Flavour::MariaDb),
            gtids: self.log.gtid_set().map(|gtids| gtids.to_string()),
            durable: durable.to_string(),
            alarms: status.alarms.iter().map(ToString::to_string).collect(),
            readers: readers.collect(),
        }
    }
}

fn log_snapshot(figures: LogFigures, archive: Option<&ArchiveStatus>) -> CaptureLogSnapshot {
    let bounds = SYNC_SECONDS_BOUNDS.into_iter().map(Some).chain([None]);
    CaptureLogSnapshot {
        segments: figures.segments,
        bytes: figures.bytes,
        readers: figures
            .readers
            .into_iter()
            .map(|reader| LogReaderSnapshot { name: reader.name, behind_bytes: reader.bytes })
            .collect(),
        sync_counts: bounds.zip(figures.syncs.counts).collect(),
        sync_seconds_total: figures.syncs.sum_seconds,
        archive: archive.map(ArchiveStatus::snapshot),
    }
}

/// Returns as text what a capture is doing; if it waits or is stopped, with the reason.
fn describe(state: &CaptureState) -> String {
    match state {
        CaptureState::Connecting => "connecting to the source".to_owned(),
        CaptureState::Streaming => "reading the source's stream".to_owned(),
        CaptureState::Waiting(reason) => format!("waiting to connect again: {reason}"),
        CaptureState::Refused(reason) => format!("stopped: {reason}"),
        CaptureState::StoppedByOrder(stop) => {
            let since = LocalTime(stop.since_ms.saturating_mul(1000)).date_and_time();
            format!("stopped since {since} by order of the manager (lease term {})", stop.token)
        }
        CaptureState::Stopped => "stopped".to_owned(),
    }
}

/// Whether commits on the source wait for an ACK: no alarm says that semi-sync is disabled or has fallen
/// back. All other alarms are about how long commits wait, and at which point of the commit.
fn is_semi_sync_on(alarms: &[SemiSyncAlarm]) -> bool {
    !alarms.iter().any(|alarm| matches!(alarm, SemiSyncAlarm::Disabled | SemiSyncAlarm::FallenBack))
}

/// Returns the name of a capture's state: one of [`crate::api::captures::CAPTURE_STATES`].
fn state_name(state: &CaptureState) -> &'static str {
    match state {
        CaptureState::Connecting => "connecting",
        CaptureState::Streaming => "streaming",
        CaptureState::Waiting(_) => "waiting",
        CaptureState::Refused(_) => "refused",
        CaptureState::StoppedByOrder(_) => "stopped_by_order",
        CaptureState::Stopped => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use tailwater_capture::persisted_manager_orders::StopOrder;

    use super::*;
    use crate::api::captures::CAPTURE_STATES;

    #[test]
    fn every_capture_state_is_listed() {
        let stop = StopOrder { token: 7, since_ms: 0 };
        let captures = [
            CaptureState::Connecting,
            CaptureState::Streaming,
            CaptureState::Waiting(String::new()),
            CaptureState::Refused(String::new()),
            CaptureState::StoppedByOrder(stop),
            CaptureState::Stopped,
        ];
        assert_eq!(captures.each_ref().map(state_name), CAPTURE_STATES);
    }

    #[test]
    fn semi_sync_is_in_force_unless_it_is_off_or_has_fallen_back() {
        assert!(is_semi_sync_on(&[]));
        let short = SemiSyncAlarm::TimeoutShort(Duration::from_secs(1));
        assert!(is_semi_sync_on(&[SemiSyncAlarm::WaitsAfterCommit, short.clone()]));
        assert!(!is_semi_sync_on(&[SemiSyncAlarm::Disabled]));
        assert!(!is_semi_sync_on(&[short, SemiSyncAlarm::FallenBack]));
    }
}
