//! Prints events as text like `mysqlbinlog -vv --base64-output=decode-rows`.
//!
//! Rows look exactly as in the output of the flavour's own tool (`mysqlbinlog` or `mariadb-binlog`). Headers
//! and statements look almost the same. The output is only for reading. It does not restore session
//! variables, so do not replay it. Times are in UTC.

use std::io;

use super::event_text::{self, put_time};
use super::printer_state::PrintState;
use super::row_text::{put, write_image};
use super::{EventLocation, EventPrinter, PrintError, SkippedEvent, TableFilter, UNPACKED_BYTES_MAX};
use crate::binlog_event::{CHECKSUM_BYTES, EventBody, EventHeader, PayloadLimits, RowsEvent, RowsKind};
use crate::row_event::RowChangeIter;
use crate::sql_quote::put_identifier;

/// Prints events as text.
#[derive(Debug, Default)]
pub struct TextPrinter {
    stream: PrintState,
    filter: TableFilter,
    rows_only: bool,
    /// The text of a statement, if the printer has a filter. The printer holds it back until it knows which
    /// tables the statement changes.
    annotation: Vec<u8>,
    /// The default database of the last statement.
    database: Vec<u8>,
}

impl TextPrinter {
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

    /// Writes text that is not a row. Writes nothing if the printer prints only rows.
    fn put_beside(&self, text: &[u8], out: &mut dyn io::Write) -> io::Result<()> {
        if self.rows_only { Ok(()) } else { out.write_all(text) }
    }

    fn print(
        &mut self,
        place: EventLocation<'_>,
        bytes: &[u8],
        inside: bool,
        out: &mut dyn io::Write,
    ) -> Result<(), PrintError> {
        let event = self.stream.parse(bytes, inside)?;
        let mut head = Vec::new();
        put(&mut head, format_args!("# at {}\n", place.offset));
        self.put_header(&mut head, &event.header, bytes, inside);
        match &event.body {
            EventBody::TableMap(body) => {
                let table = self.stream.map_table(body)?;
                if self.filter.shows(&table.schema, &table.table) {
                    event_text::put_table_map(&mut head, table);
                    let annotation = std::mem::take(&mut self.annotation);
                    self.put_beside(&annotation, out)?;
                    self.put_beside(&head, out)?;
                }
            }
            EventBody::Rows(rows) => {
                let table = self.stream.table_of(rows)?;
                if table.is_none_or(|table| self.filter.shows(&table.schema, &table.table)) {
                    event_text::put_rows_head(&mut head, rows, self.stream.flavour());
                    self.put_beside(&head, out)?;
                    self.print_rows(rows, out)?;
                }
                if rows.ends_statement() {
                    self.stream.end_statement();
                    self.annotation.clear();
                }
            }
            EventBody::RowsQuery(_) | EventBody::AnnotateRows(_) if self.filter.is_active() => {
                event_text::put_body(&mut head, &event, &[], self.stream.flavour())?;
                self.annotation = head;
            }
            EventBody::TransactionPayload(payload) if !inside => {
                event_text::put_payload_head(&mut head, payload);
                head.extend_from_slice(b"# Start of compressed events.\n");
                self.put_beside(&head, out)?;
                let limits =
                    PayloadLimits { event_bytes_max: UNPACKED_BYTES_MAX as u64, ..PayloadLimits::default() };
                let mut events = payload.events(limits)?;
                while let Some(event) = events.next_event()? {
                    self.print(place, event, true, out)?;
                }
                self.put_beside(b"# End of compressed events.\n", out)?;
            }
            _ => {
                let mut use_line = Vec::new();
                if let EventBody::Query(query) = &event.body
                    && event_text::needs_use_statement(&event.header, query)
                    && query.database != self.database
                {
                    self.database = query.database.to_vec();
                    event_text::put_use(&mut use_line, query.database);
                }
                event_text::put_body(&mut head, &event, &use_line, self.stream.flavour())?;
                self.put_beside(&head, out)?;
            }
        }
        Ok(())
    }

    /// Appends `#261121 19:43:05 server id 1  end_log_pos 351 CRC32 0x8af03da7 ` without a line end.
    fn put_header(&self, out: &mut Vec<u8>, header: &EventHeader, bytes: &[u8], inside: bool) {
        out.push(b'#');
        put_time(out, header.timestamp);
        put(out, format_args!(" server id {}  end_log_pos {} ", header.server_id, header.end_log_pos));
        let checksum = bytes.len().checked_sub(CHECKSUM_BYTES).and_then(|at| bytes.get(at..));
        match checksum.map(<[u8; 4]>::try_from) {
            Some(Ok(checksum)) if !inside && self.stream.has_checksums() => {
                put(out, format_args!("CRC32 0x{:08x} ", u32::from_le_bytes(checksum)));
            }
            _ => {}
        }
    }

    fn print_rows(&self, event: &RowsEvent<'_>, out: &mut dyn io::Write) -> Result<(), PrintError> {
        let Some(table) = self.stream.table_of(event)? else { return Ok(()) };
        let images = event.images(UNPACKED_BYTES_MAX)?;
        let mut text = Vec::new();
        event_text::put_partition(&mut text, event);
        let (command, first, second) = match event.kind {
            RowsKind::Write => ("INSERT INTO", "SET", ""),
            RowsKind::Delete => ("DELETE FROM", "WHERE", ""),
            RowsKind::Update | RowsKind::PartialUpdate => ("UPDATE", "WHERE", "SET"),
        };
        for row in RowChangeIter::new(table, event, &images)? {
            let row = row?;
            put(&mut text, format_args!("### {command} "));
            put_identifier(&mut text, table.schema.as_bytes());
            text.push(b'.');
            put_identifier(&mut text, table.table.as_bytes());
            let sections = [row.before, row.after].into_iter().flatten().zip([first, second]);
            if event.kind == RowsKind::Write && images.is_empty() {
                text.extend_from_slice(b" VALUES ()\n");
            } else {
                text.push(b'\n');
                for (image, clause) in sections {
                    match image.is_empty() {
                        true => put(&mut text, format_args!("### {clause} /* no columns */\n")),
                        false => put(&mut text, format_args!("### {clause}\n")),
                    }
                    if let Err(error) = write_image(&mut text, &image) {
                        out.write_all(&text)?;
                        return Err(error.into());
                    }
                }
            }
            out.write_all(&text)?;
            text.clear();
        }
        Ok(())
    }
}

impl EventPrinter for TextPrinter {
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
        writeln!(out, "# {left_out}")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog_event::{
        ChecksumAlgorithm, EventBuilder, EventType, FormatDescription, GtidEvent, QueryEvent,
    };
    use crate::gtid::MysqlGtid;
    use crate::{Flavour, ServerId};

    /// Returns the output for events that follow a format description.
    fn print(flavour: Flavour, make: impl Fn(&mut EventBuilder) -> Vec<Vec<u8>>) -> String {
        let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
        let format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Off);
        let head = builder.format_description(&format, 0).unwrap();
        let (mut printer, mut out) = (TextPrinter::new(), Vec::new());
        printer.event(EventLocation { file: "f", offset: 4 }, &head, &mut out).unwrap();
        out.clear();
        for event in make(&mut builder) {
            printer.event(EventLocation { file: "f", offset: 100 }, &event, &mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn query<'a>(database: &'a [u8], query: &'a [u8]) -> QueryEvent<'a> {
        QueryEvent {
            thread_id: 5,
            execution_seconds: 0,
            error_code: 0,
            status_vars_bytes: &[],
            database,
            query,
            compressed: false,
        }
    }

    #[test]
    fn a_transaction_is_printed_like_mysqlbinlog() {
        let text = print(Flavour::MySql, |builder| {
            let gtid = MysqlGtid { uuid: [0x11; 16], tag: String::new(), number: 3 };
            let mut event = GtidEvent::parse(&[0; 25], true).unwrap();
            event.gtid = Some(gtid);
            event.logical_clock =
                Some(crate::binlog_event::LogicalClock { last_committed: 1, sequence_number: 2 });
            event.immediate_commit_time_us = Some(1_700_000_000_123_456);
            event.original_commit_time_us = event.immediate_commit_time_us;
            vec![
                builder.gtid(&event).unwrap(),
                builder.query(&query(b"a`b", b"INSERT INTO t\nVALUES (1)")).unwrap(),
                builder.query(&query(b"a`b", b"DELETE FROM t")).unwrap(),
                builder.xid(9).unwrap(),
            ]
        });
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("# at")).collect();
        let start = "#700101  0:00:00 server id 7  end_log_pos ";
        assert!(
            lines.iter().filter(|line| line.starts_with(start)).count() == 4,
            "unexpected output: {text}"
        );
        let rest: Vec<_> =
            lines.iter().map(|line| line.split_once(" \t").map_or(*line, |(_, rest)| rest)).collect();
        assert_eq!(
            rest,
            [
                "GTID\tlast_committed=1\tsequence_number=2\trbr_only=yes\toriginal_committed_timestamp=1700000000123456\t\
                 immediate_commit_timestamp=1700000000123456",
                "# original_commit_timestamp=1700000000123456 (2023-11-14 22:13:20.123456 UTC)",
                "# immediate_commit_timestamp=1700000000123456 (2023-11-14 22:13:20.123456 UTC)",
                "SET @@SESSION.GTID_NEXT= '11111111-1111-1111-1111-111111111111:3'/*!*/;",
                "Query\tthread_id=5\texec_time=0\terror_code=0",
                "use `a``b`/*!*/;",
                "SET TIMESTAMP=0/*!*/;",
                "INSERT INTO t",
                "VALUES (1)",
                "/*!*/;",
                "Query\tthread_id=5\texec_time=0\terror_code=0",
                "SET TIMESTAMP=0/*!*/;",
                "DELETE FROM t",
                "/*!*/;",
                "Xid = 9",
                "COMMIT/*!*/;",
            ]
        );
    }

    #[test]
    fn every_line_of_an_annotated_statement_is_a_comment() {
        let text = print(Flavour::MariaDb, |builder| {
            vec![builder.event(EventType::MARIADB_ANNOTATE_ROWS, 0, b"INSERT\nINTO t").unwrap()]
        });
        assert!(text.ends_with("\tAnnotate_rows:\n#Q> INSERT\n#Q> INTO t\n"), "unexpected output: {text}");
    }

    #[test]
    fn rows_of_a_table_without_a_table_map_are_an_error() {
        let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let head = builder.format_description(&format, 0).unwrap();
        let body = [9, 0, 0, 0, 0, 0, 1, 0, 2, 0, 1, 1, 0, 1];
        let rows = builder.event(EventType::WRITE_ROWS_V2, 0, &body).unwrap();
        let dummy = [0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 2, 0, 0];
        let dummy = builder.event(EventType::WRITE_ROWS_V2, 0, &dummy).unwrap();
        let (mut printer, mut out) = (TextPrinter::new(), Vec::new());
        let place = EventLocation { file: "f", offset: 4 };
        printer.event(place, &head, &mut out).unwrap();
        assert!(matches!(printer.event(place, &rows, &mut out), Err(PrintError::Event(_))));
        printer.event(place, &dummy, &mut out).unwrap();
    }

    #[test]
    fn a_skipped_event_is_named_on_one_line() {
        let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
        let format = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let head = builder.format_description(&format, 0).unwrap();
        let mut unknown = head.clone();
        unknown[4] = 0xee;
        let place = EventLocation { file: "binlog\n.000001", offset: 4 };
        let printers: [Box<dyn EventPrinter>; 3] = [
            Box::new(TextPrinter::new()),
            Box::new(crate::event_printer::json_lines_output::JsonPrinter::new()),
            Box::new(crate::event_printer::sql_output::SqlPrinter::new()),
        ];
        for (mut printer, begin) in printers.into_iter().zip(["# ", "{", "-- "]) {
            let mut out = Vec::new();
            printer.event(place, &head, &mut out).unwrap();
            let error = printer.event(place, &unknown, &mut out).unwrap_err();
            let start = out.len();
            printer.print_skipped(&SkippedEvent { place, event: &unknown, error: &error }, &mut out).unwrap();
            let line = String::from_utf8(out.split_off(start)).unwrap();
            assert!(
                line.starts_with(begin) && line.ends_with('\n') && line.lines().count() == 1,
                "unexpected line: {line}"
            );
            assert!(
                line.contains("Unknown(238) event at binlog") && line.contains("TW-WIRE-0003"),
                "unexpected line: {line}"
            );
            assert!(
                printer.event(place, &head, &mut out).is_ok(),
                "the printer must continue after a skipped event"
            );
        }
    }
}
