//! Reads the events of the binlog from Tailwater's log.

use std::sync::Arc;

use tailwater_log::{LogEntry, LogError, LogHandle, LogPosition, LogReader, LogState};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;
use tailwater_wire::gtid::{MariadbBinlogState, MysqlGtidSet};
use tokio::runtime::Handle;

use crate::binlog_stream::{FeedEvent, FeedReceiver, FeedSender};
use crate::change_decoder::EVENT_BYTES_MAX;
use crate::error::PrefetchError;
use crate::read_window::{AppliedPosition, FilePlace};

/// How positions of the log are written as positions in files, for the progress of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceNotation {
    /// The source's binlog file and the offset in it.
    SourceFile,
    /// The segment of the log and the offset in it: see [`segment_place`].
    Segment,
}

/// Returns a position of the log in the notation of file positions.
pub fn segment_place(position: LogPosition) -> FilePlace {
    FilePlace { file: format!("segment.{}", position.segment), offset: position.offset }
}

/// Starts to read the log after `applied`. The thread ends when the receiver is dropped or the log is closed.
///
/// # Errors
/// [`PrefetchError::Log`] if the log cannot be read.
pub(crate) fn read_log(
    log: &LogHandle,
    applied: &AppliedPosition,
    notation: PlaceNotation,
) -> Result<FeedReceiver, PrefetchError> {
    // The stream starts at the beginning of a segment, because its first event is the format description.
    let start = start_segment(log, applied, notation)
        .map_or(LogPosition::ZERO, |segment| LogPosition { segment, offset: FIRST_EVENT_OFFSET });
    let reader = log.reader(start)?;
    let (out, events) = FeedSender::channel();
    let (log, applied, runtime) = (log.clone(), applied.clone(), Handle::current());
    // Reading does file I/O.
    tokio::task::spawn_blocking(move || {
        let mut feed = LogFeed { reader, applied, notation, out, runtime };
        if let Err(error) = feed.run(&log) {
            feed.runtime.block_on(feed.out.send(Err(error.into())));
        }
    });
    Ok(events)
}

/// The newest segment before which everything is applied; the oldest one if there is none.
fn start_segment(log: &LogHandle, applied: &AppliedPosition, notation: PlaceNotation) -> Option<u64> {
    let segments = log.segments();
    let is_applied_before = |segment: &tailwater_log::SegmentSummary| match applied {
        AppliedPosition::Mysql(set) => {
            MysqlGtidSet::parse(&segment.gtids_before).is_ok_and(|before| set.is_superset_of(&before))
        }
        AppliedPosition::Mariadb(position) => {
            MariadbBinlogState::parse(&segment.gtids_before).is_ok_and(|before| {
                segment.source.flavour == Flavour::MariaDb
                    && before.iter().all(|gtid| position.contains(&gtid))
            })
        }
        AppliedPosition::File(place) => {
            let begin = match notation {
                PlaceNotation::SourceFile => {
                    FilePlace { file: segment.source_file.clone(), offset: segment.source_offset }
                }
                PlaceNotation::Segment => segment_place(LogPosition { segment: segment.number, offset: 0 }),
            };
            place.has_reached(&begin)
        }
    };
    let newest = segments.iter().rev().find(|segment| is_applied_before(segment));
    newest.or(segments.first()).map(|segment| segment.number)
}

struct LogFeed {
    reader: LogReader,
    applied: AppliedPosition,
    notation: PlaceNotation,
    out: FeedSender,
    runtime: Handle,
}

impl LogFeed {
    fn run(&mut self, log: &LogHandle) -> Result<(), LogError> {
        let mut durable = log.subscribe();
        loop {
            // Marked as seen before the log is read, so that no entry is missed.
            durable.mark_unchanged();
            while let Some(entry) = self.reader.try_next()? {
                if !self.send_entry(&entry)? {
                    return Ok(());
                }
            }
            if log.durable().state != LogState::Open {
                return Ok(());
            }
            let has_more = self.runtime.block_on(async {
                tokio::select! {
                    changed = durable.changed() => changed.is_ok(),
                    () = self.out.closed() => false,
                }
            });
            if !has_more {
                return Ok(());
            }
        }
    }

    /// Sends the events of an entry. Returns false if the receiver is closed.
    fn send_entry(&mut self, entry: &LogEntry) -> Result<bool, LogError> {
        let source_file: Arc<str> = self.reader.source().map_or("", |(_, file)| file).into();
        let (file, mut end) = match self.notation {
            PlaceNotation::SourceFile => (source_file, entry.source_start()),
            PlaceNotation::Segment => {
                let place = segment_place(entry.position);
                (place.file.into(), place.offset)
            }
        };
        let entry_end = FilePlace { file: file.to_string(), offset: end + entry.length };
        if entry.is_transaction() && self.applied.has(entry.gtid.as_ref(), &entry_end) {
            return Ok(true);
        }
        while let Some(header) = self.reader.next_event()? {
            end += u64::from(header.event_length);
            let mut bytes = Vec::new();
            while bytes.len() < EVENT_BYTES_MAX {
                let chunk = self.reader.read_event_chunk(EVENT_BYTES_MAX - bytes.len())?;
                if chunk.is_empty() {
                    break;
                }
                bytes.extend_from_slice(chunk);
            }
            let event = FeedEvent::new(header, bytes, Arc::clone(&file), end, false);
            if !self.runtime.block_on(self.out.send(Ok(event))) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
