//! What an observer says, and when.

use std::fmt;

use tailwater_wire::gtid::GtidSet;

use crate::observation::{IoState, ReplicaChannel, ServerState, WaitPoint};
use crate::probe::ping::{Ping, PingKind};
use crate::probe_failure::ProbeFailure;

/// Who says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Observer {
    /// The manager itself, by its pings and looks.
    Manager,
    /// A relay, by its stream.
    Relay(String),
    /// A replica, by its receiving side.
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

/// One thing that one observer said about one server.
#[derive(Debug, Clone)]
pub struct ObserverReport {
    /// When it was so, in milliseconds of whatever clock the caller keeps to.
    pub at_ms: u64,
    /// Who says it.
    pub observer: Observer,
    /// Of whom.
    pub about: String,
    /// What.
    pub saw: Observed,
}

/// What was seen.
#[derive(Debug, Clone)]
pub enum Observed {
    /// A ping was answered.
    Answered(PingKind),
    /// A ping failed.
    Failed(PingKind, ProbeFailure),
    /// A ping that was begun at that moment has not been answered yet.
    Overdue(PingKind, u64),
    /// A whole look.
    Health(Box<ServerHealth>),
    /// The observer reads the server's stream.
    Streaming {
        /// When something last came in it, if that is known. A replica of a frozen server believes for a minute that it
        /// receives.
        heard_ms: Option<u64>,
        /// How often something comes in it at least, if that is known.
        heartbeat_ms: Option<u64>,
    },
    /// The observer has lost the server's stream, and cannot have it again.
    StreamLost(ProbeFailure),
    /// The observer reads another server's stream by order, and can say nothing of this one.
    FollowsOther,
    /// A relay's log has what the server no longer has.
    HistoryRewound(String),
}

impl Observed {
    /// What a ping says.
    pub fn of_ping(ping: &Ping) -> Self {
        match &ping.outcome {
            Ok(()) => Self::Answered(ping.kind),
            Err(unreached) => Self::Failed(ping.kind, unreached.failure),
        }
    }

    /// What a replica's receiving side says of its source; nothing if it was told to stop. `before` is the same channel in the look
    /// before: if more has come since, it has heard its source by `now_ms`.
    pub fn of_channel(
        before: Option<&ReplicaChannel>,
        channel: &ReplicaChannel,
        now_ms: u64,
    ) -> Option<Self> {
        /// CR_CONNECTION_ERROR, CR_CONN_HOST_ERROR: the system's own number stands in the text; 111 is ECONNREFUSED.
        const NO_CONNECTION: [u16; 2] = [2002, 2003];
        /// The client library's own errors begin here, and end before the server's later ones.
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

/// What a look says that analysis needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerHealth {
    /// Its `server_uuid`, or its `server_id`.
    pub identity: String,
    /// Its `server_id`.
    pub server_id: u32,
    /// Ordinary accounts can write.
    pub writable: bool,
    /// What it has executed.
    pub executed: GtidSet,
    /// It replicates from somebody, or a channel feeds it.
    pub replicates: bool,
    /// Whether that is known; if not, it counts as one that does not replicate.
    pub is_replication_known: bool,
    /// Why it does not receive, if it should.
    pub io_stopped: Option<String>,
    /// Why it does not apply, if it should.
    pub sql_stopped: Option<String>,
    /// How far it is behind what it is told to be, in seconds.
    pub lag_seconds: Option<u64>,
    /// Its semi-sync as a source.
    pub semi_sync: Option<SemiSyncHealth>,
}

/// A source's semi-sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncHealth {
    /// Switched on.
    pub enabled: bool,
    /// In force.
    pub active: bool,
    /// Commits wait before the engine commits, for as long as it takes, whoever is connected.
    pub lossless: bool,
    /// Replicas connected that acknowledge.
    pub clients: u32,
    /// How many have to.
    pub acks_needed: u32,
    /// Sessions that wait.
    pub waiting_sessions: u64,
    /// Commits acknowledged since the server started.
    pub acknowledged: u64,
    /// Commits that were not.
    pub unacknowledged: u64,
}

/// A commit that waits no longer than this may go out unacknowledged: a day, in milliseconds.
const ACK_TIMEOUT_MS_MIN: u64 = 86_400_000;

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
                lossless: semi_sync.wait_point == WaitPoint::AfterSync
                    && semi_sync.timeout_ms >= ACK_TIMEOUT_MS_MIN
                    && semi_sync.wait_no_replica,
                clients: semi_sync.clients,
                acks_needed: semi_sync.acks_needed,
                waiting_sessions: semi_sync.waiting_sessions,
                acknowledged: semi_sync.acknowledged,
                unacknowledged: semi_sync.unacknowledged,
            }),
        }
    }
}
