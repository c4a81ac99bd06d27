//! From events to figures.

use std::sync::Arc;

use tailwater_wire::event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, GtidEvent, QueryEvent,
};
use tailwater_wire::print::EventLocation;
use tailwater_wire::transaction::{TransactionStart, TransactionStep, TransactionTracker};
use tailwater_wire::{Flavour, WireError};

use super::reading::{Content, RowsReading, extend_table_map};
use super::report::BinlogReport;
use super::tables::TableRegistry;
use super::totals::Totals;
use super::transaction::Transaction;

/// An event comes whole, or its first chunk has at least so many bytes.
pub const FIRST_CHUNK_BYTES_MIN: usize = 128 << 10;

/// What to collect.
#[derive(Debug, Clone)]
pub struct CollectorOptions {
    /// How long the lists are: tables, transactions, gaps.
    pub top: usize,
    /// Only transactions that change this table (schema and name). Gaps are between all transactions nevertheless.
    pub table: Option<(String, String)>,
    /// Only transactions that committed at this time or later, in microseconds since 1970.
    pub since_us: Option<u64>,
    /// Only transactions that committed before this time.
    pub until_us: Option<u64>,
}

impl Default for CollectorOptions {
    /// Everything, in lists of ten.
    fn default() -> Self {
        Self { top: 10, table: None, since_us: None, until_us: None }
    }
}

impl CollectorOptions {
    /// Whether a transaction that committed at `commit_us` is wanted.
    pub fn wants_time(&self, commit_us: u64) -> bool {
        self.since_us.is_none_or(|since| commit_us >= since)
            && self.until_us.is_none_or(|until| commit_us < until)
    }
}

/// Takes events, gives figures.
#[derive(Debug)]
pub struct Collector {
    options: CollectorOptions,
    stream: Option<Stream>,
    tables: TableRegistry,
    /// The event whose chunks come.
    event: Option<OpenEvent>,
    open: Option<Transaction>,
    totals: Totals,
}

/// What holds for the events behind a format description.
#[derive(Debug)]
struct Stream {
    format: Arc<FormatDescription>,
    /// For events inside a compressed transaction, which have no checksum.
    inside: Arc<FormatDescription>,
    tracker: TransactionTracker,
    file: Arc<str>,
}

#[derive(Debug)]
struct OpenEvent {
    /// Bytes of its body still to come, without the checksum.
    left: usize,
    content: Content,
    ends_transaction: bool,
}

impl Collector {
    /// A collector of nothing so far.
    pub fn new(options: CollectorOptions) -> Self {
        Self {
            totals: Totals::new(options.top),
            options,
            stream: None,
            tables: TableRegistry::default(),
            event: None,
            open: None,
        }
    }

    /// Takes the next bytes of an event that stands at `place`; the header's are the first. Events come in the order of
    /// the stream, each file from a format description on, and none that stand in no file (artificial ones, heartbeats).
    /// The first chunk has the whole event or [`FIRST_CHUNK_BYTES_MIN`] bytes of it, at least; `last` says that the event
    /// ends with this chunk.
    ///
    /// # Errors
    /// [`WireError`] if the event cannot be understood, or cannot stand here. The collector is then good for no more
    /// events; what it has can still be reported.
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

    /// Takes a format description that stands in no file: that of a stream which begins in the middle of one.
    ///
    /// # Errors
    /// [`WireError`] if it cannot be understood.
    pub fn assume_format(
        &mut self,
        place: EventLocation<'_>,
        header: &EventHeader,
        event: &[u8],
    ) -> Result<(), WireError> {
        self.begin_format(place, header, event.get(EVENT_HEADER_BYTES..).unwrap_or_default())
    }

    /// The figures so far.
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
    ) -> Result<OpenEvent, WireError> {
        let behind_header = (header.event_length as usize).saturating_sub(EVENT_HEADER_BYTES);
        let body = &body[..body.len().min(behind_header)];
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.begin_format(place, header, body)?;
        }
        let Some(stream) = &mut self.stream else {
            let reason = format!("a {} event before the format description", header.event_type);
            return Err(WireError::malformed("event stream", reason));
        };
        let step = stream.tracker.observe(header, body, &stream.format)?;
        let body_bytes = behind_header.saturating_sub(stream.format.trailer_bytes(header));
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
        Ok(OpenEvent {
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
        // 0 in files that a running server goes on in, and where a stream begins in the middle of one.
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
        self.stream = Some(Stream { format: Arc::new(format), inside: Arc::new(inside), tracker, file });
        Ok(())
    }

    fn begin_content(
        &mut self,
        place: EventLocation<'_>,
        event_type: EventType,
        body: &[u8],
        body_bytes: usize,
        format: &Arc<FormatDescription>,
    ) -> Result<Content, WireError> {
        let Some(open) = &mut self.open else { return Ok(Content::Passed) };
        Ok(match event_type {
            EventType::TABLE_MAP => Content::table_map(body)?,
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED => {
                let query = QueryEvent::parse(event_type, body, format)?;
                open.query(place, &query, body.len() == body_bytes)?;
                Content::Passed
            }
            EventType::EXECUTE_LOAD_QUERY => {
                open.statements += 1;
                Content::Passed
            }
            EventType::MARIADB_PARTIAL_ROW_DATA => {
                open.rows_not_counted = true;
                Content::Passed
            }
            EventType::TRANSACTION_PAYLOAD => {
                let (mut content, head) = Content::payload(body)?;
                open.compression.payloads += 1;
                open.compression.payload_bytes += head.payload_bytes;
                open.compression.payload_unpacked_bytes += head.uncompressed_bytes.unwrap_or(0);
                self.read_on(&mut content, head.payload)?;
                content
            }
            _ if RowsReading::reads(event_type) => {
                match RowsReading::begin(event_type, body, format, &self.tables)? {
                    Some(reading) => Content::Rows(reading),
                    None => Content::Passed,
                }
            }
            _ => Content::Passed,
        })
    }

    fn read_on(&mut self, content: &mut Content, bytes: &[u8]) -> Result<(), WireError> {
        match content {
            Content::Passed => Ok(()),
            Content::TableMap(so_far) => extend_table_map(so_far, bytes),
            Content::Rows(reading) => reading.update(bytes),
            Content::Payload(decoder) => {
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
                *content = Content::Passed;
                Ok(())
            }
        }
    }

    /// An event of a compressed transaction, whole.
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
            event_type if RowsReading::reads(event_type) => {
                if let Some(reading) = RowsReading::begin(event_type, body, format, &self.tables)? {
                    self.end_rows(reading)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, event: OpenEvent) -> Result<(), WireError> {
        match event.content {
            Content::Passed => {}
            Content::TableMap(body) => self.map_table(&body)?,
            Content::Rows(reading) => self.end_rows(reading)?,
            Content::Payload(decoder) => decoder.finish()?,
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

    fn end_rows(&mut self, reading: RowsReading) -> Result<(), WireError> {
        let (table, kind) = (reading.table, reading.kind);
        let read = reading.finish()?;
        if let Some(open) = &mut self.open {
            open.rows(table, kind, &read);
        }
        Ok(())
    }

    fn wants_tables_of(&self, transaction: &Transaction) -> bool {
        let Some((schema, table)) = &self.options.table else { return true };
        let is_it = |number| self.tables.name(number) == Some((schema.as_str(), table.as_str()));
        transaction.tables.iter().any(|(number, counts)| counts.rows.total() > 0 && is_it(*number))
    }
}

fn begin_transaction(
    start: &TransactionStart,
    stream: &Stream,
    place: EventLocation<'_>,
    header: &EventHeader,
    body: &[u8],
) -> Result<Transaction, WireError> {
    let file = Arc::clone(&stream.file);
    let mut transaction = Transaction::new(start.gtid.clone(), file, place.offset, header.server_id.0);
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
