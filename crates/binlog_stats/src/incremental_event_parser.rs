//! Parses the content of an event. The caller passes the event's bytes piece by piece.

use tailwater_wire::WireError;
use tailwater_wire::binlog_event::compressed_event::PartDecoder;
use tailwater_wire::binlog_event::{
    EventType, FormatDescription, PayloadDecoder, PayloadLimits, RowsEvent, RowsKind, TransactionPayload,
};
use tailwater_wire::row_event::RowCounter;

use crate::table_stats::{TableNumber, TableRegistry};

/// The maximum size in bytes of an event inside a compressed transaction. To limit memory, larger events are
/// not decompressed.
const UNPACKED_EVENT_BYTES_MAX: u64 = 64 << 20;

/// The maximum size of a table map event in bytes. A table with 4096 columns, each with a name and a set of
/// members, needs a quarter of this.
const TABLE_MAP_BYTES_MAX: usize = 64 << 20;

/// The content of the event that is being read.
#[derive(Debug)]
pub(crate) enum EventContent {
    /// Content that is not counted.
    Ignored,
    /// A table map event: its bytes so far.
    TableMap(Vec<u8>),
    Rows(RowsEventReader),
    /// A compressed transaction.
    Payload(Box<PayloadDecoder>),
}

/// Reads a rows event.
#[derive(Debug)]
pub(crate) struct RowsEventReader {
    pub(crate) table: TableNumber,
    pub(crate) kind: RowsKind,
    /// The number of bytes before the row images.
    head_bytes: u64,
    counter: RowCounter,
    images: RowImages,
}

#[derive(Debug)]
enum RowImages {
    Plain { bytes: u64 },
    Compressed { decoder: Box<PartDecoder>, bytes: u64 },
}

/// The result of reading a rows event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowsEventTotals {
    pub(crate) rows: u64,
    /// The size of the event's body without compression, in bytes.
    pub(crate) bytes: u64,
    /// The size of the compressed part in bytes: compressed and decompressed.
    pub(crate) compressed: Option<(u64, u64)>,
}

impl EventContent {
    /// Starts a table map event with its first bytes.
    pub(crate) fn table_map(body: &[u8]) -> Result<Self, WireError> {
        let mut content = Self::TableMap(Vec::new());
        if let Self::TableMap(so_far) = &mut content {
            extend_table_map(so_far, body)?;
        }
        Ok(content)
    }

    /// Starts a compressed transaction. `body` is the beginning of the event; the payload follows.
    pub(crate) fn payload<'a>(body: &'a [u8]) -> Result<(Self, TransactionPayload<'a>), WireError> {
        let head = TransactionPayload::parse(body)?;
        let limits = PayloadLimits { event_bytes_max: UNPACKED_EVENT_BYTES_MAX, ..PayloadLimits::default() };
        Ok((Self::Payload(Box::new(PayloadDecoder::new(&head, limits)?)), head))
    }
}

/// Appends bytes to a table map event.
pub(crate) fn extend_table_map(so_far: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WireError> {
    let size = so_far.len() + bytes.len();
    if size > TABLE_MAP_BYTES_MAX {
        let (size, size_max) = (size as u64, TABLE_MAP_BYTES_MAX as u64);
        return Err(WireError::TooLarge { what: "table map", size, size_max });
    }
    so_far.extend_from_slice(bytes);
    Ok(())
}

impl RowsEventReader {
    /// Starts a rows event with its first bytes. `None` if the event only marks the end of a statement.
    pub(crate) fn begin(
        event_type: EventType,
        body: &[u8],
        format: &FormatDescription,
        tables: &TableRegistry,
    ) -> Result<Option<Self>, WireError> {
        let event = RowsEvent::parse(event_type, body, format)?;
        let Some((table, shape)) = tables.mapped(event.table_id) else {
            if event.table_id == RowsEvent::TABLE_ID_DUMMY {
                return Ok(None);
            }
            let reason = format!("no table map for table id {}", event.table_id);
            return Err(WireError::malformed("rows event", reason));
        };
        let images = match event.compressed {
            false => RowImages::Plain { bytes: 0 },
            true => RowImages::Compressed { decoder: Box::default(), bytes: 0 },
        };
        let mut reading = Self {
            table,
            kind: event.kind,
            head_bytes: (body.len() - event.rows.len()) as u64,
            counter: RowCounter::new(shape, &event)?,
            images,
        };
        reading.update(event.rows)?;
        Ok(Some(reading))
    }

    /// Adds the next bytes of the event.
    pub(crate) fn update(&mut self, input: &[u8]) -> Result<(), WireError> {
        match &mut self.images {
            RowImages::Plain { bytes } => {
                *bytes += input.len() as u64;
                self.counter.update(input)
            }
            RowImages::Compressed { decoder, bytes } => {
                *bytes += input.len() as u64;
                decoder.update(input, |images| self.counter.update(images))
            }
        }
    }

    /// The result. Call this after all bytes were added.
    pub(crate) fn finish(self) -> Result<RowsEventTotals, WireError> {
        let (bytes, compressed) = match self.images {
            RowImages::Plain { bytes } => (bytes, None),
            RowImages::Compressed { decoder, bytes } => {
                let unpacked = decoder.finish()?;
                (unpacked, Some((bytes, unpacked)))
            }
        };
        Ok(RowsEventTotals { rows: self.counter.finish()?, bytes: self.head_bytes + bytes, compressed })
    }
}
