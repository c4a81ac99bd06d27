//! Presents the log's segments as the binlog files that clients see. It does no I/O.
//!
//! A file is served with the same name and the same offsets as on the source. So a replica can move between
//! the source and Tailwater without a change of position. After the capture has moved to another server, the
//! same file name may occur again with other content. Therefore the served names of the second server's
//! files, and of all later servers' files, contain the number of the server (its epoch).

use std::collections::HashMap;

use tailwater_log::{LogPosition, SegmentSummary};
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

use super::client_error::ClientError;

/// What the catalog needs to know about a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// The number of the segment.
    pub number: u64,
    /// The source's binlog file that the segment is a copy of.
    pub source_file: String,
    /// The offset of the segment's first event in `source_file`. If it is 4, the segment is a copy of the
    /// file from its start.
    pub source_offset: u64,
    /// The length of the format description event at the segment's beginning, in bytes. Used only if
    /// `source_offset` is not 4. In that case the segment stores this event before the event at
    /// `source_offset`.
    pub head_bytes: u64,
    /// The number of the segment's durable bytes, including the four magic bytes.
    pub bytes: u64,
    /// Whether the segment is complete.
    pub sealed: bool,
    /// Counts the servers that the log was captured from: 1 for the first, and one more after each move of
    /// the capture to another server.
    pub epoch: u32,
}

impl SegmentView {
    /// Creates the view of a segment of the log.
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

    /// Where the event at `source_offset`, an offset in the source's file, starts in the segment.
    fn first_in_place(&self) -> u64 {
        if self.source_offset == FIRST_EVENT_OFFSET {
            FIRST_EVENT_OFFSET
        } else {
            FIRST_EVENT_OFFSET + self.head_bytes
        }
    }

    /// The offset in the source's file after the last durable byte.
    fn source_end(&self) -> u64 {
        self.source_offset + self.bytes.saturating_sub(self.first_in_place())
    }
}

/// A binlog file as clients see it. It consists of one segment, or of several if the log received the file in
/// several parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFile {
    /// The name that clients see.
    pub name: String,
    /// The segments of the file in the order of the log; at least one.
    pub segments: Vec<SegmentView>,
}

impl ServedFile {
    /// The offset after the last durable byte of the file: its size in `SHOW BINARY LOGS`.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(SegmentView::source_end).max().unwrap_or(FIRST_EVENT_OFFSET)
    }

    /// The offset in the file of the first event that is in the log. It is 4 unless the log began in the
    /// middle of the file.
    pub fn begins_at(&self) -> u64 {
        self.segments.first().map_or(FIRST_EVENT_OFFSET, |segment| segment.source_offset)
    }

    /// The epoch of the source that wrote the file: 1 for the log's first source.
    pub fn epoch(&self) -> u32 {
        self.segments.first().map_or(1, |segment| segment.epoch)
    }

    /// Whether the log may still receive more events of the file.
    pub fn is_open(&self) -> bool {
        self.segments.last().is_some_and(|segment| !segment.sealed)
    }

    /// Converts an offset in the file to a position in the log. `None` if the log does not have this offset.
    fn locate(&self, position: u64) -> Option<LogPosition> {
        let part = self.segments.iter().rev().find(|segment| segment.source_offset <= position)?;
        let within = position - part.source_offset;
        // A segment always begins with its format description event, even if it starts in the middle of the
        // source's file.
        let offset = if within == 0 { FIRST_EVENT_OFFSET } else { part.first_in_place() + within };
        (position <= part.source_end()).then_some(LogPosition { segment: part.number, offset })
    }
}

/// A position in a file, as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogCoordinates {
    /// The name of the file that clients see.
    pub file: String,
    /// The offset in the file.
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
    /// Creates the catalog of these segments. They must be in the order of the log.
    pub fn new(segments: impl IntoIterator<Item = SegmentView>) -> Self {
        let mut catalog = Self::default();
        for segment in segments {
            let name = served_name(&segment.source_file, segment.epoch);
            let continues = catalog
                .files
                .last()
                .is_some_and(|file| file.name == name && file.size() <= segment.source_offset);
            if !continues {
                // If the source has started a file with this name more than once, the name now refers to the
                // newest of these files.
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

    /// The files, oldest first, as in `SHOW BINARY LOGS`.
    pub fn files(&self) -> &[ServedFile] {
        &self.files
    }

    /// The file with this name.
    pub fn file(&self, name: &str) -> Option<&ServedFile> {
        self.by_name.get(name).and_then(|index| self.files.get(*index))
    }

    /// The file that a segment belongs to.
    pub fn of_segment(&self, number: u64) -> Option<&ServedFile> {
        self.by_segment.get(&number).and_then(|index| self.files.get(*index))
    }

    /// The next file in the order of the log.
    pub fn next(&self, name: &str) -> Option<&ServedFile> {
        self.files.get(self.by_name.get(name)? + 1)
    }

    /// The end of the newest file, as in `SHOW BINARY LOG STATUS`.
    pub fn end(&self) -> Option<BinlogCoordinates> {
        let newest = self.files.last()?;
        Some(BinlogCoordinates { file: newest.name.clone(), position: newest.size() })
    }

    /// Converts an offset in a file to a position in the log. For the beginning of a segment, this is the
    /// position of its format description event. Does not check that an event starts at the offset.
    ///
    /// # Errors
    /// [`LocateError`] if the log does not have this offset.
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

    /// The reverse of [`Catalog::locate`]. If a segment starts in the middle of a file, positions within its
    /// format description event map to the segment's beginning.
    pub fn place(&self, position: LogPosition) -> Option<BinlogCoordinates> {
        let file = self.of_segment(position.segment)?;
        let segment = file.segments.iter().find(|segment| segment.number == position.segment)?;
        let within = position.offset.saturating_sub(segment.first_in_place());
        Some(BinlogCoordinates { file: file.name.clone(), position: segment.source_offset + within })
    }

    /// The number of the first segment that remains if everything before the named file is purged.
    ///
    /// # Errors
    /// If there is no file with this name. The error has the number and text that the servers use.
    pub fn purge_to(&self, name: &str) -> Result<u64, ClientError> {
        match self.file(name).and_then(|file| file.segments.first()) {
            Some(segment) => Ok(segment.number),
            None => Err(ClientError::new(1373, "Target log not found in binlog index")),
        }
    }
}

/// Why the log does not have an offset of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocateError {
    /// The log has no file with this name.
    UnknownFile,
    /// The offset is before the first event, within the four magic bytes.
    BeforeFirst,
    /// The log began in the middle of the file, after this offset.
    NotCaptured {
        /// The first offset that the log has.
        begins_at: u64,
    },
    /// The offset is after the current end of the file.
    PastEnd {
        /// The current length of the file.
        size: u64,
    },
    /// This part of the file was not captured, because the capture read the transactions of this part from
    /// another server.
    Hole,
}

/// The name under which a file of the source is served.
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
    fn files_of_the_first_source_keep_their_names_and_later_ones_get_a_number() {
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
    fn segments_of_one_file_are_served_as_one_file() {
        let catalog = Catalog::new([
            segment(4, "b.1", 4, 500, 1),
            segment(5, "b.1", 500, 900, 1),
            segment(6, "b.1", 1200, 1500, 1),
        ]);
        assert_eq!(names(&catalog), [("b.1", 1500)]);
        let check = |position, expected| {
            assert_eq!(
                catalog.locate("b.1", position),
                expected,
                "wrong log position for the offset {position}"
            )
        };
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
    fn a_log_that_began_in_the_middle_of_a_file_lacks_earlier_offsets() {
        let catalog = Catalog::new([segment(1, "b.7", 300, 900, 1)]);
        assert_eq!(catalog.locate("b.7", 4), Err(LocateError::NotCaptured { begins_at: 300 }));
        assert_eq!(catalog.locate("b.7", 300), Ok(at(1, 4)));
        // The format description event at the segment's beginning has no offset in the source's file.
        let place = |offset| catalog.place(at(1, offset)).unwrap().position;
        assert_eq!((place(4), place(126), place(127)), (300, 300, 301));
    }

    #[test]
    fn a_file_that_the_source_started_again_is_another_file() {
        let catalog = Catalog::new([segment(1, "b.1", 4, 500, 1), segment(2, "b.1", 4, 300, 1)]);
        assert_eq!(names(&catalog), [("b.1", 500), ("b.1", 300)]);
        assert_eq!(catalog.locate("b.1", 200), Ok(at(2, 200)));
    }

    #[test]
    fn an_empty_log_serves_no_file() {
        let catalog = Catalog::new([]);
        assert_eq!((catalog.files().len(), catalog.end()), (0, None));
    }

    proptest! {
        #[test]
        fn locate_and_place_are_inverse_for_positions(
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
