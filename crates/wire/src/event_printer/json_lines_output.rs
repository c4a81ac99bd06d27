//! Prints events as JSON, one object per line: one line for each event, and for row events one line for each
//! row.
//!
//! Columns have their names if the source logged them (`binlog_row_metadata=FULL`). Otherwise they are `@1`,
//! `@2`, ... Values are exact. A DECIMAL is a string of its digits, a TIMESTAMP is in UTC, and binary bytes
//! are `{"base64": "..."}`. A partial update is applied to the document in the before image. If the before
//! image lacks the document, the update is printed as `{"json_diff": [...]}`.

use std::fmt::Display;
use std::io;

use super::json_column_value;
use super::json_writer::JsonWriter;
use super::printer_state::PrintState;
use super::{EventLocation, EventPrinter, PrintError, SkippedEvent, TableFilter, UNPACKED_BYTES_MAX};
use crate::WireError;
use crate::binlog_event::{
    BinlogEvent, EventBody, EventHeader, IntVar, PayloadCompression, PayloadLimits, QueryEvent, RowsEvent,
    RowsKind, UserVarValue,
};
use crate::row_event::{RowChange, RowChangeIter, TableMap};

/// Prints events as lines of JSON.
#[derive(Debug, Default)]
pub struct JsonPrinter {
    stream: PrintState,
    filter: TableFilter,
    rows_only: bool,
    /// The line of a statement, if the printer has a filter. The printer holds it back until it knows which
    /// tables the statement changes.
    annotation: Vec<u8>,
}

impl JsonPrinter {
    /// Creates a printer for the rows of all tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a printer for the rows of some tables. The printer leaves out row events of other tables, and
    /// statements that change none of the selected tables. It prints all other events.
    pub fn with_filter(filter: TableFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Restricts the printer to rows.
    #[must_use]
    pub fn rows_only(self) -> Self {
        Self { rows_only: true, ..self }
    }

    /// Writes a line that is not a row. Writes nothing if the printer prints only rows.
    fn put_beside(&self, line: JsonLine, out: &mut dyn io::Write) -> io::Result<()> {
        if self.rows_only { Ok(()) } else { line.finish(out) }
    }

    fn print(
        &mut self,
        place: EventLocation<'_>,
        bytes: &[u8],
        inside: bool,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        let event = self.stream.parse(bytes, inside)?;
        match &event.body {
            EventBody::Rows(rows) => {
                self.print_rows(place, &event.header, rows, out)?;
                if rows.ends_statement() {
                    self.stream.end_statement();
                    self.annotation.clear();
                }
            }
            EventBody::TableMap(body) => {
                let table = self.stream.map_table(body)?;
                if self.filter.shows(&table.schema, &table.table) {
                    let mut line = JsonLine::new("table_map", place, &event.header);
                    put_table_map(&mut line.json, table);
                    let annotation = std::mem::take(&mut self.annotation);
                    if !self.rows_only {
                        out.write_all(&annotation)?;
                    }
                    self.put_beside(line, out)?;
                }
            }
            EventBody::RowsQuery(_) | EventBody::AnnotateRows(_) if self.filter.is_active() => {
                let mut line = JsonLine::new(name(&event), place, &event.header);
                put_body(&mut line, &event)?;
                self.annotation.clear();
                line.finish(&mut self.annotation)?;
            }
            EventBody::TransactionPayload(payload) if !inside => {
                let mut line = JsonLine::new("transaction_payload", place, &event.header);
                line.text(
                    "compression",
                    match payload.compression {
                        PayloadCompression::Zstd => "zstd",
                        PayloadCompression::None => "none",
                    },
                );
                line.number("payload_bytes", payload.payload_bytes);
                line.optional("uncompressed_bytes", payload.uncompressed_bytes);
                self.put_beside(line, out)?;
                let limits =
                    PayloadLimits { event_bytes_max: UNPACKED_BYTES_MAX as u64, ..PayloadLimits::default() };
                let mut events = payload.events(limits)?;
                while let Some(event) = events.next_event()? {
                    self.print(place, event, true, out)?;
                }
            }
            _ => {
                let mut line = JsonLine::new(name(&event), place, &event.header);
                put_body(&mut line, &event)?;
                self.put_beside(line, out)?;
            }
        }
        Ok(())
    }

    fn print_rows(
        &self,
        place: EventLocation<'_>,
        header: &EventHeader,
        event: &RowsEvent<'_>,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        let Some(table) = self.stream.table_of(event)? else { return Ok(()) };
        if !self.filter.shows(&table.schema, &table.table) {
            return Ok(());
        }
        let name = match event.kind {
            RowsKind::Write => "insert",
            RowsKind::Update | RowsKind::PartialUpdate => "update",
            RowsKind::Delete => "delete",
        };
        let images = event.images(UNPACKED_BYTES_MAX)?;
        for (number, row) in RowChangeIter::new(table, event, &images)?.enumerate() {
            let RowChange { before, after } = row?;
            let mut line = JsonLine::new(name, place, header);
            line.text("schema", &table.schema);
            line.text("table", &table.table);
            line.number("row", number);
            for (key, image) in [("before", before), ("after", after)] {
                if let Some(image) = image {
                    line.json.key(key);
                    json_column_value::put_image(&mut line.json, &image, before.as_ref())?;
                }
            }
            line.finish(out)?;
        }
        Ok(())
    }
}

impl EventPrinter for JsonPrinter {
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
        let mut json = JsonWriter::default();
        json.begin('{');
        for (key, text) in
            [("event", "left_out"), ("file", left_out.place.file), ("code", left_out.error.code())]
        {
            json.key(key);
            json.string(text);
        }
        json.key("offset");
        json.plain(left_out.place.offset);
        json.key("reason");
        json.string(&left_out.to_string());
        json.end('}');
        let mut line = json.into_bytes();
        line.push(b'\n');
        out.write_all(&line)?;
        Ok(())
    }
}

/// The line that is being written: a JSON object that begins with the members that all events have.
struct JsonLine {
    json: JsonWriter,
}

impl JsonLine {
    fn new(name: &str, place: EventLocation<'_>, header: &EventHeader) -> Self {
        let mut line = Self { json: JsonWriter::default() };
        line.json.begin('{');
        line.text("event", name);
        line.text("file", place.file);
        line.number("offset", place.offset);
        line.number("timestamp", header.timestamp);
        line.number("server_id", header.server_id);
        line.number("end_log_pos", header.end_log_pos);
        line
    }

    fn text(&mut self, key: &str, text: &str) {
        self.json.key(key);
        self.json.string(text);
    }

    /// Adds bytes that are expected to be text.
    fn bytes(&mut self, key: &str, bytes: &[u8]) {
        self.json.key(key);
        self.json.string_or_base64(bytes);
    }

    fn number(&mut self, key: &str, number: impl Display) {
        self.json.key(key);
        self.json.plain(number);
    }

    fn optional(&mut self, key: &str, number: Option<impl Display>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    fn finish(mut self, out: &mut dyn io::Write) -> io::Result<()> {
        self.json.end('}');
        let mut line = self.json.into_bytes();
        line.push(b'\n');
        out.write_all(&line)
    }
}

fn name(event: &BinlogEvent<'_>) -> &'static str {
    match &event.body {
        EventBody::FormatDescription(_) => "format_description",
        EventBody::Rotate(_) => "rotate",
        EventBody::Stop => "stop",
        EventBody::Query(_) => "query",
        EventBody::Xid(_) => "xid",
        EventBody::IntVar(_) => "intvar",
        EventBody::Rand(_) => "rand",
        EventBody::UserVar(_) => "user_var",
        EventBody::BeginLoadQuery(_) => "begin_load_query",
        EventBody::AppendBlock(_) => "append_block",
        EventBody::ExecuteLoadQuery(_) => "execute_load_query",
        EventBody::DeleteFile(_) => "delete_file",
        EventBody::Incident(_) => "incident",
        EventBody::Heartbeat(_) => "heartbeat",
        EventBody::RowsQuery(_) => "rows_query",
        EventBody::AnnotateRows(_) => "annotate_rows",
        EventBody::Gtid(_) | EventBody::MariadbGtid(_) => "gtid",
        EventBody::PreviousGtids(_) => "previous_gtids",
        EventBody::XaPrepare(_) => "xa_prepare",
        EventBody::TransactionContext(_) => "transaction_context",
        EventBody::ViewChange(_) => "view_change",
        EventBody::PartialRowData(_) => "partial_row_data",
        EventBody::MariadbGtidList(_) => "gtid_list",
        EventBody::BinlogCheckpoint(_) => "binlog_checkpoint",
        EventBody::StartEncryption(_) => "start_encryption",
        EventBody::Ignorable(_) => "ignorable",
        _ => "other",
    }
}

/// Adds the members of an event's body.
fn put_body(line: &mut JsonLine, event: &BinlogEvent<'_>) -> Result<(), WireError> {
    match &event.body {
        EventBody::FormatDescription(format) => {
            line.text("server_version", &format.server_version);
            line.text("flavour", &format.flavour().to_string());
            line.number("binlog_version", format.binlog_version);
            line.number("checksums", format.has_checksums());
        }
        EventBody::Rotate(rotate) => {
            line.bytes("next_file", rotate.file_name);
            line.number("next_position", rotate.position);
        }
        EventBody::Query(query) => put_query(line, query)?,
        EventBody::Xid(xid) => line.number("xid", xid),
        EventBody::IntVar(IntVar::InsertId(value)) => line.number("insert_id", value),
        EventBody::IntVar(IntVar::LastInsertId(value)) => line.number("last_insert_id", value),
        EventBody::Rand(seeds) => {
            line.number("seed1", seeds.0);
            line.number("seed2", seeds.1);
        }
        EventBody::UserVar(variable) => {
            line.bytes("name", variable.name);
            line.json.key("value");
            put_user_value(&mut line.json, &variable.value);
        }
        EventBody::BeginLoadQuery(block) | EventBody::AppendBlock(block) => {
            line.number("file_id", block.file_id);
            line.number("block_bytes", block.data.len());
        }
        EventBody::ExecuteLoadQuery(load) => {
            line.number("file_id", load.file_id);
            put_query(line, &load.query)?;
        }
        EventBody::DeleteFile(file_id) => line.number("file_id", file_id),
        EventBody::Incident(incident) => {
            line.number("kind", incident.kind);
            line.bytes("message", incident.message);
        }
        EventBody::Heartbeat(heartbeat) => {
            line.bytes("source_file", heartbeat.file_name);
            line.number("source_position", heartbeat.position);
        }
        EventBody::RowsQuery(statement) | EventBody::AnnotateRows(statement) => {
            line.bytes("statement", statement)
        }
        EventBody::Gtid(gtid) => {
            if let Some(gtid) = &gtid.gtid {
                line.text("gtid", &gtid.to_string());
            }
            if let Some(clock) = gtid.logical_clock {
                line.number("last_committed", clock.last_committed);
                line.number("sequence_number", clock.sequence_number);
            }
            line.optional("original_commit_time_us", gtid.original_commit_time_us);
            line.optional("immediate_commit_time_us", gtid.immediate_commit_time_us);
            line.optional("transaction_bytes", gtid.transaction_bytes);
        }
        EventBody::MariadbGtid(gtid) => {
            line.text("gtid", &gtid.gtid.to_string());
            line.number("flags", gtid.flags);
            line.optional("commit_id", gtid.commit_id);
            line.optional("thread_id", gtid.thread_id);
        }
        EventBody::PreviousGtids(set) => line.text("gtids", &set.to_string()),
        EventBody::MariadbGtidList(list) => line.text("gtids", &list.to_string()),
        EventBody::XaPrepare(prepare) => {
            line.bytes("gtrid", prepare.xid.gtrid);
            line.bytes("bqual", prepare.xid.bqual);
            line.number("format_id", prepare.xid.format_id.cast_signed());
            line.number("one_phase", prepare.one_phase);
        }
        EventBody::BinlogCheckpoint(file) => line.bytes("oldest_file", file),
        EventBody::PartialRowData(part) => {
            line.number("fragment", part.fragment);
            line.number("fragments", part.fragments);
            line.number("fragment_bytes", part.data.len());
        }
        EventBody::StartEncryption(encryption) => line.number("key_version", encryption.key_version),
        EventBody::Ignorable(body) => {
            line.number("type", event.header.event_type.0);
            line.number("body_bytes", body.len());
        }
        _ => {}
    }
    Ok(())
}

fn put_query(line: &mut JsonLine, query: &QueryEvent<'_>) -> Result<(), WireError> {
    line.bytes("schema", query.database);
    line.number("thread_id", query.thread_id);
    line.number("execution_seconds", query.execution_seconds);
    line.number("error_code", query.error_code);
    line.bytes("statement", &query.statement(UNPACKED_BYTES_MAX)?);
    Ok(())
}

fn put_user_value(json: &mut JsonWriter, value: &UserVarValue<'_>) {
    match value {
        UserVarValue::Null => json.plain("null"),
        UserVarValue::Real(real) => json.float(*real),
        UserVarValue::Int(int) => json.plain(int),
        UserVarValue::Uint(int) => json.plain(int),
        UserVarValue::Decimal { precision, scale, bytes } => {
            match crate::row_event::decimal_value::Decimal::parse(bytes, *precision, *scale) {
                Ok(decimal) => json.string(&decimal.to_string()),
                Err(_) => json.base64(bytes),
            }
        }
        UserVarValue::String { bytes, collation } => {
            json_column_value::put_text(json, bytes, Some(*collation))
        }
    }
}

fn put_table_map(json: &mut JsonWriter, table: &TableMap) {
    json.key("schema");
    json.string(&table.schema);
    json.key("table");
    json.string(&table.table);
    json.key("table_id");
    json.plain(table.table_id);
    json.key("columns");
    json.begin('[');
    for (index, column) in table.columns.iter().enumerate() {
        json.item();
        json.begin('{');
        json.key("name");
        json.string(&json_column_value::column_name(column, index));
        json.key("type");
        json.string(&column.column_type.to_string());
        json.key("nullable");
        json.plain(column.nullable);
        if let Some(unsigned) = column.unsigned {
            json.key("unsigned");
            json.plain(unsigned);
        }
        if let Some(collation) = column.collation {
            json.key("collation");
            json.plain(collation);
        }
        json.end('}');
    }
    json.end(']');
    if let Some(key) = &table.metadata.primary_key {
        json.key("primary_key");
        json.begin('[');
        for part in key {
            json.item();
            let index = usize::from(part.column);
            json.string(
                &table
                    .columns
                    .get(index)
                    .map_or_else(String::new, |column| json_column_value::column_name(column, index)),
            );
        }
        json.end(']');
    }
}
