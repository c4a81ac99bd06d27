//! Limits for client connections and logins.

use std::time::Duration;

/// The maximum size in bytes of a packet before the login. It is large enough for 64 KiB of connection
/// attributes and all other fields.
pub const LOGIN_BYTES_MAX: usize = 80 << 10;

/// Limits for client connections and logins. An address in these limits is an IPv4 address or a /64 network
/// of IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of connections, including those that are not logged in.
    pub connections_max: usize,
    /// The maximum number of connections that are not logged in.
    pub unauthenticated_max: usize,
    /// The maximum number of connections from one address that are not logged in, so that one address cannot
    /// block all others.
    pub unauthenticated_per_address_max: usize,
    /// The maximum number of new connections per second from one address. A burst may have as many
    /// connections as are allowed in one second.
    pub connections_per_second_max: u32,
    /// The time limit for TLS and login together, without the delay after failed logins.
    pub login_timeout: Duration,
    /// How long the answer to a login is delayed after one failed login from the same address. Right and
    /// wrong passwords are delayed equally. The delay doubles with each further failure.
    pub failed_login_delay: Duration,
    /// The maximum delay of the answer to a login.
    pub failed_login_delay_max: Duration,
    /// Each time this period passes without a failed login from the address, the delay is halved.
    pub failed_login_forgiven_after: Duration,
    /// The maximum size of a command in bytes.
    pub command_bytes_max: usize,
    /// The maximum time between two commands; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// How long a client may accept no bytes before it is disconnected; `None` for no limit.
    pub write_timeout: Option<Duration>,
}

impl Default for ConnectionLimits {
    /// Returns the defaults. Connections: 1000 in total, up to 128 that are not logged in yet (up to 32 of
    /// them from one address), 100 new connections per second from one address. Logins: 10 s to log in, a
    /// delay of 200 ms to 5 s after failures, halved every 30 s. Commands: up to 16 MiB, at most 8 h between
    /// two commands, 60 s for a write.
    fn default() -> Self {
        Self {
            connections_max: 1000,
            unauthenticated_max: 128,
            unauthenticated_per_address_max: 32,
            connections_per_second_max: 100,
            login_timeout: Duration::from_secs(10),
            failed_login_delay: Duration::from_millis(200),
            failed_login_delay_max: Duration::from_secs(5),
            failed_login_forgiven_after: Duration::from_secs(30),
            command_bytes_max: 16 << 20,
            idle_timeout: Some(Duration::from_secs(8 * 3600)),
            write_timeout: Some(Duration::from_secs(60)),
        }
    }
}
