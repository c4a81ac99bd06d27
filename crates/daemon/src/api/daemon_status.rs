//! The status of the whole daemon, as `tailwater status` shows it.

use serde::{Deserialize, Serialize};

use super::channels::ChannelStatus;
use super::clusters::ManagerSnapshot;

/// The daemon at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Whether nothing is wrong: `problems` is empty.
    pub ok: bool,
    /// The version of the daemon.
    pub version: String,
    /// Time since the daemon started, in seconds.
    pub uptime_seconds: u64,
    /// The disk of the log.
    pub log_disk: LogDiskStatus,
    /// The captured sources, by name.
    pub sources: Vec<SourceStatus>,
    /// The binlog servers.
    pub binlog_servers: Vec<BinlogServerStatus>,
    /// The channels, by name, without row values.
    pub channels: Vec<ChannelStatus>,
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterStatus>,
    /// What is wrong.
    pub problems: Vec<StatusProblem>,
}

/// The disk of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDiskStatus {
    /// The folder of the log.
    pub directory: String,
    /// Size and free space; absent if they could not be read.
    pub space: Option<DiskSpace>,
    /// Why they could not be read.
    pub problem: Option<String>,
}

/// Space of a disk, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// Size of the file system.
    pub total_bytes: u64,
    /// What ordinary users can still write.
    pub free_bytes: u64,
    /// What the logs of all sources occupy.
    pub log_bytes: u64,
}

/// A source and its log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The source's name.
    pub source: String,
    /// The server that the log follows.
    pub server: String,
    /// One of [`crate::metrics::CAPTURE_STATES`].
    pub state: String,
    /// The activity of the capture, with the reason if it does not stream.
    pub activity: String,
    /// The durable end of the log: segment and offset.
    pub durable: String,
    /// Transactions of the server that the log lacks, by the last probe; absent if that is not known, or the
    /// capture does not stream. For MariaDB the most it can be.
    pub behind_transactions: Option<u64>,
    /// Time since the last message from the server, in milliseconds; absent if there was none.
    pub heard_ago_ms: Option<u64>,
    /// Whether commits on the server wait for this log; absent without `semi_sync`.
    pub semi_sync_in_force: Option<bool>,
    /// The GTIDs in the log; absent while it is empty.
    pub gtids: Option<String>,
}

/// A binlog server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BinlogServerStatus {
    /// The source whose log it serves.
    pub source: String,
    /// The address that it listens at.
    pub listen: String,
    /// The clients that read its streams.
    pub readers: Vec<ReaderStatus>,
}

/// A client that reads a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderStatus {
    /// The server's name in the configuration; absent for others.
    pub name: Option<String>,
    /// Its server id; 0 for a program that is not a replica.
    pub server_id: u32,
    /// Its address.
    pub peer: String,
    /// The file and offset up to which events were sent.
    pub sent: String,
}

/// A cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The name of its source.
    pub source: String,
    /// The primary.
    pub primary: String,
    /// Its servers and other relays, each after the one that it reads from.
    pub servers: Vec<ClusterServer>,
    /// The manager's report; absent without a manager.
    pub manager: Option<ManagerSnapshot>,
}

/// A server or relay of a cluster, by its last probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterServer {
    /// Its name in the configuration, or what identifies it.
    pub name: String,
    /// `primary`, `replica`, `relay`, `target`, `server` (replicates from nothing, or did not answer) or
    /// `seen` (not configured).
    pub role: String,
    /// Its address; empty if unknown.
    pub address: String,
    /// The server or relay that it reads from; absent if that is not known.
    pub reads_from: Option<String>,
    /// Whether it answered.
    pub reached: bool,
    /// Whether ordinary accounts can write.
    pub writable: Option<bool>,
    /// Its lag, in seconds.
    pub lag_seconds: Option<f64>,
    /// Transactions of the primary that it lacks; for MariaDB the most it can be.
    pub behind_transactions: Option<u64>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusProblem {
    /// The object: `source orders`, `channel reports`, `server db2`, `cluster orders`, `log disk`.
    pub object: String,
    /// A stable code: an error code, a failure code, a problem of the topology, or one of
    /// docs/how-to/status.md.
    pub code: String,
    /// What is wrong, and why.
    pub text: String,
    /// What to do.
    pub remedy: String,
}
