//! Checks of the printers: streams of events are printed as text, as JSON and as SQL.

use std::io;

use super::input_to_event_stream::for_each_event;
use crate::event_printer::{
    EventLocation, EventPrinter, PrintError, json_lines_output, mysqlbinlog_output, sql_output,
};

/// The maximum number of printed bytes per input. Without it, a compressed transaction could print much more
/// than the input.
const PRINTED_BYTES_MAX: usize = 1 << 20;

/// A writer that fails after a number of bytes.
struct LimitedOutput {
    bytes: Vec<u8>,
}

impl io::Write for LimitedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > PRINTED_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn check(data: &[u8]) {
    let (mut as_text, mut as_json, mut as_sql) = (
        mysqlbinlog_output::TextPrinter::new(),
        json_lines_output::JsonPrinter::new(),
        sql_output::SqlPrinter::new(),
    );
    let [mut text_page, mut json_page, mut sql_page] = [(); 3].map(|()| LimitedOutput { bytes: Vec::new() });
    let mut offset = 4;
    let mut json_is_whole = true;
    for_each_event(data, |_, _, event| {
        let place = EventLocation { file: "binlog.000001", offset };
        offset += event.len() as u64;
        let _ = as_text.event(place, event, &mut text_page);
        let _ = as_sql.event(place, event, &mut sql_page);
        // Lines are complete, unless the output reached its limit.
        if let Err(PrintError::Output(_)) = as_json.event(place, event, &mut json_page) {
            json_is_whole = false;
        }
    });
    if !json_is_whole {
        return;
    }
    let printed = std::str::from_utf8(&json_page.bytes).expect("printed JSON is UTF-8");
    assert!(printed.is_empty() || printed.ends_with('\n'), "a line of JSON must end with a line end");
    for line in printed.lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok_and(|value| value.is_object()), "a printed line is not a JSON object: {line}");
    }
}
