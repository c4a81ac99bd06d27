//! Captures and their logs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tailwater_topology::RelayReader;

/// The state of a source's log, and its readers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source's name.
    pub source: String,
    /// Whether its stream is read now.
    pub is_streaming: bool,
    /// The server that it captures from by order; absent for the source's own.
    #[serde(default)]
    pub follows: Option<String>,
    /// Whether it is stopped by order, across restarts too.
    #[serde(default)]
    pub is_stopped_by_order: bool,
    /// What its capture is doing, as text.
    pub doing: String,
    /// Time since the last message from the source, heartbeats included, in milliseconds; absent if there was
    /// none.
    pub heard_ago_ms: Option<u64>,
    /// Whether the source is a MariaDB server; absent before it was first reached.
    pub is_mariadb: Option<bool>,
    /// The GTIDs in the log, in the source's notation.
    pub gtids: Option<String>,
    /// The durable end of the log.
    pub durable: String,
    /// The alarms of the last semi-sync check.
    pub alarms: Vec<String>,
    /// The replicas that read from the log.
    pub readers: Vec<RelayReader>,
}

/// A capture and its log.
#[derive(Debug, Clone, Serialize)]
pub struct CaptureSnapshot {
    /// What clients of the control socket see of it.
    pub report: SourceReport,
    /// One of [`crate::metrics::CAPTURE_STATES`].
    pub state: &'static str,
    /// The server that the log follows.
    pub followed: FollowedServer,
    /// The `server_id` under which it registers with the source.
    pub server_id: u32,
    /// Whether it is configured to acknowledge commits.
    pub semi_sync: bool,
    /// Whether commits on the source wait for this log, by the last check of the source; absent without
    /// `semi_sync`.
    pub semi_sync_in_force: Option<bool>,
    /// The codes of the alarms of the last semi-sync check.
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
    /// The segment of the durable end of the log; 0 for an empty log.
    pub durable_segment: u64,
    /// The offset of the durable end in its segment, in bytes.
    pub durable_offset: u64,
}

/// The server that a log follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowedServer {
    /// Its name in the configuration.
    pub server: String,
    /// Why it does not count as the primary now; absent if it does.
    pub withheld: Option<String>,
}
