//! Orders to the capture of a source, and its state.

use serde::{Deserialize, Serialize};

/// An order to an acker, or the request for its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum AckerOrder {
    /// Stop capturing and acknowledging, across restarts too.
    Stop {
        /// The term of the lease.
        token: u64,
    },
    /// Report the state, and change nothing.
    Read,
    /// Resume from the server that it followed.
    Start {
        /// The term of the lease.
        token: u64,
    },
    /// Capture from another server.
    Follow {
        /// The term of the lease.
        token: u64,
        /// The name of the `[[server]]`, or the source's own.
        server: String,
    },
}

/// The state of an acker, and the content of its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckerStatus {
    /// The highest term of the lease of an order.
    pub token: u64,
    /// When it was stopped by order, in milliseconds since 1970; absent if it is not stopped.
    pub stopped_since_ms: Option<u64>,
    /// The server that it was ordered to follow; absent for its own source.
    pub follows: Option<String>,
    /// The term of the order to follow that server; 0 if there was none, or a daemon of an earlier version
    /// answers.
    #[serde(default)]
    pub followed_in: u64,
    /// Whether it acknowledges only what is durable.
    pub durable: bool,
    /// Whether the GTID sets are MariaDB's; absent while the log is empty.
    pub is_mariadb: Option<bool>,
    /// The GTIDs that its log holds durably, and those before its start; absent while it is empty.
    pub holds: Option<String>,
    /// The GTIDs before the start of its log.
    pub before: Option<String>,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckerFailure {
    /// The stable code, if there is one.
    pub code: Option<String>,
    /// The cause.
    pub message: String,
}

/// The state of a source's capture, as a manager on another machine sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The `server_id` under which it registers with the source.
    pub server_id: u32,
    /// It reads its source's stream now.
    pub is_streaming: bool,
    /// It acknowledges commits while it streams.
    pub acknowledges: bool,
    /// Time since the last message in the stream, in milliseconds; absent if there was none.
    pub heard_ago_ms: Option<u64>,
    /// The longest time between two messages of a healthy source, in milliseconds; absent from a daemon of an
    /// earlier version.
    #[serde(default)]
    pub heartbeat_ms: Option<u64>,
    /// The name of the source's own server there; absent from a daemon of an earlier version.
    #[serde(default)]
    pub own: Option<String>,
    /// Its orders, and the content of its log.
    pub acker: AckerStatus,
}

/// The body of an order over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderBody {
    /// The term of the lease.
    pub token: u64,
    /// The server to follow; only in orders to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}
