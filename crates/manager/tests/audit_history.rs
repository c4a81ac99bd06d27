//! Tests how the audit records show that a former primary was replaced.

use tailwater_manager::SafetyRefusal;
use tailwater_manager::audit_history::{
    PrimaryRecord, RecordedPrimary, Replacement, last_replacement, with_configured_names,
};
use tailwater_manager::failover_driver::{AuditFolder, AuditStore};
use tailwater_manager::lossless_rules::PossibleLoss;
use tailwater_manager::model::{
    Audit, AuditEntry, AuditEvent, LeaseToken, NamedServer, RelayAssignment, RunAction, RunKind, RunOutcome,
    RunPhase,
};

fn change(id: &str, from: &str, to: &str) -> Audit {
    let outcome = Some(RunOutcome::Promoted { server: to.to_owned(), left: Vec::new() });
    Audit { outcome, ..Audit::new(id, RunKind::Failover, from) }
}

fn lossy(change: Audit) -> Audit {
    let missing = PossibleLoss { after: None, known: None, held_by: Vec::new(), grows: true };
    Audit { possible_loss: Some(missing), ..change }
}

fn refused(id: &str) -> Audit {
    let refusal = SafetyRefusal::NoLease { reason: "refused by the test".to_owned() };
    Audit { outcome: Some(RunOutcome::Unchanged { refusal }), ..Audit::new(id, RunKind::Failover, "db1") }
}

fn of(server: &str, leader: &str, newest_first: &[Audit]) -> Replacement {
    last_replacement(server, leader, newest_first.iter().cloned(), [])
}

#[test]
fn the_last_failover_that_replaced_a_server_decides() {
    let accepted = |id: &str| Replacement::LossAccepted(id.to_owned());
    let first = lossy(change("1", "db1", "db2"));
    assert_eq!(of("db1", "db2", std::slice::from_ref(&first)), accepted("1"));
    // A failover or switchover that replaced no primary is ignored.
    assert_eq!(of("db1", "db2", &[refused("2"), first.clone()]), accepted("1"));
    let back = change("3", "db2", "db1");
    assert_eq!(of("db2", "db1", &[back.clone(), first.clone()]), Replacement::Lossless);
    let again = change("4", "db1", "db2");
    assert_eq!(of("db1", "db2", &[again, back, first.clone()]), Replacement::Lossless);
    let on = change("3", "db2", "db3");
    assert_eq!(of("db1", "db3", &[on.clone(), first.clone()]), accepted("1"));
    assert_eq!(of("db2", "db3", &[on, first]), Replacement::Lossless);
}

#[test]
fn a_failover_and_its_recovery_count_as_one_change() {
    let run = change("1", "db2", "db3");
    let recovery = Audit { resumes: Some("1".to_owned()), ..change("2", "db2", "db3") };
    let first = change("0", "db1", "db2");
    assert_eq!(of("db1", "db3", &[recovery, run, first]), Replacement::Lossless);
}

#[test]
fn records_that_do_not_lead_to_the_present_primary_prove_nothing() {
    let is_unknown = |past| matches!(past, Replacement::Unknown(_));
    assert!(is_unknown(of("db1", "db2", &[])));
    assert!(is_unknown(of("db1", "db2", &[refused("1")])));
    let first = change("1", "db1", "db2");
    assert!(
        is_unknown(of("db3", "db2", std::slice::from_ref(&first))),
        "no audit record shows that the server was primary"
    );
    // Another manager has replaced db2, and may have made db1 the primary once more.
    assert!(is_unknown(of("db1", "db3", std::slice::from_ref(&first))));
    let third = change("3", "db1", "db2");
    assert!(is_unknown(of("db3", "db2", &[third, first])));
}

/// The records of this manager lead to the present primary, but a relay was ordered later to follow another
/// server. So a change is missing from the records, and in it the server may have become primary once more.
#[test]
fn a_relay_that_followed_another_server_later_shows_that_records_are_missing() {
    let records = [refused("2"), Audit { token: Some(5), ..change("1", "db1", "db2") }];
    let judged = |source: &str, term: u64| {
        let relay = RelayAssignment {
            term: LeaseToken(term),
            source: source.to_owned(),
            assigned_term: LeaseToken(term),
            is_stopped: false,
        };
        last_replacement("db1", "db2", records.iter().cloned(), [relay])
    };
    // A relay that was not reached in the failover still follows the former primary, by an earlier order.
    for (source, term) in [("db2", 5), ("db2", 9), ("db1", 3), ("db1", 0)] {
        assert_eq!(judged(source, term), Replacement::Lossless, "the relay follows {source} since {term}");
    }
    for source in ["db1", "db3"] {
        let Replacement::Unknown(reason) = judged(source, 7) else {
            panic!("a relay that follows {source} since a later lease term is ignored")
        };
        assert!(reason.contains("lease term 7") && reason.contains(source), "unclear reason: {reason}");
    }
}

/// Two managers changed the primary in turns. The clock of the second one lags by ten minutes, so the ids of
/// its failovers sort before the failover that they follow.
#[test]
fn records_are_ordered_by_their_lease_terms_when_the_clocks_differ_by_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let records = AuditFolder::new(folder.path());
    let in_term = |term, audit| Audit { token: Some(term), ..audit };
    let stored = [
        in_term(3, change("20261122T111500000Z-orders-failover", "db1", "db2")),
        refused("20261122T111500001Z-orders-failover"),
        in_term(7, lossy(change("20261122T110600000Z-orders-failover", "db2", "db3"))),
        in_term(7, change("20261122T110700000Z-orders-switchover", "db3", "db2")),
        in_term(9, change("20261122T111700000Z-orders-failover", "db2", "db1")),
    ];
    for audit in &stored {
        records.save(audit).unwrap();
    }
    let expected: Vec<_> = stored.iter().rev().map(|audit| audit.id.as_str()).collect();
    // The order is the same in a manager process that has not read the records before.
    for records in [&records, &AuditFolder::new(folder.path())] {
        let newest_first = records.list_newest_first().unwrap();
        assert_eq!(newest_first, expected);
        let read: Vec<_> = newest_first.iter().map(|id| records.load(id).unwrap().unwrap()).collect();
        let known = PrimaryRecord { term: LeaseToken(9), server: "db1".to_owned() };
        assert_eq!(RecordedPrimary::of(read.iter().cloned()), RecordedPrimary::Known(known));
        assert_eq!(of("db3", "db1", &read), Replacement::Lossless);
        assert_eq!(of("db2", "db1", &read), Replacement::Lossless);
    }
}

fn named(name: &str, address: &str, server_id: Option<u32>) -> NamedServer {
    NamedServer { name: name.to_owned(), address: address.to_owned(), server_id }
}

/// Returns the old primary, the server of the first action, and the new primary, as another configuration
/// names them.
fn names(audit: &Audit, servers: &[NamedServer]) -> [String; 3] {
    let audit = with_configured_names(audit.clone(), servers);
    let Some(AuditEvent::ActionOrdered { what: RunAction::MakeWritable { server }, .. }) =
        audit.steps.first().map(|step| step.note.clone())
    else {
        panic!("the record has lost its action: {audit}")
    };
    let Some(RunOutcome::Promoted { server: promoted, .. }) = audit.outcome else {
        panic!("the record has lost its outcome: {audit}")
    };
    [audit.primary, server, promoted]
}

#[test]
fn records_are_read_with_the_names_of_another_configuration() {
    let note =
        AuditEvent::ActionOrdered { number: 1, what: RunAction::MakeWritable { server: "b".to_owned() } };
    let record = Audit {
        servers: vec![named("a", "10.0.0.1:3306", Some(1)), named("b", "10.0.0.2:3306", Some(2))],
        steps: vec![AuditEntry { at_ms: 1, phase: RunPhase::MakeWritable, note }],
        ..change("1", "a", "b")
    };
    let expect = |servers: &[NamedServer], expected: [&str; 3]| assert_eq!(names(&record, servers), expected);
    // Other names, and other addresses for the same servers.
    expect(&[named("db1", "one:3306", Some(1)), named("db2", "two:3306", Some(2))], ["db1", "db2", "db2"]);
    // The same names for the opposite servers.
    expect(&[named("b", "one:3306", Some(1)), named("a", "two:3306", Some(2))], ["b", "a", "a"]);
    // A server that was never reached is recognized by its address.
    expect(&[named("db1", "10.0.0.1:3306", None), named("db2", "x:3306", Some(2))], ["db1", "db2", "db2"]);
    // The address of a removed server was given to a new server, which has its name too.
    expect(
        &[named("a", "10.0.0.1:3306", Some(9)), named("db2", "two:3306", Some(2))],
        ["a (10.0.0.1:3306)", "db2", "db2"],
    );
    expect(&[], ["a", "b", "b"]);
    let of_an_earlier_version = Audit { servers: Vec::new(), ..record.clone() };
    assert_eq!(names(&of_an_earlier_version, &[named("db1", "one:3306", Some(1))]), ["a", "b", "b"]);
}
