//! Requests for a stream, with what the client has set before: where the stream begins in a few made-up logs.

use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MysqlGtidSet};
use tailwater_wire::protocol::command::{Command, FILE_NAME_BYTES_MAX};

use super::made_up::{self, Log};
use super::{check_refusal, each_statement, split_flavour};
use crate::serve::catalog::FIRST_EVENT;
use crate::serve::refusal::Refusal;
use crate::serve::start::{
    Begin, DumpRequest, From, History, MariadbRequest, MariadbSkip, Outcome, Skip, decide,
};
use crate::serve::statement::{Session, answer};

/// Which flavour, the length of the statements, the statements with zero bytes between them, the command's payload.
pub(super) fn check(data: &[u8]) {
    let Some((flavour, data)) = split_flavour(data) else { return };
    let Some((length, data)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(data.len());
    let (statements, payload) = data.split_at(length);
    let mut session = Session::new();
    for sql in each_statement(statements) {
        answer(&mut session, made_up::view(flavour), sql);
    }
    let Ok(command) = Command::parse(payload) else { return };
    let is_dump = matches!(command, Command::BinlogDump { .. } | Command::BinlogDumpGtid { .. });
    let request = DumpRequest::new(&command, &session, flavour);
    assert_eq!(request.is_some(), is_dump, "{command:?}");
    match request {
        None => {}
        Some(Err(refusal)) => check_end(&refusal),
        Some(Ok(request)) => {
            check_request(&request, flavour);
            made_up::logs(flavour).iter().for_each(|log| check_start(&request, log));
        }
    }
}

/// A refusal that ends a dump.
fn check_end(refusal: &Refusal) {
    assert_eq!(refusal.code, Refusal::FATAL_ERROR_READING_BINLOG, "{refusal}");
    check_refusal(refusal);
}

fn check_request(request: &DumpRequest, flavour: Flavour) {
    // Nothing is kept open for a reader that is no replica.
    assert!(request.server_id != 0 || !request.wait_for_more);
    assert!(request.heartbeat_period.is_none_or(|period| !period.is_zero()));
    match (&request.from, flavour) {
        (From::FilePosition { file, .. }, _) | (From::Mysql { file, .. }, Flavour::MySql) => {
            // A byte that is no text is replaced by three.
            assert!(file.len() <= FILE_NAME_BYTES_MAX * 3);
        }
        (From::Mariadb(_), Flavour::MariaDb) => {}
        (from, flavour) => panic!("{from:?} of a log of {flavour:?}"),
    }
}

fn check_start(request: &DumpRequest, log: &Log) {
    match decide(request, log) {
        Outcome::Wait(refusal) | Outcome::Refuse(refusal) => check_end(&refusal),
        Outcome::Begin(begin) => check_begin(request, &begin, log),
    }
}

/// The stream begins at a place that there is, under the name that was asked for, and leaves out nothing that the client
/// lacks.
fn check_begin(request: &DumpRequest, begin: &Begin, log: &Log) {
    let place = log.catalog().place(begin.from).expect("the stream begins in a segment");
    assert_eq!((&place.file, place.position), (&begin.file, begin.position));
    let file = log.catalog().of_segment(begin.from.segment).expect("a segment is of a file");
    assert!(begin.from.offset >= FIRST_EVENT);
    assert!((file.begins_at()..=file.size()).contains(&begin.position), "{begin:?}");
    let before = log.gtids_before(begin.from.segment).expect("a made-up log can be read");
    match (&request.from, &begin.skip) {
        (From::FilePosition { file, position }, Skip::Nothing) => {
            check_place((file, *position), begin);
        }
        (From::Mysql { has, file, position }, Skip::Mysql { has: skipped, .. }) => {
            assert_eq!(has, skipped);
            match file.is_empty() {
                true => check_mysql(has, begin, before),
                false => check_place((file, *position), begin),
            }
        }
        (From::Mariadb(request), Skip::Mariadb(skip)) => {
            assert_eq!(begin.from.offset, FIRST_EVENT);
            check_mariadb(request, skip, before);
        }
        (from, skip) => panic!("{from:?} begins with {skip:?}"),
    }
}

/// A client that names a place gets it; one that names no file gets the oldest.
fn check_place((file, position): (&str, u64), begin: &Begin) {
    assert!(file.is_empty() || file == begin.file, "{file:?}: {begin:?}");
    assert!(position == begin.position || (file.is_empty() && position == FIRST_EVENT), "{begin:?}");
}

fn check_mysql(has: &MysqlGtidSet, begin: &Begin, before: Option<GtidSet>) {
    assert_eq!(begin.from.offset, FIRST_EVENT);
    match before {
        Some(GtidSet::MySql(before)) => assert!(has.is_superset_of(&before), "{has} lacks some of {before}"),
        before => panic!("{begin:?} with {before:?} before it"),
    }
}

fn check_mariadb(request: &MariadbRequest, skip: &MariadbSkip, before: Option<GtidSet>) {
    assert_eq!(Some(GtidSet::MariaDb(skip.state.clone())), before);
    check_domains(request, &skip.state);
    for (domain, skipped) in &skip.domains {
        assert_eq!(request.position.last(*domain), Some(skipped.gtid));
    }
    assert_eq!(skip.until.is_some(), request.until.is_some());
    for (domain, last) in skip.until.iter().flatten() {
        let wanted = request.until.as_ref().and_then(|until| until.last(*domain));
        assert_eq!(wanted, Some(*last));
    }
    assert_eq!((skip.strict, skip.until_before), (request.strict, request.until_before));
}

/// Of every domain that has something before the beginning of the stream the client has something too, and of the same
/// server no less.
fn check_domains(request: &MariadbRequest, before: &MariadbBinlogState) {
    for past in before.iter() {
        let has = request.position.last(past.domain).expect("a domain that the client lacks is left out");
        assert!(has.server_id != past.server_id || has.sequence >= past.sequence, "{has} and {past}");
    }
}
