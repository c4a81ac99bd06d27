//! Reports of observers about servers.

use std::fmt;

use crate::observation::{IoState, PingKind, PingResult, ReplicaChannel, ServerState};
use crate::probe_failure::ProbeFailure;
use tailwater_wire::gtid::GtidSet;

/// Who made a report.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Observer {
    /// The manager, by its pings and probes.
    Manager,
    /// A relay, by its stream.
    Relay(String),
    /// A replica, by its receiver.
    Replica(String),
}

impl fmt::Display for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager => f.write_str("the manager"),
            Self::Relay(name) => write!(f, "relay {name}"),
            Self::Replica(name) => write!(f, "replica {name}"),
        }
    }
}

/// One report of one observer about one server.
#[derive(Debug, Clone)]
pub struct ObserverReport {
    /// When it was true, in milliseconds of the caller's clock.
    pub at_ms: u64,
    /// The observer.
    pub observer: Observer,
    /// The server that it is about.
    pub about: String,
    /// What was reported.
    pub saw: Observed,
}

/// Content of a report.
#[derive(Debug, Clone)]
pub enum Observed {
    /// A ping was answered.
    Answered(PingKind),
    /// A ping failed.
    Failed(PingKind, ProbeFailure),
    /// A ping sent at that time is unanswered.
    Overdue(PingKind, u64),
    /// State of the server.
    Health(Box<ServerHealth>),
    /// The observer reads the server's stream.
    Streaming {
        /// When the last event came, if known. A replica of a frozen server reports for a minute that it
        /// receives.
        heard_ms: Option<u64>,
        /// Longest time without an event, if known.
        heartbeat_ms: Option<u64>,
    },
    /// The observer lost the server's stream and cannot reconnect.
    StreamLost(ProbeFailure),
    /// The observer reads another server by order, so it gives no information on this one.
    FollowsOther,
    /// A relay's log has transactions that the server has lost.
    HistoryRewound(String),
}

impl Observed {
    /// Result of a ping.
    pub fn of_ping(ping: &PingResult) -> Self {
        match &ping.outcome {
            Ok(()) => Self::Answered(ping.kind),
            Err(unreached) => Self::Failed(ping.kind, unreached.failure),
        }
    }

    /// What a replica's receiver reports about its source; `None` if it was stopped on purpose. `before` is
    /// the same channel in the previous observation: if the position has advanced, the source was heard by
    /// `now_ms`.
    pub fn of_channel(
        before: Option<&ReplicaChannel>,
        channel: &ReplicaChannel,
        now_ms: u64,
    ) -> Option<Self> {
        /// CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR. The text contains the system's error number; 111 is
        /// ECONNREFUSED.
        const NO_CONNECTION: [u16; 2] = [2002, 2003];
        /// Range of the client library's own error numbers; the server has numbers on both sides of it.
        const CLIENT_ERRORS: std::ops::Range<u16> = 2000..3000;
        let has_more = before.is_some_and(|before| before.received_position != channel.received_position);
        match (channel.io, &channel.io_error) {
            (IoState::Running, _) => {
                Some(Self::Streaming { heard_ms: has_more.then_some(now_ms), heartbeat_ms: None })
            }
            (IoState::Stopped, _) => None,
            (IoState::Connecting, Some(error)) if NO_CONNECTION.contains(&error.number) => {
                let is_refused = error.message.contains("(111");
                Some(Self::StreamLost(if is_refused { ProbeFailure::Refused } else { ProbeFailure::NoRoute }))
            }
            (IoState::Connecting, Some(error)) if !CLIENT_ERRORS.contains(&error.number) => {
                Some(Self::StreamLost(ProbeFailure::from_error_number(error.number, &error.message)))
            }
            (IoState::Connecting, _) => Some(Self::StreamLost(ProbeFailure::ConnectionLost)),
        }
    }
}

/// State of a server as far as the analysis needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerHealth {
    /// `server_uuid`, or `server_id` where there is none.
    pub identity: String,
    /// `server_id`.
    pub server_id: u32,
    /// Ordinary accounts can write.
    pub writable: bool,
    /// Transactions executed.
    pub executed: GtidSet,
    /// It replicates natively, or a channel feeds it.
    pub replicates: bool,
    /// Whether that is known; if not, it counts as not replicating.
    pub is_replication_known: bool,
    /// Why it does not receive, if it should.
    pub io_stopped: Option<String>,
    /// Why it does not apply, if it should.
    pub sql_stopped: Option<String>,
    /// Lag beyond the configured delay, in seconds.
    pub lag_seconds: Option<u64>,
    /// Its semi-sync as a source.
    pub semi_sync: Option<SemiSyncHealth>,
}

/// Semi-sync of a source, as the failure analysis sees it. Not `SemiSyncSource`: instead of the settings it has
/// whether they are lossless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncHealth {
    /// It is switched on.
    pub enabled: bool,
    /// In force: false after a fallback to asynchronous replication.
    pub active: bool,
    /// Commits wait before the engine commits, without a time-out, also while no acker is connected.
    pub lossless: bool,
    /// Connected semi-sync replicas.
    pub clients: u32,
    /// ACKs that a commit waits for.
    pub acks_needed: u32,
    /// Sessions that wait for ACKs.
    pub waiting_sessions: u64,
    /// Commits acknowledged since the server started.
    pub acknowledged: u64,
    /// Commits not acknowledged since the server started.
    pub unacknowledged: u64,
}

impl From<&ServerState> for ServerHealth {
    fn from(look: &ServerState) -> Self {
        let text = |error: &Option<crate::observation::ThreadError>| {
            error
                .as_ref()
                .map_or("no error".to_owned(), |error| format!("error {}: {}", error.number, error.message))
        };
        let stopped = look.channels.iter().find(|channel| channel.io == IoState::Stopped);
        let halted = look.channels.iter().find(|channel| !channel.sql_running);
        let lag = look
            .channels
            .iter()
            .filter_map(|channel| Some(channel.lag_seconds?.saturating_sub(channel.delay_seconds)))
            .max();
        Self {
            identity: look.uuid.clone().unwrap_or_else(|| look.server_id.to_string()),
            server_id: look.server_id,
            writable: look.is_writable(),
            executed: look.executed.clone(),
            replicates: !look.channels.is_empty(),
            is_replication_known: look.is_replication_known(),
            io_stopped: stopped.map(|channel| text(&channel.io_error)),
            sql_stopped: halted.map(|channel| text(&channel.sql_error)),
            lag_seconds: lag,
            semi_sync: look.semi_sync_source.as_ref().map(|semi_sync| SemiSyncHealth {
                enabled: semi_sync.enabled,
                active: semi_sync.active,
                lossless: semi_sync.is_lossless(),
                clients: semi_sync.clients,
                acks_needed: semi_sync.acks_needed,
                waiting_sessions: semi_sync.waiting_sessions,
                acknowledged: semi_sync.acknowledged,
                unacknowledged: semi_sync.unacknowledged,
            }),
        }
    }
}
