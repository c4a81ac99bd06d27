//! Compares printed rows line by line with the output of the servers' own tools, and JSON lines with the
//! inserted values. Then checks that the printer does not panic on the same files with random damage.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;
use tailwater_wire::binlog_event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader, EventType};
use tailwater_wire::event_printer::{
    EventLocation, EventPrinter, PrintError, TableFilter, json_lines_output, mysqlbinlog_output,
};

const FILES: [&str; 3] = ["mysql-9.7", "mariadb-10.11", "mariadb-11.8"];

fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rows").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Returns the events of a file with their offsets.
fn events(file: &[u8]) -> Vec<(u64, &[u8])> {
    let mut events = Vec::new();
    let mut offset = BINLOG_MAGIC.len();
    while offset < file.len() {
        let header = EventHeader::parse(&file[offset..]).unwrap();
        let end = offset + header.event_length as usize;
        events.push((offset as u64, &file[offset..end]));
        offset = end;
    }
    events
}

fn printed(printer: &mut dyn EventPrinter, name: &str) -> Vec<u8> {
    let file = fixture(&format!("{name}.binlog"));
    let mut out = Vec::new();
    for (offset, event) in events(&file) {
        let place = EventLocation { file: name, offset };
        printer
            .event(place, event, &mut out)
            .unwrap_or_else(|error| panic!("{name}: cannot print the event at {offset}: {error}"));
    }
    out
}

#[test]
fn rows_are_printed_like_those_of_the_servers_own_tools() {
    for name in FILES {
        let ours = printed(&mut mysqlbinlog_output::TextPrinter::new(), name);
        let expected = fixture(&format!("{name}.rows"));
        let mut expected = expected.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mut compared = 0;
        for line in ours.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"###")) {
            let theirs = expected.next().unwrap_or_default();
            let shown = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
            assert_eq!(
                shown(line),
                shown(theirs),
                "{name}: line {compared} of the printed rows differs from the tool's output"
            );
            assert_eq!(
                line, theirs,
                "{name}: line {compared} of the printed rows differs from the tool's output"
            );
            compared += 1;
        }
        assert_eq!(expected.next(), None, "{name}: the tool prints lines that Tailwater does not print");
        assert!(compared > 1000, "{name}: compared only {compared} lines");
    }
}

/// Returns the row changes of a table: for each, the name of the event, the before image and the after image.
fn json_rows(name: &str, table: &str) -> Vec<(String, Value, Value)> {
    let lines = printed(&mut json_lines_output::JsonPrinter::new(), name);
    let mut rows = Vec::new();
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line)
            .unwrap_or_else(|error| panic!("{error} in the JSON line {}", String::from_utf8_lossy(line)));
        assert!(line["event"].is_string() && line["offset"].is_u64() && line["file"] == name);
        let event = line["event"].as_str().unwrap_or_default();
        if line["table"] == table && matches!(event, "insert" | "update" | "delete") {
            rows.push((event.to_owned(), line["before"].clone(), line["after"].clone()));
        }
    }
    rows
}

#[test]
fn json_lines_hold_the_values_that_were_inserted() {
    for name in ["mysql-9.7", "mariadb-11.8"] {
        let ints = json_rows(name, "ints");
        let all_ones = r#"{"id":2,"t":127,"tu":255,"s":32767,"su":65535,"m":8388607,"mu":16777215,"i":2147483647,
            "iu":4294967295,"b":9223372036854775807,"bu":18446744073709551615,"bo":1,"z":4294967295}"#;
        assert_eq!(
            ints[1].2,
            serde_json::from_str::<Value>(all_ones).unwrap(),
            "{name}: the JSON row differs from the inserted values"
        );
        let temporals = json_rows(name, "temporals");
        assert_eq!(temporals[0].2["d"], "0000-00-00");
        assert_eq!(temporals[0].2["y"], 0);
        assert_eq!(temporals[1].2["t6"], "-838:59:58.999999");
        assert_eq!(temporals[3].2["t3"], "-00:00:00.001");
        assert_eq!(temporals[2].2["ts6"], "2038-01-19T03:14:07.999999Z");
        assert_eq!(temporals[2].2["dn"], "2023-02-31");
        let strings = json_rows(name, "strings");
        assert_eq!(strings[1].2["c255"], "日本語 😀");
        assert_eq!(strings[1].2["c100"], "ключ");
        assert_eq!(strings[1].2["c1"], "é");
        assert_eq!(strings[1].2["b4"]["base64"], "YWIAAA==");
        assert_eq!(strings[2].2["b4"]["base64"], "AAAAAA==");
        let enums = json_rows(name, "enums");
        assert_eq!(enums[1].2["e"], "it's");
        assert_eq!(enums[1].2["s8"], serde_json::json!(["1", "8"]));
        let decimals = json_rows(name, "decimals");
        assert_eq!(decimals[2].2["g"], "-0.999999999999999999999999999999");
    }
    let vectors = json_rows("mysql-9.7", "vectors");
    assert_eq!(vectors[0].2["v"], serde_json::json!([1.0, 2.0, 3.5]));
    let compressed = json_rows("mariadb-11.8", "compressed");
    assert_eq!(compressed[0].2["v"], "short");
    assert_eq!(compressed[0].2["vl"].as_str().map(|text| text.trim_end_matches('v')), Some(""));
    let late = json_rows("mariadb-11.8", "late");
    assert_eq!(late[1].2["ts3"], "2106-02-07T06:28:15.999Z");
}

#[test]
fn partial_updates_are_applied_to_the_before_image() {
    let rows = json_rows("mysql-9.7", "partial");
    let updates: Vec<_> = rows.iter().filter(|(event, ..)| event == "update").collect();
    // The before image of each update is the after image of the previous update of that row.
    let mut documents = std::collections::HashMap::new();
    let mut followed = 0;
    for (_, before, after) in updates {
        let id = before["id"].to_string();
        if let Some(made) = documents.insert(id, after.clone()) {
            assert_eq!(&made, before);
            followed += 1;
        }
        assert!(after["j"].get("json_diff").is_none());
    }
    assert!(followed > 8, "compared only {followed} updates");
    let fifth =
        rows.iter().filter(|(event, ..)| event == "update").nth(4).map(|(_, _, after)| after["j"].clone());
    let mut expected = serde_json::json!({"a": 3, "b": [10, "'", 3], "c": {"d": "short"}, "n3": 5});
    let fifth = fifth.unwrap();
    expected["pad"] = fifth["pad"].clone();
    assert_eq!(fifth, expected);
}

#[test]
fn a_filter_hides_the_rows_of_other_tables() {
    let filter = TableFilter { tables: vec![("tt".to_owned(), Some("bits".to_owned()))] };
    let lines = printed(&mut mysqlbinlog_output::TextPrinter::with_filter(filter), "mariadb-11.8");
    let lines = String::from_utf8_lossy(&lines);
    let headings: Vec<_> =
        lines.lines().filter(|line| line.starts_with("### ") && line.contains("`tt`.`")).collect();
    assert!(!headings.is_empty() && headings.iter().all(|line| line.ends_with("`tt`.`bits`")));
}

#[test]
fn events_before_a_format_description_are_refused() {
    let file = fixture("mysql-9.7.binlog");
    let (offset, event) = events(&file)[1];
    let place = EventLocation { file: "f", offset };
    let result = mysqlbinlog_output::TextPrinter::new().event(place, event, &mut Vec::new());
    assert!(matches!(result, Err(PrintError::Event(_))));
}

/// Returns the events without checksums, so that damaged bytes reach the parsers.
fn without_checksums(file: &[u8]) -> Vec<Vec<u8>> {
    let strip = |(_, event): (u64, &[u8])| {
        let mut event = event.to_vec();
        let header = EventHeader::parse(&event).unwrap();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            // Set this byte of the format description to "no checksum". The parser then verifies no checksum,
            // not even that of the format description.
            let algorithm = event.len() - 5;
            event[algorithm] = 0;
        } else {
            event.truncate(event.len() - 4);
        }
        let length = event.len() as u32;
        event[9..13].copy_from_slice(&length.to_le_bytes());
        event
    };
    events(file).into_iter().map(strip).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damaged_events_never_panic(
        file in proptest::sample::select(&FILES[..]),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut events = without_checksums(&fixture(&format!("{file}.binlog")));
        for (event, byte, value) in &damage {
            let index = 1 + event.index(events.len() - 1);
            let event = &mut events[index];
            if event.len() > EVENT_HEADER_BYTES {
                let at = EVENT_HEADER_BYTES + byte.index(event.len() - EVENT_HEADER_BYTES);
                event[at] = *value;
            }
        }
        let index = 1 + cut.index(events.len() - 1);
        let keep = EVENT_HEADER_BYTES + cut.index(events[index].len() - EVENT_HEADER_BYTES);
        events[index].truncate(keep);
        events[index][9..13].copy_from_slice(&(keep as u32).to_le_bytes());
        let (mut text, mut json) = (mysqlbinlog_output::TextPrinter::new(), json_lines_output::JsonPrinter::new());
        for event in &events {
            let place = EventLocation { file, offset: 4 };
            let _ = text.event(place, event, &mut std::io::sink());
            let _ = json.event(place, event, &mut std::io::sink());
        }
    }
}
