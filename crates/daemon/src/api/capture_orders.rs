//! Orders to the capture of a source, and the capture's state.

use serde::{Deserialize, Serialize};

/// An order to an acker (the capture of a source), or a request for its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum AckerOrder {
    /// Stop capturing and acknowledging, also after restarts of the daemon.
    Stop {
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; absent in orders of operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<u64>,
    },
    /// Report the state without a change.
    Read,
    /// Resume capturing from the server that the acker followed before.
    Start {
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; absent in orders of operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<u64>,
    },
    /// Capture from another server.
    Follow {
        /// The lease term of the manager that gives the order.
        token: u64,
        /// The number of the failover or switchover within the lease term; absent in orders of operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<u64>,
        /// The name of the `[[server]]` to capture from, or the name of the source for the source's own
        /// server.
        server: String,
    },
}

/// The state of an acker, and what its log contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AckerStatus {
    /// The highest lease term of all orders that the acker has received.
    pub token: u64,
    /// When an order stopped the acker, in milliseconds since 1970; absent if it is not stopped.
    pub stopped_since_ms: Option<u64>,
    /// The server that an order told the acker to follow; absent if it follows its own source.
    pub follows: Option<String>,
    /// The lease term of the order to follow the server in `follows`; 0 if there was no such order, or if the
    /// daemon is of an earlier version.
    #[serde(default)]
    pub followed_in: u64,
    /// The highest number of a failover or switchover among the orders of lease term `token`; absent if the
    /// daemon is of an earlier version, which does not accept this number in orders.
    #[serde(default)]
    pub run: Option<u64>,
    /// Whether the acker acknowledges only transactions that its log holds durably.
    pub durable: bool,
    /// Whether the GTID sets have MariaDB's format; absent while the log is empty.
    pub is_mariadb: Option<bool>,
    /// The GTIDs that the log holds durably, and the GTIDs before the start of the log; absent while the log
    /// is empty.
    pub holds: Option<String>,
    /// The GTIDs before the start of the log.
    pub before: Option<String>,
}

/// Why a capture did not execute an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckerFailure {
    /// The stable error code, if there is one.
    pub code: Option<String>,
    /// The cause of the failure.
    pub message: String,
}

/// The state of a source's capture, as a manager on another machine sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The `server_id` under which the capture registers with the source.
    pub server_id: u32,
    /// Whether the capture is receiving its source's stream now.
    pub is_streaming: bool,
    /// Whether the capture acknowledges commits while it streams.
    pub acknowledges: bool,
    /// Time since the last message in the stream, in milliseconds; absent if there was no message.
    pub heard_ago_ms: Option<u64>,
    /// The longest time between two messages of a healthy source, in milliseconds; absent if the daemon is of
    /// an earlier version.
    #[serde(default)]
    pub heartbeat_ms: Option<u64>,
    /// The name of the source's own server in the relay's configuration; absent if the daemon is of an
    /// earlier version.
    #[serde(default)]
    pub own: Option<String>,
    /// The orders that the capture has received, and what its log contains.
    pub acker: AckerStatus,
}

/// The body of an HTTP request that contains an order to a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderBody {
    /// The lease term of the manager that gives the order.
    pub token: u64,
    /// The number of the failover or switchover within the lease term. It is absent in orders of operators,
    /// and in orders to daemons of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// The server to follow; only present in orders to follow a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}
