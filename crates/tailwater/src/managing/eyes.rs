//! How the captures of this process stand to their sources, as the manager asks.

use std::sync::Arc;

use tailwater_manager::watching::{RelayEye, RelayLook, RelaySeen};
use tailwater_relay::{CaptureState, CaptureStatus};

/// Looks at a capture of this process.
#[derive(Debug, Clone)]
pub struct LocalEye {
    /// Whose state.
    pub status: Arc<CaptureStatus>,
    /// Whether it asks for semi-sync.
    pub acknowledges: bool,
}

impl RelayEye for LocalEye {
    fn look(&self) -> RelaySeen<'_> {
        let look = RelayLook {
            is_streaming: self.status.snapshot().state == CaptureState::Streaming,
            acknowledges: self.acknowledges,
            heard_ago_ms: self.status.heard_ago_ms(),
            heartbeat_ms: Some(self.status.heartbeat_ms()),
        };
        Box::pin(async move { Ok(look) })
    }
}
