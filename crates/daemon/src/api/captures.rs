//! Captures and their logs.

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

/// The names of all states of a capture.
pub const CAPTURE_STATES: [&str; 6] =
    ["connecting", "streaming", "waiting", "refused", "stopped_by_order", "stopped"];

/// A capture and the state of its log.
#[derive(Debug, Clone, Serialize)]
pub struct CaptureSnapshot {
    /// The part of the capture's state that clients of the control socket see.
    pub report: SourceReport,
    /// The capture's state: one of [`CAPTURE_STATES`].
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
    /// The alarms of the last check of the source's semi-sync settings.
    pub alarms: Vec<CaptureAlarm>,
    /// The stable code of the error because of which the capture waits before it connects again, or refuses
    /// its source.
    pub fault_code: Option<&'static str>,
    /// The ackers that the followed server had at its last check; absent before the first check, and without
    /// `semi_sync`.
    pub ackers: Option<SemiSyncAckers>,
    /// Commits that the followed server acknowledged to clients without an ACK from a replica, since the
    /// daemon started.
    pub commits_without_ack_total: u64,
    /// Figures about the log.
    pub log: CaptureLogSnapshot,
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

/// The semi-sync replicas of a server, relays included, as that server reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SemiSyncAckers {
    /// Number of connected semi-sync replicas.
    pub connected: u32,
    /// Number of ACKs that a commit needs.
    pub needed: u32,
    /// Number of commits that wait for ACKs now.
    pub waiting_commits: u64,
}

/// Figures about a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CaptureLogSnapshot {
    /// The number of local segments.
    pub segments: u64,
    /// The durable bytes of the local segments.
    pub bytes: u64,
    /// The readers whose position the log stores: channels and replicas, connected or not.
    pub readers: Vec<LogReaderSnapshot>,
    /// The number of calls of fdatasync since the daemon started, by their duration. Each entry has an upper
    /// bound in seconds, and the number of calls that took at most this time, but longer than the bound of
    /// the entry before it. The last entry has no bound.
    pub sync_counts: Vec<(Option<f64>, u64)>,
    /// The total duration of all calls of fdatasync since the daemon started, in seconds.
    pub sync_seconds_total: f64,
    /// The background archiving; absent without an archive.
    pub archive: Option<LogArchiveSnapshot>,
}

/// The background archiving of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogArchiveSnapshot {
    /// Where the segments are archived.
    pub address: String,
    /// Complete segments on this machine that the archive does not have; absent before the first look, and
    /// if the archive could not be listed.
    pub waiting: Option<WaitingSegments>,
    /// The segment that is archived now; absent between two passes.
    pub current: Option<ArchivingSegment>,
    /// Number of segments that the archiver has archived since the daemon started.
    pub segments_total: u64,
    /// Size of these segments, in bytes.
    pub bytes_total: u64,
    /// Size of these segments in the archive, in bytes.
    pub compressed_bytes_total: u64,
    /// When the archiver last found that nothing waits, in milliseconds since 1970.
    pub complete_ms: Option<u64>,
    /// Why the last pass failed; absent if it succeeded.
    pub problem: Option<ArchiveProblem>,
}

/// Segments that wait to be archived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingSegments {
    /// Number of the waiting segments, including the segment that is being archived.
    pub segments: u64,
    /// Total size of the waiting segments, in bytes.
    pub bytes: u64,
}

/// A segment that is archived now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivingSegment {
    /// The number of the segment.
    pub segment: u64,
    /// Whether the uploaded segment is read back. Before that, it is uploaded.
    pub is_read_back: bool,
    /// Bytes of the segment that this step has processed.
    pub bytes: u64,
    /// Size of the segment, in bytes.
    pub bytes_total: u64,
}

/// Why archiving fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveProblem {
    /// The stable code of the last error.
    pub code: String,
    /// The last error.
    pub text: String,
    /// The time of the first failure since the last success, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A reader of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReaderSnapshot {
    /// The name of the reader in the log: `channel NAME` or `replica SERVER_ID`.
    pub name: String,
    /// The durable bytes of local segments that the reader has not read, or may need again.
    pub behind_bytes: u64,
}

/// An alarm about the semi-sync of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaptureAlarm {
    /// The stable code of the alarm.
    pub code: &'static str,
    /// What is wrong, and what to do.
    pub text: String,
}

/// The server that a log follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowedServer {
    /// The server's name in the configuration.
    pub server: String,
    /// Why the server does not count as the primary now; absent if it counts as the primary.
    pub withheld: Option<String>,
}

/// A segment of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SegmentSnapshot {
    /// The number of the segment, from 1.
    pub number: u64,
    /// The source's binlog file of which the segment is a copy.
    pub source_file: String,
    /// The offset of the segment's first event in the source's binlog file.
    pub source_offset: u64,
    /// The `server_id` of the server that wrote the events.
    pub server_id: u32,
    /// The version of the server that wrote the events.
    pub server_version: String,
    /// The number of the server that the events came from: 1 for the first server of the log, and 1 more
    /// after each change of the server.
    pub epoch: u32,
    /// Durable bytes.
    pub bytes: u64,
    /// Whether the segment is complete.
    pub is_sealed: bool,
    /// Whether the segment is on this machine. Otherwise only the archive has it.
    pub is_local: bool,
}
