//! The state of a relay, and the orders that it has.

use super::lease_token::LeaseToken;

/// The source that a relay was ordered to follow. The relay keeps it over restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAssignment {
    /// The highest lease term of an order; 0 before the first.
    pub term: LeaseToken,
    /// The server that it captures from, by its name in the manager's configuration.
    pub source: String,
    /// The term of the order to follow that source; 0 if there was none, or the relay does not say.
    pub assigned_term: LeaseToken,
    /// It was ordered to stop.
    pub is_stopped: bool,
}

/// State of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProbeResult {
    /// It reads the stream of its source.
    pub is_streaming: bool,
    /// It acknowledges commits while it streams.
    pub acknowledges: bool,
    /// Time since the last event in the stream, in milliseconds.
    pub heard_ago_ms: Option<u64>,
    /// Longest time between two events, in milliseconds; `None` if unknown.
    pub heartbeat_ms: Option<u64>,
    /// Its source, by its orders.
    pub assignment: RelayAssignment,
}

impl RelayProbeResult {
    /// Whether `server` counts it as a semi-sync replica.
    pub fn acknowledges_to(&self, server: &str) -> bool {
        self.is_streaming && self.acknowledges && self.assignment.source == server
    }
}
