//! Servers of a cluster.

use serde::Serialize;

/// A server and the result of its last probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerSnapshot {
    /// The server's name; `channel NAME` if the server is the target of a channel and has no `[[server]]`
    /// section.
    pub name: String,
    /// The server's address: `host:port` or the path of a socket.
    pub address: String,
    /// The result of the last probe; absent before the first one.
    pub probe: Option<WritableProbe>,
}

/// What one probe of a server found about writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WritableProbe {
    /// Time since the probe started, in milliseconds.
    pub age_ms: u64,
    /// Whether ordinary accounts can write to the server; or why the server was not reached.
    pub writable: Result<bool, String>,
}

/// The answer to a health check of a load balancer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleCheck {
    /// The name of the source of the checked cluster.
    pub source: String,
    /// The name of the server that the request named. If the request named no server, the name of the
    /// primary.
    pub server: String,
    /// Whether the server has the role that the request asks about.
    pub ok: bool,
    /// Why the server does not have this role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The server's lag, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// The server's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}
