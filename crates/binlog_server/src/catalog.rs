//! The log's segments as the binlog files that clients see. Pure.
//!
//! A file is served under the source's own name with the source's own offsets, so a replica can move between
//! the source and its log without a change of position. After the capture has moved to another server, the
//! same name may come again with other content. From the second source on, the name contains the number of
//! the source.

use std::collections::HashMap;

use tailwater_log::{LogPosition, SegmentSummary};
use tailwater_wire::event::FIRST_EVENT_OFFSET;

use super::client_error::ClientError;

/// Properties of a segment that the catalog needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// Its number.
    pub number: u64,
    /// The source's binlog file that it mirrors.
    pub source_file: String,
    /// Offset in that file of its first event; with 4 the segment mirrors the file from its start.
    pub source_offset: u64,
    /// Length of the format description event at its head, in bytes. Only used if `source_offset` is not 4:
    /// the event then precedes the event at `source_offset`.
    pub head_bytes: u64,
    /// Durable bytes, including the four magic bytes.
    pub bytes: u64,
    /// The segment is complete.
    pub sealed: bool,
    /// Number of the source: 1 for the first, one more each time the capture moved to another server.
    pub epoch: u32,
}

impl SegmentView {
    /// The view of a segment of the log.
    pub fn new(summary: &SegmentSummary, epoch: u32, head_bytes: u64) -> Self {
        Self {
            number: summary.number,
            source_file: summary.source_file.clone(),
            source_offset: summary.source_offset,
            head_bytes,
            bytes: summary.bytes,
            sealed: summary.sealed,
            epoch,
        }
    }

    /// Offset in the segment of the event at `source_offset` of the source's file.
    fn first_in_place(&self) -> u64 {
        if self.source_offset == FIRST_EVENT_OFFSET {
            FIRST_EVENT_OFFSET
        } else {
            FIRST_EVENT_OFFSET + self.head_bytes
        }
    }

    /// Offset in the source's file after the last durable byte.
    fn source_end(&self) -> u64 {
        self.source_offset + self.bytes.saturating_sub(self.first_in_place())
    }
}

/// A served binlog file: one segment, or several where the log did not get the file in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFile {
    /// The name that clients see.
    pub name: String,
    /// Its segments in the order of the log; never empty.
    pub segments: Vec<SegmentView>,
}

impl ServedFile {
    /// Offset after its last durable byte: its size in `SHOW BINARY LOGS`.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(SegmentView::source_end).max().unwrap_or(FIRST_EVENT_OFFSET)
    }

    /// Offset of the first event that the log has of it; 4 unless the log began in its middle.
    pub fn begins_at(&self) -> u64 {
        self.segments.first().map_or(FIRST_EVENT_OFFSET, |segment| segment.source_offset)
    }

    /// The number of the source that wrote it.
    pub fn epoch(&self) -> u32 {
        self.segments.first().map_or(1, |segment| segment.epoch)
    }

    /// Whether the log can still get more of it.
    pub fn is_open(&self) -> bool {
        self.segments.last().is_some_and(|segment| !segment.sealed)
    }

    /// Position in the log of an offset of the file, if the log has it.
    fn locate(&self, position: u64) -> Option<LogPosition> {
        let part = self.segments.iter().rev().find(|segment| segment.source_offset <= position)?;
        let within = position - part.source_offset;
        // The beginning of a segment is its format description, whatever the offset.
        let offset = if within == 0 { FIRST_EVENT_OFFSET } else { part.first_in_place() + within };
        (position <= part.source_end()).then_some(LogPosition { segment: part.number, offset })
    }
}

/// A position in a served file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogCoordinates {
    /// The name that clients see.
    pub file: String,
    /// Offset in the source's file.
    pub position: u64,
}

/// All served files, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    files: Vec<ServedFile>,
    by_name: HashMap<String, usize>,
    by_segment: HashMap<u64, usize>,
}

impl Catalog {
    /// The files of these segments, which are given oldest first.
    pub fn new(segments: impl IntoIterator<Item = SegmentView>) -> Self {
        let mut catalog = Self::default();
        for segment in segments {
            let name = served_name(&segment.source_file, segment.epoch);
            let continues = catalog
                .files
                .last()
                .is_some_and(|file| file.name == name && file.size() <= segment.source_offset);
            if !continues {
                // The source started a file with this name again: the name now means the newest file.
                catalog.by_name.insert(name.clone(), catalog.files.len());
                catalog.files.push(ServedFile { name, segments: Vec::new() });
            }
            catalog.by_segment.insert(segment.number, catalog.files.len() - 1);
            if let Some(file) = catalog.files.last_mut() {
                file.segments.push(segment);
            }
        }
        catalog
    }

    /// The files, oldest first: `SHOW BINARY LOGS`.
    pub fn files(&self) -> &[ServedFile] {
        &self.files
    }

    /// The file with a name.
    pub fn file(&self, name: &str) -> Option<&ServedFile> {
        self.by_name.get(name).and_then(|index| self.files.get(*index))
    }

    /// The file of a segment.
    pub fn of_segment(&self, number: u64) -> Option<&ServedFile> {
        self.by_segment.get(&number).and_then(|index| self.files.get(*index))
    }

    /// The file after the named one, in the order of the log.
    pub fn next(&self, name: &str) -> Option<&ServedFile> {
        self.files.get(self.by_name.get(name)? + 1)
    }

    /// Where the newest file ends: `SHOW BINARY LOG STATUS`.
    pub fn end(&self) -> Option<BinlogCoordinates> {
        let newest = self.files.last()?;
        Some(BinlogCoordinates { file: newest.name.clone(), position: newest.size() })
    }

    /// Position in the log of an offset of a file. The beginning of a segment is the offset of its format
    /// description event. Does not check that an event begins there.
    ///
    /// # Errors
    /// Why the log does not have it.
    pub fn locate(&self, name: &str, position: u64) -> Result<LogPosition, LocateError> {
        let Some(file) = self.file(name) else { return Err(LocateError::UnknownFile) };
        if position < FIRST_EVENT_OFFSET {
            return Err(LocateError::BeforeFirst);
        }
        if position < file.begins_at() {
            return Err(LocateError::NotCaptured { begins_at: file.begins_at() });
        }
        if position > file.size() {
            return Err(LocateError::PastEnd { size: file.size() });
        }
        file.locate(position).ok_or(LocateError::Hole)
    }

    /// The reverse of [`Catalog::locate`]. Positions within the format description at the head of a segment
    /// that begins in mid-file map to the segment's beginning.
    pub fn place(&self, position: LogPosition) -> Option<BinlogCoordinates> {
        let file = self.of_segment(position.segment)?;
        let segment = file.segments.iter().find(|segment| segment.number == position.segment)?;
        let within = position.offset.saturating_sub(segment.first_in_place());
        Some(BinlogCoordinates { file: file.name.clone(), position: segment.source_offset + within })
    }

    /// The number of the first segment that remains when everything before the named file is purged.
    ///
    /// # Errors
    /// The servers' error for an unknown name.
    pub fn purge_to(&self, name: &str) -> Result<u64, ClientError> {
        match self.file(name).and_then(|file| file.segments.first()) {
            Some(segment) => Ok(segment.number),
            None => Err(ClientError::new(1373, "Target log not found in binlog index")),
        }
    }
}

/// Why the log does not have a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocateError {
    /// The log has no such file.
    UnknownFile,
    /// The offset is within the magic bytes.
    BeforeFirst,
    /// The log began in the middle of the file.
    NotCaptured {
        /// The first offset that it has.
        begins_at: u64,
    },
    /// The offset is past the file's current end.
    PastEnd {
        /// The file's length.
        size: u64,
    },
    /// That part of the file was not captured: the log got its transactions from another server.
    Hole,
}

/// The name under which a source's file is served.
pub fn served_name(source_file: &str, epoch: u32) -> String {
    if epoch < 2 {
        return source_file.to_owned();
    }
    match source_file.rsplit_once('.') {
        Some((base, number)) => format!("{base}.e{epoch}.{number}"),
        None => format!("{source_file}.e{epoch}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(number: u64, file: &str, source_offset: u64, source_end: u64, epoch: u32) -> SegmentView {
        let head_bytes = 122;
        let head = if source_offset == FIRST_EVENT_OFFSET { 0 } else { head_bytes };
        SegmentView {
            number,
            source_file: file.into(),
            source_offset,
            head_bytes,
            bytes: FIRST_EVENT_OFFSET + head + source_end - source_offset,
            sealed: true,
            epoch,
        }
    }

    fn names(catalog: &Catalog) -> Vec<(&str, u64)> {
        catalog.files().iter().map(|file| (file.name.as_str(), file.size())).collect()
    }

    fn at(segment: u64, offset: u64) -> LogPosition {
        LogPosition { segment, offset }
    }

    #[test]
    fn first_source_keeps_its_names_and_later_ones_get_a_number() {
        let catalog = Catalog::new([
            segment(1, "binlog.000003", 4, 1000, 1),
            segment(2, "binlog.000004", 4, 200, 1),
            segment(3, "binlog.000003", 4, 700, 2),
            segment(4, "my.bin.000001", 4, 90, 3),
        ]);
        let expected = [
            ("binlog.000003", 1000),
            ("binlog.000004", 200),
            ("binlog.e2.000003", 700),
            ("my.bin.e3.000001", 90),
        ];
        assert_eq!(names(&catalog), expected);
        assert_eq!(catalog.next("binlog.000004").unwrap().name, "binlog.e2.000003");
        assert_eq!(catalog.next("my.bin.e3.000001"), None);
        assert_eq!(catalog.next("elsewhere"), None);
        assert_eq!(catalog.end(), Some(BinlogCoordinates { file: "my.bin.e3.000001".into(), position: 90 }));
        assert_eq!(catalog.purge_to("binlog.e2.000003"), Ok(3));
        assert_eq!(catalog.purge_to("binlog.000009").unwrap_err().code, 1373);
    }

    #[test]
    fn segments_of_one_file_are_one_served_file() {
        let catalog = Catalog::new([
            segment(4, "b.1", 4, 500, 1),
            segment(5, "b.1", 500, 900, 1),
            segment(6, "b.1", 1200, 1500, 1),
        ]);
        assert_eq!(names(&catalog), [("b.1", 1500)]);
        let check = |position, expected| assert_eq!(catalog.locate("b.1", position), expected, "{position}");
        check(3, Err(LocateError::BeforeFirst));
        check(4, Ok(at(4, 4)));
        check(126, Ok(at(4, 126)));
        check(499, Ok(at(4, 499)));
        check(500, Ok(at(5, 4)));
        check(501, Ok(at(5, 4 + 122 + 1)));
        check(900, Ok(at(5, 4 + 122 + 400)));
        check(901, Err(LocateError::Hole));
        check(1200, Ok(at(6, 4)));
        check(1500, Ok(at(6, 4 + 122 + 300)));
        check(1501, Err(LocateError::PastEnd { size: 1500 }));
        assert_eq!(catalog.locate("b.2", 4), Err(LocateError::UnknownFile));
        assert_eq!(catalog.of_segment(6).unwrap().name, "b.1");
    }

    #[test]
    fn log_that_began_in_mid_file_lacks_earlier_offsets() {
        let catalog = Catalog::new([segment(1, "b.7", 300, 900, 1)]);
        assert_eq!(catalog.locate("b.7", 4), Err(LocateError::NotCaptured { begins_at: 300 }));
        assert_eq!(catalog.locate("b.7", 300), Ok(at(1, 4)));
        // The format description at its head is at no offset of the file.
        let place = |offset| catalog.place(at(1, offset)).unwrap().position;
        assert_eq!((place(4), place(126), place(127)), (300, 300, 301));
    }

    #[test]
    fn restarted_file_is_another_file() {
        let catalog = Catalog::new([segment(1, "b.1", 4, 500, 1), segment(2, "b.1", 4, 300, 1)]);
        assert_eq!(names(&catalog), [("b.1", 500), ("b.1", 300)]);
        assert_eq!(catalog.locate("b.1", 200), Ok(at(2, 200)));
    }

    #[test]
    fn empty_log_serves_nothing() {
        let catalog = Catalog::new([]);
        assert_eq!((catalog.files().len(), catalog.end()), (0, None));
    }

    proptest! {
        #[test]
        fn positions_round_trip(
            parts in proptest::collection::vec((0u64..50, 0u64..3, 1u64..400, 0u64..300), 1..8),
            probe in any::<proptest::sample::Index>(),
        ) {
            let mut segments = Vec::new();
            let (mut file, mut end) = (1, 4);
            for (number, (gap, next, length, head_bytes)) in parts.into_iter().enumerate() {
                if next == 0 {
                    (file, end) = (file + 1, 4);
                }
                let start = end + gap;
                end = start + length;
                let mut segment = segment(number as u64 + 1, &format!("b.{file}"), start, end, 1);
                if start != 4 {
                    segment.bytes = segment.bytes - segment.head_bytes + head_bytes;
                }
                segment.head_bytes = head_bytes;
                segments.push(segment);
            }
            let segment = segments[probe.index(segments.len())].clone();
            let catalog = Catalog::new(segments);
            for offset in segment.first_in_place()..segment.bytes {
                let place = catalog.place(at(segment.number, offset)).unwrap();
                let found = catalog.locate(&place.file, place.position).unwrap();
                if offset == segment.first_in_place() {
                    prop_assert_eq!(found, at(segment.number, FIRST_EVENT_OFFSET));
                } else {
                    prop_assert_eq!(found, at(segment.number, offset));
                }
            }
        }
    }
}
