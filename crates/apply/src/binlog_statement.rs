//! Encodes groups of rows as `BINLOG '<base64>'` statements, which the target executes as if they came from a
//! source.
//!
//! Requirements and server behaviour:
//! - The first statement of a session is the format description
//!   ([`BinlogStatementEncoder::format_description_statement`]); it declares events without checksums. The
//!   server keeps it for the life of the connection. MySQL then treats the session's `gtid_next` as that of a
//!   replica: `SET gtid_next='AUTOMATIC'` must follow, or COMMIT ends with error 1782.
//! - A statement may be part of a transaction, and is rolled back with it. If a statement fails, the server
//!   rolls back the statement. The client often gets only error 1032 or 1062, which may not name the row.
//! - Each statement closes its tables: the next one must repeat the table maps, and may reuse their IDs.
//! - A scope is the part of a statement up to an end-of-statement flag. All table maps of a scope come before
//!   its first rows event. At that event the server opens and locks the tables. The flags of that event
//!   (foreign key and unique checks) apply to the whole scope.
//! - The server finds a row by the primary key if the before image contains it, and ignores the rest of the
//!   image.
//! - Triggers of the target do not run (MariaDB: unless `slave_run_triggers_for_rbr` enables them);
//!   `sql_require_primary_key` and `sql_mode` have no effect; AUTO_INCREMENT counters advance; the target
//!   executes foreign key cascades itself.
//! - On MySQL the account needs `REPLICATION_APPLIER`, and INSERT, UPDATE and DELETE on the tables; without
//!   these privileges it gets only error 1105, "Unknown error". On MariaDB the account needs only `BINLOG
//!   REPLAY`.
//! - A row without columns (`INSERT INTO t VALUES ()` with minimal row images) has no bytes, so an event with
//!   two such rows would look like an event with one row.
//! - A MERGE table opens other tables, and the server then loses rows of tables that were mapped before the
//!   MERGE table. Therefore a MERGE table gets its own scope
//!   ([`TargetTable::opens_others`](crate::target_table::TargetTable::opens_others)).
//! - If a table has no key, MySQL looks up all rows of an event at once, so no row may occur twice in an
//!   event.

mod long_row_writer;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventBuilder, EventHeader, EventType, FormatDescription,
    RowsEvent, RowsKind,
};
use tailwater_wire::byte_cursor::{put_lenenc_bytes, put_lenenc_int};
use tailwater_wire::{Flavour, ServerId, WireError};

use crate::batch::{PlannedRow, RowGroup};
use crate::error::ApplyError;
use crate::source_to_target_table::MappedTable;
pub use long_row_writer::{LongBinlogStatement, LongRow};

/// The start of a `BINLOG` statement: the text before the base64 text.
const OPENING: &[u8] = b"BINLOG '";
const CLOSING: &[u8] = b"'";

/// The statement that executes base64 text from two user variables.
const BOTH_HALVES: &[u8] = b"BINLOG @tailwater_0, @tailwater_1";

/// The maximum number of tables that one scope of a `BINLOG` statement opens.
const SCOPE_TABLES_MAX: usize = 32;

/// The maximum sizes of `BINLOG` statements, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BinlogStatementOptions {
    /// The size limit of a statement with several rows, in bytes.
    pub statement_bytes_max: usize,
    /// The target's `max_allowed_packet`, in bytes. It limits a statement with a single row.
    pub packet_bytes_max: usize,
}

/// Encodes groups of rows as `BINLOG` statements for targets of one flavour.
#[derive(Debug)]
pub struct BinlogStatementEncoder {
    flavour: Flavour,
    options: BinlogStatementOptions,
    /// The binary events of the statement that is being built.
    events: Vec<u8>,
}

/// Rows of a row group that are written as one rows event.
#[derive(Debug, Clone, Copy)]
struct RowPiece<'p, 'a> {
    group: &'p RowGroup<'a>,
    rows: &'p [PlannedRow<'a>],
    /// The total length of the row images, in bytes.
    images_bytes: usize,
}

/// Parts of row groups whose tables the server opens together: one scope of a `BINLOG` statement.
#[derive(Debug, Default)]
struct StatementScope<'p, 'a> {
    tables: Vec<&'a MappedTable>,
    pieces: Vec<RowPiece<'p, 'a>>,
}

impl<'p, 'a> StatementScope<'p, 'a> {
    /// Returns whether the rows of `group` can join this scope.
    fn takes(&self, group: &RowGroup<'a>) -> bool {
        let table = group.table;
        let alone = |table: &MappedTable| table.target.must_be_alone();
        if (alone(table) || self.tables.iter().any(|table| alone(table))) && !self.maps(table) {
            return false;
        }
        let same_flags = self.pieces.last().is_none_or(|piece| piece.group.flags == group.flags);
        let known = self.maps(table);
        // A scope has at most one table map for each table: with two table maps, the server would lock the
        // table twice.
        let clashes = |other: &&MappedTable| {
            other.target.schema == table.target.schema && other.target.table == table.target.table
        };
        same_flags && (known || self.tables.len() < SCOPE_TABLES_MAX && !self.tables.iter().any(clashes))
    }

    fn maps(&self, table: &MappedTable) -> bool {
        self.tables.iter().any(|other| std::ptr::eq(*other, table))
    }
}

impl BinlogStatementEncoder {
    /// Returns an encoder for targets of this flavour.
    pub fn new(flavour: Flavour, options: BinlogStatementOptions) -> Self {
        Self { flavour, options, events: Vec::new() }
    }

    /// Returns the statement that a session must execute first.
    ///
    /// # Errors
    /// No error is expected, because the event has a fixed length.
    pub fn format_description_statement(&self) -> Result<Vec<u8>, WireError> {
        let format = FormatDescription::assumed(self.flavour, ChecksumAlgorithm::Off);
        let event = EventBuilder::new(ServerId(0), ChecksumAlgorithm::Off).format_description(&format, 0)?;
        let mut statement = Vec::new();
        put_statement(&mut statement, &event);
        Ok(statement)
    }

    /// Appends the statements for `groups` to the output, in order. The tables of the groups must have the
    /// target's shape ([`MappedTable::same_shape`]). Returns the number of scopes in the statements; the
    /// server opens tables once for each scope.
    ///
    /// # Errors
    /// [`ApplyError::TooLarge`] if a row does not fit into one packet of the target (on MariaDB: into two
    /// packets).
    pub fn statements(
        &mut self,
        groups: &[RowGroup<'_>],
        out: &mut Vec<Vec<u8>>,
    ) -> Result<usize, ApplyError> {
        let events_max = events_bytes_max(self.options.statement_bytes_max);
        let mut scopes: Vec<StatementScope<'_, '_>> = Vec::new();
        let mut bytes = 0;
        let mut count = 0;
        for group in groups {
            let mut rows = &group.rows[..];
            while !rows.is_empty() {
                let fits = scopes.last().is_some_and(|scope| scope.takes(group));
                let mapped = fits && scopes.last().is_some_and(|scope| scope.maps(group.table));
                let overhead = self.overhead(group) + if mapped { 0 } else { map_bytes(group.table) };
                // If the event header does not fit, no row fits either, even a row of zero bytes.
                let room = events_max.checked_sub(bytes + overhead);
                let (fitting, images_bytes) = room.map_or((0, 0), |room| fitting(rows, room));
                if fitting == 0 && bytes > 0 {
                    self.write(&scopes, out)?;
                    count += scopes.len();
                    scopes.clear();
                    bytes = 0;
                    continue;
                }
                // At least one row goes into each event: a single row is never split.
                let (now, later) = rows.split_at(fitting.max(1));
                rows = later;
                let images_bytes = images_bytes.max(now.first().map_or(0, PlannedRow::bytes));
                if !fits {
                    scopes.push(StatementScope::default());
                }
                if let Some(scope) = scopes.last_mut() {
                    if !mapped {
                        scope.tables.push(group.table);
                    }
                    scope.pieces.push(RowPiece { group, rows: now, images_bytes });
                }
                bytes += overhead + images_bytes;
            }
        }
        if bytes > 0 {
            self.write(&scopes, out)?;
            count += scopes.len();
        }
        Ok(count)
    }

    /// Returns the length of a rows event without its rows, in bytes.
    fn overhead(&self, group: &RowGroup<'_>) -> usize {
        // Table ID, flags, length of the extra data, number of columns.
        let fixed = EVENT_HEADER_BYTES + 8 + 2 + 3;
        fixed + group.columns_present.len() + group.columns_present_after.len()
    }

    fn write(&mut self, scopes: &[StatementScope<'_, '_>], out: &mut Vec<Vec<u8>>) -> Result<(), ApplyError> {
        self.events.clear();
        for scope in scopes {
            for (index, table) in scope.tables.iter().enumerate() {
                if let Some(piece) = scope.pieces.iter().find(|piece| std::ptr::eq(piece.group.table, *table))
                {
                    put_table_map(&mut self.events, piece.group, table_id(index));
                }
            }
            for (index, piece) in scope.pieces.iter().enumerate() {
                let table = scope.tables.iter().position(|table| std::ptr::eq(*table, piece.group.table));
                let last = index + 1 == scope.pieces.len();
                self.put_rows(piece, table_id(table.unwrap_or_default()), last);
            }
        }
        let mut statement = Vec::new();
        let bytes = OPENING.len() + text_bytes(self.events.len()) + CLOSING.len();
        if self.fits_packet(bytes) {
            put_statement(&mut statement, &self.events);
            out.push(statement);
        } else if let Some(table) = scopes.first().and_then(|scope| scope.tables.first()) {
            self.write_in_two(out).ok_or_else(|| self.too_large(table, bytes))?;
        }
        // Free the memory that one long row needed, so that the connection does not keep it.
        if self.events.capacity() > 2 * self.options.statement_bytes_max {
            self.events = Vec::new();
        }
        Ok(())
    }

    /// Returns whether a statement of `bytes` bytes fits into a packet, which also contains the command byte.
    fn fits_packet(&self, bytes: usize) -> bool {
        bytes < self.options.packet_bytes_max
    }

    fn too_large(&self, table: &MappedTable, bytes: usize) -> ApplyError {
        ApplyError::TooLarge {
            gtid: String::new(),
            table: format!("{}.{}", table.target.schema, table.target.table),
            bytes,
            bytes_max: self.options.packet_bytes_max,
        }
    }

    /// Writes the events in two halves, for MariaDB. MariaDB accepts the base64 text in two variables, each
    /// as long as a packet.
    fn write_in_two(&self, out: &mut Vec<Vec<u8>>) -> Option<()> {
        let half_max = half_bytes_max(self.flavour, self.options.packet_bytes_max, self.events.len())?;
        for (index, half) in self.events.chunks(half_max).enumerate() {
            let mut statement = half_opening(index).into_bytes();
            put_text(&mut statement, half);
            statement.push(b'\'');
            out.push(statement);
        }
        out.push(BOTH_HALVES.to_vec());
        Some(())
    }

    fn put_rows(&mut self, piece: &RowPiece<'_, '_>, table_id: u64, last: bool) {
        let mut events = std::mem::take(&mut self.events);
        let start = self.put_rows_head(&mut events, piece.group, table_id, last);
        events.reserve(piece.images_bytes);
        for row in piece.rows {
            row.image.put(&mut events);
            row.after.put(&mut events);
        }
        set_length(&mut events, start, 0);
        self.events = events;
    }

    /// Writes the part of a rows event before its rows. The length field of the event stays empty. Returns
    /// the event's start in `events`.
    fn put_rows_head(&self, events: &mut Vec<u8>, group: &RowGroup<'_>, table_id: u64, last: bool) -> usize {
        let event_type = self.event_type(group.kind);
        let start = put_header(events, event_type, group);
        events.extend_from_slice(table_id.to_le_bytes().get(..6).unwrap_or_default());
        let end = if last { RowsEvent::FLAG_STATEMENT_END } else { 0 };
        events.extend_from_slice(&(group.flags | end).to_le_bytes());
        if self.flavour == Flavour::MySql {
            // The extra data of a version 2 rows event: only its length field, whose value counts the field
            // itself.
            events.extend_from_slice(&2u16.to_le_bytes());
        }
        put_lenenc_int(events, group.table.map.columns.len() as u64);
        events.extend_from_slice(&group.columns_present);
        if matches!(group.kind, RowsKind::Update | RowsKind::PartialUpdate) {
            events.extend_from_slice(&group.columns_present_after);
        }
        start
    }

    /// Returns the rows event type of the target's flavour: MariaDB writes and reads version 1, MySQL version
    /// 2.
    fn event_type(&self, kind: RowsKind) -> EventType {
        match (self.flavour, kind) {
            (Flavour::MySql, RowsKind::Write) => EventType::WRITE_ROWS_V2,
            (Flavour::MySql, RowsKind::Update) => EventType::UPDATE_ROWS_V2,
            (Flavour::MySql, RowsKind::Delete) => EventType::DELETE_ROWS_V2,
            (Flavour::MariaDb, RowsKind::Write) => EventType::WRITE_ROWS_V1,
            (Flavour::MariaDb, RowsKind::Update) => EventType::UPDATE_ROWS_V1,
            (Flavour::MariaDb, RowsKind::Delete) => EventType::DELETE_ROWS_V1,
            // Only MySQL logs partial updates. A MariaDB target gets them as SQL, never as row events.
            (_, RowsKind::PartialUpdate) => EventType::PARTIAL_UPDATE_ROWS,
        }
    }
}

/// Returns the table ID for a table of a scope. The result is never the ID that means "no table".
fn table_id(index: usize) -> u64 {
    index as u64 + 1
}

/// Returns the number of rows that fit into `room` bytes, and the length of these rows in bytes.
fn fitting(rows: &[PlannedRow<'_>], room: usize) -> (usize, usize) {
    let mut bytes = 0;
    for (index, row) in rows.iter().enumerate() {
        let length = row.bytes();
        if bytes + length > room {
            return (index, bytes);
        }
        bytes += length;
    }
    (rows.len(), bytes)
}

/// Returns the maximum length of the events in a statement of `statement_bytes_max` bytes.
fn events_bytes_max(statement_bytes_max: usize) -> usize {
    statement_bytes_max.saturating_sub(OPENING.len() + CLOSING.len()) / 4 * 3
}

/// Returns the start of the statement that stores half `index` (0 or 1) of the text in a variable.
fn half_opening(index: usize) -> String {
    format!("SET @tailwater_{index}='")
}

/// Returns the maximum length of the events in each of two halves. `None` if targets of this flavour do not
/// accept `bytes` bytes of events in two halves.
fn half_bytes_max(flavour: Flavour, packet_bytes_max: usize, bytes: usize) -> Option<usize> {
    const SETTING: usize = "SET @tailwater_0=''".len();
    // The server needs some bytes at the end of the packet for itself.
    let half_max = packet_bytes_max.checked_sub(SETTING + 16)? / 4 * 3;
    (flavour == Flavour::MariaDb && bytes <= 2 * half_max).then_some(half_max)
}

fn text_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

fn put_statement(statement: &mut Vec<u8>, events: &[u8]) {
    statement.reserve_exact(OPENING.len() + text_bytes(events.len()) + CLOSING.len());
    statement.extend_from_slice(OPENING);
    put_text(statement, events);
    statement.extend_from_slice(CLOSING);
}

/// Appends `bytes` to the statement as base64.
fn put_text(statement: &mut Vec<u8>, bytes: &[u8]) {
    let start = statement.len();
    statement.resize(start + text_bytes(bytes.len()), 0);
    let written = statement.get_mut(start..).map(|text| BASE64.encode_slice(bytes, text));
    // The reserved space is exactly as long as the base64 text.
    debug_assert!(matches!(written, Some(Ok(length)) if start + length == statement.len()));
}

/// Writes an event header without the event length. Returns the start of the event.
fn put_header(events: &mut Vec<u8>, event_type: EventType, group: &RowGroup<'_>) -> usize {
    let start = events.len();
    let header = EventHeader {
        timestamp: group.timestamp,
        event_type,
        server_id: ServerId(group.server_id),
        event_length: 0,
        end_log_pos: 0,
        flags: 0,
    };
    events.extend_from_slice(&header.to_bytes());
    start
}

/// Sets the length field of an event. `more` is the number of bytes of the event that are not in `events`.
fn set_length(events: &mut [u8], start: usize, more: usize) {
    // The length fits into `u32`: a statement is at most two packets of 1 GiB.
    let length = ((events.len() - start + more) as u32).to_le_bytes();
    if let Some(place) = events.get_mut(start + 9..start + 13) {
        place.copy_from_slice(&length);
    }
}

/// Returns an upper bound of the length of a table map event, in bytes.
fn map_bytes(table: &MappedTable) -> usize {
    EVENT_HEADER_BYTES + table.body.len() + table.target.schema.len() + table.target.table.len()
}

/// Writes the source's table map event with this table ID and with the target's table name.
fn put_table_map(events: &mut Vec<u8>, group: &RowGroup<'_>, table_id: u64) {
    let table = group.table;
    let start = put_header(events, EventType::TABLE_MAP, group);
    events.extend_from_slice(table_id.to_le_bytes().get(..6).unwrap_or_default());
    events.extend_from_slice(&table.map.flags.to_le_bytes());
    for name in [&table.target.schema, &table.target.table] {
        put_lenenc_bytes(events, name.as_bytes());
        events.push(0);
    }
    // A table map starts with the table ID and the flags. Two names follow, each with its length (up to 64
    // characters of four bytes) and a zero byte.
    let lengths = |name: &str| if name.len() < 251 { 1 } else { 3 };
    let names = [&table.map.schema, &table.map.table];
    let head = 8 + names.iter().map(|name| lengths(name) + name.len() + 1).sum::<usize>();
    events.extend_from_slice(table.body.get(head..).unwrap_or_default());
    set_length(events, start, 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tailwater_wire::binlog_event::{BinlogEvent, EventBody};

    use super::*;
    use crate::batch::tests::planned_row_changes::PLAIN;
    use crate::batch::tests::server_model::{History, wishes};
    use crate::batch::{PlanOptions, plan};

    /// The effect of a rows event: table name, kind, flags and both column bitmaps, then the row images.
    type Done = ((String, RowsKind, u16, Vec<u8>, Vec<u8>), Vec<u8>);

    fn add(all: &mut Vec<Done>, head: (String, RowsKind, u16, Vec<u8>, Vec<u8>), images: &[u8]) {
        match all.last_mut() {
            Some((last, so_far)) if *last == head => so_far.extend(images),
            _ => all.push((head, images.to_vec())),
        }
    }

    fn events_of(statement: &[u8]) -> Vec<u8> {
        let text = statement.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix(CLOSING)).unwrap();
        BASE64.decode(text).unwrap()
    }

    /// Parses statements as a server does. Returns the number of rows events of each statement.
    fn read(statements: &[Vec<u8>], flavour: Flavour, all: &mut Vec<Done>) -> Vec<usize> {
        let format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Off);
        let mut counts = Vec::new();
        for statement in statements {
            let bytes = events_of(statement);
            let (mut rest, mut count) = (&bytes[..], 0);
            let mut tables = Vec::new();
            // Whether a rows event was read since the last end-of-statement flag.
            let mut rows_begun = false;
            while !rest.is_empty() {
                let header = EventHeader::parse(rest).unwrap();
                let (event, after) = rest.split_at(header.event_length as usize);
                rest = after;
                match BinlogEvent::parse(event, &format).unwrap().body {
                    EventBody::TableMap(body) => {
                        assert!(!rows_begun, "a scope has a table map after its first rows event");
                        let map = tailwater_wire::row_event::TableMap::parse(body, flavour).unwrap();
                        assert_eq!(map.schema, "s");
                        let known = |(_, other): &(u64, String)| *other == map.table;
                        assert!(!tables.iter().any(known), "a scope maps table {} twice", map.table);
                        tables.push((map.table_id, map.table));
                    }
                    EventBody::Rows(rows) => {
                        (rows_begun, count) = (true, count + 1);
                        let table = tables.iter().find(|(id, _)| *id == rows.table_id).unwrap().1.clone();
                        let flags = rows.flags & !RowsEvent::FLAG_STATEMENT_END;
                        let present = rows.columns_present.to_vec();
                        let after = rows.columns_present_after.to_vec();
                        add(all, (table, rows.kind, flags, present, after), rows.rows);
                        if rows.ends_statement() {
                            rows_begun = false;
                            tables.clear();
                        }
                    }
                    other => panic!("the statement has an event of the wrong type: {other:?}"),
                }
            }
            assert!(
                !rows_begun && tables.is_empty(),
                "the last rows event of a statement has no end-of-statement flag"
            );
            counts.push(count);
        }
        counts
    }

    proptest! {
        #[test]
        fn statements_contain_the_rows_of_the_plan(
            wishes in wishes(80),
            statement_bytes_max in 100usize..3000,
            mariadb: bool,
        ) {
            let flavour = if mariadb { Flavour::MariaDb } else { Flavour::MySql };
            let mut history = History::new(u64::MAX, u8::MAX);
            history.write(&wishes);
            let plan = plan(&history.changes, PlanOptions::default()).unwrap();
            let mut wanted = Vec::new();
            for group in &plan.groups {
                for row in &group.rows {
                    let images = [row.image.to_bytes(), row.after.to_bytes()].concat();
                    let (present, after) = (group.columns_present.to_vec(), group.columns_present_after.to_vec());
                    let head = (group.table.map.table.clone(), group.kind, group.flags, present, after);
                    add(&mut wanted, head, &images);
                }
            }
            let options = BinlogStatementOptions { statement_bytes_max, packet_bytes_max: 4000 };
            let mut statements = Vec::new();
            BinlogStatementEncoder::new(flavour, options).statements(&plan.groups, &mut statements).unwrap();
            let mut done = Vec::new();
            let counts = read(&statements, flavour, &mut done);
            prop_assert_eq!(done, wanted);
            for (statement, count) in statements.iter().zip(counts) {
                prop_assert!(
                    statement.len() <= statement_bytes_max || count == 1,
                    "a statement with several groups is too long, in bytes: {}",
                    statement.len()
                );
            }
        }
    }

    #[test]
    fn oversized_rows_are_split_into_two_statements_or_rejected() {
        let mut history = History::new(u64::MAX, u8::MAX);
        history.change(PLAIN, None, Some(vec![Some(1), Some(2), Some(3)]), 0);
        let plan = plan(&history.changes, PlanOptions::default()).unwrap();
        let statements = |flavour, packet_bytes_max| {
            let options = BinlogStatementOptions { statement_bytes_max: 50, packet_bytes_max };
            let mut out = Vec::new();
            BinlogStatementEncoder::new(flavour, options).statements(&plan.groups, &mut out).map(|_| out)
        };
        let whole = statements(Flavour::MariaDb, 1000).unwrap();
        assert_eq!(whole.len(), 1);
        let parts = statements(Flavour::MariaDb, whole[0].len() - 1).unwrap();
        assert_eq!(parts.last().unwrap(), b"BINLOG @tailwater_0, @tailwater_1");
        let value = |part: &[u8]| {
            let text = String::from_utf8(part.to_vec()).unwrap();
            text.split('\'').nth(1).unwrap().to_owned()
        };
        // The server decodes the joined base64 text, so the first half must end at a whole base64 group.
        let text = format!("BINLOG '{}{}'", value(&parts[0]), value(&parts[1]));
        assert_eq!(text.as_bytes(), whole[0]);
        assert!(parts.iter().all(|part| part.len() < whole[0].len()));
        for (flavour, packet_bytes_max) in [(Flavour::MySql, whole[0].len() - 1), (Flavour::MariaDb, 90)] {
            assert_eq!(statements(flavour, packet_bytes_max).unwrap_err().code(), "TW-APP-0030");
        }
    }
}
