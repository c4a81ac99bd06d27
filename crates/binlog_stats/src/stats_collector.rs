//! Collects statistics from binlog events.

use std::sync::Arc;

use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, GtidEvent, QueryEvent,
};
use tailwater_wire::event_printer::EventLocation;
use tailwater_wire::transaction_boundary::{TransactionStart, TransactionStep, TransactionTracker};
use tailwater_wire::{Flavour, WireError};

use crate::all_transactions_totals::StatsTotals;
use crate::incremental_event_parser::{EventContent, RowsEventReader, extend_table_map};
use crate::single_transaction_stats::TransactionStats;
use crate::stats_report::BinlogReport;
use crate::table_stats::TableRegistry;

/// The minimum size in bytes of the first chunk of an event. A shorter event must come in one chunk.
pub const FIRST_CHUNK_BYTES_MIN: usize = 128 << 10;

/// Which transactions to count, and how long the lists may be.
#[derive(Debug, Clone)]
pub struct CollectorOptions {
    /// The maximum length of each list: tables, transactions, gaps.
    pub top: usize,
    /// If set, count only transactions that change this table (schema and name). The gaps between commits are
    /// computed from all transactions anyway.
    pub table: Option<(String, String)>,
    /// If set, count only transactions that committed at this time or later, in microseconds since 1970.
    pub since_us: Option<u64>,
    /// If set, count only transactions that committed before this time, in microseconds since 1970.
    pub until_us: Option<u64>,
}

impl Default for CollectorOptions {
    /// All transactions, and lists of at most ten items.
    fn default() -> Self {
        Self { top: 10, table: None, since_us: None, until_us: None }
    }
}

impl CollectorOptions {
    /// Whether a transaction that committed at `commit_us` is in the selected time.
    pub fn wants_time(&self, commit_us: u64) -> bool {
        self.since_us.is_none_or(|since| commit_us >= since)
            && self.until_us.is_none_or(|until| commit_us < until)
    }
}

/// Collects statistics from events that are passed one after the other.
#[derive(Debug)]
pub struct Collector {
    options: CollectorOptions,
    stream: Option<StreamState>,
    tables: TableRegistry,
    /// The event whose chunks are being passed.
    event: Option<PartialEvent>,
    open: Option<TransactionStats>,
    totals: StatsTotals,
}

/// The state of the stream since its last format description event.
#[derive(Debug)]
struct StreamState {
    format: Arc<FormatDescription>,
    /// The format of events inside a compressed transaction: like the stream's, but without checksums.
    inside: Arc<FormatDescription>,
    tracker: TransactionTracker,
    file: Arc<str>,
}

#[derive(Debug)]
struct PartialEvent {
    /// The number of bytes of the event's body that are still to come, without the checksum.
    left: usize,
    content: EventContent,
    ends_transaction: bool,
}

impl Collector {
    /// A collector that has not counted any event yet.
    pub fn new(options: CollectorOptions) -> Self {
        Self {
            totals: StatsTotals::new(options.top),
            options,
            stream: None,
            tables: TableRegistry::default(),
            event: None,
            open: None,
        }
    }

    /// Counts the next bytes of the event at `place`; the first bytes are the event's header. Events must be
    /// passed in stream order. Each file must start with its format description event. Events that are in no
    /// file (artificial events, heartbeats) must not be passed. The first chunk has the whole event, or at
    /// least [`FIRST_CHUNK_BYTES_MIN`] bytes of it. `last` means that the event ends with this chunk.
    ///
    /// # Errors
    /// [`WireError`] if the event cannot be parsed, or is not valid here. The collector then accepts no more
    /// events, but [`Collector::report`] still returns what was counted.
    pub fn chunk(
        &mut self,
        place: EventLocation<'_>,
        header: &EventHeader,
        chunk: &[u8],
        last: bool,
    ) -> Result<(), WireError> {
        match self.event.take() {
            None => {
                let body = chunk.get(EVENT_HEADER_BYTES..).unwrap_or_default();
                self.event = Some(self.begin_event(place, header, body)?);
            }
            Some(mut event) => {
                let bytes = &chunk[..chunk.len().min(event.left)];
                event.left -= bytes.len();
                self.read_on(&mut event.content, bytes)?;
                self.event = Some(event);
            }
        }
        if last && let Some(event) = self.event.take() {
            self.end_event(event)?;
        }
        Ok(())
    }

    /// Uses the format description event that a server sends first if a stream starts in the middle of a
    /// file. That event is in no binlog file, so it is not counted.
    ///
    /// # Errors
    /// [`WireError`] if it cannot be parsed.
    pub fn assume_format(
        &mut self,
        place: EventLocation<'_>,
        header: &EventHeader,
        event: &[u8],
    ) -> Result<(), WireError> {
        self.begin_format(place, header, event.get(EVENT_HEADER_BYTES..).unwrap_or_default())
    }

    /// The report on all events passed so far.
    pub fn report(&self) -> BinlogReport {
        let mut report = self.totals.report(&self.tables, self.options.top);
        if let Some(stream) = &self.stream {
            report.flavour = stream.format.flavour().to_string();
            report.server_version = stream.format.server_version.clone();
        }
        report.kinds.unfinished += u64::from(self.open.is_some());
        report
    }

    fn begin_event(
        &mut self,
        place: EventLocation<'_>,
        header: &EventHeader,
        body: &[u8],
    ) -> Result<PartialEvent, WireError> {
        let after_header = (header.event_length as usize).saturating_sub(EVENT_HEADER_BYTES);
        let body = &body[..body.len().min(after_header)];
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.begin_format(place, header, body)?;
        }
        let Some(stream) = &mut self.stream else {
            let reason = format!("a {} event before the format description", header.event_type);
            return Err(WireError::malformed("event stream", reason));
        };
        let step = stream.tracker.observe(header, body, &stream.format)?;
        let body_bytes = after_header.saturating_sub(stream.format.trailer_bytes(header));
        let body = &body[..body.len().min(body_bytes)];
        let format = Arc::clone(&stream.format);
        if *stream.file != *place.file {
            stream.file = place.file.into();
        }
        self.totals.passed(place, header);
        match &step {
            TransactionStep::Begin(start) => {
                self.open = Some(begin_transaction(start, stream, place, header, body)?)
            }
            TransactionStep::Abandoned => {
                self.totals.sums.kinds.unfinished += 1;
                self.open = None;
            }
            _ => {}
        }
        match &mut self.open {
            Some(open) => open.event(header),
            None => self.totals.between(header),
        }
        let content = self.begin_content(place, header.event_type, body, body_bytes, &format)?;
        Ok(PartialEvent {
            left: body_bytes - body.len(),
            content,
            ends_transaction: step == TransactionStep::End,
        })
    }

    fn begin_format(
        &mut self,
        place: EventLocation<'_>,
        header: &EventHeader,
        body: &[u8],
    ) -> Result<(), WireError> {
        let format = FormatDescription::parse(body)?;
        // The field `created` is 0 if the server was already running when it began the file, or if the stream
        // starts in the middle of a file.
        if format.created != 0 && header.end_log_pos != 0 {
            self.totals.restarted();
            self.tables.forget_maps();
        }
        let inside = FormatDescription { checksum: Some(ChecksumAlgorithm::Off), ..format.clone() };
        let flavour = format.flavour();
        let tracker = match self.stream.take() {
            Some(stream) if stream.format.flavour() == flavour => stream.tracker,
            _ => TransactionTracker::new(flavour),
        };
        let file = place.file.into();
        self.stream = Some(StreamState { format: Arc::new(format), inside: Arc::new(inside), tracker, file });
        Ok(())
    }

    fn begin_content(
        &mut self,
        place: EventLocation<'_>,
        event_type: EventType,
        body: &[u8],
        body_bytes: usize,
        format: &Arc<FormatDescription>,
    ) -> Result<EventContent, WireError> {
        let Some(open) = &mut self.open else { return Ok(EventContent::Ignored) };
        Ok(match event_type {
            EventType::TABLE_MAP => EventContent::table_map(body)?,
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED => {
                let query = QueryEvent::parse(event_type, body, format)?;
                open.query(place, &query, body.len() == body_bytes)?;
                EventContent::Ignored
            }
            EventType::EXECUTE_LOAD_QUERY => {
                open.statements += 1;
                EventContent::Ignored
            }
            EventType::MARIADB_PARTIAL_ROW_DATA => {
                open.rows_not_counted = true;
                EventContent::Ignored
            }
            EventType::TRANSACTION_PAYLOAD => {
                let (mut content, head) = EventContent::payload(body)?;
                open.compression.payloads += 1;
                open.compression.payload_bytes += head.payload_bytes;
                open.compression.payload_unpacked_bytes += head.uncompressed_bytes.unwrap_or(0);
                self.read_on(&mut content, head.payload)?;
                content
            }
            _ if event_type.is_rows() => {
                match RowsEventReader::begin(event_type, body, format, &self.tables)? {
                    Some(reading) => EventContent::Rows(reading),
                    None => EventContent::Ignored,
                }
            }
            _ => EventContent::Ignored,
        })
    }

    fn read_on(&mut self, content: &mut EventContent, bytes: &[u8]) -> Result<(), WireError> {
        match content {
            EventContent::Ignored => Ok(()),
            EventContent::TableMap(so_far) => extend_table_map(so_far, bytes),
            EventContent::Rows(reading) => reading.update(bytes),
            EventContent::Payload(decoder) => {
                let mut rest = bytes;
                loop {
                    match decoder.next_event(&mut rest) {
                        Ok(Some(event)) => self.inside(event)?,
                        Ok(None) => return Ok(()),
                        Err(WireError::TooLarge { .. }) => break,
                        Err(error) => return Err(error),
                    }
                }
                if let Some(open) = &mut self.open {
                    open.rows_not_counted = true;
                }
                *content = EventContent::Ignored;
                Ok(())
            }
        }
    }

    /// Counts a whole event of a compressed transaction.
    fn inside(&mut self, event: &[u8]) -> Result<(), WireError> {
        let header = EventHeader::parse(event)?;
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        let (Some(open), Some(stream)) = (&mut self.open, &self.stream) else { return Ok(()) };
        open.events += 1;
        open.began(header.timestamp);
        let format = &stream.inside;
        match header.event_type {
            EventType::TABLE_MAP => self.map_table(body)?,
            EventType::QUERY => {
                let place = EventLocation { file: &stream.file, offset: open.offset };
                open.query(place, &QueryEvent::parse(header.event_type, body, format)?, true)?;
            }
            event_type if event_type.is_rows() => {
                if let Some(reading) = RowsEventReader::begin(event_type, body, format, &self.tables)? {
                    self.end_rows(reading)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, event: PartialEvent) -> Result<(), WireError> {
        match event.content {
            EventContent::Ignored => {}
            EventContent::TableMap(body) => self.map_table(&body)?,
            EventContent::Rows(reading) => self.end_rows(reading)?,
            EventContent::Payload(decoder) => decoder.finish()?,
        }
        if event.ends_transaction
            && let Some(transaction) = self.open.take()
            && self.options.wants_time(transaction.stated_us())
        {
            let wanted = self.wants_tables_of(&transaction);
            self.totals.commit(transaction, wanted, &mut self.tables);
        }
        Ok(())
    }

    fn map_table(&mut self, body: &[u8]) -> Result<(), WireError> {
        let flavour = self.stream.as_ref().map_or(Flavour::MySql, |stream| stream.format.flavour());
        let number = self.tables.map(body, flavour)?;
        if let Some(open) = &mut self.open {
            open.tables.entry(number).or_default().bytes += (EVENT_HEADER_BYTES + body.len()) as u64;
        }
        Ok(())
    }

    fn end_rows(&mut self, reading: RowsEventReader) -> Result<(), WireError> {
        let (table, kind) = (reading.table, reading.kind);
        let read = reading.finish()?;
        if let Some(open) = &mut self.open {
            open.rows(table, kind, &read);
        }
        Ok(())
    }

    fn wants_tables_of(&self, transaction: &TransactionStats) -> bool {
        let Some((schema, table)) = &self.options.table else { return true };
        let is_it = |number| self.tables.name(number) == Some((schema.as_str(), table.as_str()));
        transaction.tables.iter().any(|(number, counts)| counts.rows.total() > 0 && is_it(*number))
    }
}

fn begin_transaction(
    start: &TransactionStart,
    stream: &StreamState,
    place: EventLocation<'_>,
    header: &EventHeader,
    body: &[u8],
) -> Result<TransactionStats, WireError> {
    let file = Arc::clone(&stream.file);
    let mut transaction = TransactionStats::new(start.gtid.clone(), file, place.offset, header.server_id.0);
    transaction.original_us = start.commit_time_us.unwrap_or(0);
    let gtid = match header.event_type {
        EventType::GTID => GtidEvent::parse(body, false)?,
        EventType::ANONYMOUS_GTID => GtidEvent::parse(body, true)?,
        EventType::GTID_TAGGED => GtidEvent::parse_tagged(body)?,
        _ => return Ok(transaction),
    };
    transaction.immediate_us = gtid.immediate_commit_time_us.unwrap_or(0);
    Ok(transaction)
}
