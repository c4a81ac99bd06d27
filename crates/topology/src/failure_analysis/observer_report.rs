//! Reports of observers about servers.

use std::fmt;

use crate::probe_failure::ProbeFailure;
use crate::server_state::{ConnectionUsage, IoState, PingKind, PingResult, ReplicaChannel, ServerState};
use tailwater_wire::gtid::GtidSet;

/// The observer that made a report.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Observer {
    /// The manager, through its pings and probes.
    Manager,
    /// A relay, through its stream.
    Relay(String),
    /// A replica, through its receiver.
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
    /// The time at which the observer saw what it reports, in milliseconds of the caller's clock.
    pub at_ms: u64,
    /// The observer that made the report.
    pub observer: Observer,
    /// The server that the report is about.
    pub about: String,
    /// What was reported.
    pub saw: Observed,
}

/// The content of a report.
#[derive(Debug, Clone)]
pub enum Observed {
    /// A ping was answered.
    Answered(PingKind),
    /// A ping failed.
    Failed(PingKind, ProbeFailure),
    /// A ping is unanswered. The number is the time at which the ping was sent, in milliseconds of the
    /// caller's clock.
    Overdue(PingKind, u64),
    /// The state of the server.
    Health(Box<ServerHealth>),
    /// The observer reads the server's stream.
    Streaming {
        /// When the last event arrived; `None` if that is unknown. While a server is frozen, its replica
        /// reports for up to a minute that it receives events.
        heard_ms: Option<u64>,
        /// The longest time that can pass without an event of the stream, if known.
        heartbeat_ms: Option<u64>,
    },
    /// The observer lost the server's stream and cannot reconnect.
    StreamLost(ProbeFailure),
    /// The observer was ordered to read another server, so it gives no information on this server.
    FollowsOther,
    /// The log of a relay contains transactions that the server has lost. The string names them.
    HistoryRewound(String),
}

impl Observed {
    /// Converts the result of a ping.
    pub fn of_ping(ping: &PingResult) -> Self {
        match &ping.outcome {
            Ok(()) => Self::Answered(ping.kind),
            Err(unreached) => Self::Failed(ping.kind, unreached.failure),
        }
    }

    /// Returns what a replica's receiver reports about its source; `None` if the receiver was stopped on
    /// purpose. `before` is the same channel in the previous observation. If the received position has
    /// advanced since, the replica received from the source until `now_ms`.
    pub fn of_channel(
        before: Option<&ReplicaChannel>,
        channel: &ReplicaChannel,
        now_ms: u64,
    ) -> Option<Self> {
        /// The client errors CR_CONNECTION_ERROR and CR_CONN_HOST_ERROR. Their text contains the error number
        /// of the operating system; 111 is ECONNREFUSED.
        const NO_CONNECTION: [u16; 2] = [2002, 2003];
        /// Range of error numbers of the client library. Error numbers of the server are below and above this
        /// range.
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

/// The part of a server's state that the analysis needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerHealth {
    /// The `server_uuid`, or the `server_id` on servers without a UUID.
    pub identity: String,
    /// The `server_id` of the server.
    pub server_id: u32,
    /// Whether ordinary accounts can write.
    pub writable: bool,
    /// The transactions that the server has executed.
    pub executed: GtidSet,
    /// Whether the server replicates natively or is the target of a channel.
    pub replicates: bool,
    /// Whether the account can read the replication status. If it cannot, the server counts as not
    /// replicating.
    pub is_replication_known: bool,
    /// Why the server does not receive, although it should.
    pub io_stopped: Option<String>,
    /// Why the server does not apply, although it should.
    pub sql_stopped: Option<String>,
    /// Lag in addition to the configured delay, in seconds.
    pub lag_seconds: Option<u64>,
    /// State of semi-sync for the server as a source.
    pub semi_sync: Option<SemiSyncHealth>,
    /// How many connections are in use.
    pub connections: ConnectionUsage,
}

/// The part of a source's semi-sync state that the failure analysis needs. `SemiSyncSource` contains the
/// settings themselves; this struct contains whether the settings are lossless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncHealth {
    /// Whether semi-sync is enabled.
    pub enabled: bool,
    /// Whether semi-sync is in force. False after a fallback to asynchronous replication.
    pub active: bool,
    /// Whether commits wait before the engine commits, without a time-out, even while no acker is connected.
    pub lossless: bool,
    /// Number of connected semi-sync replicas.
    pub clients: u32,
    /// Number of ACKs that a commit waits for.
    pub acks_needed: u32,
    /// Number of sessions that wait for ACKs.
    pub waiting_sessions: u64,
    /// Number of commits that were acknowledged since the server started.
    pub acknowledged: u64,
    /// Number of commits that were not acknowledged since the server started.
    pub unacknowledged: u64,
}

impl From<&ServerState> for ServerHealth {
    fn from(look: &ServerState) -> Self {
        let text = |error: &Option<crate::server_state::ThreadError>| {
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
            connections: look.connections.clone(),
        }
    }
}
