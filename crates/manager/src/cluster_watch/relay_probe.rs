//! How the state of a relay's stream is asked for.

use std::future::Future;
use std::pin::Pin;

use crate::lease::LeaseToken;
use crate::probe_failure::ProbeFailure;

/// Whom a relay follows by its orders, which it keeps over restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAssignment {
    /// The highest term of the lease that an order came from; 0 before the first.
    pub term: LeaseToken,
    /// The server that it captures from, by its name in the manager's configuration.
    pub source: String,
    /// The term in which it was told that; 0 if it never was, or does not say.
    pub assigned_term: LeaseToken,
    /// It stands still by order.
    pub is_stopped: bool,
}

/// How a relay stands to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProbeResult {
    /// It reads the stream of the server that it follows now.
    pub is_streaming: bool,
    /// It acknowledges commits while it does.
    pub acknowledges: bool,
    /// How long ago something came in the stream, in milliseconds.
    pub heard_ago_ms: Option<u64>,
    /// How often something comes in it at least, in milliseconds; nothing if that is not known.
    pub heartbeat_ms: Option<u64>,
    /// Whom it follows, and since which term.
    pub assignment: RelayAssignment,
}

impl RelayProbeResult {
    /// Whether `server` counts it among its semi-sync replicas.
    pub fn acknowledges_to(&self, server: &str) -> bool {
        self.is_streaming && self.acknowledges && self.assignment.source == server
    }
}

/// What a relay says, or why it says nothing.
pub type RelayProbeFuture<'a> =
    Pin<Box<dyn Future<Output = Result<RelayProbeResult, ProbeFailure>> + Send + 'a>>;

/// Asks one relay, in this process or elsewhere, in bounded time.
pub trait RelayProbe: Send + Sync {
    /// Asks.
    fn probe(&self) -> RelayProbeFuture<'_>;
}
