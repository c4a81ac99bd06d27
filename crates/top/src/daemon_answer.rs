//! The state of a daemon at one time: its status, the counters of its snapshot, and its jobs.

use std::path::Path;

use serde::Deserialize;
use tailwater_daemon::api::captures::{LogArchiveSnapshot, LogReaderSnapshot, SemiSyncAckers};
use tailwater_daemon::api::daemon_status::DaemonStatus;
use tailwater_daemon::api::disk_backup_and_drift_snapshots::LogDiskSnapshot;
use tailwater_daemon::api::jobs::Job;
use tailwater_daemon::control_socket::get;

/// The state of a daemon at one time.
#[derive(Debug, Clone)]
pub struct DaemonAnswer {
    /// What `tailwater status` shows.
    pub status: DaemonStatus,
    /// The counters, from which rates follow.
    pub counters: DaemonCounters,
    /// The running jobs, then the last ended ones; each with the newest first.
    pub jobs: Vec<Job>,
}

/// The parts of the daemon's snapshot that the status does not have.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct DaemonCounters {
    /// The captures.
    pub captures: Vec<CaptureCounters>,
    /// The channels.
    pub channels: Vec<ChannelOrigin>,
    /// The disk of the log.
    pub log_disk: LogDiskSnapshot,
}

/// The counters of a capture. They count from the start of the daemon.
#[derive(Debug, Clone, Deserialize)]
pub struct CaptureCounters {
    /// Which capture it is.
    pub report: SourceOfCapture,
    /// Transactions appended to the log.
    pub transactions_total: u64,
    /// Bytes of events appended to the log.
    pub event_bytes_total: u64,
    /// Commits that the server acknowledged to clients without an ACK.
    pub commits_without_ack_total: u64,
    /// The ackers of the server; absent without semi-sync, and before the first check of the server.
    pub ackers: Option<SemiSyncAckers>,
    /// The log of the source.
    pub log: LogReaders,
}

/// The source of a capture.
#[derive(Debug, Clone, Deserialize)]
pub struct SourceOfCapture {
    /// The source's name.
    pub source: String,
}

/// The readers of a log, and its archive.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct LogReaders {
    /// Channels and replicas whose position the log stores.
    pub readers: Vec<LogReaderSnapshot>,
    /// The background archiving; absent without an archive.
    #[serde(default)]
    pub archive: Option<LogArchiveSnapshot>,
}

/// The source of a channel.
#[derive(Debug, Clone, Deserialize)]
pub struct ChannelOrigin {
    /// The source's name.
    pub source: String,
    /// Which channel it is.
    pub status: ChannelOfOrigin,
}

/// The channel of a source.
#[derive(Debug, Clone, Deserialize)]
pub struct ChannelOfOrigin {
    /// The channel's name.
    pub name: String,
}

impl DaemonAnswer {
    /// Asks the daemon that listens at `socket` for its state.
    ///
    /// # Errors
    /// If no daemon listens there, or it does not answer, or it is of another version.
    pub async fn read(socket: &Path) -> anyhow::Result<Self> {
        let counters = get(socket, &["snapshot"]).await?;
        let jobs = get(socket, &["jobs"]).await?;
        let status = get(socket, &["status"]).await?;
        Ok(Self { status, counters, jobs })
    }

    /// Returns the counters of the capture of a source.
    pub fn capture(&self, source: &str) -> Option<&CaptureCounters> {
        self.counters.captures.iter().find(|capture| capture.report.source == source)
    }

    /// Returns the source of a channel; empty if it is not known.
    pub fn source_of_channel(&self, channel: &str) -> &str {
        let origin = self.counters.channels.iter().find(|origin| origin.status.name == channel);
        origin.map_or("", |origin| &origin.source)
    }
}
