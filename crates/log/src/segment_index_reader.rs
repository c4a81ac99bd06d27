//! Reads the index file of a segment, and handles an index that cannot be read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use crate::control_file::ControlFile;
use crate::error::LogError;
use crate::log_position::LogEntry;
use crate::segment_files::{index_name, segment_name};
use crate::segment_index::{
    FORMAT_VERSION, IndexDamage, IndexRecord, PREFIX_BYTES, RECORD_BYTES_MAX, SegmentHeader,
};
use crate::shared_log_state::SegmentState;
use crate::storage::{Directory, LogFile, OpenMode};

/// The number of bytes of an index that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Reads the records of an index in order. The file may grow while it is read.
#[derive(Debug)]
pub(crate) struct IndexReader {
    file: Arc<dyn LogFile>,
    path: PathBuf,
    segment: u64,
    /// The offset of `buffer[0]` in the file.
    buffer_offset: u64,
    buffer: Vec<u8>,
    /// The number of bytes in the buffer that came from the file.
    filled: usize,
    /// The number of bytes in the buffer that the caller has consumed.
    used: usize,
}

/// What follows in an index.
#[derive(Debug)]
pub(crate) enum NextRecord {
    /// A record and its length in bytes.
    Record(IndexRecord, usize),
    /// No record, or an incomplete record.
    End,
    /// Bytes that are not a record. The text describes what is wrong.
    Damaged(String),
}

impl IndexReader {
    /// Opens the index of a segment and reads its header. The inner `Err` states why the header cannot be
    /// used.
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
        // The header length in the file is within the limit. Before memory is allocated, compare it also with
        // the length of the file.
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
            Ok(header) => Ok(Err(IndexDamage::Malformed(format!(
                "the file is the index of segment {}",
                header.segment
            )))),
            Err(damage) => Self::unusable(path, damage),
        }
    }

    fn unusable(
        path: PathBuf,
        damage: IndexDamage,
    ) -> Result<Result<(SegmentHeader, Self), IndexDamage>, LogError> {
        match damage {
            // An index of a newer version is not damaged, and this older version must not rebuild it.
            IndexDamage::Version(found) => {
                Err(LogError::FormatVersion { path, found, known: FORMAT_VERSION })
            }
            damage => Ok(Err(damage)),
        }
    }

    /// Returns the offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.buffer_offset + self.used as u64
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns the next record without consuming it: see [`Self::advance`].
    pub(crate) fn peek(&mut self) -> Result<NextRecord, LogError> {
        let mut fresh = false;
        loop {
            match IndexRecord::decode(&self.buffer[self.used..self.filled], self.segment) {
                Ok((record, length)) => return Ok(NextRecord::Record(record, length)),
                Err(IndexDamage::Truncated) if fresh => return Ok(NextRecord::End),
                // The writer may have been writing these bytes while they were read. So read them again.
                Err(_) if !fresh => {
                    self.refill()?;
                    fresh = true;
                }
                Err(IndexDamage::Malformed(reason)) => return Ok(NextRecord::Damaged(reason)),
                Err(_) => return Ok(NextRecord::End),
            }
        }
    }

    /// Returns whether the last read found nothing after the last record.
    fn at_end(&self) -> bool {
        self.used == self.filled
    }

    /// Consumes the record of `length` bytes that [`Self::peek`] returned.
    pub(crate) fn advance(&mut self, length: usize) {
        self.used += length;
    }

    /// Continues at `offset`, which must be the beginning of a record, or the end of the index.
    pub(crate) fn seek(&mut self, offset: u64) {
        match offset.checked_sub(self.buffer_offset) {
            Some(used) if used <= self.filled as u64 => self.used = used as usize,
            _ => (self.buffer_offset, self.used, self.filled) = (offset, 0, 0),
        }
    }

    /// Frees the buffer.
    pub(crate) fn release_buffer(&mut self) {
        (self.buffer_offset, self.used, self.filled) = (self.offset(), 0, 0);
        self.buffer = Vec::new();
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

/// The usable entries at the start of an index. If the machine stopped while the segment was written, later
/// entries may be unusable.
#[derive(Debug)]
pub(crate) struct IndexFront {
    /// Offset in the index after the last usable entry.
    pub bytes: u64,
    /// The number of usable entries.
    pub entries: u64,
    /// Offset in the segment after the last usable entry.
    pub end: u64,
    /// The length of the segment, if the index has a seal.
    pub sealed: Option<u64>,
    /// Whether the index ends directly after the usable entries. Otherwise a damaged entry follows them.
    pub ends_cleanly: bool,
}

/// Reads entries as long as they are complete and without gaps. Calls `each` for every entry.
pub(crate) fn read_front(
    reader: &mut IndexReader,
    first: u64,
    mut each: impl FnMut(&LogEntry) -> Result<(), LogError>,
) -> Result<IndexFront, LogError> {
    let mut front =
        IndexFront { bytes: reader.offset(), entries: 0, end: first, sealed: None, ends_cleanly: false };
    while let NextRecord::Record(record, length) = reader.peek()? {
        match record {
            IndexRecord::Entry(entry) => {
                if entry.position.offset != front.end || entry.length == 0 {
                    break;
                }
                each(&entry)?;
                front.end = entry.end().offset;
                front.entries += 1;
            }
            IndexRecord::Seal { length, .. } => {
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

/// The index of a sealed segment: its header and its seal.
#[derive(Debug)]
pub(crate) struct SealedIndex {
    pub header: SegmentHeader,
    /// The length of the segment in bytes.
    pub length: u64,
    /// The number of entries.
    pub entries: u64,
}

/// Reads the header and the seal of an index. Returns `None` if one of them is missing or damaged.
pub(crate) fn read_sealed(directory: &dyn Directory, segment: u64) -> Result<Option<SealedIndex>, LogError> {
    let Ok((header, reader)) = IndexReader::open(directory, segment)? else {
        return Ok(None);
    };
    let mut seal = Vec::new();
    IndexRecord::encode_seal(0, 0, &mut seal);
    let io = |error| LogError::io("read", reader.path(), error);
    let file_bytes = reader.file.length().map_err(io)?;
    let Some(offset) = file_bytes.checked_sub(seal.len() as u64).filter(|offset| *offset >= reader.offset())
    else {
        return Ok(None);
    };
    let filled = reader.file.read_full_at(&mut seal, offset).map_err(io)?;
    Ok(match IndexRecord::decode(&seal[..filled], segment) {
        Ok((IndexRecord::Seal { length, entries }, _)) => Some(SealedIndex { header, length, entries }),
        _ => None,
    })
}

/// Returns whether the index of a segment has at least one entry.
pub(crate) fn has_entries(directory: &dyn Directory, segment: u64) -> Result<bool, LogError> {
    Ok(match IndexReader::open(directory, segment)? {
        Ok((_, mut reader)) => matches!(reader.peek()?, NextRecord::Record(IndexRecord::Entry(_), _)),
        Err(_) => false,
    })
}

/// Returns the header of a segment from its index. If the index is unreadable, the header comes from the
/// control file, or is derived from the previous segment.
pub(crate) fn read_or_derive_header(
    directory: &dyn Directory,
    segment: u64,
    control: Option<&ControlFile>,
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
        && let Some(header) = crate::newest_segment_recovery::header_after(directory, &previous.header)?
    {
        return Ok(header);
    }
    let reason = match damage {
        IndexDamage::Truncated => "the index is missing or too short".to_owned(),
        IndexDamage::Malformed(reason) => reason,
        IndexDamage::Version(version) => format!("the index has format version {version}"),
    };
    let name = segment_name(segment);
    Err(LogError::corrupt(
        directory.path_of(&index_name(segment)),
        0,
        format!("{reason}, and no other file holds the header of {name}"),
    ))
}
