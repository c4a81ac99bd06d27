//! Tests of the stream's start and the filter together, with random histories.

use proptest::prelude::*;
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::{
    BinlogEvent, ChecksumAlgorithm, EventBody, EventHeader, EventType, FIRST_EVENT_OFFSET, FormatDescription,
};
use tailwater_wire::gtid::{Gtid, MariadbGtid, MariadbPosition, MysqlGtid, MysqlGtidSet};

use super::sample_log::Writer;
use super::{Sent, at, my, request, shown, stream};
use crate::stream_start::{MariadbRequest, RequestedStart};

/// The GTIDs of the events that were sent.
fn gtids(log: &Writer, sent: &[Sent]) -> Vec<String> {
    sent.iter().filter_map(|sent| shown(log, sent).strip_prefix("gtid ").map(str::to_owned)).collect()
}

/// Writes a history into binlog files and parts of files. `breaks` says what follows each transaction. 0: the
/// next transaction. 1: a new file. 2: a hole and then a later part of the same file.
fn write(log: &mut Writer, history: &[Gtid], breaks: &[u8]) {
    let mut file = 1;
    log.begin("b.1", 4);
    for (index, (gtid, after)) in history.iter().zip(breaks).enumerate() {
        log.transaction(Some(gtid.clone()));
        match after {
            _ if index + 1 == history.len() => {}
            0 => {}
            1 => {
                file += 1;
                log.rotate(&format!("b.{file}"));
                log.begin(&format!("b.{file}"), 4);
            }
            _ => {
                let position = log.builder.position() + 100;
                log.begin(&format!("b.{file}"), position);
            }
        }
    }
}

proptest! {
    /// The stream has exactly those transactions of the log that a client lacks, in order.
    #[test]
    fn a_mysql_client_gets_what_it_lacks(
        origins in proptest::collection::vec((0u8..3, any::<bool>()), 1..40),
        breaks in proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => Just(2)], 40),
    ) {
        let mut numbers = [0u64; 3];
        let mut client = MysqlGtidSet::new();
        let mut history = Vec::new();
        let mut lacks = Vec::new();
        for (origin, has) in origins {
            let number = &mut numbers[usize::from(origin)];
            *number += 1;
            let mut uuid = [0; 16];
            uuid[0] = origin;
            let gtid = MysqlGtid { uuid, tag: String::new(), number: *number };
            if has {
                client.insert(&gtid).unwrap();
            } else {
                lacks.push(gtid.to_string());
            }
            history.push(Gtid::MySql(gtid));
        }
        let mut log = Writer::new(Flavour::MySql, ChecksumAlgorithm::Crc32);
        write(&mut log, &history, &breaks);
        let from = RequestedStart::Mysql { has: client, file: String::new(), position: 4 };
        let sent = stream(&log, &request(from)).unwrap();
        prop_assert_eq!(gtids(&log, &sent), lacks);
        prop_assert_eq!(client_position(&log, &sent), log_end(&log));
    }

    #[test]
    fn a_mariadb_client_gets_what_it_lacks(
        origins in proptest::collection::vec((0u32..3, 1u32..4), 1..40),
        breaks in proptest::collection::vec(prop_oneof![4 => Just(0u8), 1 => Just(1), 1 => Just(2)], 40),
        reached in proptest::collection::vec(0usize..41, 3),
        strict in any::<bool>(),
    ) {
        let mut numbers = [0u64; 3];
        let mut position = MariadbPosition::new();
        let mut history = Vec::new();
        let mut lacks = Vec::new();
        for (index, (domain, server_id)) in origins.into_iter().enumerate() {
            let number = &mut numbers[domain as usize];
            *number += 1;
            let gtid = MariadbGtid { domain, server_id, sequence: *number };
            if index < reached[domain as usize] {
                position.advance(gtid);
            } else {
                lacks.push(gtid.to_string());
            }
            history.push(Gtid::MariaDb(gtid));
        }
        let mut log = Writer::new(Flavour::MariaDb, ChecksumAlgorithm::Crc32);
        write(&mut log, &history, &breaks);
        let from = RequestedStart::Mariadb(MariadbRequest { position, strict, ..MariadbRequest::default() });
        let sent = stream(&log, &request(from)).unwrap();
        prop_assert_eq!(gtids(&log, &sent), lacks);
    }

    /// A stream that is requested by position has the rest of the log byte for byte. It may start between any
    /// two entries.
    #[test]
    fn a_stream_by_position_has_the_rest_of_the_log(
        breaks in proptest::collection::vec(0u8..2, 1..12),
        from in any::<prop::sample::Index>(),
    ) {
        let history: Vec<_> = (1..=breaks.len() as u64).filter_map(my).collect();
        let mut log = Writer::new(Flavour::MySql, ChecksumAlgorithm::Crc32);
        write(&mut log, &history, &breaks);
        let places: Vec<_> = log.parts.iter().flat_map(|part| part.entries.iter().map(move |entry| (part, entry))).collect();
        let index = from.index(places.len());
        let (part, (entry, _)) = places[index];
        let sent = stream(&log, &request(at(&part.file, entry.source_start()))).unwrap();
        let in_file = |event: &&Vec<u8>| event[13..17] != [0; 4] && event[4] != EventType::FORMAT_DESCRIPTION.0;
        let sent: Vec<_> = sent.iter().map(|(event, _)| event).filter(in_file).collect();
        let rest: Vec<_> = places[index..].iter().flat_map(|(_, (_, events))| events).collect();
        prop_assert_eq!(sent, rest);
    }
}

/// The position of a MySQL replica after it has received this stream.
fn client_position(log: &Writer, sent: &[Sent]) -> (String, u64) {
    let (mut file, mut position) = (String::new(), 0);
    for (event, _) in sent {
        let header = EventHeader::parse(event).unwrap();
        let format = FormatDescription::assumed(log.flavour, log.checksum);
        match BinlogEvent::parse(event, &format).unwrap().body {
            EventBody::Rotate(rotate) => {
                file = String::from_utf8_lossy(rotate.file_name).into_owned();
                position = rotate.position;
            }
            _ if header.end_log_pos != 0 => position = u64::from(header.end_log_pos),
            _ => {}
        }
    }
    (file, position)
}

fn log_end(log: &Writer) -> (String, u64) {
    let part = log.parts.last().unwrap();
    let end = part.entries.last().map(|(entry, _)| entry.source_end);
    let head = match part.source_offset {
        FIRST_EVENT_OFFSET => FIRST_EVENT_OFFSET + part.format_description.len() as u64,
        offset => offset,
    };
    (part.file.clone(), end.unwrap_or(head))
}
