//! What the daemon has that can be told something, and how it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use tailwater_apply::channel::{Channel, ChannelStatus};
use tailwater_binlog_server::StreamReaders;
use tailwater_capture::{CaptureAcker, CaptureState, CaptureStatus};
use tailwater_log::LogHandle;
use tailwater_manager::FailoverReadiness;
use tailwater_manager::topology::RelayReader;
use tailwater_wire::Flavour;

use super::SourceReport;
use crate::manager::requests::Manager;
use tailwater_binlog_stats::LocalTime;

/// What the daemon has that can be told something.
#[derive(Debug, Default)]
pub struct DaemonState {
    /// By name, each with the log it reads.
    pub channels: BTreeMap<String, (Arc<Channel>, LogHandle)>,
    /// By name, the sources.
    pub sources: BTreeMap<String, SourceHandle>,
    /// The manager, if one is configured.
    pub manager: Option<Manager>,
}

/// A source that is captured.
#[derive(Debug)]
pub struct SourceHandle {
    /// To give its capture orders.
    pub acker: CaptureAcker,
    /// Its log.
    pub log: LogHandle,
    /// How its capture is.
    pub status: Arc<CaptureStatus>,
    /// Who reads the log, one for each address that it is served at.
    pub readers: Vec<StreamReaders>,
}

impl DaemonState {
    /// How all sources and channels are.
    pub fn reports(&self) -> (Vec<SourceReport>, Vec<ChannelStatus>) {
        let sources = self.sources.iter().map(|(name, source)| source.report(name)).collect();
        let channels = self.channels.values().map(|(channel, log)| {
            let source = self.sources.values().find(|source| source.log.path() == log.path());
            let capture_problem = source.and_then(SourceHandle::trouble);
            ChannelStatus { capture_problem, ..channel.status().borrow().clone() }
        });
        (sources, channels.collect())
    }
}

impl DaemonState {
    /// Whether a failover of a source's primary would go through; nothing if this daemon does not manage it.
    pub fn readiness(&self, source: &str) -> Option<FailoverReadiness> {
        let cluster = self.manager.as_ref()?.cluster(source).ok()?;
        Some(cluster.readiness_now())
    }
}

impl SourceHandle {
    /// How long nothing has come from the server that the log follows, a heartbeat included, in milliseconds; nothing if
    /// nothing ever has.
    pub fn silent_ms(&self) -> Option<u64> {
        self.status.received_ago_ms()
    }

    /// Why its log does not get what the source has, if so.
    fn trouble(&self) -> Option<String> {
        let state = self.status.snapshot().state;
        (state != CaptureState::Streaming).then(|| doing(&state))
    }

    fn report(&self, name: &str) -> SourceReport {
        let (status, ordered) = (self.status.snapshot(), self.status.orders());
        let doing = doing(&status.state);
        let readers = self.readers.iter().flat_map(StreamReaders::list).map(|reader| RelayReader {
            server_id: reader.server_id,
            uuid: Some(reader.uuid).filter(|uuid| !uuid.is_empty()),
            peer: reader.peer.to_string(),
            sent: format!("{}:{}", reader.sent.0, reader.sent.1),
        });
        SourceReport {
            source: name.to_owned(),
            is_streaming: status.state == CaptureState::Streaming,
            follows: ordered.follows,
            is_stopped_by_order: ordered.stopped.is_some(),
            doing,
            heard_ago_ms: self.silent_ms(),
            is_mariadb: self.log.source().map(|source| source.flavour == Flavour::MariaDb),
            gtids: self.log.gtid_set().map(|gtids| gtids.to_string()),
            durable: self.log.durable().position.to_string(),
            alarms: status.alarms.iter().map(ToString::to_string).collect(),
            readers: readers.collect(),
        }
    }
}

/// What a capture is doing, in words, with the reason if it waits or is stopped.
fn doing(state: &CaptureState) -> String {
    match state {
        CaptureState::Connecting => "connecting to the source".to_owned(),
        CaptureState::Streaming => "reading the source's stream".to_owned(),
        CaptureState::Waiting(reason) => format!("waiting to connect again: {reason}"),
        CaptureState::Refused(reason) => format!("stopped: {reason}"),
        CaptureState::StoppedByOrder(stop) => {
            let since = LocalTime(stop.since_ms.saturating_mul(1000)).date_and_time();
            format!("stopped since {since} by order of the manager (term {})", stop.token)
        }
        CaptureState::Stopped => "stopped".to_owned(),
    }
}
