//! Limits for clients.

use std::time::Duration;

/// The maximum packet before a login, in bytes: connection attributes of 64 KiB and everything else.
pub const LOGIN_BYTES_MAX: usize = 80 << 10;

/// Limits for clients. An address is one of IPv4, or a /64 network of IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of connections, those not logged in included.
    pub connections_max: usize,
    /// The maximum number of connections not logged in.
    pub unauthenticated_max: usize,
    /// The maximum number of connections of one address not logged in, so that one address cannot block all
    /// others.
    pub unauthenticated_per_address_max: usize,
    /// New connections per second and address, with bursts of up to one second's number.
    pub connections_per_second_max: u32,
    /// Timeout of TLS and login together, without the delay after failed logins.
    pub login_timeout: Duration,
    /// The delay of the answer to a login after the address failed once, whether the login is right or wrong.
    /// Doubles with each further failure.
    pub failed_login_delay: Duration,
    /// The maximum delay.
    pub failed_login_delay_max: Duration,
    /// The delay is halved after each such period without a failure of the address.
    pub failed_login_forgiven_after: Duration,
    /// The maximum size of a command in bytes.
    pub command_bytes_max: usize,
    /// Timeout between commands; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// How long a client may accept no bytes; `None` for no limit.
    pub write_timeout: Option<Duration>,
}

impl Default for ConnectionLimits {
    /// 1000 connections, 128 of them not logged in, 32 of one address; 100 per second and address; 10 s to
    /// log in; a delay of 200 ms to 5 s, halved every 30 s; commands up to 16 MiB; 8 h between commands; 60 s
    /// for a write.
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
