//! The status of the whole daemon, as `tailwater status` shows it.

use serde::{Deserialize, Serialize};

use super::channels::ChannelStatus;
use super::clusters::ManagerSnapshot;
use super::prefetches::PrefetchSnapshot;

/// The status of the daemon at one time.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DaemonStatus {
    /// Whether nothing is wrong: `problems` is empty.
    pub ok: bool,
    /// The version of the daemon.
    pub version: String,
    /// Time since the daemon started, in seconds.
    pub uptime_seconds: u64,
    /// The space of the log's disk.
    pub log_disk: LogDiskStatus,
    /// The captured sources, by name.
    pub sources: Vec<SourceStatus>,
    /// The binlog servers.
    pub binlog_servers: Vec<BinlogServerStatus>,
    /// The channels, by name, without row values.
    pub channels: Vec<ChannelStatus>,
    /// The replicas and targets whose pages are read ahead.
    #[serde(default)]
    pub prefetches: Vec<PrefetchSnapshot>,
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterStatus>,
    /// The problems that were found.
    pub problems: Vec<StatusProblem>,
}

/// The space of the log's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LogDiskStatus {
    /// The folder of the log.
    pub directory: String,
    /// Size and free space of the disk; absent if they could not be read.
    pub space: Option<DiskSpace>,
    /// Why size and free space could not be read; absent if they were read.
    pub problem: Option<String>,
}

/// Space of a disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct DiskSpace {
    /// Size of the file system.
    pub total_bytes: u64,
    /// Free space that ordinary users can use.
    pub free_bytes: u64,
    /// Space that the logs of all sources occupy.
    pub log_bytes: u64,
}

/// A source and its log.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SourceStatus {
    /// The source's name.
    pub source: String,
    /// The server that the log follows.
    pub server: String,
    /// One of [`super::captures::CAPTURE_STATES`].
    pub state: String,
    /// The activity of the capture, with the reason if it does not stream.
    pub activity: String,
    /// The durable end of the log: segment and offset.
    pub durable: String,
    /// Number of the server's transactions that the log lacks, according to the last probe. Absent if the
    /// number is not known, or if the capture does not stream. For MariaDB it is an upper bound.
    pub behind_transactions: Option<u64>,
    /// Time since the last message from the server, in milliseconds; absent if there was none.
    pub heard_ago_ms: Option<u64>,
    /// Whether commits on the server wait for this log; absent without `semi_sync`.
    pub semi_sync_in_force: Option<bool>,
    /// The GTIDs in the log; absent while the log is empty.
    pub gtids: Option<String>,
}

/// A binlog server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BinlogServerStatus {
    /// The name of the source whose log the binlog server serves.
    pub source: String,
    /// The address at which the binlog server listens.
    pub listen: String,
    /// The clients that read its streams.
    pub readers: Vec<ReaderStatus>,
}

/// A client that reads a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReaderStatus {
    /// The client's name in the configuration; absent for a client that is not configured.
    pub name: Option<String>,
    /// The client's `server_id`; 0 for a program that is not a replica.
    pub server_id: u32,
    /// The client's address.
    pub peer: String,
    /// The file and offset up to which events were sent.
    pub sent: String,
}

/// A cluster.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterStatus {
    /// The name of the cluster's source.
    pub source: String,
    /// The name of the primary.
    pub primary: String,
    /// The servers of the cluster, and its relays on other machines. A server or relay comes after the one
    /// that it reads from.
    pub servers: Vec<ClusterServer>,
    /// The manager's report; absent without a manager.
    pub manager: Option<ManagerSnapshot>,
}

/// A server or relay of a cluster, according to its last probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ClusterServer {
    /// The name in the configuration. For a server that is not configured, a text that identifies the server.
    pub name: String,
    /// `primary`, `replica`, `relay`, `target`, `server` (replicates from nothing, or did not answer) or
    /// `seen` (not configured).
    pub role: String,
    /// The address; empty if it is not known.
    pub address: String,
    /// The server or relay from which this server or relay reads; absent if it is not known.
    pub reads_from: Option<String>,
    /// Whether the server or relay answered the probe.
    pub reached: bool,
    /// Whether ordinary accounts can write to the server.
    pub writable: Option<bool>,
    /// The lag, in seconds.
    pub lag_seconds: Option<f64>,
    /// Number of the primary's transactions that the server or relay lacks; for MariaDB an upper bound.
    pub behind_transactions: Option<u64>,
}

/// A problem of the daemon, of a source, a channel or a cluster, or of the log's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StatusProblem {
    /// The object that has the problem: `source orders`, `channel reports`, `server db2`, `cluster orders`,
    /// `log disk`.
    pub object: String,
    /// A stable code: an error code, a failure code, the code of a topology problem, or a code from
    /// docs/how-to/status.md.
    pub code: String,
    /// What is wrong, and why.
    pub text: String,
    /// What an operator can do about the problem.
    pub remedy: String,
}
