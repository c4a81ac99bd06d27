//! Versions of servers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::server_version::parse_version;

/// A server's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerVersion {
    /// 9 of 9.7.1.
    pub major: u16,
    /// 7 of 9.7.1.
    pub minor: u16,
    /// 1 of 9.7.1.
    pub patch: u16,
}

impl ServerVersion {
    /// Parses `9.7.1`; missing numbers are 0.
    pub fn read(text: &str) -> Self {
        let (major, minor, patch) = parse_version(text);
        Self { major, minor, patch }
    }

    /// The release series. Servers of one series replicate from each other in both directions.
    pub fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
