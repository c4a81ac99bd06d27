//! GTIDs and GTID sets of both flavours.
//!
//! MySQL numbers transactions per UUID (and tag). A set of MySQL's GTIDs is a set of intervals:
//! [`MysqlGtidSet`]. MariaDB numbers transactions per replication domain in commit order. So the last GTIDs
//! describe which transactions a server holds: [`MariadbPosition`] and [`MariadbBinlogState`]. [`GtidSet`] is
//! a set of either flavour.

mod gtid_intervals;
mod gtid_set;
mod gtid_text_parser;
mod mariadb_gtid;
mod mysql_gtid;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::{Flavour, WireError};

pub use gtid_intervals::Interval;
pub use gtid_set::{GtidDifference, GtidSet};
pub use mariadb_gtid::{MariadbBinlogState, MariadbGtid, MariadbGtidList, MariadbPosition, MariadbRange};
pub use mysql_gtid::{MYSQL_NUMBER_MAX, MYSQL_TAG_CHARACTERS_MAX, MysqlGtid, MysqlGtidSet};

/// The maximum length of the text form or binary form of a set or list, in bytes. It has room for about a
/// million intervals.
pub const GTID_SET_BYTES_MAX: usize = 16 << 20;

/// The global transaction identifier of one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Gtid {
    /// `uuid:[tag:]number`.
    MySql(MysqlGtid),
    /// `domain-server-sequence`.
    MariaDb(MariadbGtid),
}

impl Gtid {
    /// Returns the flavour of the GTID.
    pub fn flavour(&self) -> Flavour {
        match self {
            Self::MySql(_) => Flavour::MySql,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }

    /// Parses one GTID in the notation of `flavour`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset.
    pub fn parse(flavour: Flavour, text: &str) -> Result<Self, WireError> {
        match flavour {
            Flavour::MySql => MysqlGtid::parse(text).map(Self::MySql),
            Flavour::MariaDb => MariadbGtid::parse(text).map(Self::MariaDb),
        }
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql(gtid) => gtid.fmt(f),
            Self::MariaDb(gtid) => gtid.fmt(f),
        }
    }
}

impl From<MysqlGtid> for Gtid {
    fn from(gtid: MysqlGtid) -> Self {
        Self::MySql(gtid)
    }
}

impl From<MariadbGtid> for Gtid {
    fn from(gtid: MariadbGtid) -> Self {
        Self::MariaDb(gtid)
    }
}

fn check_size(what: &'static str, size: usize) -> Result<(), WireError> {
    if size > GTID_SET_BYTES_MAX {
        return Err(WireError::TooLarge { what, size: size as u64, size_max: GTID_SET_BYTES_MAX as u64 });
    }
    Ok(())
}
