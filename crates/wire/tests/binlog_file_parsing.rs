//! Checks the parsers with binlog files of real servers. The `.sql` files in the fixture folder generated
//! these files. The parsers must accept every event. They must find the same transaction boundaries as the
//! servers' own tools.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    BINLOG_MAGIC, BinlogEvent, ChecksumAlgorithm, ChecksumChecker, EVENT_HEADER_BYTES, EventBody,
    EventHeader, EventType, FormatDescription, IntVar, PayloadLimits, StatusVars, UserVarValue,
    compressed_event,
};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};

const FILES: [&str; 6] = [
    "mysql-9.7",
    "mysql-9.7-plain",
    "mariadb-10.11",
    "mariadb-10.11-plain",
    "mariadb-11.8",
    "mariadb-11.8-plain",
];

const DECOMPRESSED_BYTES_MAX: usize = 1 << 20;

fn fixture(name: &str, extension: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/binlog");
    let path = folder.join(format!("{name}.{extension}"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn fixture_lines(name: &str, extension: &str) -> Vec<String> {
    String::from_utf8(fixture(name, extension)).unwrap().lines().map(str::to_owned).collect()
}

/// A binlog file, and the format description at its start.
struct File {
    bytes: Vec<u8>,
    format: FormatDescription,
}

impl File {
    fn read(name: &str) -> Self {
        let bytes = fixture(name, "binlog");
        assert!(bytes.starts_with(&BINLOG_MAGIC), "{name} lacks the binlog magic bytes");
        let assumed = FormatDescription::assumed(Flavour::MySql, ChecksumAlgorithm::Off);
        let length = EventHeader::parse(&bytes[4..]).unwrap().event_length as usize;
        let format = match BinlogEvent::parse(&bytes[4..4 + length], &assumed).unwrap().body {
            EventBody::FormatDescription(format) => format,
            other => panic!("{name} begins with {other:?} instead of a format description event"),
        };
        Self { bytes, format }
    }

    /// Iterates over the events: the position, the header and the bytes of each.
    fn raw_events(&self) -> impl Iterator<Item = (u64, EventHeader, &[u8])> {
        let mut position = BINLOG_MAGIC.len();
        std::iter::from_fn(move || {
            let rest = self.bytes.get(position..).filter(|rest| !rest.is_empty())?;
            let header = EventHeader::parse(rest).unwrap();
            let event = (position as u64, header, &rest[..header.event_length as usize]);
            position += header.event_length as usize;
            Some(event)
        })
    }

    fn parse<'a>(&self, position: u64, bytes: &'a [u8]) -> BinlogEvent<'a> {
        BinlogEvent::parse(bytes, &self.format)
            .unwrap_or_else(|error| panic!("cannot parse the event at {position}: {error}"))
    }
}

/// The parser finds the same events as `SHOW BINLOG EVENTS`, including events inside compressed transactions.
#[test]
fn events_equal_those_of_show_binlog_events() {
    for name in FILES {
        let file = File::read(name);
        let mut listed = Vec::new();
        let mut list = |begin: u64, end: u32, event_type| {
            listed.push(format!("{begin} {end} {}", server_name(event_type)));
        };
        for (position, header, bytes) in file.raw_events() {
            list(position, header.end_log_pos, header.event_type);
            if let EventBody::TransactionPayload(payload) = file.parse(position, bytes).body {
                let mut events = payload.events(PayloadLimits::default()).unwrap();
                while let Some(inner) = events.next_event().unwrap() {
                    let inner_header = EventHeader::parse(inner).unwrap();
                    let body = EventBody::parse(&inner_header, &inner[EVENT_HEADER_BYTES..], &file.format);
                    body.unwrap_or_else(|error| {
                        panic!(
                            "{name}: cannot parse an event of the transaction payload at {position}: {error}"
                        )
                    });
                    // Events inside a transaction payload have no position of their own. For them, the server
                    // shows the end position of the payload event.
                    let end = header.end_log_pos;
                    list(u64::from(end), end, inner_header.event_type);
                }
            }
        }
        assert_eq!(
            listed,
            fixture_lines(name, "events"),
            "the events of {name} differ from those of SHOW BINLOG EVENTS"
        );
    }
}

/// Returns the name of the event type in the server that wrote the file.
fn server_name(event_type: EventType) -> String {
    match event_type {
        EventType::MARIADB_GTID => "Gtid".to_owned(),
        other => other.to_string(),
    }
}

#[test]
fn transaction_boundaries_equal_those_of_the_servers_tools() {
    // The tracker must give the same result if it gets only a prefix of each event.
    for prefix_bytes in [TransactionTracker::PREFIX_BYTES, usize::MAX] {
        for name in FILES {
            let file = File::read(name);
            let mut tracker = TransactionTracker::new(file.format.flavour());
            let (mut found, mut open) = (Vec::new(), None);
            for (position, header, bytes) in file.raw_events() {
                let body = &bytes[EVENT_HEADER_BYTES..];
                let step = tracker.observe(&header, &body[..body.len().min(prefix_bytes)], &file.format);
                match step.unwrap_or_else(|error| {
                    panic!("{name}: the tracker refuses the event at {position}: {error}")
                }) {
                    TransactionStep::Begin(start) => open = Some((position, start)),
                    TransactionStep::End => {
                        let (begin, start) = open.take().unwrap();
                        let end = position + u64::from(header.event_length);
                        let gtid = start.gtid.map_or("-".to_owned(), |gtid| gtid.to_string());
                        found.push(format!("{begin} {end} {gtid}"));
                    }
                    TransactionStep::Outside => assert!(
                        open.is_none(),
                        "{name}: the event at {position} is outside of transactions, but a transaction is open"
                    ),
                    TransactionStep::Inside => assert!(
                        open.is_some(),
                        "{name}: the event at {position} is inside a transaction, but no transaction is open"
                    ),
                    TransactionStep::Abandoned => {
                        panic!("{name}: the event at {position} abandons a transaction")
                    }
                }
            }
            assert!(!tracker.in_transaction(), "{name} ends inside a transaction");
            assert_eq!(
                found,
                fixture_lines(name, "transactions"),
                "the transactions of {name} differ from those of the server's tool"
            );
        }
    }
}

/// The fixture files must hold every event type that a test can make a server write.
#[test]
fn the_files_hold_every_event_type_a_server_can_be_made_to_write() {
    let mut seen = BTreeSet::new();
    for name in FILES {
        let file = File::read(name);
        seen.extend(file.raw_events().map(|(_, header, _)| header.event_type.0));
    }
    for event_type in [
        EventType::QUERY,
        EventType::ROTATE,
        EventType::INTVAR,
        EventType::RAND,
        EventType::USER_VAR,
        EventType::FORMAT_DESCRIPTION,
        EventType::XID,
        EventType::BEGIN_LOAD_QUERY,
        EventType::EXECUTE_LOAD_QUERY,
        EventType::TABLE_MAP,
        EventType::WRITE_ROWS_V1,
        EventType::UPDATE_ROWS_V1,
        EventType::DELETE_ROWS_V1,
        EventType::INCIDENT,
        EventType::ROWS_QUERY,
        EventType::WRITE_ROWS_V2,
        EventType::UPDATE_ROWS_V2,
        EventType::DELETE_ROWS_V2,
        EventType::GTID,
        EventType::ANONYMOUS_GTID,
        EventType::PREVIOUS_GTIDS,
        EventType::XA_PREPARE,
        EventType::PARTIAL_UPDATE_ROWS,
        EventType::TRANSACTION_PAYLOAD,
        EventType::GTID_TAGGED,
        EventType::MARIADB_ANNOTATE_ROWS,
        EventType::MARIADB_BINLOG_CHECKPOINT,
        EventType::MARIADB_GTID,
        EventType::MARIADB_GTID_LIST,
        EventType::MARIADB_QUERY_COMPRESSED,
        EventType::MARIADB_WRITE_ROWS_COMPRESSED_V1,
        EventType::MARIADB_UPDATE_ROWS_COMPRESSED_V1,
        EventType::MARIADB_DELETE_ROWS_COMPRESSED_V1,
    ] {
        assert!(seen.contains(&event_type.0), "no fixture file has an event of type {event_type:?}");
    }
}

/// Encoding a parsed event body gives the bytes that the server wrote. Compressed bodies can be decompressed.
#[test]
fn encoded_bodies_equal_the_servers_bytes() {
    for name in FILES {
        let file = File::read(name);
        let mut compared = 0;
        for (position, header, bytes) in file.raw_events() {
            let trailer = file.format.trailer_bytes(&header);
            let body = &bytes[EVENT_HEADER_BYTES..bytes.len() - trailer];
            let written = match file.parse(position, bytes).body {
                EventBody::FormatDescription(format) => format.to_body(),
                EventBody::Rotate(rotate) => rotate.to_body(),
                EventBody::Gtid(gtid) if header.event_type != EventType::GTID_TAGGED => gtid.to_body(),
                EventBody::MariadbGtid(gtid) => gtid.to_body(),
                EventBody::MariadbGtidList(list) => list.encode().unwrap(),
                EventBody::Query(query) if query.compressed => {
                    let statement = query.statement(DECOMPRESSED_BYTES_MAX).unwrap();
                    // A very short statement is longer when it is compressed.
                    assert!(
                        statement.is_ascii() && statement.len() > 10,
                        "the statement at {position} is decompressed wrongly"
                    );
                    continue;
                }
                EventBody::Query(query) => query.to_body(),
                EventBody::Rows(rows) if rows.compressed => {
                    let mut plain = Vec::new();
                    let plain_type = compressed_event::decompress_body(
                        header.event_type,
                        body,
                        &file.format,
                        DECOMPRESSED_BYTES_MAX,
                        &mut plain,
                    );
                    assert!(
                        matches!(plain_type, Ok(EventType(23..=25))),
                        "the row event at {position} has a wrong type after decompression: {plain_type:?}"
                    );
                    assert_eq!(
                        rows.images(DECOMPRESSED_BYTES_MAX).unwrap().as_ref(),
                        &plain[body.len() - rows.rows.len()..]
                    );
                    continue;
                }
                _ => continue,
            };
            assert_eq!(
                written, body,
                "{name}: the {} at {position} is encoded differently than by the server",
                header.event_type
            );
            compared += 1;
        }
        assert!(compared > 8, "{name}: only {compared} events were compared");
    }
}

#[test]
fn all_session_variables_are_parsed() {
    for name in FILES {
        let file = File::read(name);
        let (mut time_zones, mut increments, mut invokers) = (BTreeSet::new(), 0, 0);
        for (position, _, bytes) in file.raw_events() {
            let query = match file.parse(position, bytes).body {
                EventBody::Query(query) => query,
                EventBody::ExecuteLoadQuery(load) => {
                    let name = &load.query.query[load.file_name_start as usize..load.file_name_end as usize];
                    assert!(name.windows(6).any(|part| part == b"INFILE"), "{}", name.escape_ascii());
                    load.query
                }
                _ => continue,
            };
            let vars = query.status_vars().unwrap_or_else(|error| {
                panic!(
                    "{name}: cannot parse the status variables at {position}: {error}: {}",
                    query.status_vars_bytes.escape_ascii()
                )
            });
            assert_eq!(vars.unknown, b"", "{name}: the event at {position} has unknown status variables");
            assert!(
                vars.charset.is_some() && vars.catalog == Some(b"std"),
                "{name}: the event at {position} has no charset, or not the catalog `std`"
            );
            time_zones.extend(vars.time_zone.map(<[u8]>::to_vec));
            increments += u32::from(vars.auto_increment.is_some());
            invokers += u32::from(vars.invoker.is_some_and(|invoker| invoker.user == b"root"));
            if query.query.starts_with(b"drop function f") {
                assert_eq!(vars.flags2.unwrap() & StatusVars::OPTION_NO_FOREIGN_KEY_CHECKS, 0);
            }
        }
        if !name.ends_with("plain") {
            assert!(time_zones.contains(&b"+03:00"[..]), "{name}: time zones {time_zones:?} lack +03:00");
            assert!(
                increments > 0 && invokers > 0,
                "{name}: the file has only {increments} auto-increment settings and {invokers} invokers"
            );
        }
    }
}

#[test]
fn statement_values_are_parsed() {
    for name in ["mysql-9.7", "mariadb-10.11", "mariadb-11.8"] {
        let file = File::read(name);
        let mut text = Vec::new();
        let mut inserted = BTreeSet::new();
        for (position, _, bytes) in file.raw_events() {
            match file.parse(position, bytes).body {
                EventBody::UserVar(var) => {
                    let value = match var.value {
                        UserVarValue::Null => "null".to_owned(),
                        UserVarValue::String { bytes, .. } => String::from_utf8(bytes.to_vec()).unwrap(),
                        UserVarValue::Real(value) => format!("{value:?}"),
                        UserVarValue::Int(value) => value.to_string(),
                        UserVarValue::Uint(value) => value.to_string(),
                        UserVarValue::Decimal { precision, scale, bytes } => {
                            format!("decimal({precision},{scale}) {}", bytes.escape_ascii())
                        }
                    };
                    text.push(format!("{}={value}", var.name.escape_ascii()));
                }
                EventBody::IntVar(var) => drop(inserted.insert(matches!(var, IntVar::InsertId(_)))),
                _ => {}
            }
        }
        for expected in
            ["text=grün", "int=-5", "uint=18446744073709551615", "real=15000000000.0", "null=null"]
        {
            assert!(
                text.iter().any(|line| line == expected),
                "{name}: the user variables {text:?} lack {expected}"
            );
        }
        assert!(
            text.iter().any(|line| line.starts_with("decimal=decimal(5,3) ")),
            "{name}: the user variables {text:?} lack a decimal(5,3)"
        );
        assert_eq!(inserted.len(), 2, "{name}: the file must have both LAST_INSERT_ID and INSERT_ID");
    }
}

/// MariaDB 11.8 writes the connection id into the GTID event. It must equal the connection id of the
/// statement that follows.
#[test]
fn mariadb_gtid_events_hold_the_connection_id() {
    for (name, writes_it) in [("mariadb-10.11", false), ("mariadb-11.8", true)] {
        let file = File::read(name);
        let (mut thread_id, mut compared) = (None, 0);
        for (position, _, bytes) in file.raw_events() {
            match file.parse(position, bytes).body {
                EventBody::MariadbGtid(gtid) => {
                    assert_eq!(
                        gtid.thread_id.is_some(),
                        writes_it,
                        "{name}: only files of MariaDB 11.8 must have connection ids in GTID events, unlike the event at {position}"
                    );
                    thread_id = gtid.thread_id;
                }
                // The event that ends a transaction on non-transactional tables has no connection id.
                EventBody::Query(query) if writes_it && query.query != b"COMMIT" => {
                    assert_eq!(
                        Some(query.thread_id),
                        thread_id,
                        "{name}: the connection ids of the query event at {position} and of its GTID event differ"
                    );
                    compared += 1;
                }
                _ => {}
            }
        }
        assert_eq!(
            compared > 20,
            writes_it,
            "{name}: an unexpected number of query events was compared: {compared}"
        );
    }
}

#[test]
fn the_checksum_detects_a_changed_byte() {
    for name in FILES {
        let file = File::read(name);
        let with_checksums = file.format.has_checksums();
        assert_eq!(
            with_checksums,
            !name.ends_with("plain"),
            "{name}: the events must have checksums, except in the `plain` files"
        );
        for (position, header, bytes) in file.raw_events() {
            // The format description event has a valid checksum even if other events have no checksum.
            if !with_checksums && header.event_type != EventType::FORMAT_DESCRIPTION {
                continue;
            }
            let mut damaged = bytes.to_vec();
            let at = EVENT_HEADER_BYTES + position as usize % (bytes.len() - EVENT_HEADER_BYTES);
            damaged[at] ^= 0x04;
            for (bytes, fits) in [(bytes, true), (&damaged, false)] {
                let mut checker = ChecksumChecker::new(bytes.len() as u64).unwrap();
                bytes.chunks(7).for_each(|chunk| checker.update(chunk));
                assert_eq!(
                    checker.finish().is_ok(),
                    fits,
                    "{name}: the checksum of the {} at {position} is verified wrongly",
                    header.event_type
                );
            }
        }
    }
}

/// Parsing a truncated event body, or a body with one changed byte, returns an error or another event. It
/// never panics.
#[test]
fn damaged_events_never_panic() {
    for name in FILES {
        let file = File::read(name);
        for (_, header, bytes) in file.raw_events() {
            let body = &bytes[EVENT_HEADER_BYTES..];
            for length in 0..body.len().min(2000) {
                let _ = EventBody::parse(&header, &body[..length], &file.format);
            }
            let mut damaged = body.to_vec();
            for at in 0..body.len().min(300) {
                for change in [0xff, 0x80, 0x01] {
                    damaged[at] ^= change;
                    if let Ok(EventBody::Query(query)) = EventBody::parse(&header, &damaged, &file.format) {
                        let _ = query.status_vars();
                    }
                    let mut tracker = TransactionTracker::new(file.format.flavour());
                    let _ = tracker.observe(&header, &damaged, &file.format);
                    damaged[at] ^= change;
                }
            }
        }
    }
}
