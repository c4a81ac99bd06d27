//! Prints events as SQL that a standard client replays: row events as INSERT, UPDATE and DELETE, and
//! statements with the session variables that they ran with.
//!
//! A replay of the output restores exactly the source's data. Some values have no exact SQL form. For others,
//! the binlog lacks data that SQL needs, such as column names, or whether a number is negative. The printer
//! refuses such values with [`PrintError::NotExact`]. Statements end with `/*!*/;`, as in `mysqlbinlog`'s
//! output. They may hold zero bytes, so run the client with `--binary-mode`.
//!
//! Values that are not plain ASCII are written in hexadecimal, so that no character set is converted. If the
//! table map names the primary key, the WHERE clause finds a row by its primary key. Otherwise it compares
//! all columns and has `LIMIT 1`.

use std::io;

use super::event_text::{self, put_time};
use super::printer_state::PrintState;
use super::row_text::put;
use super::sql_literal::{LiteralUse, put_value};
use super::sql_session_settings::put_default_encryption;
pub use super::sql_session_settings::session_statement;
use super::{EventLocation, EventPrinter, PrintError, SkippedEvent, TableFilter, UNPACKED_BYTES_MAX};
use crate::Flavour;
use crate::binlog_event::{
    EventBody, EventHeader, IntVar, MariadbGtidEvent, PayloadLimits, QueryEvent, RowsEvent, RowsKind,
    UserVarValue,
};
use crate::row_event::{BinlogColumn, ColumnType, Image, RowChange, RowChangeIter, TableMap};
use crate::sql_quote::put_identifier;

/// The end of each statement: the delimiter that the output sets.
const END: &[u8] = b"\n/*!*/;\n";

/// Sets an `sql_mode` that accepts every value, such as invalid dates, and zero in an AUTO_INCREMENT column.
/// The mode is not strict, because a source may hold values that a strict server refuses (such as an ENUM of
/// 0).
const ROW_MODE: &str = "SET @@session.sql_mode=_utf8mb4'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', \
                        @@session.time_zone=_utf8mb4'+00:00', @@session.character_set_client=utf8mb4";

/// Prints events as SQL.
#[derive(Debug, Default)]
pub struct SqlPrinter {
    stream: PrintState,
    filter: TableFilter,
    /// Whether the start of the output, which sets the delimiter, was printed.
    preamble_written: bool,
    /// The default database of the client at this point of the output.
    database: Vec<u8>,
    /// The flags of the row event for which the client's session variables are set at this point of the
    /// output. `None` if the variables are set for a statement.
    row_session: Option<u16>,
    /// Whether the output has an open transaction.
    is_open: bool,
    /// Whether an event of the current transaction was left out. If so, the printer also leaves out the rest
    /// of the transaction.
    leaves_out: bool,
    /// Whether a GTID event precedes each transaction.
    has_gtids: bool,
}

impl SqlPrinter {
    /// Creates a printer for the rows of all tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a printer for the rows of some tables, and for all statements.
    pub fn with_filter(filter: TableFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    fn print(
        &mut self,
        place: EventLocation<'_>,
        bytes: &[u8],
        inside: bool,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        let event = self.stream.parse(bytes, inside)?;
        if !self.preamble_written {
            self.preamble_written = true;
            out.write_all(b"DELIMITER /*!*/;\n")?;
        }
        self.has_gtids |= matches!(event.body, EventBody::Gtid(_) | EventBody::MariadbGtid(_));
        if self.leaves_out {
            // Leave out events up to the end of the transaction. Without GTID events, only the last event of
            // a transaction shows where it ends.
            self.leaves_out = !begins_transaction(&event.body) && !ends_transaction(&event.body);
            if !begins_transaction(&event.body) {
                return Ok(());
            }
        }
        let mut text = Vec::new();
        match &event.body {
            EventBody::TableMap(body) => {
                self.stream.map_table(body)?;
            }
            EventBody::Rows(rows) => {
                self.print_rows(rows, out)?;
                if rows.ends_statement() {
                    self.stream.end_statement();
                }
            }
            EventBody::TransactionPayload(payload) if !inside => {
                let limits =
                    PayloadLimits { event_bytes_max: UNPACKED_BYTES_MAX as u64, ..PayloadLimits::default() };
                let mut events = payload.events(limits)?;
                while let Some(event) = events.next_event()? {
                    self.print(place, event, true, out)?;
                }
            }
            EventBody::Query(query) => self.put_query(&mut text, &event.header, query)?,
            EventBody::Gtid(gtid) => {
                let name = gtid.gtid.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
                put_comment(&mut text, &name, place, &event.header);
            }
            EventBody::MariadbGtid(gtid) => {
                if gtid.xid.is_some() {
                    return Err(refused(
                        "an XA transaction",
                        "the transaction must outlive the connection that replays the statements",
                    ));
                }
                put_comment(&mut text, &gtid.gtid.to_string(), place, &event.header);
                if !gtid.has(MariadbGtidEvent::FLAG_STANDALONE) {
                    put_statement(&mut text, b"START TRANSACTION");
                    self.is_open = true;
                }
            }
            body => put_other(&mut text, body, self.stream.flavour())?,
        }
        if ends_transaction(&event.body) {
            self.is_open = false;
        }
        out.write_all(&text)?;
        Ok(())
    }

    /// Returns whether an event outside a transaction is a complete transaction. This is the case for a
    /// statement that does not start a transaction.
    fn is_whole_transaction(&mut self, event: &[u8]) -> bool {
        let Ok(event) = self.stream.parse(event, false) else { return false };
        let EventBody::Query(query) = &event.body else { return false };
        let begins = |text: &[u8]| {
            [&b"BEGIN"[..], b"XA START", b"XA BEGIN"].iter().any(|begin| text.starts_with(begin))
        };
        query.statement(UNPACKED_BYTES_MAX).is_ok_and(|text| !begins(&text))
    }

    fn put_query(
        &mut self,
        text: &mut Vec<u8>,
        header: &EventHeader,
        query: &QueryEvent<'_>,
    ) -> Result<(), PrintError> {
        let statement = query.statement(UNPACKED_BYTES_MAX)?;
        if statement.starts_with(b"XA ") {
            return Err(refused(
                "an XA transaction",
                "the transaction must outlive the connection that replays the statements",
            ));
        }
        // `BEGIN`, `COMMIT` and `ROLLBACK` do not depend on session variables.
        if matches!(&*statement, b"BEGIN" | b"COMMIT" | b"ROLLBACK") {
            self.is_open = *statement == *b"BEGIN";
            put_statement(text, &statement);
            return Ok(());
        }
        if query.error_code != 0 {
            let reason = format!(
                "the statement failed with error {} on the source after it had changed data",
                query.error_code
            );
            return Err(refused("a statement", &reason));
        }
        if event_text::needs_use_statement(header, query) && query.database != self.database {
            self.database = query.database.to_vec();
            text.extend_from_slice(b"USE ");
            put_name(text, query.database, "the name of a database")?;
            text.extend_from_slice(END);
        }
        self.row_session = None;
        let flavour = self.stream.flavour();
        text.extend_from_slice(&session_statement(header.timestamp, query, flavour, flavour)?);
        put_default_encryption(text, query)?;
        text.extend_from_slice(END);
        put_statement(text, &statement);
        Ok(())
    }

    fn print_rows(&mut self, event: &RowsEvent<'_>, out: &mut dyn io::Write) -> Result<(), PrintError> {
        let Some(table) = self.stream.table_of(event)? else { return Ok(()) };
        if !self.filter.shows(&table.schema, &table.table) {
            return Ok(());
        }
        let mut text = Vec::new();
        if self.row_session != Some(event.flags & SESSION_FLAGS) {
            self.row_session = Some(event.flags & SESSION_FLAGS);
            put_row_session(&mut text, event, table.flavour);
        }
        let images = event.images(UNPACKED_BYTES_MAX)?;
        for row in RowChangeIter::new(table, event, &images)? {
            put_row(&mut text, table, event.kind, &row?)?;
            text.extend_from_slice(END);
            out.write_all(&text)?;
            text.clear();
        }
        Ok(())
    }
}

impl EventPrinter for SqlPrinter {
    fn event(
        &mut self,
        place: EventLocation<'_>,
        event: &[u8],
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        self.print(place, event, false, out)
    }

    fn print_skipped(
        &mut self,
        left_out: &SkippedEvent<'_>,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        if !self.preamble_written {
            self.preamble_written = true;
            out.write_all(b"DELIMITER /*!*/;\n")?;
        }
        writeln!(out, "-- {left_out}, together with its whole transaction")?;
        let is_open = std::mem::take(&mut self.is_open);
        if is_open {
            out.write_all(b"ROLLBACK")?;
            out.write_all(END)?;
        }
        // Leave out the rest of the transaction. Without GTID events, a standalone statement is a whole
        // transaction, so the next event is not left out.
        self.leaves_out = self.has_gtids || is_open || !self.is_whole_transaction(left_out.event);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn io::Write) -> Result<(), PrintError> {
        if self.preamble_written {
            out.write_all(b"DELIMITER ;\n")?;
        }
        Ok(())
    }
}

/// Returns whether the events before this body belong to another transaction.
fn begins_transaction(body: &EventBody<'_>) -> bool {
    matches!(body, EventBody::Gtid(_) | EventBody::MariadbGtid(_) | EventBody::FormatDescription(_))
}

/// Returns whether this body ends a transaction.
fn ends_transaction(body: &EventBody<'_>) -> bool {
    match body {
        EventBody::Xid(_) | EventBody::XaPrepare(_) => true,
        EventBody::Query(query) => {
            query.statement(UNPACKED_BYTES_MAX).is_ok_and(|text| matches!(&*text, b"COMMIT" | b"ROLLBACK"))
        }
        _ => false,
    }
}

/// The flags of a row event that show which checks were off in the session that wrote the rows.
const SESSION_FLAGS: u16 = RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS
    | RowsEvent::FLAG_RELAXED_UNIQUE_CHECKS
    | RowsEvent::FLAG_NO_CHECK_CONSTRAINT_CHECKS;

pub(super) fn refused(what: &str, reason: &str) -> PrintError {
    PrintError::NotExact { what: what.to_owned(), reason: reason.to_owned() }
}

fn put_statement(text: &mut Vec<u8>, statement: &[u8]) {
    text.extend_from_slice(statement);
    text.extend_from_slice(END);
}

/// Appends a comment such as `-- GTID 0-1-7 at binlog.000001:330, 261121 19:43:05 UTC, server_id 1`.
fn put_comment(text: &mut Vec<u8>, gtid: &str, place: EventLocation<'_>, header: &EventHeader) {
    put(text, format_args!("-- GTID {gtid} at {}:{}, ", place.file.replace(['\n', '\r'], "?"), place.offset));
    put_time(text, header.timestamp);
    put(text, format_args!(" UTC, server_id {}\n", header.server_id));
}

/// Appends a name as an identifier. The bytes of the name must be UTF-8.
fn put_name(text: &mut Vec<u8>, name: &[u8], what: &str) -> Result<(), PrintError> {
    match std::str::from_utf8(name) {
        Ok(name) => {
            put_identifier(text, name.as_bytes());
            Ok(())
        }
        Err(_) => Err(refused(what, "the name is not UTF-8")),
    }
}

/// Appends the SQL of an event body that can be printed without other events. Returns an error for a body
/// without an SQL form.
fn put_other(text: &mut Vec<u8>, body: &EventBody<'_>, flavour: Flavour) -> Result<(), PrintError> {
    match body {
        EventBody::Xid(_) => put_statement(text, b"COMMIT"),
        EventBody::IntVar(IntVar::InsertId(value)) => put(text, format_args!("SET INSERT_ID={value}")),
        EventBody::IntVar(IntVar::LastInsertId(value)) => {
            put(text, format_args!("SET LAST_INSERT_ID={value}"))
        }
        EventBody::Rand(seeds) => {
            put(text, format_args!("SET @@RAND_SEED1={}, @@RAND_SEED2={}", seeds.0, seeds.1));
        }
        EventBody::UserVar(variable) => {
            text.extend_from_slice(b"SET @");
            put_name(text, variable.name, "the name of a user variable")?;
            text.extend_from_slice(b":=");
            put_user_value(text, &variable.value, flavour)?;
        }
        EventBody::BeginLoadQuery(_)
        | EventBody::AppendBlock(_)
        | EventBody::ExecuteLoadQuery(_)
        | EventBody::DeleteFile(_) => {
            return Err(refused(
                "LOAD DATA as a statement",
                "the content of the loaded file is in the binlog, not in the statement",
            ));
        }
        EventBody::XaPrepare(_) => {
            return Err(refused(
                "an XA transaction",
                "the transaction must outlive the connection that replays the statements",
            ));
        }
        EventBody::Incident(incident) => {
            let message = String::from_utf8_lossy(incident.message);
            return Err(refused("an incident", &format!("the source lost events here ({message})")));
        }
        EventBody::PartialRowData(_) => {
            return Err(refused(
                "a fragment of a large row event",
                "this SQL printer does not join fragments",
            ));
        }
        _ => return Ok(()),
    }
    if !text.ends_with(END) {
        text.extend_from_slice(END);
    }
    Ok(())
}

fn put_user_value(text: &mut Vec<u8>, value: &UserVarValue<'_>, flavour: Flavour) -> Result<(), PrintError> {
    match value {
        UserVarValue::Null => text.extend_from_slice(b"NULL"),
        UserVarValue::Real(real) => put(text, format_args!("{real:e}")),
        UserVarValue::Int(int) => put(text, format_args!("{int}")),
        UserVarValue::Uint(int) => put(text, format_args!("{int}")),
        UserVarValue::Decimal { precision, scale, bytes } => {
            put(
                text,
                format_args!(
                    "{}",
                    crate::row_event::decimal_value::Decimal::parse(bytes, *precision, *scale)?
                ),
            );
        }
        UserVarValue::String { bytes, collation } => {
            let Some(charset) = super::charset::character_set(*collation) else {
                let reason = format!("Tailwater does not know the collation {collation}");
                return Err(refused("a user variable", &reason));
            };
            put(text, format_args!("_{charset} X'"));
            bytes.iter().for_each(|byte| put(text, format_args!("{byte:02X}")));
            text.push(b'\'');
            // If the target's flavour does not have the collation, leave it out. The target then uses the
            // default collation of the character set.
            if let Some(collation) = super::charset::collation_name(*collation, flavour) {
                put(text, format_args!(" COLLATE `{collation}`"));
            }
        }
    }
    Ok(())
}

/// Returns the statement that sets the session state of an event that precedes a statement (`INTVAR`, `RAND`,
/// `USER_VAR`), for a server of `flavour`.
///
/// # Errors
/// As [`session_statement`].
pub fn variable_statement(event: &EventBody<'_>, flavour: Flavour) -> Result<Vec<u8>, PrintError> {
    let mut text = Vec::new();
    put_other(&mut text, event, flavour)?;
    text.truncate(text.len().saturating_sub(END.len()));
    Ok(text)
}

/// Appends the session variables for row statements. With them, the server accepts every value and makes the
/// same checks as the source's session.
fn put_row_session(text: &mut Vec<u8>, event: &RowsEvent<'_>, flavour: Flavour) {
    let on = |flag: u16| u8::from(event.flags & flag == 0);
    put(
        text,
        format_args!(
            "{ROW_MODE}, @@session.foreign_key_checks={}, @@session.unique_checks={}",
            on(RowsEvent::FLAG_NO_FOREIGN_KEY_CHECKS),
            on(RowsEvent::FLAG_RELAXED_UNIQUE_CHECKS)
        ),
    );
    if flavour == Flavour::MariaDb {
        let checks = on(RowsEvent::FLAG_NO_CHECK_CONSTRAINT_CHECKS);
        put(text, format_args!(", @@session.check_constraint_checks={checks}"));
    }
    text.extend_from_slice(END);
}

fn put_row(
    text: &mut Vec<u8>,
    table: &TableMap,
    kind: RowsKind,
    row: &RowChange<'_>,
) -> Result<(), PrintError> {
    text.extend_from_slice(match kind {
        RowsKind::Write => b"INSERT INTO ",
        RowsKind::Update | RowsKind::PartialUpdate => b"UPDATE ",
        RowsKind::Delete => b"DELETE FROM ",
    });
    put_identifier(text, table.schema.as_bytes());
    text.push(b'.');
    put_identifier(text, table.table.as_bytes());
    match (row.before, row.after) {
        (None, Some(after)) => put_insert(text, &after),
        (Some(before), Some(after)) => {
            text.extend_from_slice(b" SET ");
            put_list(text, &after, LiteralUse::Assigned, Some(&before), ", ")?;
            put_where(text, &before)
        }
        (Some(before), None) => put_where(text, &before),
        (None, None) => Ok(()),
    }
}

fn put_insert(text: &mut Vec<u8>, after: &Image<'_>) -> Result<(), PrintError> {
    let columns = &after.table().columns;
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for cell in after.cells() {
        let cell = cell?;
        let Some(column) = columns.get(cell.index).filter(|column| is_written(column)) else { continue };
        if !names.is_empty() {
            names.push(b',');
            values.extend_from_slice(b", ");
        }
        put_column(&mut names, after.table(), column)?;
        put_value(&mut values, after.table(), column, &cell, None, LiteralUse::Assigned)?;
    }
    text.extend_from_slice(b" (");
    text.extend_from_slice(&names);
    text.extend_from_slice(b") VALUES (");
    text.extend_from_slice(&values);
    text.push(b')');
    Ok(())
}

/// Appends assignments such as `a=1, b='x'`, or conditions joined with ` AND `.
fn put_list(
    text: &mut Vec<u8>,
    image: &Image<'_>,
    how: LiteralUse,
    before: Option<&Image<'_>>,
    separator: &str,
) -> Result<(), PrintError> {
    let columns = &image.table().columns;
    let key = match how {
        LiteralUse::Compared => key_of(image),
        LiteralUse::Assigned => None,
    };
    let mut first = true;
    for cell in image.cells() {
        let cell = cell?;
        let Some(column) = columns.get(cell.index).filter(|column| is_written(column)) else { continue };
        if key.as_ref().is_some_and(|key| !key.contains(&cell.index)) {
            continue;
        }
        if !std::mem::take(&mut first) {
            text.extend_from_slice(separator.as_bytes());
        }
        put_column(text, image.table(), column)?;
        match (how, cell.raw) {
            (LiteralUse::Compared, None) => text.extend_from_slice(b" IS NULL"),
            _ => {
                text.push(b'=');
                put_value(text, image.table(), column, &cell, before, how)?;
            }
        }
    }
    if first {
        return Err(refused(&named(image.table()), "a row event without columns"));
    }
    Ok(())
}

fn put_where(text: &mut Vec<u8>, before: &Image<'_>) -> Result<(), PrintError> {
    text.extend_from_slice(b" WHERE ");
    put_list(text, before, LiteralUse::Compared, None, " AND ")?;
    if key_of(before).is_none() {
        text.extend_from_slice(b" LIMIT 1");
    }
    Ok(())
}

/// Returns the columns of the primary key. Returns `None` if the key is not known or has prefix columns, or
/// if the image lacks one of its columns.
fn key_of(image: &Image<'_>) -> Option<Vec<usize>> {
    let key = image.table().metadata.primary_key.as_ref()?;
    let whole = key.iter().all(|part| part.prefix == 0 && image.has(usize::from(part.column)));
    whole.then(|| key.iter().map(|part| usize::from(part.column)).collect())
}

/// Returns whether a statement can write the column. It cannot write the hidden columns in which MySQL stores
/// the arrays of multi-valued indexes.
fn is_written(column: &BinlogColumn) -> bool {
    !matches!(column.column_type, ColumnType::TypedArray { .. })
}

fn put_column(text: &mut Vec<u8>, table: &TableMap, column: &BinlogColumn) -> Result<(), PrintError> {
    match &column.name {
        Some(name) => {
            put_identifier(text, name.as_bytes());
            Ok(())
        }
        None => Err(refused(
            &named(table),
            "the binlog does not hold the names of the table's columns; set binlog_row_metadata=FULL on the source",
        )),
    }
}

fn named(table: &TableMap) -> String {
    format!("a row of {}.{}", table.schema, table.table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerId;
    use crate::binlog_event::{ChecksumAlgorithm, EventBuilder, EventType, FormatDescription};

    /// Builds a table map with `n INT` and `t VARCHAR(10)` in latin1. If `full`, the metadata names the
    /// primary key `n`.
    fn table_map(full: bool) -> Vec<u8> {
        let mut body = b"\x07\0\0\0\0\0\x01\0\x01s\0\x01t\0\x02\x03\x0f\x02\x0a\0\x02".to_vec();
        if full {
            body.extend_from_slice(b"\x01\x01\0\x02\x01\x08\x04\x04\x01n\x01t\x08\x01\0");
        }
        body
    }

    fn printed(full: bool, rows: &[u8]) -> Result<String, PrintError> {
        let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
        let format = FormatDescription::assumed(Flavour::MariaDb, ChecksumAlgorithm::Off);
        let (mut printer, mut out) = (SqlPrinter::new(), Vec::new());
        let events = [
            builder.format_description(&format, 0)?,
            builder.event(EventType::TABLE_MAP, 0, &table_map(full))?,
            builder.event(EventType::UPDATE_ROWS_V1, 0, rows)?,
        ];
        for event in events {
            printer.event(EventLocation { file: "f", offset: 4 }, &event, &mut out)?;
        }
        printer.end(&mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Returns the output for a binlog without GTID events. The printer leaves out statements that failed on
    /// the source.
    fn printed_without_gtids(statements: &[&[u8]]) -> String {
        let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let (mut printer, mut out) = (SqlPrinter::new(), Vec::new());
        let place = EventLocation { file: "f", offset: 4 };
        let mut events = vec![builder.format_description(&format, 0).unwrap()];
        for text in statements {
            let mut body = b"\x01\0\0\0\0\0\0\0\0".to_vec();
            // Error 1317 means that the statement was interrupted.
            body.extend_from_slice(if text.starts_with(b"half ") { b"\x25\x05" } else { b"\0\0" });
            body.extend_from_slice(b"\0\0\0");
            body.extend_from_slice(text);
            events.push(builder.event(EventType::QUERY, 0, &body).unwrap());
        }
        for event in &events {
            if let Err(error) = printer.event(place, event, &mut out) {
                printer.print_skipped(&SkippedEvent { place, event, error: &error }, &mut out).unwrap();
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn without_gtids_only_the_failing_transaction_is_left_out() {
        let text = printed_without_gtids(&[b"half a", b"BEGIN", b"insert b", b"COMMIT", b"create c"]);
        assert!(text.contains("left out") && !text.contains("ROLLBACK"), "unexpected SQL output: {text}");
        assert!(
            text.contains("BEGIN") && text.contains("insert b") && text.contains("create c"),
            "unexpected SQL output: {text}"
        );
        let text = printed_without_gtids(&[
            b"BEGIN",
            b"half a",
            b"insert b",
            b"COMMIT",
            b"BEGIN",
            b"insert c",
            b"COMMIT",
        ]);
        assert!(
            text.contains("ROLLBACK") && !text.contains("insert b") && text.contains("insert c"),
            "unexpected SQL output: {text}"
        );
        assert_eq!(text.matches("COMMIT").count(), 1, "only one transaction must be committed: {text}");
        let text = printed_without_gtids(&[b"XA START X'61',X'',1", b"insert b", b"COMMIT", b"create c"]);
        assert!(!text.contains("insert b") && text.contains("create c"), "unexpected SQL output: {text}");
    }

    const UPDATE: &[u8] = b"\x07\0\0\0\0\0\x01\0\x02\x03\x03\0\x05\0\0\0\x02it\0\xfb\xff\xff\xff\x03\xe9's";

    #[test]
    fn rows_are_found_by_their_key_and_values_are_exact() {
        let text = printed(true, UPDATE).unwrap();
        let wanted = "UPDATE `s`.`t` SET `n`=-5, `t`=X'E92773' WHERE `n`=5\n/*!*/;\n";
        assert!(
            text.starts_with("DELIMITER /*!*/;\nSET @@session.sql_mode=") && text.ends_with("DELIMITER ;\n"),
            "unexpected SQL output: {text}"
        );
        assert!(text.contains(wanted), "unexpected SQL output: {text}");
    }

    #[test]
    fn rows_without_full_metadata_are_refused() {
        let error = printed(false, UPDATE).unwrap_err();
        assert_eq!(error.code(), "TW-WIRE-0007");
        assert!(
            error.to_string().contains("s.t") && error.to_string().contains("binlog_row_metadata"),
            "unexpected error: {error}"
        );
    }
}
