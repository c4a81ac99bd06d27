//! What of the log goes into one client's stream, and what is made up for it. Pure.
//!
//! The rules are the servers' own (`rpl_binlog_sender.cc`, `sql_repl.cc`): each file begins with a made-up rotate
//! event and its format description; transactions that the client has are left out; what was left out shows as a
//! heartbeat (MySQL) or a GTID list (MariaDB), so that the client's position moves. All else goes out with the bytes
//! that it has in the log.
//!
//! The order of calls, for each segment: [`StreamFilter::enter`] with its format description event, which is thereby
//! done with; then for each entry [`StreamFilter::entry`]; if that is to be sent, [`StreamFilter::event`] for each of
//! its events; and [`StreamFilter::end_entry`]. Before waiting for more, [`StreamFilter::idle`].

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
use super::catalog::{FIRST_EVENT, served_name};
use super::client_error::ClientError;
use super::start::{ClientDumpRequest, SkipSet, StreamStart};

/// The state of one client's stream.
#[derive(Debug)]
pub struct StreamFilter {
    flavour: Flavour,
    options: FilterOptions,
    events: ArtificialEventBuilder,
    has: ClientSet,
    /// The first segment is entered where the client asked for, later ones at their beginning.
    start: Option<FilterStart>,
    file: String,
    epoch: u32,
    /// Behind the last event of `file` that was sent or skipped.
    position: u64,
    format: Option<FormatDescription>,
    /// MySQL: up to here transactions were skipped, and the client does not know it.
    skipped_to: Option<u64>,
    /// The entry that is being sent.
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
    /// The client has been here before.
    resumes: bool,
}

#[derive(Debug, Clone, Copy)]
struct EntryProgress {
    transaction: bool,
    /// Where its next event stands in the file.
    position: u64,
    /// Where it ends.
    end: u64,
}

/// The segment whose entries come next.
#[derive(Debug, Clone, Copy)]
pub struct ServedSegment<'a> {
    /// The file that it is served as.
    pub file: &'a str,
    /// Which source of the log it came from.
    pub epoch: u32,
    /// Offset in the file of its first event; 4 if it mirrors the file from its start.
    pub source_offset: u64,
}

/// Whether an entry is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryVerdict {
    /// Its events are to be looked at one by one, when these made-up events have been sent.
    Send(Vec<Vec<u8>>),
    /// Nothing of it is sent.
    Skip,
}

/// What is sent of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventVerdict {
    /// All of its bytes.
    Send {
        /// It ends a transaction: with semi-sync, the client is asked for an acknowledgement.
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
    /// Made-up events.
    pub events: Vec<Vec<u8>>,
    /// The client wanted no more than this: the stream ends with an EOF packet.
    pub ends: bool,
}

impl StreamFilter {
    /// A stream that begins at `begin`. `server_id` is ours, and stands in events that are made up.
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
        // Until the first format description has said how events are, they are as the client expects them.
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

    /// The file that the stream is in and the offset behind the last event that was sent or skipped; what heartbeats
    /// say, and what a client acknowledges.
    pub fn position(&self) -> (&str, u64) {
        (&self.file, self.position)
    }

    /// Goes on in a segment, and gives what is sent at its head. `format_description` is the event at the segment's
    /// head, whole; it must not be given again as an entry.
    ///
    /// # Errors
    /// The client cannot handle the checksums of the log; the event cannot be read.
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
            _ if position > FIRST_EVENT => ClearedFields::CreatedAndPlace,
            Some(FilterStart { resumes: true, .. }) => ClearedFields::Created,
            None if matches!(&self.has, ClientSet::Mariadb(filter) if filter.is_skipping()) => {
                ClearedFields::Created
            }
            _ => ClearedFields::Nothing,
        };
        // A file that the log has in parts goes on under the description that it began with.
        let goes_on = same_file
            && self.format.as_ref().is_some_and(|known| {
                FormatDescription { created: 0, ..known.clone() }
                    == FormatDescription { created: 0, ..format.clone() }
            });
        if !goes_on {
            events.push(artificial::format_description(format_description, &format, cleared));
        }
        self.position = match position {
            FIRST_EVENT => FIRST_EVENT + format_description.len() as u64,
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

    /// Whether the next entry is sent. `log` gives the state of the whole log, and is asked only if a MariaDB client's
    /// position was in a domain that the log had nothing of.
    ///
    /// # Errors
    /// The client's position turns out not to be in the log; the transaction has no GTID and the client goes by GTIDs.
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

    /// What is sent of the next event of the entry. `first_chunk` are its bytes from the header on: all of a rotate
    /// event, of others the header.
    ///
    /// # Errors
    /// The event cannot be read.
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

    /// A rotate event that names the next file as it is served.
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
    /// The GTID list of a client of MariaDB would be too long for an event.
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

    /// What is to be sent before waiting for more: a heartbeat, if transactions were skipped that the client does not
    /// know of (MySQL).
    pub fn idle(&mut self) -> Option<Vec<u8>> {
        let position = self.skipped_to.take()?;
        Some(self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, position))
    }

    /// A heartbeat, for when the client's period has passed without an event. Whatever was skipped is told with it.
    pub fn heartbeat(&mut self) -> Vec<u8> {
        self.skipped_to = None;
        self.events.heartbeat(self.flavour, self.options.heartbeat_v2, &self.file, self.position)
    }
}
