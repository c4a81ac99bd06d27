//! Checks dump commands together with the variables that the client has set, by deciding where the stream
//! starts in a few example logs.

use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MariadbBinlogState, MysqlGtidSet};
use tailwater_wire::protocol::command::{ClientCommand, FILE_NAME_BYTES_MAX};

use super::example_logs::{self, ExampleLog};
use super::{check_refusal, each_statement, split_flavour};
use crate::client_error::ClientError;
use crate::client_statement::{StatementSession, execute};
use crate::stream_start::{
    ClientDumpRequest, LogHistory, MariadbRequest, MariadbSkip, RequestedStart, SkipSet, StartDecision,
    StreamStart, decide,
};
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// Checks one input. It consists of the flavour, the length of the statements, the statements separated by
/// zero bytes, and the payload of the dump command.
pub(super) fn check(data: &[u8]) {
    let Some((flavour, data)) = split_flavour(data) else { return };
    let Some((length, data)) = data.split_first_chunk() else { return };
    let length = usize::from(u16::from_le_bytes(*length)).min(data.len());
    let (statements, payload) = data.split_at(length);
    let mut session = StatementSession::new();
    for sql in each_statement(statements) {
        execute(&mut session, example_logs::view(flavour), sql);
    }
    let Ok(command) = ClientCommand::parse(payload) else { return };
    let is_dump = matches!(command, ClientCommand::BinlogDump { .. } | ClientCommand::BinlogDumpGtid { .. });
    let request = ClientDumpRequest::new(&command, &session, flavour);
    assert_eq!(
        request.is_some(),
        is_dump,
        "only a dump command must be parsed as a dump request: {command:?}"
    );
    match request {
        None => {}
        Some(Err(refusal)) => check_end(&refusal),
        Some(Ok(request)) => {
            check_request(&request, flavour);
            example_logs::logs(flavour).iter().for_each(|log| check_start(&request, log));
        }
    }
}

/// Checks an error that a client gets instead of a stream.
fn check_end(refusal: &ClientError) {
    assert_eq!(
        refusal.code,
        ClientError::FATAL_ERROR_READING_BINLOG,
        "the client got an unexpected error: {refusal}"
    );
    check_refusal(refusal);
}

fn check_request(request: &ClientDumpRequest, flavour: Flavour) {
    // A client with server id 0 is not a replica, and never waits at the end of the log.
    assert!(request.server_id != 0 || !request.wait_for_more);
    assert!(request.heartbeat_period.is_none_or(|period| !period.is_zero()));
    match (&request.from, flavour) {
        (RequestedStart::FilePosition { file, .. }, _)
        | (RequestedStart::Mysql { file, .. }, Flavour::MySql) => {
            // A byte that is not valid UTF-8 is replaced by a character of three bytes.
            assert!(file.len() <= FILE_NAME_BYTES_MAX * 3);
        }
        (RequestedStart::Mariadb(_), Flavour::MariaDb) => {}
        (from, flavour) => {
            panic!("the request {from:?} was accepted for a log of the other flavour, {flavour:?}")
        }
    }
}

fn check_start(request: &ClientDumpRequest, log: &ExampleLog) {
    match decide(request, log) {
        StartDecision::Wait(refusal) | StartDecision::Refuse(refusal) => check_end(&refusal),
        StartDecision::Begin(begin) => check_begin(request, &begin, log),
    }
}

/// Checks that the stream starts at an existing position of the requested file, and that the client already
/// has every transaction that the stream skips.
fn check_begin(request: &ClientDumpRequest, begin: &StreamStart, log: &ExampleLog) {
    let place = log.catalog().place(begin.from).expect("the stream must start in a segment of the log");
    assert_eq!((&place.file, place.position), (&begin.file, begin.position));
    let file =
        log.catalog().of_segment(begin.from.segment).expect("every segment must belong to a served file");
    assert!(begin.from.offset >= FIRST_EVENT_OFFSET);
    assert!(
        (file.begins_at()..=file.size()).contains(&begin.position),
        "the start is outside of the served file: {begin:?}"
    );
    let before = log.gtids_before(begin.from.segment).expect("the example log must be readable");
    match (&request.from, &begin.skip) {
        (RequestedStart::FilePosition { file, position }, SkipSet::Nothing) => {
            check_place((file, *position), begin);
        }
        (RequestedStart::Mysql { has, file, position }, SkipSet::Mysql { has: skipped, .. }) => {
            assert_eq!(has, skipped);
            match file.is_empty() {
                true => check_mysql(has, begin, before),
                false => check_place((file, *position), begin),
            }
        }
        (RequestedStart::Mariadb(request), SkipSet::Mariadb(skip)) => {
            assert_eq!(begin.from.offset, FIRST_EVENT_OFFSET);
            check_mariadb(request, skip, before);
        }
        (from, skip) => panic!("request {from:?} must not give a stream that skips {skip:?}"),
    }
}

/// Checks that the stream starts at the position that the client requests. A client that names no file gets
/// the oldest one.
fn check_place((file, position): (&str, u64), begin: &StreamStart) {
    assert!(
        file.is_empty() || file == begin.file,
        "the client requested the file {file:?}, but the stream starts at {begin:?}"
    );
    assert!(
        position == begin.position || (file.is_empty() && position == FIRST_EVENT_OFFSET),
        "the stream starts at another position than requested: {begin:?}"
    );
}

fn check_mysql(has: &MysqlGtidSet, begin: &StreamStart, before: Option<GtidSet>) {
    assert_eq!(begin.from.offset, FIRST_EVENT_OFFSET);
    match before {
        Some(GtidSet::MySql(before)) => assert!(
            has.is_superset_of(&before),
            "the stream starts after the transactions {before}, but the client has only {has}"
        ),
        before => panic!("the stream starts at {begin:?}, but the transactions before it are {before:?}"),
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

/// Checks every domain that has transactions before the start of the stream: the client must have a GTID in
/// this domain. If the client's GTID has the same server id as the last of these transactions, its sequence
/// number must not be lower.
fn check_domains(request: &MariadbRequest, before: &MariadbBinlogState) {
    for past in before.iter() {
        let has = request.position.last(past.domain).expect(
            "the client has a GTID in every domain of the transactions before the start of the stream",
        );
        assert!(
            has.server_id != past.server_id || has.sequence >= past.sequence,
            "the stream starts after the transaction {past}, but the client's GTID in this domain is only {has}"
        );
    }
}
