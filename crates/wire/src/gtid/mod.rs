//! GTIDs and sets of them, in the notations and semantics of both flavours.

use std::fmt;

use crate::Flavour;

/// One transaction's global identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gtid {
    /// `uuid:[tag:]number`.
    MySql(MysqlGtid),
    /// `domain-server-sequence`.
    MariaDb(MariadbGtid),
}

/// A MySQL GTID.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MysqlGtid {
    /// UUID of the server (or group) that the transaction first committed on.
    pub uuid: [u8; 16],
    /// Empty, or up to 32 characters `[a-z_][a-z0-9_]*` (MySQL 8.3 and later).
    pub tag: String,
    /// 1..2^63-1.
    pub number: u64,
}

/// A MariaDB GTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MariadbGtid {
    /// Replication domain: an independent stream of sequence numbers.
    pub domain: u32,
    /// The server that the transaction first committed on.
    pub server_id: u32,
    /// Position in the domain.
    pub sequence: u64,
}

impl Gtid {
    /// The flavour whose notation this is.
    pub fn flavour(&self) -> Flavour {
        match self {
            Self::MySql(_) => Flavour::MySql,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }
}

impl fmt::Display for MariadbGtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.domain, self.server_id, self.sequence)
    }
}
