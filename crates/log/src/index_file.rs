//! Reading the index of a segment from its file, and what to do where it cannot be read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use crate::control::Control;
use crate::error::LogError;
use crate::index::{FORMAT_VERSION, IndexDamage, PREFIX_BYTES, RECORD_BYTES_MAX, Record, SegmentHeader};
use crate::position::LogEntry;
use crate::progress::SegmentState;
use crate::segment::{index_name, segment_name};
use crate::storage::{Directory, File, OpenMode};

/// How much of an index is read at once.
const READ_BYTES: usize = 64 << 10;

/// Reads the records of an index front to back; follows a file that grows.
#[derive(Debug)]
pub(crate) struct IndexReader {
    file: Arc<dyn File>,
    path: PathBuf,
    segment: u64,
    /// Offset of `buffer[0]` in the file.
    buffer_offset: u64,
    buffer: Vec<u8>,
    /// How much of the buffer was filled from the file.
    filled: usize,
    /// How much of that was consumed.
    used: usize,
}

/// What stands next in an index.
#[derive(Debug)]
pub(crate) enum NextRecord {
    /// A record, and its length in bytes.
    Record(Record, usize),
    /// Nothing, or nothing whole.
    End,
    /// Something that is no record.
    Damaged(String),
}

impl IndexReader {
    /// Opens the index of a segment and reads its header; `Err` inside if the header cannot be used.
    pub(crate) fn open(
        directory: &dyn Directory,
        segment: u64,
    ) -> Result<Result<(SegmentHeader, Self), IndexDamage>, LogError> {
        let name = index_name(segment);
        let path = directory.path_of(&name);
        let file = match directory.open(&name, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err(IndexDamage::Truncated)),
            Err(error) => return Err(LogError::io("open", path, error)),
        };
        let read = |buffer: &mut [u8]| {
            file.read_full_at(buffer, 0).map_err(|error| LogError::io("read", &path, error))
        };
        let mut prefix = [0; PREFIX_BYTES];
        let filled = read(&mut prefix)?;
        let length = match SegmentHeader::encoded_bytes(&prefix[..filled]) {
            Ok(length) => length,
            Err(damage) => return Self::unusable(path, damage),
        };
        // The length was checked against a limit; a file that is shorter is not read into more than it has.
        let file_bytes = file.length().map_err(|error| LogError::io("read", &path, error))?;
        if file_bytes < length as u64 {
            return Ok(Err(IndexDamage::Truncated));
        }
        let mut bytes = vec![0; length];
        let filled = read(&mut bytes)?;
        match SegmentHeader::decode(&bytes[..filled]) {
            Ok(header) if header.segment == segment => {
                let buffer_offset = length as u64;
                let reader =
                    Self { file, path, segment, buffer_offset, buffer: Vec::new(), filled: 0, used: 0 };
                Ok(Ok((header, reader)))
            }
            Ok(header) => {
                Ok(Err(IndexDamage::Malformed(format!("it is the index of segment {}", header.segment))))
            }
            Err(damage) => Self::unusable(path, damage),
        }
    }

    fn unusable(
        path: PathBuf,
        damage: IndexDamage,
    ) -> Result<Result<(SegmentHeader, Self), IndexDamage>, LogError> {
        match damage {
            // What a newer program wrote is no damage, and must not be rebuilt by an older one.
            IndexDamage::Version(found) => {
                Err(LogError::FormatVersion { path, found, known: FORMAT_VERSION })
            }
            damage => Ok(Err(damage)),
        }
    }

    /// Where the next record begins.
    pub(crate) fn offset(&self) -> u64 {
        self.buffer_offset + self.used as u64
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// The next record, which stays the next one until [`Self::advance`].
    pub(crate) fn peek(&mut self) -> Result<NextRecord, LogError> {
        let mut fresh = false;
        loop {
            match Record::decode(&self.buffer[self.used..self.filled], self.segment) {
                Ok((record, length)) => return Ok(NextRecord::Record(record, length)),
                Err(IndexDamage::Truncated) if fresh => return Ok(NextRecord::End),
                // What was read may have been half written then.
                Err(_) if !fresh => {
                    self.refill()?;
                    fresh = true;
                }
                Err(IndexDamage::Malformed(reason)) => return Ok(NextRecord::Damaged(reason)),
                Err(_) => return Ok(NextRecord::End),
            }
        }
    }

    /// Whether nothing stood behind the last record when that was last looked at.
    fn at_end(&self) -> bool {
        self.used == self.filled
    }

    /// Passes over the record of `length` bytes just peeked at.
    pub(crate) fn advance(&mut self, length: usize) {
        self.used += length;
    }

    fn refill(&mut self) -> Result<(), LogError> {
        self.buffer_offset = self.offset();
        (self.used, self.filled) = (0, 0);
        self.buffer.resize(READ_BYTES.max(RECORD_BYTES_MAX), 0);
        self.filled = self
            .file
            .read_full_at(&mut self.buffer, self.buffer_offset)
            .map_err(|error| LogError::io("read", &self.path, error))?;
        Ok(())
    }
}

/// The usable front of an index whose segment may have been written to when the machine stopped.
#[derive(Debug)]
pub(crate) struct IndexFront {
    /// Offset behind the last usable entry.
    pub bytes: u64,
    /// How many entries there are.
    pub entries: u64,
    /// Offset in the segment behind the last of them.
    pub end: u64,
    /// The segment's length, if its seal was found.
    pub sealed: Option<u64>,
    /// Nothing that could have been an entry stands behind the last one.
    pub ends_cleanly: bool,
}

/// Reads entries as long as they are whole and follow each other, calling `each` for them.
pub(crate) fn read_front(
    reader: &mut IndexReader,
    first: u64,
    mut each: impl FnMut(&LogEntry) -> Result<(), LogError>,
) -> Result<IndexFront, LogError> {
    let mut front =
        IndexFront { bytes: reader.offset(), entries: 0, end: first, sealed: None, ends_cleanly: false };
    while let NextRecord::Record(record, length) = reader.peek()? {
        match record {
            Record::Entry(entry) => {
                if entry.position.offset != front.end || entry.length == 0 {
                    break;
                }
                each(&entry)?;
                front.end = entry.end().offset;
                front.entries += 1;
            }
            Record::Seal { length, .. } => {
                if length == front.end {
                    front.sealed = Some(length);
                }
                break;
            }
        }
        reader.advance(length);
        front.bytes = reader.offset();
    }
    front.ends_cleanly = reader.at_end();
    Ok(front)
}

/// A sealed segment's index, by its two ends.
#[derive(Debug)]
pub(crate) struct SealedIndex {
    pub header: SegmentHeader,
    /// Length of the segment.
    pub length: u64,
    /// Number of entries.
    pub entries: u64,
}

/// Reads header and seal; `None` if either is missing or damaged.
pub(crate) fn read_sealed(directory: &dyn Directory, segment: u64) -> Result<Option<SealedIndex>, LogError> {
    let Ok((header, reader)) = IndexReader::open(directory, segment)? else {
        return Ok(None);
    };
    let mut seal = Vec::new();
    Record::encode_seal(0, 0, &mut seal);
    let io = |error| LogError::io("read", reader.path(), error);
    let file_bytes = reader.file.length().map_err(io)?;
    let Some(offset) = file_bytes.checked_sub(seal.len() as u64).filter(|offset| *offset >= reader.offset())
    else {
        return Ok(None);
    };
    let filled = reader.file.read_full_at(&mut seal, offset).map_err(io)?;
    Ok(match Record::decode(&seal[..filled], segment) {
        Ok((Record::Seal { length, entries }, _)) => Some(SealedIndex { header, length, entries }),
        _ => None,
    })
}

/// Whether the index of a segment has at least one entry.
pub(crate) fn has_entries(directory: &dyn Directory, segment: u64) -> Result<bool, LogError> {
    Ok(match IndexReader::open(directory, segment)? {
        Ok((_, mut reader)) => matches!(reader.peek()?, NextRecord::Record(Record::Entry(_), _)),
        Err(_) => false,
    })
}

/// A segment's header from its index or, where that is not readable, from the control file or from the segment before.
pub(crate) fn read_or_derive_header(
    directory: &dyn Directory,
    segment: u64,
    control: Option<&Control>,
    segments: &BTreeMap<u64, SegmentState>,
) -> Result<SegmentHeader, LogError> {
    let damage = match IndexReader::open(directory, segment)? {
        Ok((header, _)) => return Ok(header),
        Err(damage) => damage,
    };
    let known =
        control.and_then(|control| control.active.as_ref()).filter(|header| header.segment == segment);
    if let Some(header) = known {
        return Ok(header.clone());
    }
    if let Some(previous) = segments.get(&(segment - 1))
        && let Some(header) = crate::tail_recovery::header_after(directory, &previous.header)?
    {
        return Ok(header);
    }
    let reason = match damage {
        IndexDamage::Truncated => "it is missing or too short".to_owned(),
        IndexDamage::Malformed(reason) => reason,
        IndexDamage::Version(version) => format!("format version {version}"),
    };
    let name = segment_name(segment);
    Err(LogError::corrupt(
        directory.path_of(&index_name(segment)),
        0,
        format!("{reason}, and what it said about {name} is not written anywhere else"),
    ))
}
