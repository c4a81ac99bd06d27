use std::collections::BTreeMap;

use proptest::prelude::*;
use tailwater_wire::gtid::{MariadbBinlogState, MariadbGtid, MariadbPosition, MysqlGtid, MysqlGtidSet};

use super::*;
use crate::binlog_file_list::SegmentView;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "00000000-0000-0000-0000-00000000000b";

/// A log whose segments are binlog files of 1000 bytes. Each segment comes with the transactions before it.
struct Log {
    flavour: Flavour,
    catalog: Catalog,
    before: BTreeMap<u64, Option<GtidSet>>,
    gtids: GtidSet,
}

impl Log {
    fn new(flavour: Flavour, first: u64, before: &[Option<&str>], gtids: &str) -> Self {
        let set = |text: &str| GtidSet::parse(flavour, text).unwrap();
        let count = before.len() as u64;
        let segments = (first..).take(before.len()).map(|number| SegmentView {
            number,
            source_file: format!("b.{number:06}"),
            source_offset: 4,
            head_bytes: 122,
            bytes: 1000,
            sealed: number + 1 < first + count,
            epoch: 1,
        });
        Self {
            flavour,
            catalog: Catalog::new(segments),
            before: (first..).zip(before.iter().map(|text| text.map(set))).collect(),
            gtids: set(gtids),
        }
    }
}

impl LogHistory for Log {
    fn flavour(&self) -> Flavour {
        self.flavour
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn gtids(&self) -> GtidSet {
        self.gtids.clone()
    }

    fn gtids_before(&self, segment: u64) -> Result<Option<GtidSet>, ClientError> {
        Ok(self.before[&segment].clone())
    }

    fn source_uuid(&self) -> Option<[u8; 16]> {
        (self.flavour == Flavour::MySql).then(|| MysqlGtid::parse(&format!("{A}:1")).unwrap().uuid)
    }
}

fn request(from: RequestedStart) -> ClientDumpRequest {
    ClientDumpRequest {
        server_id: 9,
        replica_uuid: None,
        from,
        wait_for_more: true,
        heartbeat_period: None,
        heartbeat_v2: false,
        checksum: None,
        annotate_rows: false,
        skip_marked: false,
        semi_sync: false,
    }
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

/// Returns the segment and offset where the stream starts, or the kind of refusal and its text.
fn run(log: &Log, from: RequestedStart) -> Result<(u64, u64), (&'static str, String)> {
    match decide(&request(from), log) {
        StartDecision::Begin(begin) => Ok((begin.from.segment, begin.from.offset)),
        StartDecision::Wait(refusal) => Err(("wait", refusal.message)),
        StartDecision::Refuse(refusal) => {
            assert_eq!(refusal.code, 1236);
            Err(("refuse", refusal.message))
        }
    }
}

fn expect_begin(log: &Log, from: RequestedStart, segment: u64, offset: u64) {
    assert_eq!(
        run(log, from.clone()),
        Ok((segment, offset)),
        "wrong start of the stream for the request {from:?}"
    );
}

fn expect(log: &Log, from: RequestedStart, kind: &str, words: &str) {
    match run(log, from.clone()) {
        Err((found, text)) => {
            assert!(found == kind && text.contains(words), "wrong decision for {from:?}: {found} {text}")
        }
        Ok(place) => panic!("the stream for {from:?} starts at {place:?} instead of being refused"),
    }
}

fn mysql_log() -> Log {
    let before = [format!("{A}:1-10"), format!("{A}:1-20"), format!("{A}:1-20,{B}:1-5")];
    let before: Vec<_> = before.iter().map(|text| Some(text.as_str())).collect();
    Log::new(Flavour::MySql, 3, &before, &format!("{A}:1-30,{B}:1-5"))
}

#[test]
fn streams_by_position_start_in_a_mysql_log() {
    let log = mysql_log();
    expect_begin(&log, at("", 4), 3, 4);
    expect_begin(&log, at("b.000004", 4), 4, 4);
    expect_begin(&log, at("b.000005", 777), 5, 777);
    expect_begin(&log, at("b.000005", 1000), 5, 1000);
    expect(&log, at("b.000002", 4), "refuse", "Could not find first log file name in binary log index file");
    expect(&log, at("c.000009", 4), "refuse", "Could not find first log file name");
    expect(&log, at("b.000006", 4), "wait", "Could not find first log file name");
    expect(&log, at("b.000003", 0), "refuse", "source to start replication from position < 4");
    expect(&log, at("b.000003", 1001), "refuse", "position > file size");
    expect(&log, at("b.000005", 1001), "wait", "position > file size");
}

#[test]
fn streams_by_position_start_in_a_mariadb_log() {
    let log = Log::new(Flavour::MariaDb, 1, &[Some("")], "0-1-5");
    expect_begin(&log, at("b.000001", 500), 1, 500);
    let words = "impossible position; the first event 'b.000001' at 3,";
    expect(&log, at("b.000001", 3), "refuse", words);
    expect(&log, at("b.000001", 1001), "wait", "impossible position; the first event 'b.000001' at 1001,");
}

#[test]
fn a_log_that_began_in_the_middle_of_a_file_serves_the_rest() {
    let mut log = Log::new(Flavour::MySql, 1, &[None, Some(&format!("{A}:1-20"))], &format!("{A}:10-30"));
    let segments = log.catalog.files().iter().flat_map(|file| file.segments.clone());
    log.catalog = Catalog::new(segments.map(|segment| match segment.number {
        1 => SegmentView { source_offset: 300, ..segment },
        _ => segment,
    }));
    expect_begin(&log, at("", 4), 1, 4);
    expect_begin(&log, at("b.000001", 300), 1, 4);
    expect(&log, at("b.000001", 4), "refuse", "only from position 300 on");
    expect_begin(&log, mysql(&format!("{A}:1-20")), 2, 4);
    expect(&log, mysql(&format!("{A}:1-19")), "refuse", "began in the middle of a file, b.000001:300");
}

#[test]
fn streams_by_gtids_start_in_a_mysql_log() {
    let log = mysql_log();
    expect_begin(&log, mysql(&format!("{A}:1-10")), 3, 4);
    expect_begin(&log, mysql(&format!("{A}:1-19")), 3, 4);
    expect_begin(&log, mysql(&format!("{A}:1-25")), 4, 4);
    expect_begin(&log, mysql(&format!("{A}:1-25,{B}:1-5")), 5, 4);
    // Transactions of other servers, and transactions that the client itself committed, do not change the
    // start.
    expect_begin(&log, mysql(&format!("{A}:1-30,{B}:1-9,00000000-0000-0000-0000-00000000000c:1")), 5, 4);
    let missing =
        format!("The GTID set sent by the replica is '{A}:1-7', and the missing transactions are '{A}:8-10'");
    expect(&log, mysql(&format!("{A}:1-7")), "refuse", &missing);
    expect(&log, mysql(""), "refuse", "Cannot replicate because the source purged required binary logs.");
    expect(&log, mysql(&format!("{A}:1-31")), "wait", &format!("SERVER_UUID: {A}:31."));
    let many: String = (0..200).map(|number| format!(":{}", 100 + 2 * number)).collect();
    expect(&log, mysql(&format!("{A}:1-10{many}")), "wait", "using the source's SERVER_UUID. The");
    expect(&log, mysql(&format!("{B}{many}")), "refuse", "too long to print");
    let mut early = mysql(&format!("{A}:1-10"));
    if let RequestedStart::Mysql { position, .. } = &mut early {
        *position = 3;
    }
    expect(&log, early, "refuse", "position < 4");
}

#[test]
fn a_mysql_client_with_transactions_after_the_start_resumes_the_file() {
    let log = mysql_log();
    let check = |has: &str, expected| match decide(&request(mysql(has)), &log) {
        StartDecision::Begin(StreamStart { skip: SkipSet::Mysql { resumes, .. }, .. }) => {
            assert_eq!(resumes, expected, "wrong `resumes` for a client with the GTIDs {has}")
        }
        other => panic!("the stream does not start as expected: {other:?}"),
    };
    check(&format!("{A}:1-10"), false);
    check(&format!("{A}:1-10,00000000-0000-0000-0000-00000000000c:1-9"), false);
    check(&format!("{A}:1-11"), true);
}

#[test]
fn a_request_with_a_set_and_a_file_starts_in_the_file() {
    let log = mysql_log();
    let has = MysqlGtidSet::parse(&format!("{A}:25")).unwrap();
    let from = RequestedStart::Mysql { has: has.clone(), file: "b.000004".into(), position: 500 };
    match decide(&request(from), &log) {
        StartDecision::Begin(begin) => {
            assert_eq!((begin.file.as_str(), begin.position), ("b.000004", 500));
            assert_eq!(begin.skip, SkipSet::Mysql { has, resumes: true });
        }
        other => panic!("the stream does not start as expected: {other:?}"),
    }
}

fn mariadb_log() -> Log {
    let before = [Some("0-1-10,2-3-7"), Some("0-1-20,2-3-7"), Some("0-1-20,0-2-25,2-3-7")];
    Log::new(Flavour::MariaDb, 3, &before, "0-1-20,0-2-30,2-3-7")
}

#[test]
fn streams_by_gtids_start_in_a_mariadb_log() {
    let log = mariadb_log();
    let check =
        |position, segment| expect_begin(&log, RequestedStart::Mariadb(mariadb(position)), segment, 4);
    check("0-1-10,2-3-7", 3);
    check("0-1-15,2-3-7", 3);
    check("0-1-20,2-3-7", 4);
    check("0-2-24,2-3-7", 4);
    check("0-2-25,2-3-7", 5);
    check("0-2-30,2-3-7", 5);
    // A domain without transactions in the log may belong to another source.
    check("0-2-30,2-3-7,5-5-5", 5);
    let refuse =
        |position, kind, words| expect(&log, RequestedStart::Mariadb(mariadb(position)), kind, words);
    refuse("", "refuse", "Could not find GTID state requested by slave in any binlog files.");
    refuse("0-1-9,2-3-7", "refuse", "the log begins after '0-1-10,2-3-7'");
    refuse("0-2-30", "refuse", "required binlog files have been purged");
    refuse("0-2-31,2-3-7", "wait", "start from GTID 0-2-31, which is not in the master's binlog");
    refuse("0-3-30,2-3-7", "refuse", "0-3-30, which is not in the master's binlog. Since");
    refuse("0-1-21,2-3-7", "refuse", "diverged due to executing extra erroneous transactions");
    // The error text stays short even if the client's position is long.
    let domains: Vec<_> = (10..1000).map(|domain| format!("{domain}-1-1")).collect();
    let long = RequestedStart::Mariadb(mariadb(&domains.join(",")));
    expect(&log, long, "refuse", "the log begins after '0-1-10,2-3-7'");
}

#[test]
fn a_mariadb_log_serves_its_beginning() {
    let log = Log::new(Flavour::MariaDb, 1, &[Some(""), Some("0-1-10")], "0-1-15");
    expect_begin(&log, RequestedStart::Mariadb(mariadb("")), 1, 4);
    expect_begin(&log, RequestedStart::Mariadb(mariadb("0-1-3")), 1, 4);
    expect_begin(&log, RequestedStart::Mariadb(mariadb("0-1-10")), 2, 4);
    let unknown = Log::new(Flavour::MariaDb, 1, &[None, Some("0-1-10")], "0-1-15");
    expect_begin(&unknown, RequestedStart::Mariadb(mariadb("0-1-12")), 2, 4);
    expect(
        &unknown,
        RequestedStart::Mariadb(mariadb("")),
        "refuse",
        "does not know the transactions before it",
    );
    let empty = Log::new(Flavour::MariaDb, 1, &[], "");
    expect(&empty, RequestedStart::Mariadb(mariadb("")), "wait", "still empty");
}

fn skip_of(log: &Log, request_of: MariadbRequest) -> MariadbSkip {
    match decide(&request(RequestedStart::Mariadb(request_of)), log) {
        StartDecision::Begin(StreamStart { skip: SkipSet::Mariadb(skip), .. }) => *skip,
        other => panic!("the stream does not start as expected: {other:?}"),
    }
}

#[test]
fn skipped_domains_and_until_positions_of_a_mariadb_client_are_found() {
    let log = mariadb_log();
    let skip = skip_of(&log, mariadb("0-1-20,2-3-7,5-5-5"));
    let domains: Vec<_> =
        skip.domains.values().map(|domain| (domain.gtid.to_string(), domain.was_empty)).collect();
    assert_eq!(domains, [("5-5-5".to_owned(), true)]);
    assert_eq!(skip.state.to_string(), "0-1-20,2-3-7");

    let until = |position: &str, until: &str| {
        let until = Some(MariadbPosition::parse(until).unwrap());
        let skip = skip_of(&log, MariadbRequest { until, ..mariadb(position) });
        skip.until.unwrap().values().map(MariadbGtid::to_string).collect::<Vec<_>>()
    };
    assert_eq!(until("0-1-20,2-3-7", "0-2-28"), ["0-2-28"]);
    assert_eq!(until("0-1-20,2-3-7", "0-1-15,2-3-9"), ["2-3-9"]);
    // The client's start position is ahead of the log, and its stop position is in the log.
    assert!(until("0-2-99,2-3-7", "0-2-28").is_empty());

    let ahead = MariadbRequest { ignore_duplicates: true, ..mariadb("0-2-99,2-3-7") };
    assert_eq!(skip_of(&log, ahead).domains.len(), 1);
}

proptest! {
    /// Cuts a MySQL history of several servers into segments at random. A client has an arbitrary part of
    /// this history. The client must get all transactions of the log that it lacks, or be refused for a valid
    /// reason.
    #[test]
    fn a_mysql_client_gets_everything_it_lacks(
        origins in proptest::collection::vec((0u8..3, any::<bool>()), 1..60),
        purged in 0usize..30,
        cuts in proptest::collection::vec(any::<bool>(), 60),
    ) {
        let mut numbers = [0u64; 3];
        let mut client = MysqlGtidSet::new();
        let mut history = Vec::new();
        for (origin, has) in origins {
            numbers[usize::from(origin)] += 1;
            let mut uuid = [0; 16];
            uuid[0] = origin;
            let gtid = MysqlGtid { uuid, tag: String::new(), number: numbers[usize::from(origin)] };
            if has {
                client.insert(&gtid).unwrap();
            }
            history.push(gtid);
        }
        let purged = purged.min(history.len() - 1);
        let set_of = |gtids: &[MysqlGtid]| {
            let mut set = MysqlGtidSet::new();
            gtids.iter().for_each(|gtid| drop(set.insert(gtid)));
            set
        };
        let mut starts: Vec<usize> = (purged..history.len()).filter(|index| cuts[*index]).collect();
        starts.insert(0, purged);
        starts.dedup();
        let before: Vec<_> = starts.iter().map(|index| set_of(&history[..*index]).to_string()).collect();
        let before: Vec<_> = before.iter().map(|text| Some(text.as_str())).collect();
        let all = set_of(&history);
        let log = Log::new(Flavour::MySql, 1, &before, &all.to_string());
        let from = RequestedStart::Mysql { has: client.clone(), file: String::new(), position: 4 };
        let lost = set_of(&history[..purged]).subtract(&client);
        match decide(&request(from), &log) {
            StartDecision::Begin(begin) => {
                let start = starts[begin.from.segment as usize - 1];
                prop_assert!(lost.is_empty());
                prop_assert!(set_of(&history[..start]).subtract(&client).is_empty());
                // The client lacks a transaction before each later segment. So the stream could not start at
                // a later segment.
                let later = starts.iter().filter(|index| **index > start);
                for index in later {
                    prop_assert!(!set_of(&history[..*index]).subtract(&client).is_empty());
                }
            }
            StartDecision::Refuse(refusal) => {
                prop_assert!(!lost.is_empty(), "{}", refusal);
            }
            StartDecision::Wait(refusal) => prop_assert!(false, "{}", refusal),
        }
    }

    /// The same test as for MySQL, but a MariaDB client has all transactions up to a GTID in each domain.
    #[test]
    fn a_mariadb_client_gets_everything_it_lacks(
        origins in proptest::collection::vec((0u32..3, 1u32..4), 1..60),
        purged in 0usize..30,
        cuts in proptest::collection::vec(any::<bool>(), 60),
        reached in proptest::collection::vec(0usize..61, 3),
    ) {
        let mut numbers = [0u64; 3];
        let mut history = Vec::new();
        let mut client = MariadbPosition::new();
        for (index, (domain, server_id)) in origins.into_iter().enumerate() {
            numbers[domain as usize] += 1;
            let gtid = MariadbGtid { domain, server_id, sequence: numbers[domain as usize] };
            if index < reached[domain as usize] {
                client.advance(gtid);
            }
            history.push(gtid);
        }
        let purged = purged.min(history.len() - 1);
        let state_of = |gtids: &[MariadbGtid]| MariadbBinlogState::from_gtids(gtids.iter().copied());
        let mut starts: Vec<usize> = (purged..history.len()).filter(|index| cuts[*index]).collect();
        starts.insert(0, purged);
        starts.dedup();
        let before: Vec<_> = starts.iter().map(|index| state_of(&history[..*index]).to_string()).collect();
        let before: Vec<_> = before.iter().map(|text| Some(text.as_str())).collect();
        let log = Log::new(Flavour::MariaDb, 1, &before, &state_of(&history).to_string());
        let lacks = |gtid: &MariadbGtid| !client.contains(gtid);
        let lost = history[..purged].iter().any(lacks);
        let mine = MariadbRequest { position: client.clone(), ..MariadbRequest::default() };
        match decide(&request(RequestedStart::Mariadb(mine)), &log) {
            StartDecision::Begin(begin) => {
                let start = starts[begin.from.segment as usize - 1];
                prop_assert!(
                    !history[..start].iter().any(lacks),
                    "the stream lacks a transaction: {} of {:?}",
                    client,
                    history
                );
            }
            StartDecision::Refuse(refusal) => prop_assert!(lost, "{}", refusal),
            StartDecision::Wait(refusal) => prop_assert!(false, "{}", refusal),
        }
    }
}
