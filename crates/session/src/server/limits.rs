//! How much clients may take.

use std::time::Duration;

/// The longest packet that is taken before a login, in bytes: connection attributes of 64 KiB and all else.
pub const LOGIN_BYTES_MAX: usize = 80 << 10;

/// How much clients may take. An address is one of IPv4, or a /64 network of IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many connections there may be at once, those not logged in included.
    pub connections_max: usize,
    /// How many of them may not be logged in.
    pub unauthenticated_max: usize,
    /// How many of one address may not be logged in, so that one cannot keep all others out.
    pub unauthenticated_per_address_max: usize,
    /// How many connections an address may open per second. It may save up those of one second.
    pub connections_per_second_max: u32,
    /// For TLS and login together. The delay after failed logins does not count.
    pub login_timeout: Duration,
    /// How long an address waits for the answer to a login, be it right or wrong, after it failed once. Doubles with each
    /// further failure.
    pub failed_login_delay: Duration,
    /// And how long at most.
    pub failed_login_delay_max: Duration,
    /// After this time without a failure of the address the delay is halved; after as much again halved again.
    pub failed_login_forgiven_after: Duration,
    /// The longest command in bytes.
    pub command_bytes_max: usize,
    /// How long a client may send nothing between commands; `None` for ever.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take none of what is sent; `None` for ever.
    pub write_timeout: Option<Duration>,
}

impl Default for ConnectionLimits {
    /// 1000 connections, 128 of them not logged in, 32 of one address; 100 per second and address; 10 s to log in; 200 ms
    /// to 5 s of delay, halved every 30 s; commands up to 16 MiB; 8 h of silence; 60 s for a write.
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
