//! Small identifiers used everywhere.

use std::fmt;

/// Which family of servers bytes come from. Their binlogs share a frame and differ in what is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Oracle MySQL and Percona Server.
    MySql,
    /// MariaDB.
    MariaDb,
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MySql => "mysql",
            Self::MariaDb => "mariadb",
        })
    }
}

/// A server's `server_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
