//! Identifiers that all crates of the workspace use.

use std::fmt;

/// The family of a server. Binlog events of both families have the same header format, but different bodies.
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
