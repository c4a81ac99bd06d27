//! A source that is captured here, as those outside see it.

use tailwater_capture::CaptureState;

use super::acker::RelayStatus;
use super::role_check::FollowedServer;
use crate::control::SourceHandle;
use crate::manager::acker::AckerStatus;
use crate::wiring::ClusterWiring;

impl SourceHandle {
    /// Whom the log follows; `own` is what the source's own server is called.
    pub fn leader(&self, own: &str) -> FollowedServer {
        let (state, ordered) = (self.status.snapshot().state, self.status.orders());
        let held = match state {
            _ if ordered.stopped.is_some() => Some("the log is told to stop".to_owned()),
            CaptureState::StoppedByOrder(_) => Some("the log is told to stop".to_owned()),
            // Its history is not the log's, say: what is written to it now is written beside what was acknowledged.
            CaptureState::Refused(reason) => Some(format!("the log does not follow it any more: {reason}")),
            CaptureState::Stopped => Some("the daemon ends".to_owned()),
            CaptureState::Connecting | CaptureState::Streaming | CaptureState::Waiting(_) => None,
        };
        FollowedServer { server: ordered.follows.unwrap_or_else(|| own.to_owned()), held }
    }

    /// How the capture stands, with what its acker says.
    pub fn relay_text(&self, wiring: &ClusterWiring, acker: AckerStatus) -> RelayStatus {
        let plan = &wiring.plan.relay;
        RelayStatus {
            server_id: plan.server_id,
            is_streaming: self.status.snapshot().state == CaptureState::Streaming,
            acknowledges: plan.semi_sync,
            heard_ago_ms: self.silent_ms(),
            heartbeat_ms: Some(self.status.heartbeat_ms()),
            own: Some(wiring.own.clone()),
            acker,
        }
    }
}
