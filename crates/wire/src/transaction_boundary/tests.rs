//! Tests of the transaction grammar with streams that the tests build. The integration tests use files of
//! real servers.

use super::*;
use crate::ServerId;
use crate::binlog_event::{ChecksumAlgorithm, GtidEvent, MariadbGtidEvent, QueryEvent};
use crate::gtid::{MariadbGtid, MysqlGtid};

/// An event of a test stream: its type, flags and body.
struct Made(EventType, u16, Vec<u8>);

fn query(text: &str) -> Made {
    let query = QueryEvent {
        thread_id: 1,
        execution_seconds: 0,
        error_code: 0,
        status_vars_bytes: &[],
        database: b"test",
        query: text.as_bytes(),
        compressed: false,
    };
    Made(EventType::QUERY, 0, query.to_body())
}

fn gtid(transaction_bytes: Option<u64>) -> Made {
    let event = GtidEvent {
        gtid: Some(MysqlGtid { uuid: [7; 16], tag: String::new(), number: 9 }),
        flags: 1,
        logical_clock: Some(crate::binlog_event::LogicalClock { last_committed: 3, sequence_number: 4 }),
        immediate_commit_time_us: Some(20),
        original_commit_time_us: Some(10),
        transaction_bytes: Some(transaction_bytes.unwrap_or(0)),
        immediate_server_version: Some(80400),
        original_server_version: Some(80400),
        commit_group_ticket: None,
    };
    Made(EventType::GTID, 0, event.to_body())
}

fn mariadb_gtid(flags: u8) -> Made {
    let gtid = MariadbGtid { domain: 0, server_id: 1, sequence: 5 };
    let event = MariadbGtidEvent { flags, ..MariadbGtidEvent::bare(gtid) };
    Made(EventType::MARIADB_GTID, 0, event.to_body())
}

fn plain(event_type: EventType) -> Made {
    Made(event_type, 0, vec![0; 20])
}

fn rows(statement_end: bool) -> Made {
    Made(EventType::WRITE_ROWS_V1, 0, vec![1, 0, 0, 0, 0, 0, u8::from(statement_end), 0, 1, 1])
}

/// Returns one letter per event: `o`utside, `b`egin, `i`nside, `e`nd, `a`bandoned, or `!` for an error. Stops
/// after an error.
fn steps(flavour: Flavour, events: impl IntoIterator<Item = Made>) -> String {
    let format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32);
    let mut tracker = TransactionTracker::new(flavour);
    let mut letters = String::new();
    for Made(event_type, flags, body) in events {
        let header = EventHeader {
            timestamp: 1,
            event_type,
            server_id: ServerId(1),
            event_length: (EVENT_HEADER_BYTES + body.len() + 4) as u32,
            end_log_pos: if flags == EventHeader::FLAG_ARTIFICIAL { 0 } else { 1000 },
            flags,
        };
        let with_checksum = [&body[..], &[0; 4]].concat();
        let step = tracker.observe(&header, &with_checksum, &format);
        letters.push(match &step {
            Ok(TransactionStep::Outside) => 'o',
            Ok(TransactionStep::Begin(_)) => 'b',
            Ok(TransactionStep::Inside) => 'i',
            Ok(TransactionStep::End) => 'e',
            Ok(TransactionStep::Abandoned) => 'a',
            Err(_) => '!',
        });
        if step.is_err() {
            break;
        }
        let inside = matches!(step, Ok(TransactionStep::Begin(_) | TransactionStep::Inside));
        assert!(
            inside == tracker.in_transaction() || (step == Ok(TransactionStep::Outside)),
            "the step that the tracker returned does not match its state after the steps {letters}"
        );
    }
    letters
}

#[test]
fn mysql_transaction_boundaries_are_found() {
    let check = |events: Vec<Made>, expected: &str| assert_eq!(steps(Flavour::MySql, events), expected);
    let xid = || plain(EventType::XID);
    let table_map = || plain(EventType::TABLE_MAP);
    check(vec![gtid(None), query("BEGIN"), table_map(), rows(true), xid(), gtid(None)], "biiieb");
    check(vec![gtid(None), query("drop table t"), gtid(None)], "beb");
    check(vec![gtid(None), plain(EventType::USER_VAR), query("create table t as select @a")], "bie");
    check(vec![gtid(None), plain(EventType::ROWS_QUERY), query("create table t(a int)")], "bie");
    check(vec![gtid(None), query("BEGIN"), query("insert into t values (1)"), query("COMMIT")], "biie");
    let savepoints = ["BEGIN", "SAVEPOINT `a`", "ROLLBACK TO `a`", "rollback to `a`", "ROLLBACK"];
    check([gtid(None)].into_iter().chain(savepoints.map(query)).collect(), "biiiie");
    let atomic_create = query("CREATE TABLE `t` (\n  `a` int\n) START TRANSACTION");
    check(vec![gtid(None), query("BEGIN"), atomic_create, table_map(), rows(true), xid()], "biiiie");
    let prepare = || plain(EventType::XA_PREPARE);
    check(vec![gtid(None), query("XA START X'61',X'',1"), query("XA END X'61',X'',1"), prepare()], "biie");
    check(vec![gtid(None), query("XA COMMIT X'61',X'',1"), gtid(None)], "beb");
    check(vec![gtid(None), query("XA ROLLBACK X'61',X'',1"), gtid(None)], "beb");
    check(vec![gtid(None), plain(EventType::TRANSACTION_PAYLOAD), gtid(None)], "beb");
    check(vec![gtid(None), plain(EventType::INCIDENT), gtid(None)], "beb");
    check(vec![gtid(None), query("BEGIN"), plain(EventType::VIEW_CHANGE), query("COMMIT")], "biie");
    let load =
        [EventType::BEGIN_LOAD_QUERY, EventType::APPEND_BLOCK, EventType::EXECUTE_LOAD_QUERY].map(plain);
    check([gtid(None), query("BEGIN")].into_iter().chain(load).chain([xid()]).collect(), "biiiie");
    check(vec![plain(EventType::PREVIOUS_GTIDS), plain(EventType::STOP), plain(EventType::INCIDENT)], "ooo");
}

#[test]
fn events_that_mysql_cannot_send_are_errors() {
    let check = |events: Vec<Made>, expected: &str| assert_eq!(steps(Flavour::MySql, events), expected);
    check(vec![gtid(None), gtid(None)], "b!");
    check(vec![gtid(None), query("BEGIN"), query("BEGIN")], "bi!");
    check(vec![gtid(None), query("BEGIN"), plain(EventType::TRANSACTION_PAYLOAD)], "bi!");
    check(vec![plain(EventType::TRANSACTION_PAYLOAD)], "!");
    check(vec![rows(true)], "!");
    check(vec![query("insert into t values (1)")], "!");
    check(vec![plain(EventType::XID)], "!");
    check(vec![gtid(None), rows(true)], "b!");
    check(vec![gtid(None), plain(EventType::XID)], "b!");
    check(vec![gtid(None), plain(EventType::ROTATE)], "b!");
    check(vec![gtid(None), plain(EventType::STOP)], "b!");
    check(vec![plain(EventType::MARIADB_GTID)], "!");
    check(vec![Made(EventType(200), 0, vec![])], "!");
}

#[test]
fn mariadb_event_group_boundaries_are_found() {
    let check = |events: Vec<Made>, expected: &str| assert_eq!(steps(Flavour::MariaDb, events), expected);
    let [plain_group, alone, completed] =
        [0, MariadbGtidEvent::FLAG_STANDALONE, 0].map(|flags| move || mariadb_gtid(flags));
    let xid = || plain(EventType::XID);
    let table_map = || plain(EventType::TABLE_MAP);
    let annotate = || plain(EventType::MARIADB_ANNOTATE_ROWS);
    check(vec![plain_group(), annotate(), table_map(), rows(true), xid(), plain_group()], "biiieb");
    check(vec![plain_group(), query("insert into t values (1)"), query("COMMIT")], "bie");
    check(vec![plain_group(), query("ROLLBACK TO `a`"), query("ROLLBACK")], "bie");
    check(vec![alone(), query("drop table t"), alone()], "beb");
    check(vec![alone(), plain(EventType::INTVAR), plain(EventType::RAND), query("create table x")], "biie");
    check(vec![alone(), annotate(), table_map(), rows(false), rows(true), alone()], "biiieb");
    check(vec![completed(), query("XA COMMIT X'61',X'',1"), alone()], "beb");
    check(vec![completed(), query("XA ROLLBACK X'61',X'',1"), alone()], "beb");
    check(vec![plain_group(), table_map(), rows(true), plain(EventType::XA_PREPARE)], "biie");
    check(vec![plain(EventType::MARIADB_BINLOG_CHECKPOINT), plain(EventType::MARIADB_GTID_LIST)], "oo");
    check(vec![plain_group(), plain_group()], "b!");
    check(vec![rows(false)], "!");
    check(vec![query("drop table t")], "!");
    check(vec![plain(EventType::GTID)], "!");
}

#[test]
fn events_outside_transactions_do_not_end_the_open_one() {
    let artificial = |event_type| Made(event_type, EventHeader::FLAG_ARTIFICIAL, plain(EventType::ROTATE).2);
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let open = match flavour {
            Flavour::MySql => vec![gtid(None), query("BEGIN")],
            Flavour::MariaDb => vec![mariadb_gtid(0), query("insert")],
        };
        let aside = vec![
            artificial(EventType::ROTATE),
            artificial(EventType::FORMAT_DESCRIPTION),
            plain(EventType::HEARTBEAT),
            Made(EventType(222), EventHeader::FLAG_IGNORABLE, vec![]),
            plain(EventType::XID),
            Made(EventType(222), EventHeader::FLAG_IGNORABLE, vec![]),
        ];
        assert_eq!(steps(flavour, open.into_iter().chain(aside)), "bioooieo");
    }
}

#[test]
fn a_restarted_source_abandons_the_open_transaction() {
    for flavour in [Flavour::MySql, Flavour::MariaDb] {
        let open = || match flavour {
            Flavour::MySql => gtid(None),
            Flavour::MariaDb => mariadb_gtid(0),
        };
        let mut format = FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32);
        let later_file = Made(EventType::FORMAT_DESCRIPTION, 0, format.to_body());
        assert_eq!(steps(flavour, [open(), later_file]), "b!");
        format.created = 1_700_000_000;
        let restarted = || Made(EventType::FORMAT_DESCRIPTION, 0, format.to_body());
        assert_eq!(steps(flavour, [restarted(), open(), restarted(), open()]), "obab");
    }
}

#[test]
fn the_stated_length_must_be_correct() {
    let length = |made: &Made| (EVENT_HEADER_BYTES + made.2.len() + 4) as u64;
    // If the stated length is above 250, the field for it takes two more bytes. With this statement the
    // length is always above 250. So the length of the event itself does not change.
    let statement = "insert into t values (".repeat(10);
    let transaction = |bytes| vec![gtid(Some(bytes)), query("BEGIN"), query(&statement), query("COMMIT")];
    let total: u64 = transaction(300).iter().map(length).sum();
    let check = |bytes, expected: &str| assert_eq!(steps(Flavour::MySql, transaction(bytes)), expected);
    assert!(total > 251, "the transaction has only {total} bytes");
    check(total, "biie");
    check(total + 1, "bii!");
    check(total - 1, "bii!");
    check(252, "bi!");
    check(0, "biie");
}

#[test]
fn the_opening_event_describes_the_transaction() {
    let format = FormatDescription::assumed(Flavour::MariaDb, ChecksumAlgorithm::Off);
    let gtid = MariadbGtid { domain: 3, server_id: 11, sequence: 5 };
    let flags = MariadbGtidEvent::FLAG_STANDALONE | MariadbGtidEvent::FLAG_DDL;
    let body = MariadbGtidEvent { flags, commit_id: Some(77), ..MariadbGtidEvent::bare(gtid) }.to_body();
    let header = EventHeader {
        timestamp: 1,
        event_type: EventType::MARIADB_GTID,
        server_id: ServerId(11),
        event_length: (EVENT_HEADER_BYTES + body.len()) as u32,
        end_log_pos: 0,
        flags: 0,
    };
    let mut tracker = TransactionTracker::new(Flavour::MariaDb);
    let start = TransactionStart {
        gtid: Some(Gtid::MariaDb(gtid)),
        dependency: SourceDependency::CommitGroup(77),
        commit_time_us: None,
        transaction_bytes: None,
        standalone: true,
        ddl: true,
    };
    assert_eq!(tracker.observe(&header, &body, &format), Ok(TransactionStep::Begin(start)));
    assert!(tracker.in_transaction());
    tracker.reset();
    assert!(!tracker.in_transaction());
    let cut = &body[..body.len() - 1];
    assert!(matches!(tracker.observe(&header, cut, &format), Err(WireError::Truncated { needed: 1, .. })));
    let long = [&body[..], b"x"].concat();
    assert!(matches!(tracker.observe(&header, &long, &format), Err(WireError::Malformed { .. })));
}
