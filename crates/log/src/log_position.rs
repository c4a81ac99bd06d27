//! Positions in the log, and the index entries at these positions.

use std::fmt;

use tailwater_wire::Flavour;
use tailwater_wire::gtid::Gtid;

/// A position in the log: an offset in one of its segments. Positions compare in the order of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The number of the segment, from 1. The number 0 is before every entry, also in an empty log.
    pub segment: u64,
    /// The offset in the segment's file, in bytes.
    pub offset: u64,
}

impl LogPosition {
    /// The position before every entry.
    pub const ZERO: Self = Self { segment: 0, offset: 0 };
}

/// A position between two entries, with the place in the index at which a reader continues there. It is valid
/// for all readers of the log in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderPlace {
    /// The position after the last entry.
    pub position: LogPosition,
    /// The offset in the index after the record of the last entry.
    pub(crate) index_offset: u64,
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment, self.offset)
    }
}

/// The server that the events of a segment came from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceIdentity {
    /// The flavour of the server.
    #[serde(with = "flavour_text")]
    pub flavour: Flavour,
    /// MySQL's `server_uuid`; `None` on MariaDB.
    pub server_uuid: Option<String>,
    /// The `server_id` of the server.
    pub server_id: u32,
    /// The version of the server, as `SELECT VERSION()` returns it.
    pub server_version: String,
}

impl SourceIdentity {
    /// Returns whether both identities are of the same server, as far as is known. For MariaDB only the
    /// `server_id` is compared.
    pub fn same_server(&self, other: &Self) -> bool {
        self.flavour == other.flavour
            && match (&self.server_uuid, &other.server_uuid) {
                (Some(ours), Some(theirs)) => ours.eq_ignore_ascii_case(theirs),
                _ => self.server_id == other.server_id,
            }
    }
}

/// The end of a log, as a position in the source's binlog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTail {
    /// The source's binlog file of which the last segment is a copy.
    pub file: String,
    /// The offset in `file` after the last whole transaction or event in the log.
    pub end: u64,
    /// The server that the file came from.
    pub source: SourceIdentity,
    /// The last transaction of the log, if it is in `file`.
    pub last_transaction: Option<TransactionSpan>,
}

/// The position of a transaction in the source's binlog file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSpan {
    /// The offset of the transaction's first byte.
    pub source_start: u64,
    /// The offset after the transaction's last byte.
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

/// Further properties of an entry in the index, as a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryFlags(pub u16);

impl EntryFlags {
    /// The first event of the transaction marks the transaction as DDL (MariaDB only).
    pub const DDL: Self = Self(0x0001);

    /// Returns whether all bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// An entry of the index: one transaction, or one event between transactions. The entries of a segment have
/// no gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The position of the first byte.
    pub position: LogPosition,
    /// The length in bytes.
    pub length: u64,
    /// Whether the entry is a transaction or a single event.
    pub kind: EntryKind,
    /// The GTID of the transaction, if it has one.
    pub gtid: Option<Gtid>,
    /// The offset after the last byte in the source's binlog file.
    pub source_end: u64,
    /// When the transaction committed on its original server, in microseconds since 1970. For MySQL 8 and
    /// later the time is exact. For other servers it is the time of the last event, in whole seconds. 0 if
    /// unknown.
    pub commit_time_us: u64,
    /// Further properties of the entry.
    pub flags: EntryFlags,
}

impl LogEntry {
    /// Returns the position of the next entry.
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.position.segment, offset: self.position.offset + self.length }
    }

    /// Returns the offset of the first byte in the source's binlog file.
    pub fn source_start(&self) -> u64 {
        self.source_end.saturating_sub(self.length)
    }

    /// Returns whether the entry is a transaction.
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
