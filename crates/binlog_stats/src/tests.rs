//! Compares the results of the collector with simple sums over random transactions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tailwater_wire::binlog_event::{
    BINLOG_MAGIC, ChecksumAlgorithm, EventBuilder, EventHeader, EventType, FormatDescription, GtidEvent,
    LogicalClock, MariadbGtidEvent, QueryEvent,
};
use tailwater_wire::event_printer::EventLocation;
use tailwater_wire::gtid::{MariadbGtid, MysqlGtid};
use tailwater_wire::{Flavour, ServerId};

use crate::stats_report::RowCounts;
use crate::{BinlogReport, Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN, FindingSeverity};

const FILE: &str = "binlog.000007";
const START_SECONDS: u32 = 1_700_000_000;
const TABLES: [&str; 3] = ["orders", "audit", "stock"];

/// The description of one random transaction.
#[derive(Debug, Clone)]
struct Plan {
    /// The time since the previous commit, in microseconds.
    pause_us: u64,
    /// The time from the start of the transaction's first statement to its commit, in seconds.
    seconds: u32,
    statements: Vec<Change>,
}

#[derive(Debug, Clone)]
struct Change {
    table: usize,
    /// 0 for insert, 1 for update, 2 for delete.
    kind: usize,
    /// For each row, the length of its text column, in bytes.
    rows: Vec<usize>,
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let length = prop_oneof![30 => 0usize..40, 1 => 100_000usize..400_000];
    let change = (0usize..3, 0usize..3, proptest::collection::vec(length, 1..6))
        .prop_map(|(table, kind, rows)| Change { table, kind, rows });
    (0u64..5_000_000, 0u32..100, proptest::collection::vec(change, 0..4))
        .prop_map(|(pause_us, seconds, statements)| Plan { pause_us, seconds, statements })
}

struct File {
    builder: EventBuilder,
    flavour: Flavour,
    bytes: Vec<u8>,
    now_us: u64,
    number: u64,
}

impl File {
    fn new(flavour: Flavour) -> Self {
        let mut builder = EventBuilder::new(ServerId(3), ChecksumAlgorithm::Crc32);
        builder.timestamp = START_SECONDS;
        let format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32);
        let mut bytes = BINLOG_MAGIC.to_vec();
        bytes.extend(builder.format_description(&format, 0).unwrap());
        Self { builder, flavour, bytes, now_us: u64::from(START_SECONDS) * 1_000_000, number: 0 }
    }

    fn put(&mut self, event_type: EventType, body: &[u8]) {
        let event = self.builder.event(event_type, 0, body).unwrap();
        self.bytes.extend(event);
    }

    fn transaction(&mut self, plan: &Plan) {
        self.now_us += plan.pause_us;
        self.number += 1;
        let commit_seconds = (self.now_us / 1_000_000) as u32;
        let begin_seconds = commit_seconds - plan.seconds;
        self.builder.timestamp = commit_seconds;
        match self.flavour {
            Flavour::MySql => {
                let mut gtid = GtidEvent::parse(&[0; 25], true).unwrap();
                gtid.gtid = Some(MysqlGtid { uuid: [1; 16], tag: String::new(), number: self.number });
                gtid.logical_clock = Some(LogicalClock { last_committed: 0, sequence_number: 1 });
                gtid.immediate_commit_time_us = Some(self.now_us);
                gtid.original_commit_time_us = Some(self.now_us);
                self.bytes.extend(self.builder.gtid(&gtid).unwrap());
                self.builder.timestamp = begin_seconds;
                self.query(b"BEGIN");
            }
            Flavour::MariaDb => {
                let gtid = MariadbGtid { domain: 0, server_id: 3, sequence: self.number };
                let mut body = gtid.sequence.to_le_bytes().to_vec();
                body.resize(19, 0);
                let header = EventHeader {
                    timestamp: 0,
                    event_type: EventType::MARIADB_GTID,
                    server_id: ServerId(3),
                    event_length: 38,
                    end_log_pos: 0,
                    flags: 0,
                };
                let format = FormatDescription::assumed(self.flavour, ChecksumAlgorithm::Crc32);
                let event = MariadbGtidEvent::parse(&header, &body, &format).unwrap();
                assert_eq!(event.gtid, gtid);
                self.bytes.extend(self.builder.mariadb_gtid(&event).unwrap());
                self.builder.timestamp = begin_seconds;
            }
        }
        for change in &plan.statements {
            self.put(EventType::TABLE_MAP, &table_map(change.table));
            self.put(
                [EventType::WRITE_ROWS_V1, EventType::UPDATE_ROWS_V1, EventType::DELETE_ROWS_V1][change.kind],
                &rows(change),
            );
        }
        self.builder.timestamp = commit_seconds;
        let xid = self.builder.xid(self.number).unwrap();
        self.bytes.extend(xid);
    }

    fn query(&mut self, query: &[u8]) {
        let query = QueryEvent {
            thread_id: 1,
            execution_seconds: 0,
            error_code: 0,
            status_vars_bytes: b"",
            database: b"shop",
            query,
            compressed: false,
        };
        self.bytes.extend(self.builder.query(&query).unwrap());
    }

    /// Passes the binlog to a collector, big events in chunks. Returns the report.
    fn report(&self, options: CollectorOptions) -> BinlogReport {
        let mut collector = Collector::new(options);
        feed(&mut collector, &self.bytes);
        collector.report()
    }
}

fn feed(collector: &mut Collector, file: &[u8]) {
    let mut offset = BINLOG_MAGIC.len();
    while offset < file.len() {
        let header = EventHeader::parse(&file[offset..]).unwrap();
        let event = &file[offset..offset + header.event_length as usize];
        let place = EventLocation { file: FILE, offset: offset as u64 };
        let mut chunks = event.chunks(FIRST_CHUNK_BYTES_MIN).peekable();
        while let Some(chunk) = chunks.next() {
            collector.chunk(place, &header, chunk, chunks.peek().is_none()).unwrap();
        }
        offset += event.len();
    }
}

/// A table map event for a table with an INT and a LONGTEXT column.
fn table_map(table: usize) -> Vec<u8> {
    let mut body = vec![table as u8 + 1, 0, 0, 0, 0, 0, 1, 0];
    for name in ["shop", TABLES[table]] {
        body.push(name.len() as u8);
        body.extend(name.as_bytes());
        body.push(0);
    }
    body.extend([2, 3, 252, 1, 4, 0b10]);
    body
}

fn rows(change: &Change) -> Vec<u8> {
    let mut body = vec![change.table as u8 + 1, 0, 0, 0, 0, 0, 1, 0, 2, 0b11];
    if change.kind == 1 {
        body.push(0b11);
    }
    for length in &change.rows {
        for _ in 0..if change.kind == 1 { 2 } else { 1 } {
            body.extend([0, 9, 0, 0, 0]);
            body.extend((*length as u32).to_le_bytes());
            body.resize(body.len() + length, b'x');
        }
    }
    body
}

fn counts(changes: &[Change]) -> RowCounts {
    let of = |kind| {
        changes.iter().filter(|change| change.kind == kind).map(|change| change.rows.len() as u64).sum()
    };
    RowCounts { inserted: of(0), updated: of(1), deleted: of(2) }
}

fn with(flavour: Flavour, plans: &[Plan]) -> File {
    let mut file = File::new(flavour);
    plans.iter().for_each(|plan| file.transaction(plan));
    file
}

fn any_flavour() -> impl Strategy<Value = Flavour> {
    prop_oneof![Just(Flavour::MySql), Just(Flavour::MariaDb)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_report_equals_simple_sums(plans in proptest::collection::vec(any_plan(), 1..30), flavour in any_flavour()) {
        let head = File::new(flavour).bytes.len() as u64 - 4;
        let file = with(flavour, &plans);
        let report = file.report(CollectorOptions { top: 1000, ..CollectorOptions::default() });
        let changes: Vec<Change> = plans.iter().flat_map(|plan| plan.statements.clone()).collect();
        prop_assert_eq!(report.transactions, plans.len() as u64);
        prop_assert_eq!(report.bytes + report.other_bytes, file.bytes.len() as u64 - 4);
        prop_assert_eq!(report.other_bytes, head);
        prop_assert_eq!(report.rows, counts(&changes));
        prop_assert_eq!(report.row_events, changes.len() as u64);
        prop_assert_eq!(report.kinds.empty, plans.iter().filter(|plan| plan.statements.is_empty()).count() as u64);
        prop_assert_eq!(report.event_types.iter().map(|counted| counted.bytes).sum::<u64>(), report.bytes + head);

        let mut by_table: BTreeMap<&str, Vec<Change>> = BTreeMap::new();
        for change in &changes {
            by_table.entry(TABLES[change.table]).or_default().push(change.clone());
        }
        prop_assert_eq!(report.tables.count, by_table.len() as u64);
        for table in &report.tables.by_rows {
            prop_assert_eq!(table.rows, counts(&by_table[table.table.as_str()]));
        }

        // Check gaps, durations and the rate. Commit times have the precision of the flavour.
        let unit = if flavour == Flavour::MySql { 1 } else { 1_000_000 };
        let mut now = u64::from(START_SECONDS) * 1_000_000;
        let commits: Vec<u64> = plans.iter().map(|plan| { now += plan.pause_us; now / unit * unit }).collect();
        let mut gaps: Vec<u64> = commits.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > if unit == 1 { 0 } else { unit }).collect();
        gaps.sort_unstable_by_key(|gap| std::cmp::Reverse(*gap));
        let found: Vec<u64> = report.gaps.iter().map(|gap| gap.end_us - gap.start_us).collect();
        prop_assert_eq!(found, gaps);
        prop_assert_eq!(report.span.last_commit_us, *commits.last().unwrap());
        prop_assert_eq!(report.span.exact_clock, flavour == Flavour::MySql);
        for one in &report.longest {
            let number: usize = one.gtid.as_ref().unwrap().rsplit([':', '-']).next().unwrap().parse().unwrap();
            let plan = &plans[number - 1];
            // Events contain the start of a statement in whole seconds, and the time of the commit with
            // fractions of a second.
            prop_assert!((one.seconds - f64::from(plan.seconds)).abs() < 1.0, "wrong duration: {one:?}");
            prop_assert_eq!(one.rows, counts(&plan.statements));
        }
        let all = report.timeline.buckets.iter().map(|bucket| (bucket.transactions, bucket.bytes, bucket.rows));
        let all = all.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        prop_assert_eq!(all, (report.transactions, report.bytes, report.rows.total()));
        let sizes = report.sizes.iter().map(|size| (size.transactions, size.bytes)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        prop_assert_eq!(sizes, (report.transactions, report.bytes));
    }

    /// A transaction that a filter excludes changes no number of the report.
    #[test]
    fn filters_exclude_whole_transactions(
        plans in proptest::collection::vec(any_plan(), 1..20),
        flavour in any_flavour(),
        since in 0u64..60,
        length in 0u64..60,
    ) {
        let file = with(flavour, &plans);
        let since_us = (u64::from(START_SECONDS) + since) * 1_000_000;
        let options = CollectorOptions {
            table: Some(("shop".into(), "audit".into())),
            since_us: Some(since_us),
            until_us: Some(since_us + length * 1_000_000),
            ..CollectorOptions::default()
        };
        let report = file.report(options.clone());
        let mut now = u64::from(START_SECONDS) * 1_000_000;
        let mut wanted = plans.clone();
        wanted.retain(|plan| {
            now += plan.pause_us;
            let unit = if flavour == Flavour::MySql { 1 } else { 1_000_000 };
            options.wants_time(now / unit * unit) && plan.statements.iter().any(|change| change.table == 1)
        });
        let changes: Vec<Change> = wanted.iter().flat_map(|plan| plan.statements.clone()).collect();
        prop_assert_eq!((report.transactions, report.rows), (wanted.len() as u64, counts(&changes)));
    }

    /// A cut or changed binlog gives an error or other numbers, but never a panic.
    #[test]
    fn a_damaged_binlog_causes_no_panic(
        plans in proptest::collection::vec(any_plan(), 1..4),
        flavour in any_flavour(),
        at in any::<proptest::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = with(flavour, &plans).bytes;
        let at = 4 + at.index(bytes.len() - 4);
        bytes[at] ^= flip;
        let mut collector = Collector::new(CollectorOptions::default());
        let mut offset = 4;
        while let Some(Ok(header)) = bytes.get(offset..).map(EventHeader::parse) {
            let end = bytes.len().min(offset + header.event_length as usize);
            let place = EventLocation { file: FILE, offset: offset as u64 };
            if collector.chunk(place, &header, &bytes[offset..end], true).is_err() {
                break;
            }
            offset = end;
        }
        let _ = collector.report().findings(&|time| time.to_string());
    }
}

/// Many small transactions, then a big one after which nothing is committed for a while, then small ones
/// again.
fn stalled(flavour: Flavour) -> BinlogReport {
    let small = |pause_us| Plan {
        pause_us,
        seconds: 0,
        statements: vec![Change { table: 0, kind: 0, rows: vec![10] }],
    };
    let mut plans = vec![small(10_000); 200];
    let rows = vec![1_000_000; 20];
    plans.push(Plan { pause_us: 10_000, seconds: 90, statements: vec![Change { table: 1, kind: 2, rows }] });
    plans.push(small(134_000_000));
    plans.extend(vec![small(10_000); 200]);
    with(flavour, &plans).report(CollectorOptions::default())
}

#[test]
fn a_stall_is_reported_with_its_cause() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let report = stalled(flavour);
        assert!(
            (report.gaps[0].seconds - 134.0).abs() < 0.01,
            "the length of the gap must be 134 s: {:?}",
            report.gaps[0]
        );
        assert_eq!(report.gaps[0].during, report.biggest[0]);
        assert_eq!(report.gaps[0].during.tables[0].table, "audit");
        let findings = report.findings(&|time| (time / 1_000_000).to_string());
        assert_eq!((findings[0].weight, findings[0].kind), (FindingSeverity::Alarm, "big_transaction"));
        let text = &findings[0].text;
        let gtid = report.biggest[0].gtid.as_ref().unwrap();
        for part in
            [gtid.as_str(), "19.1 MiB", "20 rows deleted in shop.audit", FILE, "2 min 14 s", "open for "]
        {
            assert!(text.contains(part), "{part:?} is missing in the finding: {text}");
        }
        assert_eq!(
            findings.iter().filter(|finding| finding.text.contains(gtid)).count(),
            1,
            "exactly one finding must name the transaction: {findings:?}"
        );
        assert!(
            findings.iter().all(|finding| finding.kind != "gap"),
            "the gap is reported twice: {findings:?}"
        );
    }
}

#[test]
fn long_transactions_and_unexplained_gaps_are_reported() {
    let small = |pause_us, seconds| Plan {
        pause_us,
        seconds,
        statements: vec![Change { table: 2, kind: 1, rows: vec![10, 10] }],
    };
    let mut plans = vec![small(10_000, 0); 100];
    plans.push(small(10_000, 95));
    plans.push(small(40_000_000, 0));
    plans.extend(vec![small(10_000, 0); 100]);
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let report = with(flavour, &plans).report(CollectorOptions::default());
        let findings = report.findings(&|time| (time / 1_000_000).to_string());
        let kinds: Vec<_> = findings.iter().map(|finding| (finding.weight, finding.kind)).collect();
        assert_eq!(kinds, [(FindingSeverity::Alarm, "gap"), (FindingSeverity::Alarm, "long_transaction")]);
        assert!(
            findings[0].text.starts_with("Nothing was committed for 40.0 s ("),
            "the first finding is not the gap: {findings:?}"
        );
        let long = format!("{} was open for ", report.longest[0].gtid.as_ref().unwrap());
        assert!(
            findings[1].text.contains(&long) && findings[1].text.contains("2 rows updated in shop.stock"),
            "wrong finding about the long transaction: {findings:?}"
        );
    }
}

#[test]
fn an_ordinary_binlog_has_no_findings() {
    let plan =
        Plan { pause_us: 10_000, seconds: 0, statements: vec![Change { table: 0, kind: 0, rows: vec![10] }] };
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let report = with(flavour, &vec![plan.clone(); 500]).report(CollectorOptions::default());
        assert_eq!(report.findings(&|time| time.to_string()), []);
        assert_eq!(Collector::new(CollectorOptions::default()).report().findings(&|_| String::new()), []);
    }
}

/// Other programs read the JSON with these field names.
#[test]
fn the_json_field_names_do_not_change() {
    let report = serde_json::to_value(stalled(Flavour::MySql)).unwrap();
    let names = |value: &serde_json::Value| -> Vec<String> {
        {
            let mut names: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            names.sort();
            names
        }
    };
    assert_eq!(
        names(&report),
        [
            "biggest",
            "bytes",
            "compression",
            "ddl",
            "ddl_statements",
            "event_types",
            "events",
            "flavour",
            "gaps",
            "kinds",
            "longest",
            "most_rows",
            "other_bytes",
            "other_servers_transactions",
            "row_events",
            "rows",
            "server_version",
            "servers",
            "sizes",
            "span",
            "statements",
            "tables",
            "timeline",
            "transactions"
        ]
    );
    assert_eq!(names(&report["gaps"][0]), ["during", "end_us", "next", "restart", "seconds", "start_us"]);
    assert_eq!(
        names(&report["biggest"][0]),
        [
            "begin_us",
            "bytes",
            "commit_us",
            "events",
            "file",
            "gtid",
            "offset",
            "rows",
            "seconds",
            "server_id",
            "statements",
            "tables",
            "tables_count"
        ]
    );
    assert_eq!(
        names(&report["tables"]["by_bytes"][0]),
        ["bytes", "primary_key", "rows", "schema", "table", "transactions"]
    );
    assert_eq!(names(&report["rows"]), ["deleted", "inserted", "updated"]);
    assert_eq!(names(&report["timeline"]), ["bucket_seconds", "buckets"]);
    assert_eq!(names(&report["timeline"]["buckets"][0]), ["bytes", "rows", "start_us", "transactions"]);
    assert_eq!(names(&report["sizes"][0]), ["bytes", "bytes_from", "transactions"]);
    assert_eq!(
        names(&report["span"]),
        [
            "end_offset",
            "exact_clock",
            "files",
            "first_commit_us",
            "first_file",
            "first_offset",
            "last_commit_us",
            "last_file"
        ]
    );
}
