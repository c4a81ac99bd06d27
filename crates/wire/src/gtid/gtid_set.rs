//! A GTID set of either flavour.

use std::fmt;

use super::{Gtid, MariadbBinlogState, MariadbRange, MysqlGtidSet};
use crate::{Flavour, WireError};

/// A GTID set of one flavour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidSet {
    /// The set holds exactly the transactions that it names.
    MySql(MysqlGtidSet),
    /// The set holds all transactions up to the last one of each domain and server.
    MariaDb(MariadbBinlogState),
}

/// The difference of two sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidDifference {
    /// For MySQL: exactly the missing transactions.
    MySql(MysqlGtidSet),
    /// For MariaDB: ranges of sequence numbers, by domain.
    MariaDb(Vec<MariadbRange>),
}

impl GtidSet {
    /// Returns the empty set.
    pub fn empty(flavour: Flavour) -> Self {
        match flavour {
            Flavour::MySql => Self::MySql(MysqlGtidSet::new()),
            Flavour::MariaDb => Self::MariaDb(MariadbBinlogState::new()),
        }
    }

    /// Parses the text of `gtid_executed` (MySQL), or of `gtid_binlog_state` or `gtid_slave_pos` (MariaDB).
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the offending text and its offset; [`WireError::TooLarge`] beyond
    /// [`GTID_SET_BYTES_MAX`](super::GTID_SET_BYTES_MAX).
    pub fn parse(flavour: Flavour, text: &str) -> Result<Self, WireError> {
        match flavour {
            Flavour::MySql => MysqlGtidSet::parse(text).map(Self::MySql),
            Flavour::MariaDb => MariadbBinlogState::parse(text).map(Self::MariaDb),
        }
    }

    /// Returns the flavour of the GTIDs in the set.
    pub fn flavour(&self) -> Flavour {
        match self {
            Self::MySql(_) => Flavour::MySql,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }

    /// Adds a transaction. For MariaDB, the transaction becomes the last of its domain, as when a server
    /// writes its binlog.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a GTID of the other flavour, or for a GTID out of range.
    pub fn insert(&mut self, gtid: &Gtid) -> Result<(), WireError> {
        match (self, gtid) {
            (Self::MySql(set), Gtid::MySql(gtid)) => set.insert(gtid).map(drop),
            (Self::MariaDb(state), Gtid::MariaDb(gtid)) => {
                state.update(*gtid);
                Ok(())
            }
            (set, gtid) => Err(other_flavour(set.flavour(), gtid.flavour())),
        }
    }

    /// Returns whether the set holds `gtid`. A set never holds a GTID of the other flavour. For MariaDB see
    /// [`MariadbBinlogState::contains`].
    pub fn contains(&self, gtid: &Gtid) -> bool {
        match (self, gtid) {
            (Self::MySql(set), Gtid::MySql(gtid)) => set.contains_gtid(gtid),
            (Self::MariaDb(state), Gtid::MariaDb(gtid)) => state.contains(gtid),
            _ => false,
        }
    }

    /// Returns the union of both sets.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if `other` is of the other flavour.
    pub fn union(&self, other: &Self) -> Result<Self, WireError> {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => Ok(Self::MySql(a.union(b))),
            (Self::MariaDb(a), Self::MariaDb(b)) => Ok(Self::MariaDb(a.union(b))),
            (a, b) => Err(other_flavour(a.flavour(), b.flavour())),
        }
    }

    /// Returns the transactions of this set that are not in `other`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if `other` is of the other flavour.
    pub fn subtract(&self, other: &Self) -> Result<GtidDifference, WireError> {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => Ok(GtidDifference::MySql(a.subtract(b))),
            (Self::MariaDb(a), Self::MariaDb(b)) => Ok(GtidDifference::MariaDb(a.subtract(b))),
            (a, b) => Err(other_flavour(a.flavour(), b.flavour())),
        }
    }

    /// Returns whether `other` holds all transactions of this set. If the flavours differ, it returns true
    /// only if this set is empty.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => b.is_superset_of(a),
            (Self::MariaDb(a), Self::MariaDb(b)) => a.iter().all(|gtid| b.contains(&gtid)),
            _ => self.is_empty(),
        }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::MySql(set) => set.is_empty(),
            Self::MariaDb(state) => state.is_empty(),
        }
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql(set) => set.fmt(f),
            Self::MariaDb(state) => state.fmt(f),
        }
    }
}

impl GtidDifference {
    /// Returns whether the difference is empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::MySql(set) => set.is_empty(),
            Self::MariaDb(ranges) => ranges.is_empty(),
        }
    }
}

impl fmt::Display for GtidDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql(set) => set.fmt(f),
            Self::MariaDb(ranges) => ranges.iter().enumerate().try_for_each(|(index, range)| {
                let comma = if index > 0 { "," } else { "" };
                write!(f, "{comma}{range}")
            }),
        }
    }
}

fn other_flavour(ours: Flavour, theirs: Flavour) -> WireError {
    WireError::malformed("GTID set", format!("a {theirs} GTID cannot be used with a {ours} set"))
}
