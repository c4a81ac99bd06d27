//! Converts a sequence of events into index entries: one entry per transaction, and one per event between
//! transactions. Capture and recovery use the same code, so both build the same index.

use tailwater_wire::binlog_event::{
    EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET, FormatDescription,
};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};
use tailwater_wire::{Flavour, WireError};

use crate::log_position::{EntryFlags, EntryKind, LogEntry, LogPosition};

/// Builds the index entries from the events of one segment.
#[derive(Debug)]
pub(crate) struct Framing {
    segment: u64,
    /// Offset of the segment's first event in the source's binlog file.
    source_offset: u64,
    tracker: TransactionTracker,
    format: Option<FormatDescription>,
    /// Offset in the source's binlog file after the last event.
    source_position: u64,
    /// Offset in the source's binlog file after the last whole entry.
    source_position_whole: u64,
    open: Option<OpenEntry>,
}

#[derive(Debug)]
struct OpenEntry {
    entry: LogEntry,
    whole: bool,
}

/// What the caller must do when a new event begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FramingAction {
    /// Keep the earlier bytes and append the event.
    Accept,
    /// The rest of the current transaction will never arrive. The caller must remove the transaction's bytes
    /// and call [`Framing::begin_event`] for this event again.
    CutTransaction,
}

impl Framing {
    /// Creates the state for a segment whose first event is at `source_offset` of the source's binlog file.
    pub(crate) fn new(segment: u64, source_offset: u64, flavour: Flavour) -> Self {
        Self {
            segment,
            source_offset,
            tracker: TransactionTracker::new(flavour),
            format: None,
            source_position: source_offset,
            source_position_whole: source_offset,
            open: None,
        }
    }

    /// Continues after `source_position` of the source's binlog file, with the format description of the
    /// segment.
    pub(crate) fn resume(&mut self, source_position: u64, format: Option<FormatDescription>) {
        self.source_position = source_position;
        self.source_position_whole = source_position;
        self.format = format;
    }

    /// Returns the format description that applies to the next event.
    pub(crate) fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Returns the offset in the source's binlog file after the last observed event.
    pub(crate) fn source_position(&self) -> u64 {
        self.source_position
    }

    /// Returns the offset in the source's binlog file after the last whole entry.
    pub(crate) fn source_position_whole(&self) -> u64 {
        self.source_position_whole
    }

    /// Returns whether a transaction is incomplete.
    pub(crate) fn in_transaction(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.entry.kind == EntryKind::Transaction)
    }

    /// Discards the incomplete entry, because its bytes were removed.
    pub(crate) fn rollback(&mut self) {
        self.open = None;
        self.tracker.reset();
        self.source_position = self.source_position_whole;
    }

    /// Observes an event that begins at `offset` of the segment. `first_chunk` holds the first bytes of the
    /// event, from the header on.
    pub(crate) fn begin_event(
        &mut self,
        offset: u64,
        header: &EventHeader,
        first_chunk: &[u8],
    ) -> Result<FramingAction, WireError> {
        let body = first_chunk.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.format = Some(FormatDescription::parse(body)?);
        }
        let Some(format) = &self.format else {
            let reason = format!("a {} event came before the format description", header.event_type);
            return Err(WireError::malformed("segment", reason));
        };
        let step = self.tracker.observe(header, body, format)?;
        if step == TransactionStep::Abandoned {
            return Ok(FramingAction::CutTransaction);
        }
        self.advance_source(offset, header);
        let position = LogPosition { segment: self.segment, offset };
        let new_entry = |kind| LogEntry {
            position,
            length: 0,
            kind,
            gtid: None,
            source_end: 0,
            commit_time_us: 0,
            flags: EntryFlags::default(),
        };
        let open = match step {
            // An event that does not belong to a transaction may occur inside a transaction. The event then
            // becomes part of the transaction's entry.
            TransactionStep::Outside | TransactionStep::Inside | TransactionStep::End
                if self.open.is_some() =>
            {
                let mut open = self
                    .open
                    .take()
                    .unwrap_or_else(|| OpenEntry { entry: new_entry(EntryKind::Event), whole: true });
                open.whole = step == TransactionStep::End;
                open
            }
            TransactionStep::Begin(start) => {
                let mut entry = new_entry(EntryKind::Transaction);
                entry.gtid = start.gtid;
                entry.commit_time_us = start.commit_time_us.unwrap_or(0);
                if start.ddl {
                    entry.flags.insert(EntryFlags::DDL);
                }
                OpenEntry { entry, whole: false }
            }
            _ => OpenEntry { entry: new_entry(EntryKind::Event), whole: true },
        };
        self.open = Some(open);
        if let Some(open) = &mut self.open
            && open.whole
            && open.entry.commit_time_us == 0
        {
            open.entry.commit_time_us = u64::from(header.timestamp) * 1_000_000;
        }
        Ok(FramingAction::Accept)
    }

    /// Ends the current event at offset `end`. If the event completes an index entry, returns this entry.
    pub(crate) fn end_event(&mut self, end: u64) -> Option<LogEntry> {
        let open = self.open.take_if(|open| open.whole)?;
        let mut entry = open.entry;
        entry.length = end - entry.position.offset;
        entry.source_end = self.source_position;
        Some(entry)
    }

    /// Marks all observed events as whole and final.
    pub(crate) fn commit_entries(&mut self) {
        self.source_position_whole = self.source_position;
    }

    fn advance_source(&mut self, offset: u64, header: &EventHeader) {
        // A segment that begins in the middle of a source's file also starts with the file's format
        // description event. In the source's file, this event has another offset.
        if offset == FIRST_EVENT_OFFSET && self.source_offset > FIRST_EVENT_OFFSET {
            return;
        }
        self.source_position += u64::from(header.event_length);
        // A header holds the low 32 bits of the event's end position. Inside transactions of MariaDB 11.4 and
        // later, it holds 0. If the source leaves events out of the stream, the end position is higher than
        // expected.
        let ahead = header.end_log_pos.wrapping_sub(self.source_position as u32);
        if header.end_log_pos != 0 && ahead <= u32::MAX / 2 {
            self.source_position += u64::from(ahead);
        }
    }
}
