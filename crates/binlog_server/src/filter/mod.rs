//! Decides which events of the log go into one client's stream, and which artificial events are added. Pure.
//!
//! The rules are the servers' own (`rpl_binlog_sender.cc`, `sql_repl.cc`). Each file begins with an
//! artificial rotate event and its format description. Transactions that the client has are left out; a
//! heartbeat (MySQL) or a GTID list (MariaDB) then moves the client's position. Everything else is sent with
//! the bytes in the log.
//!
//! Order of calls for each segment: [`StreamFilter::enter`] with its format description event, which it
//! consumes; then for each entry [`StreamFilter::entry`]; if that is to be sent, [`StreamFilter::event`] for
//! each of its events; and [`StreamFilter::end_entry`]. Before waiting for more, [`StreamFilter::idle`].

mod artificial;
mod mariadb;
#[cfg(test)]
mod tests;

use tailwater_log::LogEntry;
use tailwater_wire::event::{
    CHECKSUM_BYTES, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, Rotate,
    verify_checksum,
};
use tailwater_wire::gtid::{Gtid, MariadbBinlogState, MysqlGtidSet};
use tailwater_wire::{Flavour, ServerId, WireError};

use self::artificial::{ArtificialEventBuilder, ClearedFields};
use self::mariadb::{GroupEnd, MariadbFilter};
use super::catalog::served_name;
use super::client_error::ClientError;
use super::start::{ClientDumpRequest, SkipSet, StreamStart};
use tailwater_wire::event::FIRST_EVENT_OFFSET;

/// The state of one client's stream.
#[derive(Debug)]
pub struct StreamFilter {
    flavour: Flavour,
    options: FilterOptions,
    events: ArtificialEventBuilder,
    has: ClientSet,
    /// The first segment is entered at the requested position, later ones at their beginning.
    start: Option<FilterStart>,
    file: String,
    epoch: u32,
    /// Offset after the last event of `file` that was sent or skipped.
    position: u64,
    format: Option<FormatDescription>,
    /// MySQL: transactions up to here were skipped, and the client does not know it yet.
    skipped_to: Option<u64>,
    /// The entry being sent.
    entry: Option<EntryProgress>,
}

#[derive(Debug, Clone, Copy)]
struct FilterOptions {
    checksum: Option<ChecksumAlgorithm>,
    heartbeat_v2: bool,
    annotate_rows: bool,
    skip_marked: bool,
}

/// What the client has.
#[derive(Debug)]
enum ClientSet {
    Nothing,
    Mysql(MysqlGtidSet),
    Mariadb(MariadbFilter),
}

#[derive(Debug, Clone, Copy)]
struct FilterStart {
    position: u64,
    /// The client resumes an earlier stream.
    resumes: bool,
}

#[derive(Debug, Clone, Copy)]
struct EntryProgress {
    transaction: bool,
    /// Offset of its next event in the file.
    position: u64,
    /// Offset of its end.
    end: u64,
}

/// The segment whose entries come next.
#[derive(Debug, Clone, Copy)]
pub struct ServedSegment<'a> {
    /// The served file's name.
    pub file: &'a str,
    /// The number of its source.
    pub epoch: u32,
    /// Offset in the file of its first event; 4 if it mirrors the file from its start.
    pub source_offset: u64,
}

/// Whether an entry is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryVerdict {
    /// Send these artificial events, then decide for each event of the entry.
    Send(Vec<Vec<u8>>),
    /// Send nothing of it.
    Skip,
}

/// What to send of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventVerdict {
    /// All of its bytes.
    Send {
        /// It ends a transaction: with semi-sync, an acknowledgement is requested.
        ends_transaction: bool,
    },
    /// Another event in its place.
    Replace(Vec<u8>),
    /// Nothing.
    Skip,
}

/// What follows an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryEnd {
    /// Artificial events.
    pub events: Vec<Vec<u8>>,
    /// The client asked for no more than this: the stream ends with an EOF packet.
    pub ends: bool,
}

impl StreamFilter {
    /// A stream that begins at `begin`. `server_id` is this server's, and is used in artificial events.
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
        // Until the first format description, use the checksums that the client expects.
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

    /// The stream's current file and the offset after the last event that was sent or skipped; used in
    /// heartbeats and acknowledgements.
    pub fn position(&self) -> (&str, u64) {
        (&self.file, self.position)
    }

    /// Enters a segment, and returns what is sent at its head. `format_description` is the whole event at the
    /// segment's head; it must not be passed again as an entry.
    ///
    /// # Errors
    /// The client cannot handle the log's checksums; the event cannot be parsed.
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
        // A file that the log has in several segments continues under its first format description.
        let continues = same_file
            && self.format.as_ref().is_some_and(|known| {
                FormatDescription { created: 0, ..known.clone() }
                    == FormatDescription { created: 0, ..format.clone() }
            });
        if !continues {
            events.push(artificial::format_description(format_description, &format, cleared));
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
            ClientError::dump(format!("The format description event of {} in the log: {error}", self.file))
        };
        let header = EventHeader::parse(event).map_err(unreadable)?;
        if header.event_length as usize != event.len() {
            let reason = format!("{} bytes of {}", event.len(), header.event_length);
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

    /// Whether the next entry is sent. `log` returns the state of the whole log; it is called only if a
    /// MariaDB client's position was in a domain that was empty in the log.
    ///
    /// # Errors
    /// The client's position turns out not to be in the log; the transaction has no GTID and the client goes
    /// by GTIDs.
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

    /// What is sent of the next event of the entry. `first_chunk` holds its bytes from the header on: all of
    /// a rotate event, otherwise at least the header.
    ///
    /// # Errors
    /// The event cannot be parsed.
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

    /// A rotate event with the next file's served name.
    fn renamed(&self, header: &EventHeader, event: &[u8]) -> Result<Vec<u8>, ClientError> {
        let unreadable = |error: WireError| {
            ClientError::dump(format!("The rotate event of {} in the log: {error}", self.file))
        };
        let Some(format) = &self.format else {
            return Err(ClientError::dump("Could not find format_description_event in binlog file"));
        };
        let trailer = if format.has_checksums() { CHECKSUM_BYTES } else { 0 };
        let end = event.len().saturating_sub(trailer);
        let body = event.get(EVENT_HEADER_BYTES..end).unwrap_or_default();
        let rotate = Rotate::parse(body, format).map_err(unreadable)?;
        let name = served_name(&String::from_utf8_lossy(rotate.file_name), self.epoch);
        Ok(artificial::renamed_rotate(header, &rotate, &name, format.has_checksums()))
    }

    /// What follows the entry that was just sent or skipped.
    ///
    /// # Errors
    /// The GTID list of a MariaDB client would be too long for an event.
    pub fn end_entry(&mut self) -> Result<EntryEnd, ClientError> {
        self.entry = None;
        let ClientSet::Mariadb(filter) = &mut self.has else {
            return Ok(EntryEnd { events: Vec::new(), ends: false });
        };
        let GroupEnd { list, ends } = filter.end_group();
        let event = list.map(|list| self.events.gtid_list(&list, self.position)).transpose();
        let event =
            event.map_err(|error| ClientError::dump(format!("The GTID list for the client: {error}")))?;
        Ok(EntryEnd { events: event.into_iter().collect(), ends })
    }

    /// What to send before waiting for more: a heartbeat if transactions were skipped that the client does
    /// not know of (MySQL).
    pub fn idle(&mut self) -> Option<Vec<u8>> {
        let position = self.skipped_to.take()?;
        Some(self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, position))
    }

    /// A heartbeat for a client's period without events. It also covers skipped transactions.
    pub fn heartbeat(&mut self) -> Vec<u8> {
        self.skipped_to = None;
        self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, self.position)
    }
}
