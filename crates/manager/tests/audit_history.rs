//! Tests how the audit records show that a former primary was replaced.

use tailwater_manager::SafetyRefusal;
use tailwater_manager::audit_history::{PrimaryRecord, RecordedPrimary, Replacement, last_replacement};
use tailwater_manager::failover_driver::{AuditFolder, AuditStore};
use tailwater_manager::lossless_rules::PossibleLoss;
use tailwater_manager::model::{Audit, LeaseToken, RunKind, RunOutcome};

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
    last_replacement(server, leader, newest_first.iter().cloned())
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
