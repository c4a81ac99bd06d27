//! The index of a segment: the position of each transaction. Format: docs/reference/log-format.md.
//!
//! An entry is written to the index only after its bytes in the segment are durable. So every byte that the
//! index covers was durable when its entry was written. Missing entries can be built again from the segment.
//! The header of the index cannot be built from the segment. So the log syncs the header before it writes the
//! first event of the segment.

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::{Gtid, MariadbGtid, MysqlGtid};

use crate::log_position::{EntryFlags, EntryKind, LogEntry, LogPosition, SourceIdentity};

const MAGIC: [u8; 8] = *b"TWINDEX\n";

/// The newest format version. New indexes are written in this version.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The number of bytes before the JSON document. They contain the magic bytes, the version, and the length of
/// the document.
pub(crate) const PREFIX_BYTES: usize = 16;

/// The maximum length in bytes of the JSON document in a header. It is large enough for a GTID set of a
/// million intervals.
const DOCUMENT_BYTES_MAX: u32 = 64 << 20;

const CRC_BYTES: usize = 4;

/// The maximum length of a record in bytes. The length of a record is stored in one byte, after the CRC.
pub(crate) const RECORD_BYTES_MAX: usize = CRC_BYTES + 1 + u8::MAX as usize;

/// The length of the kind, the flags, and four integers of a record.
const RECORD_FIXED_BYTES: usize = 1 + 2 + 4 * 8;

const KIND_TRANSACTION: u8 = 1;
const KIND_EVENT: u8 = 2;
const KIND_SEAL: u8 = 3;

const GTID_NONE: u8 = 0;
const GTID_MYSQL: u8 = 1;
const GTID_MARIADB: u8 = 2;

/// The properties of a segment that are known before its first event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SegmentHeader {
    /// The number of the segment.
    pub segment: u64,
    /// The source's binlog file of which the segment is a copy.
    pub source_file: String,
    /// The offset of the segment's first event in `source_file`. It is 4 if the segment is a copy of the
    /// whole file.
    pub source_offset: u64,
    /// The server that wrote the events.
    pub source: SourceIdentity,
    /// The number of the server that the events came from: 1 for the first, and 1 more after each change of
    /// the server. The epoch distinguishes files of the same name from two servers.
    #[serde(default = "first_epoch")]
    pub epoch: u32,
    /// The GTIDs of all transactions of the log before this segment, in the notation of the flavour.
    pub gtids_before: String,
    /// Whether `gtids_before` is complete. It is incomplete if the log begins with this segment, or began in
    /// the middle of a file. Then the first events of a later binlog file complete it, because they list all
    /// earlier GTIDs.
    pub gtids_known: bool,
}

/// The default epoch for old logs. They have no epoch field, and all their events come from one server.
fn first_epoch() -> u32 {
    1
}

/// Why an index or a part of it cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum IndexDamage {
    /// The index ends in the middle of a record or header.
    Truncated,
    /// The bytes violate the format, or a checksum does not match.
    Malformed(String),
    /// A newer version of Tailwater wrote the index.
    Version(u32),
}

impl std::fmt::Display for IndexDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => f.write_str("the index ends in the middle of a record"),
            Self::Malformed(reason) => write!(f, "the index is malformed: {reason}"),
            Self::Version(version) => {
                write!(f, "the index has version {version}, which a newer Tailwater wrote")
            }
        }
    }
}

impl SegmentHeader {
    /// Returns the bytes at the start of an index file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Serializing strings and integers cannot fail.
        let document = serde_json::to_vec(self).unwrap_or_default();
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + document.len() + CRC_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&(document.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&document);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Returns the length in bytes of the whole header. `prefix` holds its first [`PREFIX_BYTES`] bytes.
    pub(crate) fn encoded_bytes(prefix: &[u8]) -> Result<usize, IndexDamage> {
        let (Some(magic), Some(version), Some(length)) =
            (prefix.get(..8), u32_at(prefix, 8), u32_at(prefix, 12))
        else {
            return Err(IndexDamage::Truncated);
        };
        if magic != MAGIC {
            return Err(IndexDamage::Malformed(
                "the file does not begin with the magic bytes of an index".into(),
            ));
        }
        if version > FORMAT_VERSION {
            return Err(IndexDamage::Version(version));
        }
        if length > DOCUMENT_BYTES_MAX {
            return Err(IndexDamage::Malformed(format!(
                "the file states a header of {length} bytes, which is too many"
            )));
        }
        Ok(PREFIX_BYTES + length as usize + CRC_BYTES)
    }

    /// Parses a header. `bytes` has the length that [`Self::encoded_bytes`] returned.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, IndexDamage> {
        let length = Self::encoded_bytes(bytes)?;
        let bytes = bytes.get(..length).ok_or(IndexDamage::Truncated)?;
        let (checked, crc) = bytes.split_at(length - CRC_BYTES);
        if u32_at(crc, 0) != Some(crc32fast::hash(checked)) {
            return Err(IndexDamage::Malformed("the header's checksum does not match".into()));
        }
        serde_json::from_slice(&checked[PREFIX_BYTES..])
            .map_err(|error| IndexDamage::Malformed(format!("the header cannot be read: {error}")))
    }
}

/// One record of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IndexRecord {
    /// An entry: a transaction, or an event between transactions.
    Entry(LogEntry),
    /// The last record of the index of a complete segment.
    Seal {
        /// The length of the segment in bytes.
        length: u64,
        /// The number of entries before this record.
        entries: u64,
    },
}

impl IndexRecord {
    /// Appends the bytes of the record.
    #[cfg(test)]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Entry(entry) => Self::encode_entry(entry, out),
            Self::Seal { length, entries } => Self::encode_seal(*length, *entries, out),
        }
    }

    /// Appends the bytes of the record of an entry.
    pub(crate) fn encode_entry(entry: &LogEntry, out: &mut Vec<u8>) {
        let kind = match entry.kind {
            EntryKind::Transaction => KIND_TRANSACTION,
            EntryKind::Event => KIND_EVENT,
        };
        let integers = [entry.position.offset, entry.length, entry.source_end, entry.commit_time_us];
        put_record(out, kind, entry.flags.0, integers, entry.gtid.as_ref());
    }

    /// Appends the bytes of a seal, the last record of an index.
    pub(crate) fn encode_seal(length: u64, entries: u64, out: &mut Vec<u8>) {
        put_record(out, KIND_SEAL, 0, [length, entries, 0, 0], None);
    }

    /// Parses the record at the start of `bytes`. Returns the record and its length in bytes.
    pub(crate) fn decode(bytes: &[u8], segment: u64) -> Result<(Self, usize), IndexDamage> {
        let (Some(crc), Some(length)) = (u32_at(bytes, 0), bytes.get(CRC_BYTES)) else {
            return Err(IndexDamage::Truncated);
        };
        let end = CRC_BYTES + 1 + usize::from(*length);
        let checked = bytes.get(CRC_BYTES..end).ok_or(IndexDamage::Truncated)?;
        // After a crash, a page that was never written consists of zeros. Such a page never passes this
        // check, because the CRC of zeros is not zero.
        if crc != crc32fast::hash(checked) {
            return Err(IndexDamage::Malformed("a record's checksum does not match".into()));
        }
        let record = parse_body(&checked[1..], segment)
            .ok_or_else(|| IndexDamage::Malformed("a record has an unknown layout".into()))?;
        Ok((record, end))
    }
}

fn put_record(out: &mut Vec<u8>, kind: u8, flags: u16, integers: [u64; 4], gtid: Option<&Gtid>) {
    let start = out.len();
    out.extend_from_slice(&[0; CRC_BYTES + 1]);
    out.push(kind);
    out.extend_from_slice(&flags.to_le_bytes());
    for integer in integers {
        out.extend_from_slice(&integer.to_le_bytes());
    }
    put_gtid(out, gtid);
    let length = out.len() - start - CRC_BYTES - 1;
    debug_assert!(length <= usize::from(u8::MAX));
    out[start + CRC_BYTES] = length as u8;
    let crc = crc32fast::hash(&out[start + CRC_BYTES..]);
    out[start..start + CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
}

fn put_gtid(out: &mut Vec<u8>, gtid: Option<&Gtid>) {
    match gtid {
        None => out.push(GTID_NONE),
        Some(Gtid::MySql(gtid)) => {
            out.push(GTID_MYSQL);
            out.extend_from_slice(&gtid.uuid);
            out.extend_from_slice(&gtid.number.to_le_bytes());
            // A tag has at most 32 bytes. It is the last field of the record.
            out.extend_from_slice(gtid.tag.as_bytes());
        }
        Some(Gtid::MariaDb(gtid)) => {
            out.push(GTID_MARIADB);
            out.extend_from_slice(&gtid.domain.to_le_bytes());
            out.extend_from_slice(&gtid.server_id.to_le_bytes());
            out.extend_from_slice(&gtid.sequence.to_le_bytes());
        }
    }
}

fn parse_body(body: &[u8], segment: u64) -> Option<IndexRecord> {
    let flags = u16::from_le_bytes(body.get(1..3)?.try_into().ok()?);
    let [first, second, source_end, commit_time_us] =
        [u64_at(body, 3)?, u64_at(body, 11)?, u64_at(body, 19)?, u64_at(body, 27)?];
    let kind = match body[0] {
        KIND_SEAL => return Some(IndexRecord::Seal { length: first, entries: second }),
        KIND_TRANSACTION => EntryKind::Transaction,
        KIND_EVENT => EntryKind::Event,
        _ => return None,
    };
    let gtid = parse_gtid(body.get(RECORD_FIXED_BYTES..)?)?;
    let flags = EntryFlags(flags);
    let position = LogPosition { segment, offset: first };
    first.checked_add(second)?;
    Some(IndexRecord::Entry(LogEntry {
        position,
        length: second,
        kind,
        gtid,
        source_end,
        commit_time_us,
        flags,
    }))
}

fn parse_gtid(bytes: &[u8]) -> Option<Option<Gtid>> {
    let (kind, bytes) = bytes.split_first()?;
    Some(match *kind {
        GTID_NONE => None,
        GTID_MYSQL => Some(Gtid::MySql(MysqlGtid {
            uuid: bytes.get(..16)?.try_into().ok()?,
            number: u64_at(bytes, 16)?,
            tag: std::str::from_utf8(bytes.get(24..)?).ok()?.to_owned(),
        })),
        GTID_MARIADB => Some(Gtid::MariaDb(MariadbGtid {
            domain: u32_at(bytes, 0)?,
            server_id: u32_at(bytes, 4)?,
            sequence: u64_at(bytes, 8)?,
        })),
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tailwater_wire::Flavour;

    fn gtid() -> impl Strategy<Value = Option<Gtid>> {
        prop_oneof![
            Just(None),
            (any::<[u8; 16]>(), "([a-z_][a-z0-9_]{0,31})?", any::<u64>())
                .prop_map(|(uuid, tag, number)| Some(Gtid::MySql(MysqlGtid { uuid, tag, number }))),
            (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(domain, server_id, sequence)| Some(
                Gtid::MariaDb(MariadbGtid { domain, server_id, sequence })
            )),
        ]
    }

    fn record() -> impl Strategy<Value = IndexRecord> {
        let entry =
            (any::<u32>(), any::<u32>(), any::<bool>(), gtid(), any::<u64>(), any::<u64>(), any::<u16>());
        prop_oneof![
            entry.prop_map(|(offset, length, transaction, gtid, source_end, commit_time_us, flags)| {
                IndexRecord::Entry(LogEntry {
                    position: LogPosition { segment: 7, offset: offset.into() },
                    length: length.into(),
                    kind: if transaction { EntryKind::Transaction } else { EntryKind::Event },
                    gtid,
                    source_end,
                    commit_time_us,
                    flags: EntryFlags(flags),
                })
            }),
            (any::<u64>(), any::<u64>()).prop_map(|(length, entries)| IndexRecord::Seal { length, entries }),
        ]
    }

    proptest! {
        #[test]
        fn records_round_trip_and_damage_is_detected(
            records in proptest::collection::vec(record(), 1..5),
            at in any::<proptest::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut bytes = Vec::new();
            for record in &records {
                record.encode(&mut bytes);
            }
            let mut rest = bytes.as_slice();
            for record in &records {
                let (decoded, length) = IndexRecord::decode(rest, 7).unwrap();
                prop_assert_eq!(&decoded, record);
                prop_assert!(length <= RECORD_BYTES_MAX);
                rest = &rest[length..];
            }
            prop_assert!(rest.is_empty());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut rest = bytes.as_slice();
            let survived = records.iter().take_while(|record| match IndexRecord::decode(rest, 7) {
                Ok((decoded, length)) => {
                    rest = &rest[length..];
                    decoded == **record
                }
                Err(_) => false,
            });
            prop_assert!(survived.count() < records.len());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = IndexRecord::decode(&bytes, 1);
            let _ = SegmentHeader::decode(&bytes);
            let mut framed = vec![0; 4];
            framed.extend_from_slice(&bytes);
            let crc = crc32fast::hash(&bytes);
            framed[..4].copy_from_slice(&crc.to_le_bytes());
            let _ = IndexRecord::decode(&framed, 1);
        }
    }

    #[test]
    fn a_page_of_zeros_is_not_a_record() {
        assert!(matches!(IndexRecord::decode(&[0; 64], 1), Err(IndexDamage::Malformed(_))));
    }

    #[test]
    fn header_round_trips_and_damage_is_detected() {
        let header = SegmentHeader {
            segment: 3,
            source_file: "binlog.000017".into(),
            source_offset: 4,
            source: SourceIdentity {
                flavour: Flavour::MySql,
                server_uuid: Some("11111111-2222-3333-4444-555555555555".into()),
                server_id: 1,
                server_version: "9.7.0".into(),
            },
            epoch: 2,
            gtids_before: "11111111-2222-3333-4444-555555555555:1-7".into(),
            gtids_known: true,
        };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::encoded_bytes(&bytes[..PREFIX_BYTES]), Ok(bytes.len()));
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert!(
                SegmentHeader::decode(&damaged).is_err(),
                "a changed byte at offset {at} is not detected"
            );
            assert!(SegmentHeader::decode(&bytes[..at]).is_err(), "truncation to {at} bytes is not detected");
        }
        let mut newer = bytes;
        newer[8] = 2;
        assert_eq!(SegmentHeader::decode(&newer), Err(IndexDamage::Version(2)));
    }
}
