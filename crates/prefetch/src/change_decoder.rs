//! Decodes the events of a binlog into transactions, row changes and statements.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription, PayloadLimits,
    QueryEvent, RowsEvent, TransactionPayload,
};
use tailwater_wire::gtid::Gtid;
use tailwater_wire::row_event::TableMap;
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};
use tailwater_wire::{Flavour, WireError};

/// The maximum size of an event that is decoded, in bytes. A larger event is counted and not read ahead.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

/// The maximum size of the events of a compressed transaction together, in bytes. They are decoded at once. A
/// larger transaction is counted and not read ahead.
pub const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

/// The maximum size of a statement, in bytes. Statements that name rows by a condition are short.
pub const STATEMENT_BYTES_MAX: usize = 64 << 10;

/// The number of table maps that are kept. A server uses an id again only after a restart, so the oldest are
/// not needed.
const TABLE_MAPS_MAX: usize = 4096;

/// A part of the decoded binlog.
#[derive(Debug)]
pub enum DecodedChange {
    /// A transaction begins.
    Begin {
        /// The GTID, if the source assigned one.
        gtid: Option<Gtid>,
        /// When the transaction committed on its first server, in seconds since 1970.
        commit_seconds: u64,
    },
    /// Rows change.
    Rows(LoggedRows),
    /// A statement, with the default database.
    Statement {
        /// The text; `None` if it is not a text of ASCII characters, or longer than [`STATEMENT_BYTES_MAX`].
        text: Option<String>,
        /// The default database; empty for none.
        database: String,
        /// `sql_mode` of the session on the source.
        sql_mode: u64,
    },
    /// An event that is larger than [`EVENT_BYTES_MAX`], or a compressed transaction larger than
    /// [`PAYLOAD_BYTES_MAX`].
    TooLarge,
    /// The transaction ends.
    End,
    /// The source rolled the open transaction back, when it restarted.
    Abandoned,
}

/// A rows event with its table map.
#[derive(Debug)]
pub struct LoggedRows {
    /// The table.
    pub map: Arc<TableMap>,
    pub(crate) event_type: EventType,
    pub(crate) format: Arc<FormatDescription>,
    pub(crate) body: Vec<u8>,
}

impl LoggedRows {
    /// Parses the event.
    ///
    /// # Errors
    /// [`WireError`] if it is malformed.
    pub fn event(&self) -> Result<RowsEvent<'_>, WireError> {
        RowsEvent::parse(self.event_type, &self.body, &self.format)
    }
}

/// Decodes events, which must come in stream order.
#[derive(Debug, Default)]
pub struct ChangeDecoder {
    stream: Option<StreamFormat>,
    maps: FxHashMap<u64, Arc<TableMap>>,
}

#[derive(Debug)]
struct StreamFormat {
    flavour: Flavour,
    format: Arc<FormatDescription>,
    /// The format inside a compressed transaction: without checksums.
    inside: Arc<FormatDescription>,
    tracker: TransactionTracker,
}

impl ChangeDecoder {
    /// Decodes an event: its header, and its bytes including the header. `bytes` may be cut after
    /// [`EVENT_BYTES_MAX`]. Appends the result to `out`.
    ///
    /// # Errors
    /// [`WireError`] if the event cannot be parsed, or is not valid here.
    pub fn decode(
        &mut self,
        header: &EventHeader,
        bytes: &[u8],
        out: &mut Vec<DecodedChange>,
    ) -> Result<(), WireError> {
        let body = bytes.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.begin_format(body)?;
            return Ok(());
        }
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let step = stream.tracker.observe(header, body, &stream.format)?;
        if let TransactionStep::Begin(start) = &step {
            let commit_seconds =
                start.commit_time_us.map_or(u64::from(header.timestamp), |micros| micros / 1_000_000);
            out.push(DecodedChange::Begin { gtid: start.gtid.clone(), commit_seconds });
        }
        if matches!(step, TransactionStep::Abandoned) {
            out.push(DecodedChange::Abandoned);
        }
        let is_whole = bytes.len() == header.event_length as usize;
        let body = &body[..body.len().saturating_sub(stream.format.trailer_bytes(header))];
        if is_whole {
            let format = Arc::clone(&stream.format);
            self.decode_content(header.event_type, body, &format, out)?;
        } else {
            out.push(DecodedChange::TooLarge);
        }
        if matches!(step, TransactionStep::End) {
            out.push(DecodedChange::End);
        }
        Ok(())
    }

    fn begin_format(&mut self, body: &[u8]) -> Result<(), WireError> {
        let format = FormatDescription::parse(body)?;
        let flavour = format.flavour();
        let inside = FormatDescription { checksum: Some(ChecksumAlgorithm::Off), ..format.clone() };
        let tracker = match self.stream.take() {
            Some(stream) if stream.flavour == flavour => stream.tracker,
            _ => TransactionTracker::new(flavour),
        };
        self.stream =
            Some(StreamFormat { flavour, format: Arc::new(format), inside: Arc::new(inside), tracker });
        Ok(())
    }

    fn decode_content(
        &mut self,
        event_type: EventType,
        body: &[u8],
        format: &Arc<FormatDescription>,
        out: &mut Vec<DecodedChange>,
    ) -> Result<(), WireError> {
        match event_type {
            EventType::TABLE_MAP => {
                let map = TableMap::parse(body, format.flavour())?;
                if self.maps.len() >= TABLE_MAPS_MAX {
                    self.maps.clear();
                }
                self.maps.insert(map.table_id, Arc::new(map));
            }
            EventType::QUERY | EventType::MARIADB_QUERY_COMPRESSED => {
                let query = QueryEvent::parse(event_type, body, format)?;
                out.extend(statement(&query)?);
            }
            EventType::TRANSACTION_PAYLOAD => {
                let Some(inside) = self.stream.as_ref().map(|stream| Arc::clone(&stream.inside)) else {
                    return Ok(());
                };
                match self.decode_payload(body, &inside, out) {
                    Err(WireError::TooLarge { .. }) => out.push(DecodedChange::TooLarge),
                    decoded => decoded?,
                }
            }
            _ if event_type.is_rows() => {
                let event = RowsEvent::parse(event_type, body, format)?;
                if let Some(map) = self.maps.get(&event.table_id) {
                    out.push(DecodedChange::Rows(LoggedRows {
                        map: Arc::clone(map),
                        event_type,
                        format: Arc::clone(format),
                        body: body.to_vec(),
                    }));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn decode_payload(
        &mut self,
        body: &[u8],
        inside: &Arc<FormatDescription>,
        out: &mut Vec<DecodedChange>,
    ) -> Result<(), WireError> {
        let limits =
            PayloadLimits { event_bytes_max: EVENT_BYTES_MAX as u64, total_bytes_max: PAYLOAD_BYTES_MAX };
        let head = TransactionPayload::parse(body)?;
        let mut events = head.events(limits)?;
        while let Some(event) = events.next_event()? {
            let header = EventHeader::parse(event)?;
            let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
            self.decode_content(header.event_type, body, inside, out)?;
        }
        Ok(())
    }
}

/// Returns the statement of a query event; `None` for statements that only begin or end a transaction.
fn statement(query: &QueryEvent<'_>) -> Result<Option<DecodedChange>, WireError> {
    let text = query.statement(EVENT_BYTES_MAX)?;
    const BOUNDARIES: [&[u8]; 5] = [b"BEGIN", b"COMMIT", b"ROLLBACK", b"XA ", b"SAVEPOINT"];
    let is_boundary =
        |word: &&[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if BOUNDARIES.iter().any(is_boundary) {
        return Ok(None);
    }
    let variables = query.status_vars()?;
    let text = Some(text.as_ref()).filter(|text| text.len() <= STATEMENT_BYTES_MAX && text.is_ascii());
    Ok(Some(DecodedChange::Statement {
        text: text.map(|text| String::from_utf8_lossy(text).into_owned()),
        database: String::from_utf8_lossy(query.database).into_owned(),
        sql_mode: variables.sql_mode.unwrap_or(0),
    }))
}
