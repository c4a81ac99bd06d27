mod random_binlog_histories;
mod sample_log;

use tailwater_log::{EntryKind, LogEntry};
use tailwater_wire::binlog_event::{BinlogEvent, EventBody, Heartbeat};
use tailwater_wire::gtid::{GtidSet, MariadbPosition};

use self::sample_log::Writer;
use super::*;
use crate::stream_start::{self, MariadbRequest, RequestedStart, StartDecision};

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const OURS: ServerId = ServerId(4711);

fn request(from: RequestedStart) -> ClientDumpRequest {
    ClientDumpRequest {
        server_id: 9,
        replica_uuid: None,
        from,
        wait_for_more: true,
        heartbeat_period: None,
        heartbeat_v2: false,
        checksum: Some(ChecksumAlgorithm::Crc32),
        annotate_rows: false,
        skip_marked: false,
        semi_sync: false,
    }
}

/// An event that was sent, and whether it requests an acknowledgement.
type Sent = (Vec<u8>, bool);

/// Runs a stream to the end of the log, as `binlog_sender` does. The stream must not depend on how many
/// transactions the blocks of a shared tail have.
fn stream(log: &Writer, request: &ClientDumpRequest) -> Result<Vec<Sent>, ClientError> {
    let alone = stream_with_blocks_of(0, log, request);
    for transactions in [1, 3] {
        let shared = stream_with_blocks_of(transactions, log, request);
        assert_eq!(
            shared, alone,
            "blocks of {transactions} transactions change what is sent for {request:?}"
        );
    }
    alone
}

/// What is known about these entries, or `None` if one of them is no transaction.
fn summary(entries: &[(LogEntry, Vec<Vec<u8>>)]) -> Option<TransactionsSummary> {
    let (last, _) = entries.last().filter(|_| entries.iter().all(|(entry, _)| entry.is_transaction()))?;
    let mut gtids = Some(MysqlGtidSet::new());
    for (entry, _) in entries {
        gtids = match (gtids, &entry.gtid) {
            (Some(mut gtids), Some(Gtid::MySql(gtid))) => {
                gtids.insert(gtid).unwrap();
                Some(gtids)
            }
            _ => None,
        };
    }
    let headers =
        || entries.iter().flat_map(|(_, events)| events).map(|event| EventHeader::parse(event).unwrap());
    Some(TransactionsSummary {
        mysql_gtids: gtids,
        has_annotations: headers().any(|header| header.event_type == EventType::MARIADB_ANNOTATE_ROWS),
        has_marked_events: headers().any(|header| header.has(EventHeader::FLAG_SKIP_REPLICATION)),
        source_end: last.source_end,
    })
}

fn stream_with_blocks_of(
    transactions: usize,
    log: &Writer,
    request: &ClientDumpRequest,
) -> Result<Vec<Sent>, ClientError> {
    let begin = match stream_start::decide(request, log) {
        StartDecision::Begin(begin) => begin,
        StartDecision::Wait(refusal) | StartDecision::Refuse(refusal) => return Err(refusal),
    };
    let from = begin.from;
    let mut filter = StreamFilter::new(request, begin, log.flavour, OURS);
    let mut sent = Vec::new();
    let artificial = |sent: &mut Vec<Sent>, events: Vec<Vec<u8>>| {
        sent.extend(events.into_iter().map(|event| (event, false)));
    };
    let state = || match &log.gtids {
        GtidSet::MariaDb(state) => state.clone(),
        GtidSet::MySql(_) => MariadbBinlogState::new(),
    };
    for (index, part) in log.parts.iter().enumerate().skip(from.segment as usize - 1) {
        let segment =
            ServedSegment { file: &part.file, epoch: part.epoch, source_offset: part.source_offset };
        artificial(&mut sent, filter.enter(segment, &part.format_description)?);
        let mut entries = &part.entries[..];
        while let [(entry, events), rest @ ..] = entries {
            if index as u64 + 1 == from.segment && entry.position.offset < from.offset {
                entries = rest;
                continue;
            }
            let block = entries.get(..transactions).filter(|block| !block.is_empty());
            if let Some(block) = block
                && let Some(summary) = summary(block)
                && filter.sends_all_of(&summary)
            {
                artificial(&mut sent, filter.send_all_of(&summary).into_iter().collect());
                for (_, events) in block {
                    let last = events.len() - 1;
                    let ends = |number| number == last;
                    sent.extend(
                        events.iter().enumerate().map(|(number, event)| (event.clone(), ends(number))),
                    );
                }
                assert_eq!(filter.position(), (part.file.as_str(), summary.source_end));
                entries = &entries[block.len()..];
                continue;
            }
            entries = rest;
            if let EntryVerdict::Send(before) = filter.entry(entry, &state)? {
                artificial(&mut sent, before);
                for event in events {
                    match filter.event(&EventHeader::parse(event).unwrap(), event)? {
                        EventVerdict::Send { ends_transaction } => {
                            sent.push((event.clone(), ends_transaction))
                        }
                        EventVerdict::Replace(event) => sent.push((event, false)),
                        EventVerdict::Skip => {}
                    }
                }
            }
            assert_eq!(filter.position(), (part.file.as_str(), entry.source_end));
            let EntryEnd { events, ends } = filter.end_entry()?;
            artificial(&mut sent, events);
            if ends {
                return Ok(sent);
            }
        }
    }
    artificial(&mut sent, filter.idle().into_iter().collect());
    assert_eq!(filter.idle(), None);
    Ok(sent)
}

/// Describes an event in a few words, and checks its checksum.
fn shown(log: &Writer, sent: &Sent) -> String {
    let (event, ack) = sent;
    let header = EventHeader::parse(event).unwrap();
    let format = FormatDescription::assumed(log.flavour, log.checksum);
    let event = BinlogEvent::parse(event, &format).unwrap();
    let text = match event.body {
        EventBody::Rotate(rotate) => {
            let name = String::from_utf8_lossy(rotate.file_name);
            let kind = if header.is_artificial() { "fake" } else { "real" };
            format!("{kind} rotate {name}:{}", rotate.position)
        }
        EventBody::FormatDescription(format) => format!("fd {} {}", header.end_log_pos, format.created),
        EventBody::Heartbeat(heartbeat) => {
            format!("heartbeat {}:{}", String::from_utf8_lossy(heartbeat.file_name), heartbeat.position)
        }
        EventBody::Gtid(gtid) => format!("gtid {}", gtid.gtid.map_or("none".into(), |gtid| gtid.to_string())),
        EventBody::MariadbGtid(gtid) => format!("gtid {}", gtid.gtid),
        EventBody::MariadbGtidList(list) => format!("list {} {list}", list.flags),
        _ => header.event_type.to_string().to_lowercase(),
    };
    if *ack { format!("{text}!") } else { text }
}

fn run(log: &Writer, request: &ClientDumpRequest) -> Result<String, ClientError> {
    let sent = stream(log, request)?;
    Ok(sent.iter().map(|sent| shown(log, sent)).collect::<Vec<_>>().join(", "))
}

fn expect(log: &Writer, request: &ClientDumpRequest, expected: &str) {
    assert_eq!(run(log, request).unwrap(), expected);
}

fn my(number: u64) -> Option<Gtid> {
    Some(Gtid::parse(Flavour::MySql, &format!("{A}:{number}")).unwrap())
}

fn maria(text: &str) -> Option<Gtid> {
    Some(Gtid::parse(Flavour::MariaDb, text).unwrap())
}

fn at(file: &str, position: u64) -> RequestedStart {
    RequestedStart::FilePosition { file: file.into(), position }
}

fn mysql(has: &str) -> RequestedStart {
    RequestedStart::Mysql { has: MysqlGtidSet::parse(has).unwrap(), file: String::new(), position: 4 }
}

fn mariadb(position: &str) -> MariadbRequest {
    MariadbRequest { position: MariadbPosition::parse(position).unwrap(), ..MariadbRequest::default() }
}

/// A log of two files with two transactions each.
fn mysql_log(checksum: ChecksumAlgorithm) -> Writer {
    let mut log = Writer::new(Flavour::MySql, checksum);
    log.begin("b.1", 4);
    log.transaction(my(1));
    log.transaction(my(2));
    log.rotate("b.2");
    log.begin("b.2", 4);
    log.transaction(my(3));
    log.transaction(my(4));
    log
}

fn transaction(number: u64) -> String {
    format!("gtid {A}:{number}, intvar, xid!")
}

#[test]
fn a_stream_from_the_start_equals_the_file() {
    let log = mysql_log(ChecksumAlgorithm::Crc32);
    let request = request(at("b.1", 4));
    let sent = stream(&log, &request).unwrap();
    let file = |part: &self::sample_log::Part| {
        let mut bytes = part.format_description.clone();
        part.entries.iter().flat_map(|(_, events)| events).for_each(|event| bytes.extend_from_slice(event));
        bytes
    };
    let (second, _) = sent.iter().enumerate().skip(1).find(|(_, (event, _))| event[17] == 0x20).unwrap();
    assert_eq!(
        sent[1..second].iter().flat_map(|(event, _)| event.clone()).collect::<Vec<_>>(),
        file(&log.parts[0])
    );
    assert_eq!(
        sent[second + 1..].iter().flat_map(|(event, _)| event.clone()).collect::<Vec<_>>(),
        file(&log.parts[1])
    );
    let [one, two, three, four] = [1, 2, 3, 4].map(transaction);
    let expected = format!(
        "fake rotate b.1:4, fd 126 77, {one}, {two}, real rotate b.2:4, fake rotate b.2:4, fd 126 77, {three}, {four}"
    );
    let length = log.parts[0].format_description.len();
    expect(&log, &request, &expected.replace("126", &(length + 4).to_string()));
}

#[test]
fn a_stream_from_the_middle_starts_with_a_format_description_without_position() {
    let log = mysql_log(ChecksumAlgorithm::Crc32);
    let end = log.parts[1].entries[0].0.source_end;
    let expected = format!("fake rotate b.2:{end}, fd 0 0, {}", transaction(4));
    expect(&log, &request(at("b.2", end)), &expected);
}

#[test]
fn heartbeats_announce_skipped_transactions_to_a_mysql_client() {
    let log = mysql_log(ChecksumAlgorithm::Crc32);
    let place = (log.parts[0].format_description.len() + 4).to_string();
    let end = |part: usize, entry: usize| log.parts[part].entries[entry].0.source_end;
    let [two, three] = [2, 3].map(transaction);
    let expected = format!(
        "fake rotate b.1:4, fd {place} 0, heartbeat b.1:{}, {two}, real rotate b.2:4, fake rotate b.2:4, fd {place} 77, \
         {three}, heartbeat b.2:{}",
        end(0, 0),
        end(1, 1),
    );
    expect(&log, &request(mysql(&format!("{A}:1:4"))), &expected);
    let all = format!("fake rotate b.2:4, fd {place} 0, heartbeat b.2:{}", end(1, 1));
    expect(&log, &request(mysql(&format!("{A}:1-4"))), &all);
    let v2 = ClientDumpRequest { heartbeat_v2: true, ..request(mysql(&format!("{A}:1-4"))) };
    let last = stream(&log, &v2).unwrap().pop().unwrap();
    let header = EventHeader::parse(&last.0).unwrap();
    assert_eq!((header.event_type, u64::from(header.end_log_pos)), (EventType::HEARTBEAT_V2, end(1, 1)));
}

#[test]
fn the_end_of_a_file_announces_skipped_transactions() {
    let mut log = Writer::new(Flavour::MySql, ChecksumAlgorithm::Crc32);
    log.begin("b.1", 4);
    log.transaction(my(1));
    log.transaction(my(2));
    // The source crashed, and the log continues with another server. The served names of the new server's
    // files contain its epoch.
    log.epoch = 2;
    log.begin("b.1", 4);
    log.transaction(my(3));
    log.rotate("b.2");
    let end = log.parts[0].entries[1].0.source_end;
    let place = log.parts[0].format_description.len() + 4;
    let (one, three) = (transaction(1), transaction(3));
    let expected = format!(
        "fake rotate b.1:4, fd {place} 0, {one}, heartbeat b.1:{end}, fake rotate b.e2.1:4, fd {place} 77, {three}, \
         real rotate b.e2.2:4"
    );
    expect(&log, &request(mysql(&format!("{A}:2"))), &expected);
}

#[test]
fn an_anonymous_transaction_is_refused_in_a_stream_by_gtids() {
    let mut log = mysql_log(ChecksumAlgorithm::Crc32);
    let start = log.builder.position();
    log.transaction(None);
    let refusal = run(&log, &request(mysql(""))).unwrap_err();
    let expected = format!(
        "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file b.2, position {start}."
    );
    assert_eq!((refusal.code, refusal.message), (1236, expected));
    assert!(run(&log, &request(at("", 4))).unwrap().ends_with("gtid none, intvar, xid!"));
}

#[test]
fn events_except_the_first_rotate_have_the_checksums_of_the_log() {
    let request = |checksum| ClientDumpRequest { checksum, ..request(at("", 4)) };
    let with = mysql_log(ChecksumAlgorithm::Crc32);
    let without = mysql_log(ChecksumAlgorithm::Off);
    let first = |log: &Writer, checksum| stream(log, &request(checksum)).unwrap()[0].0.len();
    let bare = EVENT_HEADER_BYTES + 8 + "b.1".len();
    assert_eq!(first(&with, Some(ChecksumAlgorithm::Crc32)), bare + 4);
    assert_eq!(first(&with, Some(ChecksumAlgorithm::Off)), bare);
    assert_eq!(first(&without, Some(ChecksumAlgorithm::Off)), bare);
    assert_eq!(first(&without, None), bare);
    // Whether the client accepts checksums changes only the first event of the stream.
    let rest = |checksum| stream(&with, &request(checksum)).unwrap().split_off(1);
    assert_eq!(rest(Some(ChecksumAlgorithm::Crc32)), rest(Some(ChecksumAlgorithm::Off)));
    let refusal = stream(&with, &request(None)).unwrap_err();
    assert!(
        refusal.message.contains("with the checksum that source is configured to log"),
        "the client got an unexpected error: {refusal}"
    );
}

#[test]
fn a_file_in_several_segments_is_sent_as_one_file() {
    let mut log = Writer::new(Flavour::MySql, ChecksumAlgorithm::Crc32);
    log.begin("b.1", 4);
    log.transaction(my(1));
    let end = log.builder.position();
    log.begin("b.1", end + 1000);
    log.transaction(my(2));
    let place = log.parts[0].format_description.len() + 4;
    let (one, two) = (transaction(1), transaction(2));
    expect(&log, &request(at("b.1", 4)), &format!("fake rotate b.1:4, fd {place} 77, {one}, {two}"));
    let second = format!("fake rotate b.1:{}, fd 0 0, {two}", end + 1000);
    expect(&log, &request(mysql(&format!("{A}:1"))), &second);
}

/// A log of two files, with transactions in two domains.
fn mariadb_log() -> Writer {
    let mut log = Writer::new(Flavour::MariaDb, ChecksumAlgorithm::Crc32);
    log.begin("b.1", 4);
    log.lone(|builder| builder.mariadb_gtid_list(&Default::default()).unwrap());
    for gtid in ["0-1-1", "2-5-1", "0-1-3"] {
        log.transaction(maria(gtid));
    }
    log.rotate("b.2");
    log.begin("b.2", 4);
    for gtid in ["0-2-4", "2-5-2"] {
        log.transaction(maria(gtid));
    }
    log
}

fn group(gtid: &str) -> String {
    format!("gtid {gtid}, intvar, xid!")
}

/// Runs a stream of the MariaDB log. Returns its events in words, without the events at the beginning of
/// files.
fn mariadb_run(of: MariadbRequest) -> Result<String, ClientError> {
    let log = mariadb_log();
    let shown = run(&log, &request(RequestedStart::Mariadb(of)))?;
    let place = format!("fd {}", log.parts[0].format_description.len() + 4);
    let heads = ["fake rotate", "real rotate", &place, "list 0 "];
    // This GTID list describes an empty binlog, and is at the beginning of the first file.
    let kept = shown
        .split(", ")
        .filter(|text| !heads[..3].iter().any(|head| text.starts_with(head)) && *text != heads[3]);
    Ok(kept.collect::<Vec<_>>().join(", "))
}

fn expect_mariadb(of: MariadbRequest, expected: &[&str]) {
    assert_eq!(mariadb_run(of.clone()).unwrap(), expected.join(", "), "wrong stream for the request {of:?}");
}

#[test]
fn a_gtid_list_announces_skipped_transactions_to_a_mariadb_client() {
    let [one, two, three, four, five] = ["0-1-1", "2-5-1", "0-1-3", "0-2-4", "2-5-2"].map(group);
    expect_mariadb(mariadb(""), &[&one, &two, &three, &four, &five]);
    expect_mariadb(mariadb("0-1-1"), &["list 0 0-1-1", &two, &three, &four, &five]);
    expect_mariadb(mariadb("2-5-1"), &[&one, "list 0 0-1-1,2-5-1", &three, &four, &five]);
    // Both GTIDs of the client are the last ones of their domain in the first file. So the stream skips
    // nothing in the second file.
    expect_mariadb(mariadb("0-1-3,2-5-1"), &[&four, &five]);
    expect_mariadb(mariadb("0-2-4,2-5-1"), &["list 0 0-2-4", &five]);
    // The log has no transaction 0-1-2, but transactions before and after it.
    expect_mariadb(mariadb("0-1-2"), &[&two, &three, "list 0 0-1-3,2-5-1", &four, &five]);
    let strict = MariadbRequest { strict: true, ..mariadb("0-1-2") };
    let refusal = mariadb_run(strict).unwrap_err();
    assert!(
        refusal.message.contains("is missing the GTID 0-1-2 requested by the slave"),
        "the client got an unexpected error: {refusal}"
    );
}

#[test]
fn a_new_domain_must_contain_the_position_of_the_client() {
    let mut log = mariadb_log();
    let request = request(RequestedStart::Mariadb(mariadb("0-2-4,2-5-2,7-7-5")));
    let begin = match stream_start::decide(&request, &log) {
        StartDecision::Begin(begin) => begin,
        other => panic!("the stream does not start: {other:?}"),
    };
    let mut filter = StreamFilter::new(&request, begin, Flavour::MariaDb, OURS);
    log.transaction(maria("7-7-4"));
    let entry = &log.parts[1].entries[2].0;
    let state = |text: &'static str| move || MariadbBinlogState::parse(text).unwrap();
    let refusal = filter.entry(entry, &state("7-7-4")).unwrap_err();
    assert!(
        refusal.message.contains("start from GTID 7-7-5, which is not in the master's binlog"),
        "the client got an unexpected error: {refusal}"
    );
    assert_eq!(filter.entry(entry, &state("7-7-9")), Ok(EntryVerdict::Skip));
    // After the filter has found the client's position in the domain, it does not search for the position
    // again.
    assert_eq!(filter.entry(entry, &state("")), Ok(EntryVerdict::Skip));
}

#[test]
fn the_stream_of_a_mariadb_client_stops_at_its_until_position() {
    let [one, two, three, four, _] = ["0-1-1", "2-5-1", "0-1-3", "0-2-4", "2-5-2"].map(group);
    let until = |position: &str, until: &str, until_before| {
        let until = Some(MariadbPosition::parse(until).unwrap());
        MariadbRequest { until, until_before, ..mariadb(position) }
    };
    expect_mariadb(until("", "0-1-3,2-5-1", false), &[&one, &two, &three, "list 1 0-1-3,2-5-1"]);
    expect_mariadb(until("", "2-5-1", false), &[&two, "list 1 0-1-1,2-5-1"]);
    expect_mariadb(
        until("0-1-3", "0-2-4", false),
        &["list 0 0-1-3,2-5-1", &four, "list 1 0-1-3,0-2-4,2-5-1"],
    );
    expect_mariadb(until("", "0-1-3", true), &[&one, "list 1 0-1-3,2-5-1"]);
    // The GTID at which the stream stops does not exist in the log.
    expect_mariadb(until("", "0-1-2", false), &[&one, "list 1 0-1-3,2-5-1"]);
    // The GTID at which the stream stops is before the start position.
    expect_mariadb(until("0-1-3,2-5-1", "0-1-1", false), &["list 1 0-1-3,0-2-4,2-5-1"]);
}

#[test]
fn annotations_and_marked_events_are_sent_on_request() {
    let mut log = mariadb_log();
    let wants = ClientDumpRequest { annotate_rows: true, ..request(at("b.2", 4)) };
    assert!(run(&log, &wants).unwrap().contains("gtid 0-2-4, annotate_rows, intvar, xid!"));
    log.begin("b.3", 4);
    let mark = EventHeader::FLAG_SKIP_REPLICATION;
    let events = [&[1; 9], &[1; 9]].map(|body| log.builder.event(EventType::INTVAR, mark, body).unwrap());
    log.add(events.to_vec(), EntryKind::Transaction, maria("0-1-9"));
    let place = log.parts[0].format_description.len() + 4;
    expect(&log, &request(at("b.3", 4)), &format!("fake rotate b.3:4, fd {place} 77, intvar, intvar!"));
    let skips = ClientDumpRequest { skip_marked: true, ..request(at("b.3", 4)) };
    expect(&log, &skips, &format!("fake rotate b.3:4, fd {place} 77"));
}

#[test]
fn heartbeats_contain_positions_beyond_4_gib() {
    let maker = ArtificialEventBuilder { server_id: OURS, checksum: false };
    let position = (5 << 32) + 7;
    let check = |flavour, v2, in_header: u32, expected| {
        let event = maker.heartbeat(flavour, v2, "b.1", position);
        let header = EventHeader::parse(&event).unwrap();
        assert_eq!(header.end_log_pos, in_header);
        let body = &event[EVENT_HEADER_BYTES..];
        let read = if v2 { Heartbeat::parse_v2(body) } else { Heartbeat::parse_v1(&header, body) };
        let read = read.unwrap();
        assert_eq!((read.file_name, read.position), (&b"b.1"[..], expected));
    };
    check(Flavour::MySql, true, 7, position);
    check(Flavour::MySql, false, 7, 7);
    check(Flavour::MariaDb, false, 0, position);
}

#[test]
fn a_damaged_format_description_is_refused() {
    let log = mysql_log(ChecksumAlgorithm::Crc32);
    let request = request(at("b.1", 4));
    let begin = match stream_start::decide(&request, &log) {
        StartDecision::Begin(begin) => begin,
        other => panic!("the stream does not start: {other:?}"),
    };
    let segment = ServedSegment { file: "b.1", epoch: 1, source_offset: 4 };
    let enter = |bytes: &[u8]| {
        StreamFilter::new(&request, begin.clone(), Flavour::MySql, OURS).enter(segment, bytes).map(drop)
    };
    let whole = &log.parts[0].format_description;
    assert_eq!(enter(whole), Ok(()));
    let mut damaged = whole.clone();
    damaged[60] ^= 1;
    assert!(enter(&damaged).is_err());
    for length in 0..whole.len() {
        assert!(enter(&whole[..length]).is_err(), "a format description of {length} bytes was accepted");
    }
    assert!(enter(&log.parts[0].entries[0].1[0]).is_err());
}
