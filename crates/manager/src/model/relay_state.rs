//! The state of a relay, and the orders that managers gave it.

use super::lease_token::LeaseToken;

/// Which source a relay was ordered to follow. The relay stores the order, so that it survives a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayAssignment {
    /// The highest lease term of any order to the relay; 0 before the first order.
    pub term: LeaseToken,
    /// The server from which the relay captures, by its name in the manager's configuration.
    pub source: String,
    /// The lease term of the order to capture from `source`; 0 if there was no such order, or if the relay
    /// does not report it.
    pub assigned_term: LeaseToken,
    /// Whether the relay was ordered to stop.
    pub is_stopped: bool,
}

/// The state of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayProbeResult {
    /// Whether the relay reads the stream of its source.
    pub is_streaming: bool,
    /// Whether the relay acknowledges commits while it streams.
    pub acknowledges: bool,
    /// Time since the relay received the last event of the stream, in milliseconds.
    pub heard_ago_ms: Option<u64>,
    /// The longest time that can pass between two events of the stream (the heartbeat period), in
    /// milliseconds; `None` if unknown.
    pub heartbeat_ms: Option<u64>,
    /// The source that the relay was ordered to follow.
    pub assignment: RelayAssignment,
}

impl RelayProbeResult {
    /// Whether `server` counts the relay as a semi-sync replica.
    pub fn acknowledges_to(&self, server: &str) -> bool {
        self.is_streaming && self.acknowledges && self.assignment.source == server
    }
}
