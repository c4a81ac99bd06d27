//! How the captures of this process stand to their sources, as the manager asks.

use std::sync::Arc;
use std::time::SystemTime;

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
        let heard_ms = Some(self.status.heard_ms()).filter(|heard_ms| *heard_ms > 0);
        let look = RelayLook {
            is_streaming: self.status.snapshot().state == CaptureState::Streaming,
            acknowledges: self.acknowledges,
            heard_ago_ms: heard_ms.map(|heard_ms| now_ms().saturating_sub(heard_ms)),
        };
        Box::pin(async move { Ok(look) })
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
