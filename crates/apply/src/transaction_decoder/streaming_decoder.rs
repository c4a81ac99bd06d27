//! Reads the steps of a transaction of any size, event by event. Only one event is in memory at a time.

use bytes::Bytes;
use smallvec::SmallVec;
use tailwater_log::{LogEntry, LogPosition};
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventBody, EventHeader, EventType, MariadbGtidEvent, PartialRowData, PayloadDecoder,
    PayloadLimits, QueryEvent, RowsEvent, strip_checksum, verify_checksum,
};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::row_event::TableMap;
use tailwater_wire::transaction_boundary::{
    SourceDependency, TransactionStart, TransactionStep, TransactionTracker,
};

use super::canonical_xid;
use super::decoder_state::Decoder;
use super::old_temporal_format;
use super::row_event_decoder::find_rows;
use super::statement_classifier::{StatementClass, meaning};
use super::table_lookup::TableLookup;
use super::table_map_cache::{TableBinding, UnboundTable};
use crate::column_matching::ColumnMismatch;
use crate::error::ApplyError;
use crate::source_to_target_table::MappedTable;
use crate::source_transaction::{ApplyStep, Statement, StatementVariable};

/// The maximum number of tables in one statement, to limit memory. Servers join at most 61 tables in a
/// statement, and partitions do not count as tables.
const MAPS_MAX: usize = 65_536;
/// The maximum number of values, such as user variables, that events may set for one statement.
const VARIABLES_MAX: usize = 65_536;

/// Reads the steps of one transaction.
#[derive(Debug)]
pub struct TransactionReader {
    gtid: Option<Gtid>,
    position: LogPosition,
    start: Option<TransactionStart>,
    ending: TransactionEnding,
    /// Whether the decoder ignores the statement. This is the case for the first half of an `ALTER TABLE`
    /// that MariaDB logs in two halves, and for the second half if the `ALTER TABLE` failed. Only a
    /// successful second half runs the `ALTER TABLE`.
    is_no_alter: bool,
    /// Version of the server that first ran the transaction (MySQL only). 80400 means 8.4.0.
    original_version: Option<u32>,
    /// Whether the transaction contains a DDL statement.
    defined: bool,
    /// Table IDs with the bodies of their table maps.
    maps: SmallVec<[(u64, Bytes); 4]>,
    /// Values, such as user variables, that the events so far have set for the next statement.
    variables: Vec<StatementVariable>,
    /// The event to read next.
    pending: Option<PendingEvent>,
    /// The decoder of a compressed transaction, and the bytes that are not decoded yet.
    payload: Option<(Box<PayloadDecoder>, Bytes)>,
    /// The fragments of a split row event that were read so far, and the number of the next fragment.
    fragments: Option<(Vec<u8>, u32)>,
}

#[derive(Debug)]
struct PendingEvent {
    event: Bytes,
    /// Whether the event ends with a checksum. An event inside a compressed transaction, and an event
    /// assembled from fragments, may have none.
    checksummed: bool,
}

/// How a transaction ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransactionEnding {
    /// The transaction commits, or a statement rolls it back.
    Commit,
    XaPrepare(Vec<u8>),
    XaCommit(Vec<u8>),
    XaRollback(Vec<u8>),
}

/// The result of [`TransactionReader::read`].
#[derive(Debug)]
pub enum TransactionRead {
    /// The next step of the transaction was read.
    Step(ApplyStep),
    /// The caller must load this table of the target, so that [`TableLookup::target`] returns it, and then
    /// call `read` again.
    NeedsTable {
        /// Database name.
        schema: String,
        /// Table name.
        table: String,
    },
    /// The caller must load the columns of this source table, so that [`TableLookup::old_time_digits`]
    /// returns them, and then call `read` again.
    NeedsSource {
        /// Database name.
        schema: String,
        /// Table name.
        table: String,
    },
    /// The caller must supply the next event. If the log entry has no more events, the transaction is
    /// complete.
    NeedsEvent,
}

/// What the reader does after an event.
enum EventOutcome {
    Nothing,
    Step(ApplyStep),
    NeedsTable {
        schema: String,
        table: String,
    },
    NeedsSource {
        schema: String,
        table: String,
    },
    /// The reader reads this event next, instead of the next event of the transaction.
    Instead(PendingEvent),
}

impl TransactionReader {
    /// Returns a reader for the transaction of `entry`. This reader does not find out whether an XA
    /// transaction is committed or only prepared. [`super::XaPartReader`] finds this out.
    pub fn new(entry: &LogEntry) -> Self {
        Self {
            gtid: entry.gtid.clone(),
            position: entry.position,
            start: None,
            ending: TransactionEnding::Commit,
            is_no_alter: false,
            original_version: None,
            defined: false,
            maps: SmallVec::new(),
            variables: Vec::new(),
            pending: None,
            payload: None,
            fragments: None,
        }
    }

    /// Supplies the next complete event after [`TransactionRead::NeedsEvent`].
    pub fn event(&mut self, event: Bytes) {
        self.pending = Some(PendingEvent { event, checksummed: true });
    }

    /// Returns the next step. The steps include `SAVEPOINT`, even without a later `ROLLBACK TO`. The steps do
    /// not include the statements that start or end the transaction.
    ///
    /// # Errors
    /// As [`Decoder::transaction`].
    pub fn read(
        &mut self,
        decoder: &mut Decoder,
        tables: &mut dyn TableLookup,
    ) -> Result<TransactionRead, ApplyError> {
        loop {
            let Some(pending) = self.next_pending(decoder)? else { return Ok(TransactionRead::NeedsEvent) };
            match self.take(&pending, decoder, tables)? {
                EventOutcome::Nothing => {}
                EventOutcome::Step(step) => return Ok(TransactionRead::Step(step)),
                EventOutcome::NeedsTable { schema, table } => {
                    self.pending = Some(pending);
                    return Ok(TransactionRead::NeedsTable { schema, table });
                }
                EventOutcome::NeedsSource { schema, table } => {
                    self.pending = Some(pending);
                    return Ok(TransactionRead::NeedsSource { schema, table });
                }
                EventOutcome::Instead(other) => self.pending = Some(other),
            }
        }
    }

    /// Removes the next event from the start of `events` and returns it.
    pub(super) fn cut(&self, events: &mut Bytes) -> Result<Bytes, ApplyError> {
        let header = EventHeader::parse(events).map_err(|error| self.error(error))?;
        let length = header.event_length as usize;
        if length > events.len() {
            let needed = length - events.len();
            let error = WireError::Truncated { what: "transaction", offset: events.len(), needed };
            return Err(self.error(error));
        }
        Ok(events.split_to(length))
    }

    pub(super) fn has_begun(&self) -> bool {
        self.start.is_some()
    }

    pub(super) fn has_defined(&self) -> bool {
        self.defined
    }

    pub(super) fn ending(&self) -> &TransactionEnding {
        &self.ending
    }

    pub(super) fn dependency(&self) -> Option<SourceDependency> {
        self.start.as_ref().map(|start| start.dependency)
    }

    pub(super) fn error(&self, error: WireError) -> ApplyError {
        ApplyError::Event { gtid: self.gtid_text(), position: self.position, error }
    }

    fn unsupported(&self, what: impl Into<String>, reason: impl Into<String>) -> ApplyError {
        ApplyError::Unsupported { gtid: self.gtid_text(), what: what.into(), reason: reason.into() }
    }

    fn gtid_text(&self) -> String {
        self.gtid.as_ref().map_or_else(|| "without GTID".to_owned(), ToString::to_string)
    }

    /// Reads only the properties of the transaction from an event. For a compressed transaction, reads its
    /// first event. For a compressed XA transaction, reads all its events except rows events.
    pub(super) fn look_at(&mut self, event: Bytes, decoder: &Decoder) -> Result<(), ApplyError> {
        self.event(event);
        while let Some(pending) = self.next_pending(decoder)? {
            let (header, body) = self.parse(&pending, decoder).map_err(|error| self.error(error))?;
            if self.start.is_none() {
                self.begin(&header, &pending.event, decoder).map_err(|error| self.error(error))?;
            }
            if header.event_type != EventType::TABLE_MAP && !header.event_type.is_rows() {
                self.take_other(&header, &body, decoder)?;
            }
            if header.event_type != EventType::TRANSACTION_PAYLOAD && self.ending == TransactionEnding::Commit
            {
                self.payload = None;
            }
        }
        Ok(())
    }

    /// Returns the next event: the supplied event, or the next event of a compressed transaction.
    fn next_pending(&mut self, decoder: &Decoder) -> Result<Option<PendingEvent>, ApplyError> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        let Some((payload, rest)) = &mut self.payload else { return Ok(None) };
        let mut chunk = &rest[..];
        let unpacked = payload.next_event(&mut chunk).map(|event| event.map(Bytes::copy_from_slice));
        let used = rest.len() - chunk.len();
        match unpacked {
            Ok(Some(event)) if event.len() <= decoder.limits.event_bytes_max => {
                drop(rest.split_to(used));
                Ok(Some(PendingEvent { event, checksummed: false }))
            }
            Ok(Some(event)) => Err(self.error(too_large(event.len(), decoder))),
            Ok(None) => {
                let finished = payload.finish();
                self.payload = None;
                finished.map_err(|error| self.error(error))?;
                Ok(None)
            }
            Err(error) => Err(self.error(error)),
        }
    }

    /// Reads the first event of the transaction, because it has details that the log entry does not have.
    fn begin(&mut self, header: &EventHeader, event: &Bytes, decoder: &Decoder) -> Result<(), WireError> {
        let behind_header = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        let mut tracker = TransactionTracker::new(decoder.flavour);
        match tracker.observe(header, behind_header, &decoder.format)? {
            TransactionStep::Begin(start) => self.start = Some(start),
            _ => {
                let reason = format!("the first event is a {} event", header.event_type);
                return Err(WireError::malformed("transaction", reason));
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        pending: &PendingEvent,
        decoder: &mut Decoder,
        tables: &mut dyn TableLookup,
    ) -> Result<EventOutcome, ApplyError> {
        let event = &pending.event;
        let taken = self.parse(pending, decoder);
        let (header, body) = taken.map_err(|error| self.error(error))?;
        if self.start.is_none() {
            self.begin(&header, event, decoder).map_err(|error| self.error(error))?;
        }
        match header.event_type {
            EventType::TABLE_MAP => {
                self.take_map(&body).map_err(|error| self.error(error))?;
                Ok(EventOutcome::Nothing)
            }
            event_type if event_type.is_rows() => self.take_rows(&header, &body, decoder, tables),
            _ => self.take_other(&header, &body, decoder),
        }
    }

    /// Returns the header of an event, and its body without the checksum.
    fn parse(&self, pending: &PendingEvent, decoder: &Decoder) -> Result<(EventHeader, Bytes), WireError> {
        let event = &pending.event;
        let header = whole_header(event)?;
        if event.len() > decoder.limits.event_bytes_max {
            return Err(too_large(event.len(), decoder));
        }
        let mut end = event.len();
        if pending.checksummed && decoder.format.has_checksums() {
            verify_checksum(event)?;
            end = strip_checksum(event)?.len();
        }
        Ok((header, event.slice(EVENT_HEADER_BYTES..end)))
    }

    fn take_map(&mut self, body: &Bytes) -> Result<(), WireError> {
        let table_id = TableMap::peek_table_id(body)?;
        if let Some((_, known)) = self.maps.iter_mut().find(|(id, _)| *id == table_id) {
            *known = body.clone();
            return Ok(());
        }
        if self.maps.len() >= MAPS_MAX {
            return Err(WireError::malformed(
                "transaction",
                format!("the statement has more than {MAPS_MAX} tables"),
            ));
        }
        self.maps.push((table_id, body.clone()));
        Ok(())
    }

    fn take_rows(
        &mut self,
        header: &EventHeader,
        body: &Bytes,
        decoder: &mut Decoder,
        tables: &mut dyn TableLookup,
    ) -> Result<EventOutcome, ApplyError> {
        let event = RowsEvent::parse(header.event_type, body, &decoder.format);
        let event = event.map_err(|error| self.error(error))?;
        if event.table_id == RowsEvent::TABLE_ID_DUMMY {
            return Ok(EventOutcome::Nothing);
        }
        let Some((_, map)) = self.maps.iter().find(|(id, _)| *id == event.table_id) else {
            let reason = format!("no table map came before the rows of table ID {}", event.table_id);
            return Err(self.error(WireError::malformed("transaction", reason)));
        };
        let (table, keys) = match decoder.maps.resolve(map, event.kind, tables) {
            Ok(TableBinding::Excluded) => return Ok(EventOutcome::Nothing),
            Ok(TableBinding::Bound { table, keys }) => (table, keys),
            Err(UnboundTable::NeedsTable { schema, table }) => {
                return Ok(EventOutcome::NeedsTable { schema, table });
            }
            Err(UnboundTable::NeedsSource { schema, table }) => {
                return Ok(EventOutcome::NeedsSource { schema, table });
            }
            Err(UnboundTable::UnknownDigits { table, mismatch }) => {
                let ColumnMismatch { column, reason } = mismatch;
                return Err(ApplyError::UnknownDigits { gtid: self.gtid_text(), table, column, reason });
            }
            Err(UnboundTable::Wire(error)) => return Err(self.error(error)),
            Err(UnboundTable::Clash(error)) => {
                return Err(ApplyError::NameCollision { gtid: self.gtid_text(), error });
            }
            Err(UnboundTable::Misfits { table, mismatches }) => {
                return Err(ApplyError::mismatches(self.gtid_text(), table, &mismatches));
            }
        };
        let bytes_max = decoder.limits.event_bytes_max;
        match find_rows(header, body, &event, table, keys, bytes_max) {
            Ok(changes) if changes.rows.is_empty() => Ok(EventOutcome::Nothing),
            Ok(changes) => Ok(EventOutcome::Step(ApplyStep::Rows(changes))),
            Err(error) => Err(self.rows_error(header, table, error)),
        }
    }

    fn rows_error(&self, header: &EventHeader, table: &MappedTable, error: WireError) -> ApplyError {
        let remedy = match table.map.columns.iter().any(old_temporal_format::is_old) {
            true => {
                "; the table has columns with the temporal layout from before MySQL 5.6, and the binlog does not contain their \
                 number of fractional digits: compare the declarations on source and target, run ALTER TABLE ... FORCE on \
                 the source with mysql56_temporal_format=ON, and copy the table to the target again"
            }
            false => "",
        };
        // Events in a compressed transaction do not have their own position. In event headers, positions
        // above 4 GiB overflow. In both cases, use the position of the transaction.
        let begin = u64::from(header.end_log_pos).checked_sub(u64::from(header.event_length));
        let begin = begin.filter(|begin| *begin > self.position.offset);
        ApplyError::Rows {
            gtid: self.gtid_text(),
            table: format!("{}.{}", table.map.schema, table.map.table),
            position: LogPosition { offset: begin.unwrap_or(self.position.offset), ..self.position },
            error: Box::new(error),
            remedy,
        }
    }

    fn take_other(
        &mut self,
        header: &EventHeader,
        body: &Bytes,
        decoder: &Decoder,
    ) -> Result<EventOutcome, ApplyError> {
        let parsed = EventBody::parse(header, body, &decoder.format).map_err(|error| self.error(error))?;
        match parsed {
            EventBody::Query(query) => return self.take_query(header, body, &query, decoder),
            EventBody::IntVar(value) => self.take_variable(StatementVariable::Int(value))?,
            EventBody::Rand(seeds) => self.take_variable(StatementVariable::Rand(seeds))?,
            EventBody::UserVar(_) => self.take_variable(StatementVariable::User(body.clone()))?,
            EventBody::XaPrepare(prepare) if !prepare.one_phase => {
                self.ending = TransactionEnding::XaPrepare(canonical_xid::spell(&prepare.xid));
            }
            // The event is a one-phase commit, even though the transaction started as an XA transaction.
            EventBody::XaPrepare(_) => self.ending = TransactionEnding::Commit,
            EventBody::Gtid(gtid) => self.original_version = gtid.original_server_version,
            EventBody::MariadbGtid(gtid) => {
                const HALVES: u8 =
                    MariadbGtidEvent::EXTRA_START_ALTER | MariadbGtidEvent::EXTRA_ROLLBACK_ALTER;
                self.is_no_alter = gtid.flags_extra & HALVES != 0;
                if let (true, Some(xid)) = (gtid.has(MariadbGtidEvent::FLAG_PREPARED_XA), &gtid.xid) {
                    self.ending = TransactionEnding::XaPrepare(canonical_xid::spell(xid));
                }
            }
            EventBody::TransactionPayload(payload) => {
                let limits = PayloadLimits {
                    event_bytes_max: decoder.limits.event_bytes_max as u64,
                    ..PayloadLimits::default()
                };
                let unpacking = PayloadDecoder::new(&payload, limits).map_err(|error| self.error(error))?;
                self.payload = Some((Box::new(unpacking), body.slice_ref(payload.payload)));
            }
            EventBody::PartialRowData(fragment) => {
                return self.take_fragment(&fragment, decoder).map_err(|error| self.error(error));
            }
            EventBody::BeginLoadQuery(_) | EventBody::AppendBlock(_) | EventBody::ExecuteLoadQuery(_) => {
                return Err(self.unsupported(
                    "LOAD DATA logged as a statement",
                    "the channel does not replay the loaded file; set binlog_format=ROW on the source",
                ));
            }
            EventBody::Incident(incident) => {
                let message = String::from_utf8_lossy(incident.message).into_owned();
                return Err(self.unsupported(
                    "an incident",
                    format!(
                        "the source's binlog lacks events here ({message}); copy the source to the target from scratch"
                    ),
                ));
            }
            _ => {}
        }
        Ok(EventOutcome::Nothing)
    }

    fn take_variable(&mut self, variable: StatementVariable) -> Result<(), ApplyError> {
        if self.variables.len() >= VARIABLES_MAX {
            let reason = format!("more than {VARIABLES_MAX} values are set for one statement");
            return Err(self.error(WireError::malformed("transaction", reason)));
        }
        self.variables.push(variable);
        Ok(())
    }

    fn take_query(
        &mut self,
        header: &EventHeader,
        body: &Bytes,
        query: &QueryEvent<'_>,
        decoder: &Decoder,
    ) -> Result<EventOutcome, ApplyError> {
        let text = match query.compressed {
            false => body.slice_ref(query.query),
            true => {
                let text = query.statement(decoder.limits.event_bytes_max);
                Bytes::from(text.map_err(|error| self.error(error))?.into_owned())
            }
        };
        let meaning = meaning(&text);
        match meaning {
            StatementClass::Frame => return Ok(EventOutcome::Nothing),
            StatementClass::Definition if self.is_no_alter => return Ok(EventOutcome::Nothing),
            StatementClass::XaStart => {
                // Assume for now that the transaction is only prepared. The last event shows how it really
                // ends.
                self.ending = TransactionEnding::XaPrepare(Vec::new());
                return Ok(EventOutcome::Nothing);
            }
            StatementClass::XaCommit(name) => {
                self.ending = TransactionEnding::XaCommit(canonical_xid::respell(name));
                return Ok(EventOutcome::Nothing);
            }
            StatementClass::XaRollback(name) => {
                self.ending = TransactionEnding::XaRollback(canonical_xid::respell(name));
                return Ok(EventOutcome::Nothing);
            }
            StatementClass::Definition => self.defined = true,
            StatementClass::Savepoint
            | StatementClass::RollbackTo
            | StatementClass::Rollback
            | StatementClass::Data => {}
        }
        let statement = Statement {
            dml: meaning != StatementClass::Definition,
            text,
            database: body.slice_ref(query.database),
            status_vars: body.slice_ref(query.status_vars_bytes),
            thread_id: query.thread_id,
            error_code: query.error_code,
            flags: header.flags,
            timestamp: header.timestamp,
            server_id: header.server_id.0,
            original_version: self.original_version,
            variables: std::mem::take(&mut self.variables),
        };
        Ok(EventOutcome::Step(ApplyStep::Statement(statement)))
    }

    /// Adds a fragment of a row event. MariaDB splits row events that are too long for one packet.
    fn take_fragment(
        &mut self,
        fragment: &PartialRowData<'_>,
        decoder: &Decoder,
    ) -> Result<EventOutcome, WireError> {
        let (mut event, next) = self.fragments.take().unwrap_or_default();
        if fragment.fragment != next + 1 {
            let reason = format!("fragment {} follows, but fragment {next} was expected", fragment.fragment);
            return Err(WireError::malformed("row event in fragments", reason));
        }
        if event.len().saturating_add(fragment.data.len()) > decoder.limits.event_bytes_max {
            return Err(too_large(event.len().saturating_add(fragment.data.len()), decoder));
        }
        event.extend_from_slice(fragment.data);
        if fragment.fragment < fragment.fragments {
            self.fragments = Some((event, fragment.fragment));
            return Ok(EventOutcome::Nothing);
        }
        Ok(EventOutcome::Instead(PendingEvent { event: event.into(), checksummed: false }))
    }
}

fn too_large(bytes: usize, decoder: &Decoder) -> WireError {
    WireError::TooLarge { what: "event", size: bytes as u64, size_max: decoder.limits.event_bytes_max as u64 }
}

/// Parses the header, and checks that the event is complete.
fn whole_header(event: &[u8]) -> Result<EventHeader, WireError> {
    let header = EventHeader::parse(event)?;
    if header.event_length as usize != event.len() {
        let reason =
            format!("the event has {} bytes, but its header says {}", event.len(), header.event_length);
        return Err(WireError::malformed("event", reason));
    }
    Ok(header)
}
