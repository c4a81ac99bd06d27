//! A set of GTIDs of either flavour.

use std::fmt;

use super::{Gtid, MariadbBinlogState, MariadbRange, MysqlGtidSet};
use crate::{Flavour, WireError};

/// A set of GTIDs of one flavour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidSet {
    /// Exactly the transactions it names.
    MySql(MysqlGtidSet),
    /// All transactions up to the last one of each domain and server.
    MariaDb(MariadbBinlogState),
}

/// The difference of two sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidDifference {
    /// Exactly the transactions missing.
    MySql(MysqlGtidSet),
    /// Runs of sequence numbers, by domain.
    MariaDb(Vec<MariadbRange>),
}

impl GtidSet {
    /// The empty set.
    pub fn empty(flavour: Flavour) -> Self {
        match flavour {
            Flavour::MySql => Self::MySql(MysqlGtidSet::new()),
            Flavour::MariaDb => Self::MariaDb(MariadbBinlogState::new()),
        }
    }

    /// Reads `gtid_executed` (MySQL), or `gtid_binlog_state` or `gtid_slave_pos` (MariaDB).
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

    /// The flavour whose GTIDs it holds.
    pub fn flavour(&self) -> Flavour {
        match self {
            Self::MySql(_) => Flavour::MySql,
            Self::MariaDb(_) => Flavour::MariaDb,
        }
    }

    /// Adds a transaction; for MariaDB it becomes the last of its domain, as when a binlog is written.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a GTID of the other flavour, or one out of range.
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

    /// Whether the set holds `gtid`; never one of the other flavour. For MariaDB see
    /// [`MariadbBinlogState::contains`].
    pub fn contains(&self, gtid: &Gtid) -> bool {
        match (self, gtid) {
            (Self::MySql(set), Gtid::MySql(gtid)) => set.contains_gtid(gtid),
            (Self::MariaDb(state), Gtid::MariaDb(gtid)) => state.contains(gtid),
            _ => false,
        }
    }

    /// The union.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a set of the other flavour.
    pub fn union(&self, other: &Self) -> Result<Self, WireError> {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => Ok(Self::MySql(a.union(b))),
            (Self::MariaDb(a), Self::MariaDb(b)) => Ok(Self::MariaDb(a.union(b))),
            (a, b) => Err(other_flavour(a.flavour(), b.flavour())),
        }
    }

    /// The difference to `other`.
    ///
    /// # Errors
    /// [`WireError::Malformed`] for a set of the other flavour.
    pub fn subtract(&self, other: &Self) -> Result<GtidDifference, WireError> {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => Ok(GtidDifference::MySql(a.subtract(b))),
            (Self::MariaDb(a), Self::MariaDb(b)) => Ok(GtidDifference::MariaDb(a.subtract(b))),
            (a, b) => Err(other_flavour(a.flavour(), b.flavour())),
        }
    }

    /// Whether `other` is a superset. Across flavours: whether this set is empty.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MySql(a), Self::MySql(b)) => b.is_superset_of(a),
            (Self::MariaDb(a), Self::MariaDb(b)) => a.iter().all(|gtid| b.contains(&gtid)),
            _ => self.is_empty(),
        }
    }

    /// Whether the set is empty.
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
    /// Whether the difference is empty.
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
    WireError::malformed("GTID set", format!("a {theirs} GTID for a {ours} set"))
}
