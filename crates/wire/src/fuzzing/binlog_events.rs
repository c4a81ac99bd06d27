//! Checks of binlog events of both flavours: headers, bodies, checksums, and compressed content.

use super::split_mode;
use crate::binlog_event::compressed_event::decompress;
use crate::binlog_event::{
    BinlogEvent, ChecksumAlgorithm, ChecksumChecker, EVENT_HEADER_BYTES, EventBody, EventBuilder,
    EventHeader, EventType, FormatDescription, GtidEvent, Heartbeat, MariadbGtidEvent, PayloadDecoder,
    PayloadEvents, PayloadLimits, QueryEvent, Rotate, StatusVars, TransactionPayload, verify_checksum,
};
use crate::{Flavour, ServerId, WireError};

/// The maximum length of decompressed data in these checks, in bytes.
const INFLATED_BYTES_MAX: usize = 1 << 18;

const PAYLOAD_LIMITS: PayloadLimits =
    PayloadLimits { event_bytes_max: 1 << 16, total_bytes_max: INFLATED_BYTES_MAX as u64 };

pub(super) fn check(data: &[u8]) {
    match split_mode(data, 6) {
        Some((0, description)) => built(description),
        Some((1, bytes)) => raw(bytes),
        Some((2, bytes)) => chunked_checksum(bytes),
        Some((3, bytes)) => inflate(bytes),
        Some((4, body)) => payload(body),
        Some((_, bytes)) => drop(StatusVars::parse(bytes)),
        None => {}
    }
}

/// Returns the format that the lowest bits of `choice` select.
pub(super) fn format(choice: u8) -> FormatDescription {
    let flavour = if choice & 1 == 0 { Flavour::MySql } else { Flavour::MariaDb };
    let checksum = if choice & 2 == 0 { ChecksumAlgorithm::Off } else { ChecksumAlgorithm::Crc32 };
    FormatDescription::assumed(flavour, checksum)
}

/// Checks an event that is built around an arbitrary body. So the fuzzer need not guess lengths and
/// checksums.
fn built(description: &[u8]) {
    let Some((&[choice, event_type, flags_low, flags_high], body)) = description.split_first_chunk() else {
        return;
    };
    let format = format(choice);
    let checksum = format.checksum.unwrap_or(ChecksumAlgorithm::Off);
    let mut builder = EventBuilder::new(ServerId(1), checksum);
    let flags = u16::from_le_bytes([flags_low, flags_high]);
    let event =
        builder.event(EventType(event_type), flags, body).expect("the event is short enough to be built");
    assert_eq!(builder.position(), 4 + event.len() as u64);
    match BinlogEvent::parse(&event, &format) {
        Ok(parsed) => {
            assert_eq!(parsed.header.event_type, EventType(event_type));
            whole(&parsed, &format);
        }
        Err(error) => assert!(
            !matches!(error, WireError::Checksum { .. }),
            "an event built by this check has a wrong checksum: {error}"
        ),
    }
}

/// Checks raw bytes, with a format that one byte selects.
fn raw(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let format = format(choice);
    if let Ok(header) = EventHeader::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..EVENT_HEADER_BYTES]);
    }
    if let Ok(event) = BinlogEvent::parse(bytes, &format) {
        whole(&event, &format);
    }
    if let Ok(own) = FormatDescription::parse(bytes) {
        check_format(&own);
    }
}

fn check_format(format: &FormatDescription) {
    // The writer removes the last byte of the longest version text to make room for the final zero byte.
    if format.server_version.len() < 50 {
        assert_eq!(FormatDescription::parse_stripped(&format.to_body()).as_ref(), Ok(format));
    }
}

/// Checks the properties of a parsed event body.
fn whole(event: &BinlogEvent<'_>, format: &FormatDescription) {
    let header = &event.header;
    match &event.body {
        EventBody::FormatDescription(own) => check_format(own),
        EventBody::Rotate(rotate) => {
            assert_eq!(Rotate::parse(&rotate.to_body(), format).as_ref(), Ok(rotate));
        }
        EventBody::Heartbeat(heartbeat) => {
            assert_eq!(Heartbeat::parse_v2(&heartbeat.to_body_v2()).as_ref(), Ok(heartbeat));
        }
        EventBody::Query(query) => {
            let _ = query.status_vars();
            if let Ok(statement) = query.statement(INFLATED_BYTES_MAX) {
                assert!(statement.len() <= INFLATED_BYTES_MAX.max(query.query.len()));
            }
            if !query.compressed {
                assert_eq!(QueryEvent::parse(EventType::QUERY, &query.to_body(), format).as_ref(), Ok(query));
            }
        }
        EventBody::Gtid(gtid) => {
            if let Some(named) = &gtid.gtid {
                let text = named.to_string();
                assert_eq!(text.parse().as_ref(), Ok(named), "the GTID {text} cannot be parsed again");
            }
            check_gtid_event(gtid);
        }
        EventBody::MariadbGtid(gtid) => {
            // The writer omits flags whose fields are missing.
            if let Ok(once) = MariadbGtidEvent::parse(header, &gtid.to_body(), format) {
                assert_eq!(MariadbGtidEvent::parse(header, &once.to_body(), format).as_ref(), Ok(&once));
                assert_eq!(once.gtid, gtid.gtid);
            }
        }
        EventBody::MariadbGtidList(list) => {
            let body = list.encode().expect("a parsed list can be encoded");
            assert_eq!(crate::gtid::MariadbGtidList::decode(&body).as_ref(), Ok(list));
        }
        EventBody::PreviousGtids(set) => {
            assert_eq!(crate::gtid::MysqlGtidSet::decode(&set.encode()).as_ref(), Ok(set));
        }
        EventBody::TransactionPayload(payload) => check_payload(payload),
        EventBody::Rows(rows) => {
            if let Ok(images) = rows.images(INFLATED_BYTES_MAX) {
                assert!(images.len() <= INFLATED_BYTES_MAX.max(rows.rows.len()));
            }
        }
        _ => {}
    }
}

/// The writer omits all fields after the first missing field. So compare the result of the first round trip
/// with the result of the second.
fn check_gtid_event(gtid: &GtidEvent) {
    if gtid.gtid.as_ref().is_some_and(|gtid| !gtid.tag.is_empty()) {
        return;
    }
    let anonymous = gtid.gtid.is_none();
    let once = GtidEvent::parse(&gtid.to_body(), anonymous).expect("an encoded event can be parsed");
    assert_eq!(once.gtid, gtid.gtid);
    assert_eq!(GtidEvent::parse(&once.to_body(), anonymous).as_ref(), Ok(&once));
}

/// Checks that the checksum does not depend on the sizes of the chunks.
fn chunked_checksum(bytes: &[u8]) {
    let Some((&step, event)) = bytes.split_first() else { return };
    let whole = verify_checksum(event);
    let Ok(mut checker) = ChecksumChecker::new(event.len() as u64) else {
        assert!(whole.is_err());
        return;
    };
    for chunk in event.chunks(usize::from(step).max(1)) {
        checker.update(chunk);
    }
    assert_eq!(checker.finish(), whole);
}

fn inflate(part: &[u8]) {
    let mut out = b"kept".to_vec();
    if decompress(part, INFLATED_BYTES_MAX, &mut out).is_ok() {
        assert!(out.starts_with(b"kept") && out.len() <= 4 + INFLATED_BYTES_MAX);
    }
    assert!(out.capacity() <= 2 * INFLATED_BYTES_MAX, "the decoder buffers {} bytes", out.capacity());
}

fn payload(body: &[u8]) {
    let Some((&step, body)) = body.split_first() else { return };
    let Ok(head) = TransactionPayload::parse(body) else { return };
    assert!(head.payload.len() as u64 <= head.payload_bytes);
    let mut again = head.to_head();
    again.extend_from_slice(head.payload);
    let parsed = TransactionPayload::parse(&again).expect("a parsed head can be encoded");
    assert_eq!(
        (parsed.compression, parsed.payload, parsed.payload_bytes),
        (head.compression, head.payload, head.payload_bytes)
    );
    check_payload(&head);
    check_payload_in_chunks(&head, usize::from(step).max(1));
}

fn check_payload(payload: &TransactionPayload<'_>) {
    let Ok(mut events) = payload.events(PAYLOAD_LIMITS) else { return };
    drop(all_events(&mut events));
}

/// Returns the lengths of the events, and the final result.
fn all_events(events: &mut PayloadEvents<'_>) -> (Vec<usize>, Result<(), WireError>) {
    let mut lengths = Vec::new();
    let mut total = 0;
    loop {
        match events.next_event() {
            Ok(Some(event)) => {
                total += event.len() as u64;
                lengths.push(event.len());
                assert!(
                    event.len() as u64 <= PAYLOAD_LIMITS.event_bytes_max && event.len() >= EVENT_HEADER_BYTES
                );
                assert!(total <= PAYLOAD_LIMITS.total_bytes_max);
            }
            Ok(None) => return (lengths, Ok(())),
            Err(error) => return (lengths, Err(error)),
        }
    }
}

/// Checks that decoding a payload in chunks gives the same events as decoding the whole payload.
fn check_payload_in_chunks(payload: &TransactionPayload<'_>, step: usize) {
    let Ok(mut events) = payload.events(PAYLOAD_LIMITS) else { return };
    let (lengths, end) = all_events(&mut events);
    let mut decoder = PayloadDecoder::new(payload, PAYLOAD_LIMITS)
        .expect("creating a decoder succeeds, because it succeeded for the whole payload");
    let mut chunked = Vec::new();
    let mut error = None;
    'chunks: for mut chunk in payload.payload.chunks(step) {
        loop {
            match decoder.next_event(&mut chunk) {
                Ok(Some(event)) => chunked.push(event.len()),
                Ok(None) => break,
                Err(other) => {
                    error = Some(other);
                    break 'chunks;
                }
            }
        }
    }
    let chunked_end = error.map_or_else(|| decoder.finish(), Err);
    assert_eq!(
        chunked_end.is_ok(),
        end.is_ok(),
        "the result for a payload in chunks of {step} bytes is {chunked_end:?}, but for the whole payload {end:?}"
    );
    if end.is_ok() {
        assert_eq!(chunked, lengths);
    }
}
