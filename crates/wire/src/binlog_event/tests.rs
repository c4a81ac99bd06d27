//! Tests that event bodies survive a round trip, that transaction payloads can arrive in chunks, and that no
//! parser panics.

use proptest::prelude::*;

use super::*;
use crate::gtid::{MariadbGtid, MariadbGtidList, MysqlGtid, MysqlGtidSet};
use crate::{Flavour, ServerId, WireError};

fn format(flavour: Flavour) -> FormatDescription {
    FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32)
}

/// Returns the body of an event that a test built.
fn parse<'a>(bytes: &'a [u8], format: &FormatDescription) -> EventBody<'a> {
    BinlogEvent::parse(bytes, format).unwrap().body
}

#[test]
fn built_events_parse_to_the_same_values() {
    let mut builder = EventBuilder::new(ServerId(7), ChecksumAlgorithm::Off);
    builder.timestamp = 1_700_000_000;
    let mysql = format(Flavour::MySql);
    let head = builder.format_description(&mysql, EventHeader::FLAG_BINLOG_IN_USE).unwrap();
    assert_eq!(parse(&head, &mysql), EventBody::FormatDescription(mysql.clone()));
    assert_eq!(builder.position(), 4 + head.len() as u64);

    let rotate = Rotate { position: 4, file_name: b"binlog.000002" };
    let bytes = builder.rotate(rotate).unwrap();
    let event = BinlogEvent::parse(&bytes, &mysql).unwrap();
    assert_eq!(event.body, EventBody::Rotate(rotate));
    assert_eq!(u64::from(event.header.end_log_pos), builder.position());
    assert_eq!((event.header.server_id, event.header.timestamp), (ServerId(7), 1_700_000_000));
    let before = builder.position();
    let bytes = builder.fake_rotate(rotate).unwrap();
    let event = BinlogEvent::parse(&bytes, &mysql).unwrap();
    assert!(event.header.is_artificial() && event.header.end_log_pos == 0);
    assert_eq!(builder.position(), before);

    let query = QueryEvent {
        thread_id: 3,
        execution_seconds: 1,
        error_code: 1062,
        status_vars_bytes: b"\x00\x00\x00\x00\x00",
        database: b"shop",
        query: b"BEGIN",
        compressed: false,
    };
    let bytes = builder.query(&query).unwrap();
    assert_eq!(parse(&bytes, &mysql), EventBody::Query(query));
    let bytes = builder.xid(u64::MAX).unwrap();
    assert_eq!(parse(&bytes, &mysql), EventBody::Xid(u64::MAX));
    assert_eq!(parse(&builder.stop().unwrap(), &mysql), EventBody::Stop);

    let set = MysqlGtidSet::parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7").unwrap();
    let bytes = builder.previous_gtids(&set).unwrap();
    assert_eq!(parse(&bytes, &mysql), EventBody::PreviousGtids(set));
    let list = MariadbGtidList::parse("0-1-100,1-2-5").unwrap();
    let bytes = builder.mariadb_gtid_list(&list).unwrap();
    assert_eq!(parse(&bytes, &format(Flavour::MariaDb)), EventBody::MariadbGtidList(list));
}

#[test]
fn heartbeats_carry_positions_of_any_size() {
    let mysql = format(Flavour::MySql);
    let builder = || EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32);
    for position in [4, 1 << 31, u64::from(u32::MAX), 1 << 32, 1 << 40] {
        let heartbeat = Heartbeat { file_name: b"binlog.000009", position };
        let bytes = builder().heartbeat(heartbeat).unwrap();
        assert_eq!(parse(&bytes, &mysql), EventBody::Heartbeat(heartbeat));
        let bytes = builder().heartbeat_v2(heartbeat).unwrap();
        assert_eq!(parse(&bytes, &mysql), EventBody::Heartbeat(heartbeat));
    }
    let nameless = builder().heartbeat_v2(Heartbeat { file_name: b"", position: 4 }).unwrap();
    assert!(matches!(BinlogEvent::parse(&nameless, &mysql), Err(WireError::Malformed { .. })));
}

#[test]
fn an_event_must_have_its_stated_length_and_checksum() {
    let mysql = format(Flavour::MySql);
    let mut bytes = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32).xid(5).unwrap();
    assert!(matches!(
        BinlogEvent::parse(&bytes[..bytes.len() - 1], &mysql),
        Err(WireError::Malformed { .. })
    ));
    bytes[20] ^= 1;
    assert!(matches!(BinlogEvent::parse(&bytes, &mysql), Err(WireError::Checksum { .. })));
}

#[test]
fn unknown_types_are_errors_unless_the_flag_allows_skipping() {
    let mysql = format(Flavour::MySql);
    let mut builder = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32);
    let bytes = builder.event(EventType(99), EventHeader::FLAG_IGNORABLE, b"what").unwrap();
    assert_eq!(parse(&bytes, &mysql), EventBody::Ignorable(b"what"));
    for event_type in [EventType(99), EventType::START_V3, EventType::PRE_GA_WRITE_ROWS, EventType::LOAD] {
        let bytes = builder.event(event_type, 0, b"what").unwrap();
        assert!(
            matches!(BinlogEvent::parse(&bytes, &mysql), Err(WireError::Unsupported { .. })),
            "the event type {event_type:?} was accepted"
        );
    }
}

/// Builds an event inside a payload, which has no checksum.
fn inner(event_type: EventType, body: &[u8]) -> Vec<u8> {
    EventBuilder::new(ServerId(1), ChecksumAlgorithm::Off).event(event_type, 0, body).unwrap()
}

fn payload_body(events: &[Vec<u8>], compression: PayloadCompression, stated: Option<u64>) -> Vec<u8> {
    let plain = events.concat();
    let payload = match compression {
        PayloadCompression::Zstd => zstd::encode_all(&plain[..], 3).unwrap(),
        PayloadCompression::None => plain,
    };
    let head = TransactionPayload {
        compression,
        uncompressed_bytes: stated,
        payload_bytes: payload.len() as u64,
        payload: &[],
    };
    [head.to_head(), payload].concat()
}

fn unpack(body: &[u8], limits: PayloadLimits) -> Result<Vec<Vec<u8>>, WireError> {
    let payload = TransactionPayload::parse(body)?;
    let mut events = payload.events(limits)?;
    let mut out = Vec::new();
    while let Some(event) = events.next_event()? {
        out.push(event.to_vec());
    }
    Ok(out)
}

#[test]
fn a_payload_returns_its_events() {
    let events = vec![
        inner(EventType::QUERY, b"begin"),
        inner(EventType::WRITE_ROWS_V2, &vec![7; 600_000]),
        inner(EventType::XID, &[1; 8]),
    ];
    let length = events.iter().map(Vec::len).sum::<usize>() as u64;
    for compression in [PayloadCompression::Zstd, PayloadCompression::None] {
        for stated in [None, Some(length)] {
            let body = payload_body(&events, compression, stated);
            assert_eq!(unpack(&body, PayloadLimits::default()).unwrap(), events);
            for cut in [0, 3, body.len() / 2, body.len() - 1] {
                assert!(
                    unpack(&body[..cut], PayloadLimits::default()).is_err(),
                    "a payload cut at {cut} was accepted"
                );
            }
        }
    }
    assert_eq!(
        unpack(&payload_body(&[], PayloadCompression::Zstd, Some(0)), PayloadLimits::default()),
        Ok(vec![])
    );
}

#[test]
fn a_payload_must_have_its_stated_length() {
    let events = vec![inner(EventType::QUERY, b"begin"), inner(EventType::XID, &[1; 8])];
    let length = events.iter().map(Vec::len).sum::<usize>() as u64;
    let body = |stated| payload_body(&events, PayloadCompression::Zstd, Some(stated));
    let limits = PayloadLimits::default();
    assert!(unpack(&body(length), limits).is_ok());
    assert!(matches!(unpack(&body(length - 1), limits), Err(WireError::TooLarge { .. })));
    assert!(matches!(unpack(&body(length + 1), limits), Err(WireError::Malformed { .. })));
    let small = PayloadLimits { total_bytes_max: length - 1, ..limits };
    assert!(matches!(unpack(&body(length), small), Err(WireError::TooLarge { .. })));
}

#[test]
fn a_decompression_bomb_stops_at_the_limit() {
    // The header states 4 GiB. The content is 64 MiB of zeros, which compress to a few KiB.
    let mut bomb = inner(EventType::WRITE_ROWS_V2, &vec![0; 64 << 20]);
    bomb[9..13].copy_from_slice(&u32::MAX.to_le_bytes());
    let body = payload_body(&[bomb.clone()], PayloadCompression::Zstd, None);
    assert!(body.len() < 64 << 10, "the compressed body has {} bytes", body.len());
    let limits = PayloadLimits { event_bytes_max: 1 << 20, total_bytes_max: 16 << 20 };
    assert!(matches!(unpack(&body, limits), Err(WireError::TooLarge { size_max: 0x10_0000, .. })));
    let limits = PayloadLimits { event_bytes_max: u64::MAX, total_bytes_max: 8 << 20 };
    let payload = TransactionPayload::parse(&body).unwrap();
    let mut events = payload.events(limits).unwrap();
    assert!(matches!(events.next_event(), Err(WireError::TooLarge { size_max: 0x80_0000, .. })));
    // Decompression of many small events also stops at the limit, even if the head states a wrong total
    // length.
    let many = vec![inner(EventType::XID, &[0; 8]); 100_000];
    let body = payload_body(&many, PayloadCompression::Zstd, Some(1000));
    assert!(matches!(unpack(&body, PayloadLimits::default()), Err(WireError::TooLarge { .. })));
}

#[test]
fn a_compressed_query_becomes_a_plain_one() {
    let mariadb = format(Flavour::MariaDb);
    let text = b"insert into t values (1)".repeat(20);
    let mut part = vec![0x82];
    part.extend_from_slice(&(text.len() as u16).to_be_bytes());
    let mut encoder = flate2::write::ZlibEncoder::new(part, flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &text).unwrap();
    let part = encoder.finish().unwrap();
    let mut query = QueryEvent {
        thread_id: 3,
        execution_seconds: 0,
        error_code: 0,
        status_vars_bytes: b"\x80\x01\x02\x03",
        database: b"shop",
        query: &part,
        compressed: true,
    };
    let body = query.to_body();
    let compressed_type = EventType::MARIADB_QUERY_COMPRESSED;
    assert_eq!(QueryEvent::parse(compressed_type, &body, &mariadb), Ok(query));
    assert_eq!(query.statement(1 << 20).unwrap(), text);
    assert!(matches!(query.statement(100), Err(WireError::TooLarge { .. })));
    let mut plain = Vec::new();
    let plain_type =
        compressed_event::decompress_body(compressed_type, &body, &mariadb, 1 << 20, &mut plain).unwrap();
    query.query = &text;
    query.compressed = false;
    assert_eq!(plain_type, EventType::QUERY);
    assert_eq!(QueryEvent::parse(plain_type, &plain, &mariadb), Ok(query));
}

fn any_gtid_event() -> impl Strategy<Value = GtidEvent> {
    let clock = (any::<i64>(), any::<i64>())
        .prop_map(|(last_committed, sequence_number)| LogicalClock { last_committed, sequence_number });
    let gtid = (any::<[u8; 16]>(), 1..i64::MAX as u64).prop_map(|(uuid, number)| MysqlGtid {
        uuid,
        tag: String::new(),
        number,
    });
    let times = (0..1u64 << 55, 0..1u64 << 55, any::<bool>());
    let versions = (0..900_000u32, proptest::option::of(0..900_000u32));
    let rest = (proptest::option::of(gtid), any::<u8>(), any::<u64>(), proptest::option::of(1..u64::MAX));
    (clock, times, versions, rest, 0..6usize).prop_map(|(clock, times, versions, rest, fields)| {
        let (gtid, flags, bytes, ticket) = rest;
        let original = if times.2 { times.0 } else { times.1 };
        GtidEvent {
            gtid,
            flags,
            logical_clock: (fields > 0).then_some(clock),
            immediate_commit_time_us: (fields > 1).then_some(times.0),
            original_commit_time_us: (fields > 1).then_some(original),
            transaction_bytes: (fields > 2).then_some(bytes),
            immediate_server_version: (fields > 3).then_some(versions.0),
            original_server_version: versions.1.filter(|_| fields > 3),
            commit_group_ticket: ticket.filter(|_| fields > 4),
        }
    })
}

proptest! {
    #[test]
    fn gtid_events_with_any_fields_round_trip(event in any_gtid_event()) {
        let anonymous = event.gtid.is_none();
        prop_assert_eq!(GtidEvent::parse(&event.to_body(), anonymous), Ok(event));
    }

    #[test]
    fn mariadb_gtid_events_round_trip(
        ids in any::<(u32, u32, u64)>(),
        flags in any::<u8>(),
        commit_id in proptest::option::of(any::<u64>()),
        xid in (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..64)),
        extra in 0u8..0x20,
        values in any::<(u8, u64, u32)>(),
    ) {
        let gtid = MariadbGtid { domain: ids.0, server_id: ids.1, sequence: ids.2 };
        let has_commit_id = commit_id.is_some();
        let flag = MariadbGtidEvent::FLAG_GROUP_COMMIT_ID;
        let with_xid = flags & (MariadbGtidEvent::FLAG_PREPARED_XA | MariadbGtidEvent::FLAG_COMPLETED_XA) != 0;
        let (gtrid, bqual) = xid.1.split_at(xid.1.len() / 2);
        let alter = MariadbGtidEvent::EXTRA_COMMIT_ALTER | MariadbGtidEvent::EXTRA_ROLLBACK_ALTER;
        let event = MariadbGtidEvent {
            gtid,
            flags: if has_commit_id { flags | flag } else { flags & !flag },
            commit_id,
            xid: with_xid.then_some(Xid { format_id: xid.0, gtrid, bqual }),
            flags_extra: extra,
            extra_engines: if extra & MariadbGtidEvent::EXTRA_MULTI_ENGINE != 0 { values.0 } else { 0 },
            start_alter_sequence: (extra & alter != 0).then_some(values.1),
            thread_id: (extra & MariadbGtidEvent::EXTRA_THREAD_ID != 0).then_some(values.2),
        };
        let mut builder = EventBuilder::new(ServerId(1), ChecksumAlgorithm::Crc32);
        let bytes = builder.mariadb_gtid(&event).unwrap();
        let parsed = BinlogEvent::parse(&bytes, &format(Flavour::MariaDb)).unwrap();
        prop_assert_eq!(parsed.body, EventBody::MariadbGtid(event));
    }

    #[test]
    fn payloads_cut_anywhere_give_the_same_events(
        sizes in proptest::collection::vec(0usize..3000, 0..8),
        chunk in 1usize..500,
        compressed in any::<bool>(),
    ) {
        let events: Vec<_> = sizes.iter().map(|size| inner(EventType::QUERY, &vec![9; *size])).collect();
        let compression = if compressed { PayloadCompression::Zstd } else { PayloadCompression::None };
        let length = events.iter().map(Vec::len).sum::<usize>() as u64;
        let body = payload_body(&events, compression, Some(length));
        let head = TransactionPayload::parse(&body).unwrap();
        let mut decoder = PayloadDecoder::new(&head, PayloadLimits::default()).unwrap();
        let mut out = Vec::new();
        for mut part in head.payload.chunks(chunk) {
            while let Some(event) = decoder.next_event(&mut part).unwrap() {
                out.push(event.to_vec());
            }
            prop_assert!(part.is_empty());
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert_eq!(out, events);
    }

    #[test]
    fn no_bytes_make_a_parser_panic(
        event_type in prop_oneof![0u8..45, 158u8..175, any::<u8>()],
        flags in any::<u16>(),
        end_log_pos in prop_oneof![Just(0u32), any::<u32>()],
        body in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0u8), Just(0xffu8)], 0..120),
        flavour in prop_oneof![Just(Flavour::MySql), Just(Flavour::MariaDb)],
    ) {
        let format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Off);
        let header = EventHeader {
            timestamp: 1,
            event_type: EventType(event_type),
            server_id: ServerId(1),
            event_length: (EVENT_HEADER_BYTES + body.len()) as u32,
            end_log_pos,
            flags,
        };
        match EventBody::parse(&header, &body, &format) {
            Ok(EventBody::Query(query)) => {
                let _ = (query.status_vars(), query.statement(4096));
            }
            Ok(EventBody::Rows(rows)) => drop(rows.images(4096)),
            Ok(EventBody::TransactionPayload(payload)) => {
                let limits = PayloadLimits { event_bytes_max: 4096, total_bytes_max: 1 << 20 };
                if let Ok(mut events) = payload.events(limits) {
                    while let Ok(Some(_)) = events.next_event() {}
                }
            }
            Ok(EventBody::FormatDescription(parsed)) => drop(parsed.to_body()),
            _ => {}
        }
        let _ = FormatDescription::parse(&body);
        let _ = StatusVars::parse(&body);
        let mut out = Vec::new();
        let _ = compressed_event::decompress(&body, 4096, &mut out);
        prop_assert!(out.capacity() <= 8192);
        let mut tracker = crate::transaction_boundary::TransactionTracker::new(flavour);
        let _ = tracker.observe(&header, &body, &format);
        let _ = BinlogEvent::parse(&body, &format);
    }
}
