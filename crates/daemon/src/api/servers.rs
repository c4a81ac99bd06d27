//! Servers of a cluster.

use serde::Serialize;

/// A server and its last probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerSnapshot {
    /// Its name; `channel NAME` for the target of a channel that is no `[[server]]`.
    pub name: String,
    /// `host:port` or a socket path.
    pub address: String,
    /// The last probe; absent before the first one.
    pub probe: Option<WritableProbe>,
}

/// What one probe says about writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WritableProbe {
    /// Time since the start of the probe, in milliseconds.
    pub age_ms: u64,
    /// Whether ordinary accounts can write; or why the server was not reached.
    pub writable: Result<bool, String>,
}

/// The answer to a health check of a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleCheck {
    /// The cluster.
    pub source: String,
    /// The server of the request, or the primary.
    pub server: String,
    /// The answer.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its greatest lag, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}
