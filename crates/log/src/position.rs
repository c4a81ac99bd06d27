//! Positions in the log, and the entries at them.

use std::fmt;

use tailwater_wire::Flavour;
use tailwater_wire::gtid::Gtid;

/// A position in the log: an offset in one of its segments. Ordered as the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Number of the segment, from 1. 0 is before every entry: an empty log.
    pub segment: u64,
    /// Offset in the segment's file, in bytes.
    pub offset: u64,
}

impl LogPosition {
    /// The position before every entry.
    pub const ZERO: Self = Self { segment: 0, offset: 0 };
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

/// The server that a segment's events came from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceIdentity {
    /// Its flavour.
    #[serde(with = "flavour_text")]
    pub flavour: Flavour,
    /// MySQL's `server_uuid`; `None` on MariaDB.
    pub server_uuid: Option<String>,
    /// Its `server_id`.
    pub server_id: u32,
    /// Its version, as `SELECT VERSION()` returns it.
    pub server_version: String,
}

impl SourceIdentity {
    /// Whether both are the same server, as far as is known: MariaDB has only its `server_id`.
    pub fn same_server(&self, other: &Self) -> bool {
        self.flavour == other.flavour
            && match (&self.server_uuid, &other.server_uuid) {
                (Some(ours), Some(theirs)) => ours.eq_ignore_ascii_case(theirs),
                _ => self.server_id == other.server_id,
            }
    }
}

/// Where a log ends in its source's binlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTail {
    /// The source's binlog file that the last segment mirrors.
    pub file: String,
    /// Offset in it after the last whole transaction or event in the log.
    pub end: u64,
    /// The server that it came from.
    pub source: SourceIdentity,
    /// The log's last transaction, if it is in that file.
    pub last_transaction: Option<TransactionSpan>,
}

/// Position of a transaction in the source's binlog file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSpan {
    /// Offset of its first byte.
    pub source_start: u64,
    /// Offset after its last byte.
    pub source_end: u64,
}

/// What a [`LogEntry`] covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A whole transaction, from its first event to its last.
    Transaction,
    /// One event between transactions (format description, previous GTIDs, rotate, ...).
    Event,
}

/// Further properties of an entry in the index; a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryFlags(pub u16);

impl EntryFlags {
    /// The transaction's first event marks it as DDL (MariaDB only).
    pub const DDL: Self = Self(0x0001);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// One transaction, or one event between transactions. Entries follow each other without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Position of its first byte.
    pub position: LogPosition,
    /// Length in bytes.
    pub length: u64,
    /// Transaction or single event.
    pub kind: EntryKind,
    /// The transaction's GTID, if it has one.
    pub gtid: Option<Gtid>,
    /// Offset after its last byte in the source's binlog file.
    pub source_end: u64,
    /// When the transaction committed on its original server, in microseconds since 1970. Exact from MySQL 8
    /// on; otherwise the time of its last event, in whole seconds. 0 if unknown.
    pub commit_time_us: u64,
    /// See [`EntryFlags`].
    pub flags: EntryFlags,
}

impl LogEntry {
    /// Position of the next entry.
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.position.segment, offset: self.position.offset + self.length }
    }

    /// Offset of its first byte in the source's binlog file.
    pub fn source_start(&self) -> u64 {
        self.source_end.saturating_sub(self.length)
    }

    /// Whether it is a transaction.
    pub fn is_transaction(&self) -> bool {
        self.kind == EntryKind::Transaction
    }
}

/// Serializes [`Flavour`] as its name.
pub(crate) mod flavour_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tailwater_wire::Flavour;

    pub(crate) fn serialize<S: Serializer>(flavour: &Flavour, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(flavour)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Flavour, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "mysql" => Ok(Flavour::MySql),
            "mariadb" => Ok(Flavour::MariaDb),
            other => Err(D::Error::custom(format!("unknown flavour {other:?}"))),
        }
    }
}
