//! A log in memory, as if it had been captured from a source.

use tailwater_log::{EntryFlags, EntryKind, LogEntry, LogPosition};
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EventBuilder, EventType, FIRST_EVENT_OFFSET, FormatDescription, GtidEvent,
    LogicalClock, MariadbGtidEvent, Rotate,
};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tailwater_wire::{Flavour, ServerId};

use crate::binlog_file_list::{Catalog, SegmentView, served_name};
use crate::client_error::ClientError;
use crate::stream_start::LogHistory;

/// A segment of a log: its format description event, and its entries with their events.
#[derive(Clone)]
pub struct Part {
    pub file: String,
    pub epoch: u32,
    pub source_offset: u64,
    pub format_description: Vec<u8>,
    pub entries: Vec<(LogEntry, Vec<Vec<u8>>)>,
    pub before: GtidSet,
    pub bytes: u64,
}

/// Writes the segments of a log as a source writes its binlog files.
pub struct Writer {
    pub flavour: Flavour,
    pub checksum: ChecksumAlgorithm,
    pub parts: Vec<Part>,
    pub builder: EventBuilder,
    pub gtids: GtidSet,
    pub epoch: u32,
}

impl Writer {
    pub fn new(flavour: Flavour, checksum: ChecksumAlgorithm) -> Self {
        let builder = EventBuilder::new(ServerId(1), checksum);
        let gtids = GtidSet::empty(flavour);
        Self { flavour, checksum, parts: Vec::new(), builder, gtids, epoch: 1 }
    }

    /// Starts a file, or continues in the middle of it.
    pub fn begin(&mut self, file: &str, source_offset: u64) {
        self.builder = EventBuilder::new(ServerId(1), self.checksum);
        let mut format = FormatDescription::assumed(self.flavour, self.checksum);
        format.created = 77;
        let format_description = self.builder.format_description(&format, 0).unwrap();
        if source_offset != FIRST_EVENT_OFFSET {
            self.builder = EventBuilder::new(ServerId(1), self.checksum).at(source_offset);
        }
        self.parts.push(Part {
            file: served_name(file, self.epoch),
            epoch: self.epoch,
            source_offset,
            bytes: FIRST_EVENT_OFFSET + format_description.len() as u64,
            format_description,
            entries: Vec::new(),
            before: self.gtids.clone(),
        });
    }

    pub fn add(&mut self, events: Vec<Vec<u8>>, kind: EntryKind, gtid: Option<Gtid>) {
        let part = self.parts.last_mut().unwrap();
        let length = events.iter().map(|event| event.len() as u64).sum();
        let position = LogPosition { segment: 1, offset: part.bytes };
        part.bytes += length;
        if let Some(gtid) = &gtid {
            self.gtids.insert(gtid).unwrap();
        }
        let source_end = self.builder.position();
        let flags = EntryFlags::default();
        part.entries
            .push((LogEntry { position, length, kind, gtid, source_end, commit_time_us: 0, flags }, events));
    }

    pub fn lone(&mut self, make: impl FnOnce(&mut EventBuilder) -> Vec<u8>) {
        let event = make(&mut self.builder);
        self.add(vec![event], EntryKind::Event, None);
    }

    pub fn rotate(&mut self, file: &str) {
        self.lone(|builder| builder.rotate(Rotate { position: 4, file_name: file.as_bytes() }).unwrap());
    }

    pub fn transaction(&mut self, gtid: Option<Gtid>) {
        let builder = &mut self.builder;
        let open = match (&gtid, self.flavour) {
            (Some(Gtid::MariaDb(gtid)), _) => {
                let open = builder.mariadb_gtid(&MariadbGtidEvent::bare(*gtid)).unwrap();
                let note = builder.event(EventType::MARIADB_ANNOTATE_ROWS, 0, b"UPDATE t SET a=1").unwrap();
                vec![open, note]
            }
            (gtid, _) => {
                let gtid = match gtid {
                    Some(Gtid::MySql(gtid)) => Some(gtid.clone()),
                    _ => None,
                };
                let anonymous = gtid.is_none();
                let clock = LogicalClock { last_committed: 0, sequence_number: 1 };
                let event = GtidEvent {
                    gtid,
                    flags: 0,
                    logical_clock: Some(clock),
                    immediate_commit_time_us: None,
                    original_commit_time_us: None,
                    transaction_bytes: None,
                    immediate_server_version: None,
                    original_server_version: None,
                    commit_group_ticket: None,
                };
                assert_eq!(anonymous, event.gtid.is_none());
                vec![builder.gtid(&event).unwrap()]
            }
        };
        let mut events = open;
        events.push(builder.event(EventType::INTVAR, 0, &[1; 9]).unwrap());
        events.push(builder.xid(9).unwrap());
        self.add(events, EntryKind::Transaction, gtid);
    }
}

impl LogHistory for Writer {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        // This leaks memory, but tests call it only a few times.
        Box::leak(Box::new(Catalog::new((1..).zip(&self.parts).map(|(number, part)| SegmentView {
            number,
            source_file: part.file.clone(),
            source_offset: part.source_offset,
            head_bytes: part.format_description.len() as u64,
            bytes: part.bytes,
            sealed: true,
            epoch: 1,
        }))))
    }

    fn gtids(&self) -> GtidSet {
        self.gtids.clone()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError> {
        Ok(Some(self.parts[segment as usize - 1].before.clone()))
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        None
    }
}
