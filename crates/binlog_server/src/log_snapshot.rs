//! The state of the log at one moment. With it, the server decides where a client's stream starts.

use std::collections::HashMap;

use tailwater_log::{LogEntry, LogHandle, LogPosition};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, FIRST_EVENT_OFFSET, FormatDescription,
};
use tailwater_wire::gtid::{Gtid, GtidSet};

use super::binlog_file_list::{Catalog, SegmentView};
use super::client_error::ClientError;
use super::stream_start::LogHistory;

/// The state of a log at one moment.
#[derive(Debug)]
pub(crate) struct LogSnapshot {
    log: LogHandle,
    flavour: Flavour,
    catalog: Catalog,
    gtids: GtidSet,
    source_uuid: Option<[u8; 16]>,
    checksum: ChecksumAlgorithm,
}

/// Data from the format description event at the beginning of each segment. These events never change, so
/// their data is cached.
#[derive(Debug, Default)]
pub(crate) struct SegmentHeads {
    known: HashMap<u64, SegmentHead>,
}

#[derive(Debug, Clone, Copy)]
struct SegmentHead {
    /// The length of the format description event in bytes.
    bytes: u64,
    /// The checksum algorithm of the segment's events.
    checksum: ChecksumAlgorithm,
}

impl SegmentHeads {
    /// Reads the format description event of a segment. `None` if the event is not written yet, or if the
    /// segment was just purged. Clients cannot request any part of such a segment.
    fn of(&mut self, log: &LogHandle, segment: u64) -> Option<SegmentHead> {
        if let Some(head) = self.known.get(&segment) {
            return Some(*head);
        }
        let mut reader = log.reader(LogPosition { segment, offset: FIRST_EVENT_OFFSET }).ok()?;
        reader.try_next().ok()??;
        let header = reader.next_event().ok()??;
        let mut event = Vec::new();
        reader.read_event(&mut event).ok()?;
        let format = FormatDescription::parse(event.get(EVENT_HEADER_BYTES..)?).ok()?;
        let head = SegmentHead {
            bytes: u64::from(header.event_length),
            checksum: format.checksum.unwrap_or(ChecksumAlgorithm::Off),
        };
        self.known.insert(segment, head);
        Some(head)
    }
}

impl LogSnapshot {
    /// The current state of the log; `None` while the log is empty.
    pub(crate) fn of(log: &LogHandle, heads: &mut SegmentHeads) -> Option<Self> {
        let segments = log.segments();
        let newest = segments.last()?;
        let source = newest.source.clone();
        let views: Vec<SegmentView> = segments
            .iter()
            .map(|segment| {
                let head_bytes = match segment.source_offset {
                    FIRST_EVENT_OFFSET => 0,
                    _ => heads.of(log, segment.number).map_or(0, |head| head.bytes),
                };
                SegmentView::new(segment, segment.epoch, head_bytes)
            })
            .collect();
        heads.known.retain(|number, _| segments.first().is_some_and(|first| *number >= first.number));
        Some(Self {
            log: log.clone(),
            flavour: source.flavour,
            catalog: Catalog::new(views),
            gtids: log.gtid_set().unwrap_or_else(|| GtidSet::empty(source.flavour)),
            source_uuid: source.server_uuid.as_deref().and_then(parse_uuid),
            checksum: heads.of(log, newest.number).map_or(ChecksumAlgorithm::Crc32, |head| head.checksum),
        })
    }

    /// MariaDB's GTID position at an offset in a file. `None` if the log does not have the offset.
    pub(crate) fn gtid_position(&self, file: &str, position: u64) -> Option<String> {
        let at = self.catalog.locate(file, position).ok()?;
        let GtidSet::MariaDb(mut state) = self.log.gtids_before(at.segment).ok()?? else { return None };
        let mut reader =
            self.log.reader(LogPosition { segment: at.segment, offset: FIRST_EVENT_OFFSET }).ok()?;
        while reader.position() < at {
            match reader.try_next().ok()?? {
                LogEntry { gtid: Some(Gtid::MariaDb(gtid)), .. } if reader.position() <= at => {
                    state.update(gtid)
                }
                _ => {}
            }
        }
        Some(state.position().to_string())
    }

    /// The checksum algorithm of the newest events in the log.
    pub(crate) fn checksum(&self) -> ChecksumAlgorithm {
        self.checksum
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut uuid = [0; 16];
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != uuid.len() {
        return None;
    }
    for (byte, pair) in uuid.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(uuid)
}

impl LogHistory for LogSnapshot {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn gtids(&self) -> GtidSet {
        self.gtids.clone()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError> {
        self.log.gtids_before(segment).map_err(|error| ClientError::dump(error.to_string()))
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        self.source_uuid
    }
}
