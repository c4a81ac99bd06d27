//! Decides which events of the log go into the stream of one client, and which artificial events are added.
//! It does no I/O.
//!
//! The rules are those of the servers (`rpl_binlog_sender.cc`, `sql_repl.cc`). Each file starts with an
//! artificial rotate event and the file's format description event. Transactions that the client has are left
//! out; a heartbeat (MySQL) or a GTID list (MariaDB) then advances the client's position. All other events
//! are sent byte for byte as they are in the log.
//!
//! The calls for each segment are, in this order: [`StreamFilter::enter`] with the segment's format
//! description event. Then for each further entry: [`StreamFilter::entry`]; if the entry is sent,
//! [`StreamFilter::event`] for each of its events; [`StreamFilter::end_entry`]. The caller calls
//! [`StreamFilter::idle`] before it waits for more entries.

mod artificial_events;
mod mariadb_gtid_filter;
#[cfg(test)]
mod tests;

use tailwater_log::LogEntry;
use tailwater_wire::binlog_event::{
    CHECKSUM_BYTES, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET,
    FormatDescription, Rotate, verify_checksum,
};
use tailwater_wire::gtid::{Gtid, MariadbBinlogState, MysqlGtidSet};
use tailwater_wire::{Flavour, ServerId, WireError};

use self::artificial_events::{ArtificialEventBuilder, ClearedFields};
use self::mariadb_gtid_filter::{GroupEnd, MariadbFilter};
use super::binlog_file_list::served_name;
use super::client_error::ClientError;
use super::stream_start::{ClientDumpRequest, SkipSet, StreamStart};

/// The state of the stream of one client.
#[derive(Debug)]
pub struct StreamFilter {
    flavour: Flavour,
    options: FilterOptions,
    events: ArtificialEventBuilder,
    has: ClientSet,
    /// Where the stream starts in its first segment. Later segments are entered at their beginning.
    start: Option<FilterStart>,
    file: String,
    epoch: u32,
    /// The offset after the last event of `file` that was sent or skipped.
    position: u64,
    format: Option<FormatDescription>,
    /// For MySQL: the offset up to which transactions were skipped, if no event has announced this offset to
    /// the client yet.
    skipped_to: Option<u64>,
    /// The entry of the log that is being sent.
    entry: Option<EntryProgress>,
}

#[derive(Debug, Clone, Copy)]
struct FilterOptions {
    checksum: Option<ChecksumAlgorithm>,
    heartbeat_v2: bool,
    annotate_rows: bool,
    skip_marked: bool,
}

/// The transactions that the client has.
#[derive(Debug)]
enum ClientSet {
    Nothing,
    Mysql(MysqlGtidSet),
    Mariadb(MariadbFilter),
}

#[derive(Debug, Clone, Copy)]
struct FilterStart {
    position: u64,
    /// Whether the client resumes a stream that it has read before.
    resumes: bool,
}

#[derive(Debug, Clone, Copy)]
struct EntryProgress {
    transaction: bool,
    /// The offset in the file of the entry's next event.
    position: u64,
    /// The offset in the file after the entry's last byte.
    end: u64,
}

/// The segment whose entries the caller passes next.
#[derive(Debug, Clone, Copy)]
pub struct ServedSegment<'a> {
    /// The name under which the segment's file is served.
    pub file: &'a str,
    /// The epoch of the segment's source.
    pub epoch: u32,
    /// The offset in the file of the segment's first event. If it is 4, the segment has the file from its
    /// start.
    pub source_offset: u64,
}

/// What is known about consecutive transactions of a segment. It decides whether they can be sent to a client
/// as they are in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionsSummary {
    /// The GTIDs of the transactions; `None` if a transaction has no MySQL GTID.
    pub mysql_gtids: Option<MysqlGtidSet>,
    /// Whether there are Annotate_rows events.
    pub has_annotations: bool,
    /// Whether there are events that a client may want to skip, because of `@@skip_replication`.
    pub has_marked_events: bool,
    /// The offset in the source's binlog file after the last transaction.
    pub source_end: u64,
}

/// Whether an entry of the log is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryVerdict {
    /// Send these artificial events, then call [`StreamFilter::event`] for each event of the entry.
    Send(Vec<Vec<u8>>),
    /// Send nothing of the entry.
    Skip,
}

/// What to send for an event of the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventVerdict {
    /// Send all bytes of the event.
    Send {
        /// Whether the event ends a transaction. With semi-sync, such an event requests an acknowledgement.
        ends_transaction: bool,
    },
    /// Send this event instead.
    Replace(Vec<u8>),
    /// Send nothing.
    Skip,
}

/// What to send after an entry that was sent or skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryEnd {
    /// The artificial events to send.
    pub events: Vec<Vec<u8>>,
    /// Whether the client has everything that it requested. The stream then ends with an EOF packet.
    pub ends: bool,
}

impl StreamFilter {
    /// The filter for a stream that starts at `begin`. `server_id` is the id of this server, which artificial
    /// events contain.
    pub fn new(
        request: &ClientDumpRequest,
        begin: StreamStart,
        flavour: Flavour,
        server_id: ServerId,
    ) -> Self {
        let (has, resumes) = match begin.skip {
            SkipSet::Nothing => (ClientSet::Nothing, false),
            SkipSet::Mysql { has, resumes } => (ClientSet::Mysql(has), resumes),
            SkipSet::Mariadb(skip) => {
                let filter = MariadbFilter::new(*skip);
                let resumes = filter.is_skipping();
                (ClientSet::Mariadb(filter), resumes)
            }
        };
        let options = FilterOptions {
            checksum: request.checksum,
            heartbeat_v2: request.heartbeat_v2,
            annotate_rows: request.annotate_rows,
            skip_marked: request.skip_marked,
        };
        // Before the first format description event, use checksums if the client expects them.
        let checksum = request.checksum == Some(ChecksumAlgorithm::Crc32);
        Self {
            flavour,
            options,
            events: ArtificialEventBuilder { server_id, checksum },
            has,
            start: Some(FilterStart { position: begin.position, resumes }),
            file: String::new(),
            epoch: 1,
            position: begin.position,
            format: None,
            skipped_to: None,
            entry: None,
        }
    }

    /// The file that the stream has reached, and the offset after the last event that was sent or skipped.
    /// Heartbeats and acknowledgement requests contain both.
    pub fn position(&self) -> (&str, u64) {
        (&self.file, self.position)
    }

    /// Enters a segment. Returns the events that are sent at the segment's beginning. `format_description` is
    /// the whole event at the segment's beginning, which must not be passed again as an entry.
    ///
    /// # Errors
    /// If the client does not support the log's checksums, or if the event cannot be parsed.
    pub fn enter(
        &mut self,
        segment: ServedSegment<'_>,
        format_description: &[u8],
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let format = self.read_format(format_description)?;
        let start = self.start.take();
        let same_file = start.is_none() && self.file == segment.file && self.epoch == segment.epoch;
        let position = start.map_or(segment.source_offset, |start| start.position);
        let mut events = Vec::new();
        if !same_file {
            events.extend(self.idle());
            segment.file.clone_into(&mut self.file);
            self.epoch = segment.epoch;
            events.push(self.events.rotate(segment.file, position));
        }
        let cleared = match start {
            _ if position > FIRST_EVENT_OFFSET => ClearedFields::CreatedAndPlace,
            Some(FilterStart { resumes: true, .. }) => ClearedFields::Created,
            None if matches!(&self.has, ClientSet::Mariadb(filter) if filter.is_skipping()) => {
                ClearedFields::Created
            }
            _ => ClearedFields::Nothing,
        };
        // If several segments of the log contain parts of one file, send the file's format description event
        // only once, unless it differs.
        let continues = same_file
            && self.format.as_ref().is_some_and(|known| {
                FormatDescription { created: 0, ..known.clone() }
                    == FormatDescription { created: 0, ..format.clone() }
            });
        if !continues {
            events.push(artificial_events::format_description(format_description, &format, cleared));
        }
        self.position = match position {
            FIRST_EVENT_OFFSET => FIRST_EVENT_OFFSET + format_description.len() as u64,
            position => position,
        };
        self.events.checksum = format.has_checksums();
        self.format = Some(format);
        Ok(events)
    }

    fn read_format(&self, event: &[u8]) -> Result<FormatDescription, ClientError> {
        let unreadable = |error: WireError| {
            ClientError::dump(format!(
                "Cannot read the format description event of {} in the log: {error}",
                self.file
            ))
        };
        let header = EventHeader::parse(event).map_err(unreadable)?;
        if header.event_length as usize != event.len() {
            let reason = format!("the event has {} bytes instead of {}", event.len(), header.event_length);
            return Err(unreadable(WireError::malformed("format description event", reason)));
        }
        if header.event_type != EventType::FORMAT_DESCRIPTION {
            return Err(ClientError::dump("Could not find format_description_event in binlog file"));
        }
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        let format = FormatDescription::parse(body).map_err(unreadable)?;
        if !format.has_checksums() {
            return Ok(format);
        }
        verify_checksum(event).map_err(unreadable)?;
        if self.options.checksum.is_none() {
            return Err(ClientError::dump(match self.flavour {
                Flavour::MySql => {
                    "Replica can not handle replication events with the checksum that source is configured to log"
                }
                Flavour::MariaDb => {
                    "Slave can not handle replication events with the checksum that master is configured to log"
                }
            }));
        }
        Ok(format)
    }

    /// Decides whether the next entry is sent. `log` returns the state of the whole log. This method calls
    /// `log` only if a MariaDB client has a position in a domain that had no transactions when the stream
    /// started.
    ///
    /// # Errors
    /// If the log does not have the client's position. Also if the transaction has no GTID although the
    /// client requested the stream by GTIDs.
    pub fn entry(
        &mut self,
        entry: &LogEntry,
        log: &dyn Fn() -> MariadbBinlogState,
    ) -> Result<EntryVerdict, ClientError> {
        let has = match (&mut self.has, &entry.gtid) {
            (ClientSet::Mysql(has), Some(Gtid::MySql(gtid))) => has.contains_gtid(gtid),
            (ClientSet::Mysql(_), None) if entry.is_transaction() => return Err(self.anonymous(entry)),
            (ClientSet::Mariadb(filter), Some(Gtid::MariaDb(gtid))) => filter.has(gtid, log)?,
            _ => false,
        };
        if has {
            self.position = entry.source_end;
            if self.flavour == Flavour::MySql {
                self.skipped_to = Some(entry.source_end);
            }
            return Ok(EntryVerdict::Skip);
        }
        self.entry = Some(EntryProgress {
            transaction: entry.is_transaction(),
            position: entry.source_start(),
            end: entry.source_end,
        });
        Ok(EntryVerdict::Send(self.idle().into_iter().collect()))
    }

    fn anonymous(&self, entry: &LogEntry) -> ClientError {
        ClientError::dump(format!(
            "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file {}, position {}.",
            self.file,
            entry.source_start()
        ))
    }

    /// Returns whether all events of these transactions go into the stream, and no others between them. Must
    /// be called between two entries.
    pub fn sends_all_of(&self, transactions: &TransactionsSummary) -> bool {
        let lacks_all = match (&self.has, &transactions.mysql_gtids) {
            (ClientSet::Nothing, _) => true,
            (ClientSet::Mysql(has), Some(gtids)) => has.is_disjoint_from(gtids),
            (ClientSet::Mysql(_), None) => false,
            (ClientSet::Mariadb(filter), _) => filter.sends_everything(),
        };
        lacks_all
            && (self.options.annotate_rows || !transactions.has_annotations)
            && !(self.options.skip_marked && transactions.has_marked_events)
    }

    /// Records that the stream sends all events of these transactions. Returns the events to send before
    /// them.
    pub fn send_all_of(&mut self, transactions: &TransactionsSummary) -> Option<Vec<u8>> {
        let before = self.idle();
        self.position = transactions.source_end;
        before
    }

    /// Decides what is sent for the next event of the entry. `first_chunk` has the event's first bytes: all
    /// bytes of a rotate event, otherwise at least the header.
    ///
    /// # Errors
    /// If the event cannot be parsed.
    pub fn event(&mut self, header: &EventHeader, first_chunk: &[u8]) -> Result<EventVerdict, ClientError> {
        let mut ends_transaction = false;
        if let Some(entry) = &mut self.entry {
            entry.position += u64::from(header.event_length);
            self.position = entry.position;
            ends_transaction = entry.transaction && entry.position >= entry.end;
        }
        let marked = header.has(EventHeader::FLAG_SKIP_REPLICATION);
        if self.flavour == Flavour::MariaDb && marked && self.options.skip_marked {
            return Ok(EventVerdict::Skip);
        }
        Ok(match header.event_type {
            EventType::MARIADB_ANNOTATE_ROWS if !self.options.annotate_rows => EventVerdict::Skip,
            EventType::ROTATE if self.epoch > 1 => EventVerdict::Replace(self.renamed(header, first_chunk)?),
            _ => EventVerdict::Send { ends_transaction },
        })
    }

    /// Changes a rotate event of the log so that it has the served name of the next file.
    fn renamed(&self, header: &EventHeader, event: &[u8]) -> Result<Vec<u8>, ClientError> {
        let unreadable = |error: WireError| {
            ClientError::dump(format!("Cannot read the rotate event of {} in the log: {error}", self.file))
        };
        let Some(format) = &self.format else {
            return Err(ClientError::dump("Could not find format_description_event in binlog file"));
        };
        let trailer = if format.has_checksums() { CHECKSUM_BYTES } else { 0 };
        let end = event.len().saturating_sub(trailer);
        let body = event.get(EVENT_HEADER_BYTES..end).unwrap_or_default();
        let rotate = Rotate::parse(body, format).map_err(unreadable)?;
        let name = served_name(&String::from_utf8_lossy(rotate.file_name), self.epoch);
        Ok(artificial_events::renamed_rotate(header, &rotate, &name, format.has_checksums()))
    }

    /// Returns what to send after the entry that was just sent or skipped.
    ///
    /// # Errors
    /// If the GTID list for a MariaDB client would be too long for an event.
    pub fn end_entry(&mut self) -> Result<EntryEnd, ClientError> {
        self.entry = None;
        let ClientSet::Mariadb(filter) = &mut self.has else {
            return Ok(EntryEnd { events: Vec::new(), ends: false });
        };
        let GroupEnd { list, ends } = filter.end_group();
        let event = list.map(|list| self.events.gtid_list(&list, self.position)).transpose();
        let event = event.map_err(|error| {
            ClientError::dump(format!("Cannot build the GTID list for the client: {error}"))
        })?;
        Ok(EntryEnd { events: event.into_iter().collect(), ends })
    }

    /// For MySQL: the heartbeat to send before waiting for more entries. It announces skipped transactions.
    /// `None` if the client already knows the position of the stream.
    pub fn idle(&mut self) -> Option<Vec<u8>> {
        let position = self.skipped_to.take()?;
        Some(self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, position))
    }

    /// The heartbeat to send when the client has received no event for its heartbeat period. The heartbeat
    /// also announces skipped transactions.
    pub fn heartbeat(&mut self) -> Vec<u8> {
        self.skipped_to = None;
        self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, self.position)
    }
}
