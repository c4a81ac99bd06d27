//! Channels.

use serde::Serialize;

pub use tailwater_apply::channel::{
    ChannelEdit, ChannelFault, ChannelState, ChannelStatus, WorkerState, WorkerStatus,
};

/// A channel and the source whose log it applies.
#[derive(Debug, Clone, Serialize)]
pub struct ChannelSnapshot {
    /// The source's name.
    pub source: String,
    /// The channel's status. The detail of a fault may contain values of rows.
    pub status: ChannelStatus,
}
