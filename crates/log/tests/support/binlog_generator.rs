//! A synthetic source that generates binlog files of both flavours, with transactions of any size, from one
//! seed.

use tailwater_wire::binlog_event::checksum::compute_checksum;
use tailwater_wire::binlog_event::{
    BINLOG_MAGIC, ChecksumAlgorithm, EventBuilder, EventHeader, FormatDescription, GtidEvent,
    MariadbGtidEvent, QueryEvent, Rotate,
};
use tailwater_wire::gtid::{Gtid, MariadbGtid, MariadbGtidList, MysqlGtid, MysqlGtidSet};
use tailwater_wire::{Flavour, ServerId};

/// A transaction as the source wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub gtid: Gtid,
    pub events: Vec<Vec<u8>>,
}

impl Transaction {
    pub fn bytes(&self) -> Vec<u8> {
        self.events.concat()
    }
}

/// A synthetic source.
#[derive(Debug, Clone)]
pub struct Source {
    pub flavour: Flavour,
    pub file_number: u32,
    /// The bytes of the current binlog file.
    pub file: Vec<u8>,
    /// Whether events inside transactions have no positions, as in MariaDB 11.4 and later.
    pub omits_positions: bool,
    builder: EventBuilder,
    number: u64,
}

pub const UUID: [u8; 16] = [0x11; 16];

impl Source {
    pub fn new(flavour: Flavour) -> Self {
        Self::with_checksum(flavour, ChecksumAlgorithm::Crc32)
    }

    pub fn with_checksum(flavour: Flavour, checksum: ChecksumAlgorithm) -> Self {
        Self {
            flavour,
            file_number: 0,
            file: Vec::new(),
            omits_positions: false,
            builder: EventBuilder::new(ServerId(1), checksum),
            number: 0,
        }
    }

    pub fn file_name(&self) -> String {
        format!("binlog.{:06}", self.file_number)
    }

    /// Returns the number of generated transactions.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns to an earlier state, as if the stream were requested again from there.
    pub fn rewind(&mut self, file_bytes: usize, number: u64) {
        self.file.truncate(file_bytes);
        self.number = number;
        self.builder = self.builder.clone().at(file_bytes as u64);
    }

    /// Starts the next file. Returns its format description event, and the event with the GTIDs of all
    /// earlier transactions.
    pub fn begin_file(&mut self, checksum: ChecksumAlgorithm) -> Vec<Vec<u8>> {
        self.file_number += 1;
        self.file = BINLOG_MAGIC.to_vec();
        self.builder = EventBuilder::new(ServerId(1), checksum);
        let format = FormatDescription::assumed(self.flavour, checksum);
        let description = self
            .builder
            .format_description(&format, 0)
            .expect("building the format description event succeeds");
        let before = match self.flavour {
            Flavour::MySql => {
                let text = match self.number {
                    0 => String::new(),
                    last => format!("11111111-1111-1111-1111-111111111111:1-{last}"),
                };
                self.builder.previous_gtids(&MysqlGtidSet::parse(&text).expect("the GTID set is valid"))
            }
            Flavour::MariaDb => {
                let gtids = match self.number {
                    0 => Vec::new(),
                    sequence => vec![MariadbGtid { domain: 0, server_id: 1, sequence }],
                };
                self.builder.mariadb_gtid_list(&MariadbGtidList { gtids, flags: 0 })
            }
        };
        let events = vec![description, before.expect("building the event with the earlier GTIDs succeeds")];
        events.iter().for_each(|event| self.file.extend_from_slice(event));
        events
    }

    /// Ends the current file.
    pub fn rotate(&mut self) -> Vec<u8> {
        let name = format!("binlog.{:06}", self.file_number + 1);
        let rotate = Rotate { position: 4, file_name: name.as_bytes() };
        let event = self.builder.rotate(rotate).expect("building the rotate event succeeds");
        self.file.extend_from_slice(&event);
        event
    }

    /// Generates a transaction whose statements have the given lengths in bytes. `fill` supplies the bytes
    /// of the statements.
    pub fn transaction(&mut self, statement_bytes: &[usize], mut fill: impl FnMut() -> u64) -> Transaction {
        self.number += 1;
        self.builder.timestamp = 1_700_000_000 + self.number as u32;
        let mut events = Vec::new();
        let mysql = self.flavour == Flavour::MySql;
        let gtid = match self.flavour {
            Flavour::MySql => Gtid::MySql(MysqlGtid { uuid: UUID, tag: String::new(), number: self.number }),
            Flavour::MariaDb => Gtid::MariaDb(MariadbGtid { domain: 0, server_id: 1, sequence: self.number }),
        };
        events.push(
            match &gtid {
                Gtid::MySql(gtid) => self.builder.gtid(&GtidEvent {
                    gtid: Some(gtid.clone()),
                    flags: 1,
                    logical_clock: None,
                    immediate_commit_time_us: None,
                    original_commit_time_us: None,
                    transaction_bytes: None,
                    immediate_server_version: None,
                    original_server_version: None,
                    commit_group_ticket: None,
                }),
                Gtid::MariaDb(gtid) => self.builder.mariadb_gtid(&MariadbGtidEvent {
                    flags: MariadbGtidEvent::FLAG_TRANSACTIONAL,
                    ..MariadbGtidEvent::bare(*gtid)
                }),
            }
            .expect("building the GTID event succeeds"),
        );
        if mysql {
            events.push(self.query(b"BEGIN"));
        }
        for length in statement_bytes {
            let mut statement = b"INSERT INTO t VALUES ".to_vec();
            let mut random = 0;
            // One byte in eight is random. That is fast, and no two statements are equal.
            statement.extend((0..*length).map(|index| {
                if index % 8 == 0 {
                    random = fill();
                }
                if random & 0x700 == 0 { 0 } else { (random >> (index % 8)) as u8 }
            }));
            events.push(self.query(&statement));
        }
        events.push(self.builder.xid(self.number).expect("building the XID event succeeds"));
        if self.omits_positions {
            let last = events.len() - 1;
            events[..last].iter_mut().for_each(|event| omit_position(event));
        }
        events.iter().for_each(|event| self.file.extend_from_slice(event));
        Transaction { gtid, events }
    }

    fn query(&mut self, statement: &[u8]) -> Vec<u8> {
        let query = QueryEvent {
            thread_id: 1,
            execution_seconds: 0,
            error_code: 0,
            status_vars_bytes: b"",
            database: b"test",
            query: statement,
            compressed: false,
        };
        self.builder.query(&query).expect("building the query event succeeds")
    }
}

fn omit_position(event: &mut [u8]) {
    event[13..17].fill(0);
    let checked = event.len() - 4;
    let checksum = compute_checksum(&event[..checked]);
    event[checked..].copy_from_slice(&checksum.to_le_bytes());
}

pub fn header(event: &[u8]) -> EventHeader {
    EventHeader::parse(event).expect("the event has a valid header")
}
