//! The file names of a log, and a scanner for the events of a segment.

use std::sync::Arc;

use tailwater_wire::binlog_event::{
    CHECKSUM_BYTES, ChecksumAlgorithm, ChecksumChecker, EVENT_HEADER_BYTES, EventHeader, EventType,
    FormatDescription, verify_checksum,
};

use crate::error::LogError;
use crate::storage::LogFile;

/// Returns the file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:010}.binlog")
}

/// Returns the file name of a segment's index.
pub(crate) fn index_name(number: u64) -> String {
    format!("{number:010}.index")
}

/// Returns the number in the file name of a segment.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    parse_name(name, ".binlog")
}

/// Returns the number in the file name of an index.
pub(crate) fn parse_index_name(name: &str) -> Option<u64> {
    parse_name(name, ".index")
}

fn parse_name(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    let well_formed = digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (well_formed && format!("{number:010}") == digits).then_some(number)
}

/// A complete event with a valid checksum.
#[derive(Debug)]
pub(crate) struct ScannedEvent<'a> {
    /// The offset of the event's first byte.
    pub offset: u64,
    /// The header of the event.
    pub header: EventHeader,
    /// The bytes of the event from the header on, at most [`SCAN_WINDOW_BYTES`].
    pub first_chunk: &'a [u8],
}

/// A damaged or incomplete event.
#[derive(Debug)]
pub(crate) struct BadEvent {
    /// The offset at which the event begins.
    pub offset: u64,
    /// The header, if the bytes can be a header.
    pub header: Option<EventHeader>,
    /// What is wrong with the event.
    pub reason: String,
}

/// What the scan found next.
#[derive(Debug)]
pub(crate) enum ScanItem<'a> {
    /// A complete event with a valid checksum.
    Event(ScannedEvent<'a>),
    /// The scan reached its end between two events.
    End,
    /// A damaged or incomplete event. The scan cannot continue.
    Bad(BadEvent),
}

/// The maximum number of bytes of an event that are in memory.
pub(crate) const SCAN_WINDOW_BYTES: usize = 1 << 20;

/// Scans the events of a segment in order, and checks their lengths and checksums in bounded memory.
#[derive(Debug)]
pub(crate) struct EventScanner {
    file: Arc<dyn LogFile>,
    path: std::path::PathBuf,
    offset: u64,
    end: u64,
    window: Vec<u8>,
    window_offset: u64,
    format: Option<FormatDescription>,
}

impl EventScanner {
    /// Creates a scan of the bytes `start..end`. If the scan begins after the segment's format description
    /// event, `format` must be this format description.
    pub(crate) fn new(
        file: Arc<dyn LogFile>,
        path: std::path::PathBuf,
        offset: u64,
        end: u64,
        format: Option<FormatDescription>,
    ) -> Self {
        Self { file, path, offset, end, window: Vec::new(), window_offset: offset, format }
    }

    /// Returns the last format description that the scan found. If it found none, returns the format
    /// description that the caller passed.
    pub(crate) fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> Result<ScanItem<'_>, LogError> {
        let offset = self.offset;
        if offset >= self.end {
            return Ok(ScanItem::End);
        }
        let bad = |header, reason: String| Ok(ScanItem::Bad(BadEvent { offset, header, reason }));
        let remaining = self.end - offset;
        self.fill(EVENT_HEADER_BYTES as u64)?;
        let header = match EventHeader::parse(self.buffered(EVENT_HEADER_BYTES as u64)) {
            Ok(header) => header,
            Err(error) => return bad(None, error.to_string()),
        };
        let length = u64::from(header.event_length);
        if length > remaining {
            return bad(
                Some(header),
                format!(
                    "a {} event has {length} bytes, but only {remaining} bytes are left in the segment",
                    header.event_type
                ),
            );
        }
        self.fill(length)?;
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            if length > SCAN_WINDOW_BYTES as u64 {
                return bad(
                    Some(header),
                    format!("the format description event has {length} bytes, which is too many"),
                );
            }
            match parse_format_description(self.buffered(length)) {
                Ok(format) => self.format = Some(format),
                Err(reason) => return bad(Some(header), reason),
            }
        }
        let Some(format) = &self.format else {
            return bad(
                Some(header),
                format!("a {} event comes before the format description", header.event_type),
            );
        };
        if format.has_checksums()
            && let Some(reason) = self.checksum_fault(length)?
        {
            return bad(Some(header), reason);
        }
        self.offset += length;
        let start = (offset - self.window_offset) as usize;
        let end = self.window.len().min(start + length as usize);
        Ok(ScanItem::Event(ScannedEvent { offset, header, first_chunk: &self.window[start..end] }))
    }

    /// Verifies the checksum of the current event. The first bytes of the event are in the scan
    /// window. Returns a description of the fault, or `None`.
    fn checksum_fault(&self, length: u64) -> Result<Option<String>, LogError> {
        let mut checker = match ChecksumChecker::new(length) {
            Ok(checker) => checker,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let front = self.buffered(length);
        checker.update(front);
        let mut at = self.offset + front.len() as u64;
        let end = self.offset + length;
        let mut piece = Vec::new();
        while at < end {
            piece.resize(SCAN_WINDOW_BYTES.min((end - at) as usize), 0);
            let filled = self.read(&mut piece, at)?;
            if filled == 0 {
                break;
            }
            checker.update(&piece[..filled]);
            at += filled as u64;
        }
        Ok(checker.finish().err().map(|error| error.to_string()))
    }

    /// Returns the bytes of the scan window from the current offset on, at most `length`.
    fn buffered(&self, length: u64) -> &[u8] {
        let held = &self.window[(self.offset - self.window_offset) as usize..];
        &held[..held.len().min(usize::try_from(length).unwrap_or(usize::MAX))]
    }

    /// Fills the scan window with `length` bytes from the current offset on, or as many as the window can
    /// hold and the file has.
    fn fill(&mut self, length: u64) -> Result<(), LogError> {
        let held = (self.window_offset + self.window.len() as u64).saturating_sub(self.offset);
        let wanted = length.min(SCAN_WINDOW_BYTES as u64).min(self.end - self.offset);
        if held >= wanted {
            return Ok(());
        }
        self.window_offset = self.offset;
        let mut window = std::mem::take(&mut self.window);
        window.resize(SCAN_WINDOW_BYTES.min((self.end - self.offset) as usize), 0);
        let filled = self.read(&mut window, self.offset)?;
        window.truncate(filled);
        self.window = window;
        Ok(())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<usize, LogError> {
        self.file.read_full_at(buffer, offset).map_err(|error| LogError::io("read", &self.path, error))
    }
}

/// Parses a format description event that may be damaged. The event itself states whether it has a checksum.
fn parse_format_description(event: &[u8]) -> Result<FormatDescription, String> {
    let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
    let format = FormatDescription::parse(body).map_err(|error| error.to_string())?;
    match format.checksum {
        // The scan verifies the checksum of this event in the same way as for other events.
        Some(ChecksumAlgorithm::Crc32) => Ok(format),
        // With checksums off, some servers change this event for the stream without updating its checksum. So
        // a wrong checksum proves nothing. There are two exceptions. If the checksum is valid for the same
        // event with checksums on, the server wrote the event with checksums on, and a bit has changed later.
        // If the checksum is all zeros, the end of the event was not written.
        Some(ChecksumAlgorithm::Off) => {
            if event.ends_with(&[0; CHECKSUM_BYTES]) {
                return Err("the end of the format description event is missing".into());
            }
            let mut switched_on = event.to_vec();
            if let Some(algorithm) = event.len().checked_sub(1 + CHECKSUM_BYTES) {
                switched_on[algorithm] = ChecksumAlgorithm::Crc32.to_byte();
            }
            match verify_checksum(&switched_on) {
                Ok(()) => {
                    Err("the checksum of the event fits an event with checksums on, but the event says that they are off"
                        .into())
                }
                Err(_) => Ok(format),
            }
        }
        None => Err(format!("server version {:?} is older than binlog checksums", format.server_version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_ten_digit_numbers() {
        assert_eq!(segment_name(42), "0000000042.binlog");
        assert_eq!(parse_segment_name("0000000042.binlog"), Some(42));
        assert_eq!(parse_index_name(&index_name(u64::MAX)), Some(u64::MAX));
        for name in [
            "0000000000.binlog",
            "42.binlog",
            "00000000042.binlog",
            "0000000042.index",
            "x",
            "000000004x.binlog",
        ] {
            assert_eq!(parse_segment_name(name), None, "wrong result for {name}");
        }
    }
}
