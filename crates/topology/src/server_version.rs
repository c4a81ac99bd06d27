//! Versions of servers, which can be compared.

use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::server_version::parse_version;

/// The version of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerVersion {
    /// The major number: 9 of 9.7.1.
    pub major: u16,
    /// The minor number: 7 of 9.7.1.
    pub minor: u16,
    /// The patch number: 1 of 9.7.1.
    pub patch: u16,
}

impl ServerVersion {
    /// Parses a version such as `9.7.1`; missing numbers are 0.
    pub fn read(text: &str) -> Self {
        let (major, minor, patch) = parse_version(text);
        Self { major, minor, patch }
    }

    /// Returns the release series. Servers of one series can replicate from each other in both directions.
    pub fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
