//! How the state of a relay's stream is asked for.

use std::future::Future;
use std::pin::Pin;

use crate::failure::Failure;

/// How a relay stands to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayLook {
    /// It reads the primary's stream now.
    pub is_streaming: bool,
    /// It acknowledges commits while it does.
    pub acknowledges: bool,
    /// How long ago something came in the stream, in milliseconds.
    pub heard_ago_ms: Option<u64>,
    /// How often something comes in it at least, in milliseconds; nothing if that is not known.
    pub heartbeat_ms: Option<u64>,
}

impl RelayLook {
    /// Whether the primary counts it among its semi-sync replicas.
    pub fn counts(&self) -> bool {
        self.is_streaming && self.acknowledges
    }
}

/// What a relay says, or why it says nothing.
pub type RelaySeen<'a> = Pin<Box<dyn Future<Output = Result<RelayLook, Failure>> + Send + 'a>>;

/// Asks one relay, in this process or elsewhere, in bounded time.
pub trait RelayEye: Send + Sync {
    /// Asks.
    fn look(&self) -> RelaySeen<'_>;
}
