//! The state of the daemon.

use serde::Serialize;

use super::captures::CaptureSnapshot;
use super::channels::ChannelSnapshot;
use super::clusters::ClusterSnapshot;

/// The state of the daemon at one time. Taking it queries no server.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DaemonSnapshot {
    /// The captures, by the name of their source.
    pub captures: Vec<CaptureSnapshot>,
    /// The channels, by name.
    pub channels: Vec<ChannelSnapshot>,
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterSnapshot>,
}
