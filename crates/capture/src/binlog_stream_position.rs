//! Finds the position of each event of a binlog stream in the source's binlog, and decides what to do with
//! the event. It does no I/O.
//!
//! A stream is not simply the bytes of the source's files. The server adds artificial events: a rotate event
//! at the start of each file, heartbeats, and a format description event when it starts in the middle of a
//! file. It leaves out the transactions of the GTID set that the capture sent. After a reconnect it repeats
//! the overlap that the capture requested. The log needs each byte of the file exactly once, at the same
//! offset.

use bytes::Bytes;
use tailwater_wire::binlog_event::{EventHeader, EventType, FIRST_EVENT_OFFSET};

use crate::CaptureError;

/// The end of the log. A stream may repeat the last part of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    /// The source's binlog file of which the log's last segment is a copy.
    pub file: String,
    /// The offset in `file` after the last byte that the log has.
    pub end: u64,
    /// The part of the log that the stream repeats, so that the capture can compare it. `None` if the log has
    /// no event of `file` yet.
    pub overlap: Option<Overlap>,
}

impl LogTail {
    /// Decides what to do with an event that starts at the offset `start` of the log's last file. `None` if
    /// the event starts after the end of the log.
    fn place(&mut self, start: u64, length: u64) -> Result<Option<EventAction>, CaptureError> {
        if start == self.end {
            self.end += length;
            return Ok(Some(EventAction::Append));
        }
        if start + length <= self.end {
            return Ok(Some(match self.overlap {
                Some(last) if start >= last.start && start + length <= last.end => {
                    EventAction::Compare { offset: start - last.start }
                }
                _ => EventAction::Drop,
            }));
        }
        if start < self.end {
            return Err(CaptureError::Diverged {
                file: self.file.clone(),
                position: start,
                detail: format!(
                    "an event of {length} bytes starts before the end of the log, {}, and ends after it",
                    self.end
                ),
            });
        }
        Ok(None)
    }
}

/// A range of the source's binlog file that the log has and the stream repeats. The range is the log's last
/// transaction. If the file has no transaction yet, the range starts at the beginning of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The offset of the overlap's first byte in the source's binlog file.
    pub start: u64,
    /// The offset after the overlap's last byte.
    pub end: u64,
}

/// How the capture requested the stream from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// From a file and an offset: every byte after it must arrive.
    FilePosition,
    /// By GTIDs: the server leaves out the transactions that the capture has. So there may be gaps between
    /// transactions before the first new one.
    Gtid,
}

/// What to do with an event, that is, with all its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventAction {
    /// Drop the event: it is not in a binlog file, or the log already has it.
    Drop,
    /// Compare the event with the log, which has the same bytes already.
    Compare {
        /// Where the event starts in the log, in bytes after the start of the overlap.
        offset: u64,
    },
    /// Append the event: it follows the last byte of the log.
    Append,
    /// Start a new segment with the event.
    StartSegment {
        /// The source's binlog file of which the segment is a copy.
        file: String,
        /// The offset in the source's binlog file of the segment's first event that is in that file. The
        /// format description event that the source made for the stream does not count, because it is not in
        /// a file.
        position: u64,
        /// Whole events to append before this event: the format description event, and the events that the
        /// tracker held back with it.
        preamble: Vec<Bytes>,
    },
}

/// Tracks the position of one binlog stream, from its first event on.
#[derive(Debug)]
pub struct StreamTracker {
    kind: StreamKind,
    tail: Option<LogTail>,
    /// The binlog file that the stream is in, from the last artificial rotate event.
    file: Option<String>,
    /// The offset in the file after the last event. The tracker adds up the lengths of the events, because
    /// event headers have only 32 bits for an offset. In MariaDB 11.4 and later, the headers of events inside
    /// a transaction have no offset.
    position: u64,
    /// Only for streams by GTIDs: the events at the beginning of the current file. The tracker holds them
    /// back until the first new transaction shows whether the transaction follows these events directly.
    head_events: Option<HeadEvents>,
    /// The last format description event, for a segment that starts in the middle of a file.
    format_description: Option<Bytes>,
}

#[derive(Debug)]
struct HeadEvents {
    events: Vec<Bytes>,
    /// The offset in the binlog file after the last event in `events`.
    end: u64,
}

/// The maximum number of events at the beginning of a file. No correct server sends more.
const HEAD_EVENTS_MAX: usize = 64;

impl StreamTracker {
    /// Creates a tracker for a stream that was requested as `kind`. `tail` is the end of the log.
    pub fn new(kind: StreamKind, tail: Option<LogTail>) -> Self {
        Self { kind, tail, file: None, position: 0, head_events: None, format_description: None }
    }

    /// Creates a tracker for a stream by GTIDs from a server that is not the last source of the log. No
    /// binlog file of the new server counts as a file that the log has, even if the name and length are the
    /// same.
    pub fn for_another_server() -> Self {
        // No binlog file has an empty name: see `parse_artificial_rotate`.
        let tail = LogTail { file: String::new(), end: 0, overlap: None };
        Self::new(StreamKind::Gtid, Some(tail))
    }

    /// The binlog file and the offset after the last event. An ACK of that event contains both.
    pub fn position(&self) -> Option<(&str, u64)> {
        self.file.as_deref().map(|file| (file, self.position))
    }

    /// Records an artificial rotate event: the stream continues in `file` at `position`.
    pub fn rotate(&mut self, file: String, position: u64) {
        if self.file.as_deref() != Some(file.as_str()) {
            self.head_events = None;
        }
        self.file = Some(file);
        self.position = position;
    }

    /// Decides what to do with an event, given its header, the bytes of its first chunk, and whether a
    /// transaction is open.
    ///
    /// # Errors
    /// [`CaptureError::Gap`] if bytes of the source's file are missing before the event.
    /// [`CaptureError::Diverged`] if the event starts before the end of the log and ends after it.
    /// [`CaptureError::Stream`] if the stream contradicts itself.
    pub fn place_event(
        &mut self,
        header: &EventHeader,
        first_chunk: &Bytes,
        in_transaction: bool,
    ) -> Result<EventAction, CaptureError> {
        let format_description = header.event_type == EventType::FORMAT_DESCRIPTION;
        if format_description {
            self.format_description = Some(first_chunk.clone());
        }
        if is_in_no_file(header) {
            return Ok(EventAction::Drop);
        }
        let Some(file) = self.file.clone() else {
            return Err(CaptureError::stream(
                "an event came before the rotate event that names its binlog file",
            ));
        };
        let length = u64::from(header.event_length);
        let start = self.start_of(header);
        if start < self.position {
            return Err(CaptureError::stream(format!(
                "the {} event starts at {file}:{start}, but the stream has already reached offset {}",
                header.event_type, self.position
            )));
        }
        if start > self.position && (self.kind == StreamKind::FilePosition || in_transaction) {
            return Err(CaptureError::Gap { file, expected: self.position, found: start });
        }
        self.position = start + length;

        match &mut self.tail {
            Some(tail) if tail.file == file => {
                if let Some(action) = tail.place(start, length)? {
                    return Ok(action);
                }
                if self.kind == StreamKind::FilePosition {
                    return Err(CaptureError::Gap { file, expected: tail.end, found: start });
                }
            }
            Some(_)
                if self.kind == StreamKind::Gtid
                    && !opens_transaction(header.event_type)
                    && !in_transaction =>
            {
                self.hold_head_event(first_chunk, start, length)?;
                return Ok(EventAction::Drop);
            }
            _ => {}
        }
        self.start_segment(file, start, length, format_description)
    }

    /// Holds back an event at the beginning of a file. In a stream by GTIDs, the log may already have the
    /// beginning of the first file, or may have purged it. The first transaction shows whether the events
    /// that were held back belong in a new segment.
    fn hold_head_event(&mut self, event: &Bytes, start: u64, length: u64) -> Result<(), CaptureError> {
        let contiguous = match &self.head_events {
            Some(held) => held.end == start,
            None => start == FIRST_EVENT_OFFSET,
        };
        if !contiguous {
            return Ok(());
        }
        let held = self
            .head_events
            .get_or_insert_with(|| HeadEvents { events: Vec::new(), end: FIRST_EVENT_OFFSET });
        if held.events.len() >= HEAD_EVENTS_MAX {
            return Err(CaptureError::stream(format!(
                "the binlog file starts with {HEAD_EVENTS_MAX} events before the first transaction"
            )));
        }
        held.events.push(event.clone());
        held.end = start + length;
        Ok(())
    }

    fn start_segment(
        &mut self,
        file: String,
        start: u64,
        length: u64,
        format_description: bool,
    ) -> Result<EventAction, CaptureError> {
        // From the start of a new segment on, the stream has no gaps, even if it was requested by GTIDs. The
        // server leaves out transactions only before the first new one.
        self.kind = StreamKind::FilePosition;
        let (preamble, position) = match self.head_events.take() {
            Some(held) if held.end == start => (held.events, FIRST_EVENT_OFFSET),
            _ if format_description => (Vec::new(), start),
            _ => match &self.format_description {
                Some(event) => (vec![event.clone()], start),
                None => {
                    return Err(CaptureError::stream("no format description came before the first event"));
                }
            },
        };
        self.tail = Some(LogTail { file: file.clone(), end: start + length, overlap: None });
        Ok(EventAction::StartSegment { file, position, preamble })
    }

    fn start_of(&self, header: &EventHeader) -> u64 {
        if header.end_log_pos == 0 {
            return self.position;
        }
        // The header has only the low 32 bits of the event's offset. The event's real offset is the lowest
        // offset with these low 32 bits that is not below the tracked offset.
        let length = u64::from(header.event_length);
        let counted_end = self.position + length;
        let distance = header.end_log_pos.wrapping_sub(counted_end as u32);
        // If the header's offset is a little below the tracked offset, the source has repeated an event. The
        // stream has not jumped ahead by almost 4 GiB.
        if distance > u32::MAX / 2 {
            counted_end.saturating_sub(u64::from(distance.wrapping_neg())).saturating_sub(length)
        } else {
            counted_end + u64::from(distance) - length
        }
    }
}

/// Whether the server made the event for the stream, so that the event is not in a binlog file.
fn is_in_no_file(header: &EventHeader) -> bool {
    header.is_artificial()
        || matches!(header.event_type, EventType::HEARTBEAT | EventType::HEARTBEAT_V2)
        || (header.event_type == EventType::FORMAT_DESCRIPTION && header.end_log_pos == 0)
}

fn opens_transaction(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::GTID | EventType::ANONYMOUS_GTID | EventType::GTID_TAGGED | EventType::MARIADB_GTID
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailwater_wire::ServerId;

    fn header(event_type: EventType, end_log_pos: u64, event_length: u32) -> EventHeader {
        EventHeader {
            timestamp: 1,
            event_type,
            server_id: ServerId(1),
            event_length,
            end_log_pos: end_log_pos as u32,
            flags: 0,
        }
    }

    /// Passes an event to the tracker. The arguments describe the event: type, end_log_pos, length, and
    /// whether it is in a transaction. The event's data is its end offset in decimal digits.
    fn feed(
        track: &mut StreamTracker,
        event: (EventType, u64, u32, bool),
    ) -> Result<EventAction, CaptureError> {
        let (event_type, end, length, in_transaction) = event;
        track.place_event(&header(event_type, end, length), &Bytes::from(format!("{end}")), in_transaction)
    }

    fn tail(file: &str, end: u64, last: Option<(u64, u64)>) -> Option<LogTail> {
        let overlap = last.map(|(start, end)| Overlap { start, end });
        Some(LogTail { file: file.into(), end, overlap })
    }

    #[test]
    fn an_empty_log_takes_the_binlog_file_from_its_start() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, None);
        track.rotate("b.1".into(), 4);
        let start = feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap();
        assert_eq!(start, EventAction::StartSegment { file: "b.1".into(), position: 4, preamble: vec![] });
        assert_eq!(
            feed(&mut track, (EventType::PREVIOUS_GTIDS, 157, 31, false)).unwrap(),
            EventAction::Append
        );
        assert_eq!(feed(&mut track, (EventType::HEARTBEAT, 157, 40, false)).unwrap(), EventAction::Drop);
        assert_eq!(feed(&mut track, (EventType::GTID, 236, 79, false)).unwrap(), EventAction::Append);
        assert_eq!(track.position(), Some(("b.1", 236)));
        // MariaDB 11.4 writes no offsets inside transactions.
        assert_eq!(feed(&mut track, (EventType::QUERY, 0, 100, true)).unwrap(), EventAction::Append);
        assert_eq!(feed(&mut track, (EventType::XID, 367, 31, true)).unwrap(), EventAction::Append);
        track.rotate("b.2".into(), 4);
        let next = feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap();
        assert_eq!(next, EventAction::StartSegment { file: "b.2".into(), position: 4, preamble: vec![] });
    }

    #[test]
    fn a_start_in_the_middle_of_a_file_adds_the_format_description() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, None);
        track.rotate("b.1".into(), 500);
        assert_eq!(
            feed(&mut track, (EventType::FORMAT_DESCRIPTION, 0, 122, false)).unwrap(),
            EventAction::Drop
        );
        let start = feed(&mut track, (EventType::GTID, 579, 79, false)).unwrap();
        let preamble = vec![Bytes::from("0")];
        assert_eq!(start, EventAction::StartSegment { file: "b.1".into(), position: 500, preamble });
        assert_eq!(feed(&mut track, (EventType::QUERY, 679, 100, true)).unwrap(), EventAction::Append);
    }

    #[test]
    fn the_overlap_is_compared_and_new_events_are_appended() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, tail("b.1", 700, Some((500, 700))));
        track.rotate("b.1".into(), 500);
        assert_eq!(
            feed(&mut track, (EventType::FORMAT_DESCRIPTION, 0, 122, false)).unwrap(),
            EventAction::Drop
        );
        let compare = feed(&mut track, (EventType::GTID, 580, 80, false)).unwrap();
        assert_eq!(compare, EventAction::Compare { offset: 0 });
        let compare = feed(&mut track, (EventType::XID, 700, 120, true)).unwrap();
        assert_eq!(compare, EventAction::Compare { offset: 80 });
        assert_eq!(feed(&mut track, (EventType::GTID, 780, 80, false)).unwrap(), EventAction::Append);
    }

    #[test]
    fn an_event_across_the_end_of_the_log_is_an_error() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, tail("b.1", 700, Some((500, 700))));
        track.rotate("b.1".into(), 500);
        let result = feed(&mut track, (EventType::GTID, 800, 300, false));
        assert!(
            matches!(result, Err(CaptureError::Diverged { position: 500, .. })),
            "the event must be refused: {result:?}"
        );
    }

    #[test]
    fn a_gap_in_a_stream_by_position_is_an_error() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, tail("b.1", 700, None));
        track.rotate("b.1".into(), 700);
        let result = feed(&mut track, (EventType::GTID, 900, 80, false));
        assert!(
            matches!(result, Err(CaptureError::Gap { expected: 700, found: 820, .. })),
            "the gap was not detected: {result:?}"
        );
    }

    #[test]
    fn a_later_file_by_gtid_is_stored_completely_if_its_first_transaction_is_new() {
        let mut track = StreamTracker::new(StreamKind::Gtid, tail("b.1", 700, None));
        track.rotate("b.2".into(), 4);
        assert_eq!(
            feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap(),
            EventAction::Drop
        );
        assert_eq!(feed(&mut track, (EventType::PREVIOUS_GTIDS, 157, 31, false)).unwrap(), EventAction::Drop);
        let start = feed(&mut track, (EventType::GTID, 236, 79, false)).unwrap();
        let preamble = vec![Bytes::from("126"), Bytes::from("157")];
        assert_eq!(start, EventAction::StartSegment { file: "b.2".into(), position: 4, preamble });
        assert_eq!(feed(&mut track, (EventType::XID, 267, 31, true)).unwrap(), EventAction::Append);
        let result = feed(&mut track, (EventType::GTID, 900, 80, false));
        assert!(matches!(result, Err(CaptureError::Gap { .. })), "the gap was not detected: {result:?}");
    }

    #[test]
    fn after_skipped_transactions_by_gtid_a_segment_starts_in_the_middle_of_a_file() {
        let mut track = StreamTracker::new(StreamKind::Gtid, tail("a.9", 700, None));
        track.rotate("b.2".into(), 4);
        assert_eq!(
            feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap(),
            EventAction::Drop
        );
        let start = feed(&mut track, (EventType::GTID, 1000, 79, false)).unwrap();
        let preamble = vec![Bytes::from("126")];
        assert_eq!(start, EventAction::StartSegment { file: "b.2".into(), position: 921, preamble });
    }

    #[test]
    fn no_file_of_another_server_counts_as_a_file_of_the_log() {
        // The other server's file is shorter than the file in the log, equally long, or longer. All its
        // events are new, because the stream was requested by GTIDs.
        for begins in [500, 700, 900] {
            let mut track = StreamTracker::for_another_server();
            track.rotate("b.1".into(), 4);
            assert_eq!(
                feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap(),
                EventAction::Drop
            );
            let start = feed(&mut track, (EventType::GTID, begins + 79, 79, false)).unwrap();
            let preamble = vec![Bytes::from("126")];
            assert_eq!(start, EventAction::StartSegment { file: "b.1".into(), position: begins, preamble });
            assert_eq!(
                feed(&mut track, (EventType::XID, begins + 110, 31, true)).unwrap(),
                EventAction::Append
            );
        }
    }

    #[test]
    fn offsets_continue_beyond_four_gibibytes() {
        let end = (1u64 << 32) - 10;
        let mut track = StreamTracker::new(StreamKind::FilePosition, tail("b.1", end, None));
        track.rotate("b.1".into(), end);
        assert_eq!(feed(&mut track, (EventType::GTID, end + 80, 80, false)).unwrap(), EventAction::Append);
        assert_eq!(track.position(), Some(("b.1", end + 80)));
        assert_eq!(feed(&mut track, (EventType::XID, end + 111, 31, true)).unwrap(), EventAction::Append);
    }

    #[test]
    fn a_stream_that_goes_back_is_refused() {
        let mut track = StreamTracker::new(StreamKind::FilePosition, None);
        track.rotate("b.1".into(), 4);
        feed(&mut track, (EventType::FORMAT_DESCRIPTION, 126, 122, false)).unwrap();
        let result = feed(&mut track, (EventType::GTID, 126, 79, false));
        assert!(
            matches!(result, Err(CaptureError::Stream { .. })),
            "the repeated offset was not refused: {result:?}"
        );
    }
}
