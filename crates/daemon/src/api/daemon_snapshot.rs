//! The state of the daemon.

use serde::Serialize;

use super::captures::CaptureSnapshot;
use super::channels::ChannelSnapshot;
use super::clusters::ClusterSnapshot;
use super::disk_backup_and_drift_snapshots::{BackupSnapshot, DriftCheckSnapshot, LogDiskSnapshot};
use super::jobs::Job;
use super::prefetches::PrefetchSnapshot;
use crate::unwritable_files::FileFault;

/// The state of the daemon at one time. Reading the state queries no server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DaemonSnapshot {
    /// The captures, by the name of their source.
    pub captures: Vec<CaptureSnapshot>,
    /// The channels, by name.
    pub channels: Vec<ChannelSnapshot>,
    /// The prefetches: those of replicas, then those of channels.
    pub prefetches: Vec<PrefetchSnapshot>,
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterSnapshot>,
    /// The disk of the log.
    pub log_disk: LogDiskSnapshot,
    /// The monitored backups, in the order of the configuration.
    pub backups: Vec<BackupSnapshot>,
    /// The monitored checks for drift, in the order of the configuration.
    pub drift_checks: Vec<DriftCheckSnapshot>,
    /// The running jobs, the newest first.
    pub jobs: Vec<Job>,
    /// The files of the daemon that cannot be written at present.
    pub file_faults: Vec<FileFault>,
}
