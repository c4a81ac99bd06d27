//! Captures and their logs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tailwater_topology::RelayReader;

/// The state of a source's log, and the replicas that read the log.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SourceReport {
    /// The source's name.
    pub source: String,
    /// Whether the capture is receiving the source's stream now.
    pub is_streaming: bool,
    /// The server that an order told the capture to follow; absent if it follows the source's own server.
    #[serde(default)]
    pub follows: Option<String>,
    /// Whether an order has stopped the capture. The stop lasts across restarts of the daemon.
    #[serde(default)]
    pub is_stopped_by_order: bool,
    /// What the capture is doing, as text.
    pub doing: String,
    /// Time since the last message from the source, heartbeats included, in milliseconds; absent if there was
    /// no message.
    pub heard_ago_ms: Option<u64>,
    /// Whether the source is a MariaDB server; absent until the source was first reached.
    pub is_mariadb: Option<bool>,
    /// The GTIDs in the log, in the source's notation.
    pub gtids: Option<String>,
    /// The durable end of the log, as text.
    pub durable: String,
    /// The alarms of the last check of the source's semi-sync settings.
    pub alarms: Vec<String>,
    /// The replicas that read from the log.
    pub readers: Vec<RelayReader>,
}

/// A capture and the state of its log.
#[derive(Debug, Clone, Serialize)]
pub struct CaptureSnapshot {
    /// The part of the state that clients of the control socket see.
    pub report: SourceReport,
    /// The capture's state: one of [`crate::metrics::CAPTURE_STATES`].
    pub state: &'static str,
    /// The server that the log follows.
    pub followed: FollowedServer,
    /// The `server_id` under which the capture registers with the source.
    pub server_id: u32,
    /// Whether the capture is configured to acknowledge commits.
    pub semi_sync: bool,
    /// Whether commits on the source wait for this log, according to the last check of the source; absent
    /// without `semi_sync`.
    pub semi_sync_in_force: Option<bool>,
    /// The codes of the alarms of the last check of the source's semi-sync settings.
    pub alarm_codes: BTreeSet<&'static str>,
    /// The longest time between two messages of a healthy source, in milliseconds.
    pub heartbeat_ms: u64,
    /// Transactions appended to the log since the daemon started.
    pub transactions_total: u64,
    /// Bytes of events appended to the log since the daemon started.
    pub event_bytes_total: u64,
    /// Semi-sync ACKs sent since the daemon started.
    pub acks_total: u64,
    /// Streams opened since the daemon started.
    pub connections_total: u64,
    /// The number of the segment with the durable end of the log; 0 for an empty log.
    pub durable_segment: u64,
    /// The offset of the durable end in this segment, in bytes.
    pub durable_offset: u64,
}

/// The server that a log follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowedServer {
    /// The server's name in the configuration.
    pub server: String,
    /// Why the server does not count as the primary now; absent if it does.
    pub withheld: Option<String>,
}
