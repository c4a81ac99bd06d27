//! Tests of recovery: a failover or switchover whose manager died or lost the lease is undone, finished, or
//! left unchanged. The audit record and the state of the servers decide which of these happens.

use proptest::prelude::*;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::audit_history::InterruptedRun;
use tailwater_manager::interrupted_failover_recovery::{RecoveryRequest, RunRecovery};
use tailwater_manager::model::{
    ActionOutcome, Audit, AuditEntry, AuditEvent, LeaseToken, PrimaryStatus, RunAction, RunKind, RunOutcome,
    RunPhase,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::switchover_state_machine::simulated_cluster::{
    Fate, World, check_primaries, is_as_before, order, run_until,
};

fn recovery_of(traces: InterruptedRun) -> RunRecovery {
    let (route_hooks, direct_replicas) = (vec!["routes".to_owned()], vec!["s0".to_owned()]);
    RunRecovery::new(RecoveryRequest { id: "recovery".to_owned(), traces, route_hooks, direct_replicas })
}

/// Runs the recovery to its end, one action at a time. If `dies` is given, its manager dies before the action
/// with that number.
fn recover(
    traces: InterruptedRun,
    dies: Option<u32>,
    mut execute: impl FnMut(&RunAction, &Audit) -> ActionOutcome,
) -> Audit {
    let mut recovery = recovery_of(traces);
    let mut next = recovery.begin(0);
    while !next.is_empty() {
        let (number, act) = next.remove(0);
        if dies.is_some_and(|dies| number >= dies) {
            break;
        }
        let answer = execute(&act, recovery.audit());
        next.extend(recovery.answer(1, number, answer));
    }
    recovery.audit().clone()
}

/// Checks that either the old primary or the candidate is the primary, never both, and that no acknowledged
/// transaction is missing.
fn check(world: &World, audit: &Audit) {
    check_primaries(world, audit);
    match audit.outcome.as_ref() {
        Some(RunOutcome::Promoted { server, left }) => {
            assert!(left.is_empty(), "the audit record lists the wrong remaining actions: {audit}");
            assert!(
                world.writable.contains(server) && !world.old_writable,
                "the servers are in the wrong state; audit record: {audit}"
            );
            assert_eq!(world.captures_from(server), world.ackers.len(), "{audit}");
        }
        Some(RunOutcome::Undone { .. }) => {
            assert!(is_as_before(world), "the servers are not as they were before; audit record: {audit}")
        }
        other => panic!("the recovery has an unexpected outcome, {other:?}: {audit}"),
    }
    assert_eq!(world.primaries().len(), 1, "{audit}");
}

fn any_fate() -> impl Strategy<Value = (Fate, u64)> {
    let fate = prop_oneof![
        12 => Just(Fate::Done),
        1 => Just(Fate::Failed),
        2 => Just(Fate::DoneButAnswerLost),
        1 => Just(Fate::RequestLost),
    ];
    (fate, 0u64..15)
}

fn cases() -> u32 {
    if std::env::var_os("TAILWATER_LONG").is_some() { 20_000 } else { 500 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// The manager may die or lose the lease at any moment. The actions in flight then take effect or not.
    /// The managers that recover the failover or switchover may die too, or their actions may fail. The first
    /// recovery that completes must leave one primary, which has every acknowledged transaction.
    #[test]
    fn a_switchover_whose_manager_was_lost_anywhere_is_undone_or_finished(
        ackers in 1usize..4,
        acks in 1usize..4,
        servers in 1usize..3,
        fates in prop::collection::vec(any_fate(), 1..80),
        lost in 1u32..60,
        lives in any::<bool>(),
        recoveries in prop::collection::vec((1u32..30, prop::collection::vec(any_fate(), 1..20)), 0..3),
    ) {
        let mut world = World::new(ackers, servers, acks.min(ackers));
        let mut fates = fates.into_iter().cycle();
        let ordered = order(&world);
        let (audit, stored) =
            run_until(
                &mut world,
                ordered,
                |_| fates.next().expect("the cyclic iterator must never end"),
                lives.then_some(lost),
                (!lives).then_some(lost),
            );
        world.lease = true;
        let Some(traces) = stored.as_ref().and_then(InterruptedRun::of) else {
            // The failover or switchover has ended, or there is nothing to recover.
            let has_ended = !audit.is_interrupted();
            prop_assert!(
                has_ended || world.old_writable,
                "the servers are in the wrong state; audit record: {}",
                audit
            );
            prop_assert!(
                has_ended || world.captures_from("old") == ackers,
                "the servers are in the wrong state; audit record: {}",
                audit
            );
            return Ok(());
        };
        for (dies, fates) in recoveries {
            let mut fates = fates.into_iter().cycle();
            recover(traces.clone(), Some(dies), |act, audit| {
                let answer = match fates.next().expect("the cyclic iterator must never end").0 {
                    Fate::Done => world.apply(act),
                    Fate::Failed if *act != RunAction::CheckLease => ActionOutcome::Failed("no".to_owned()),
                    Fate::DoneButAnswerLost if act.changes_state() => {
                        world.apply(act);
                        ActionOutcome::Unknown("timed out".to_owned())
                    }
                    Fate::RequestLost if *act != RunAction::CheckLease => ActionOutcome::Unknown("timed out".to_owned()),
                    _ => world.apply(act),
                };
                world.live();
                check_primaries(&world, audit);
                answer
            });
        }
        let recovered = recover(traces, None, |act, audit| {
            let answer = world.apply(act);
            world.live();
            check_primaries(&world, audit);
            answer
        });
        check(&world, &recovered);
        let text = serde_json::to_string(&recovered).expect("the value must be serializable as JSON");
        prop_assert_eq!(serde_json::from_str::<Audit>(&text).expect("the text must be a valid audit record"), recovered);
    }
}

/// Returns the audit record of a failover or switchover that ordered these actions. An action with `true` was
/// executed; an action with `false` has no outcome.
fn record(kind: RunKind, acts: &[(RunAction, bool)]) -> Audit {
    let mut steps = Vec::new();
    for (number, (what, is_done)) in (1..).zip(acts) {
        let mut note = |note| steps.push(AuditEntry { at_ms: 1, phase: RunPhase::Confirm, note });
        note(AuditEvent::ActionOrdered { number, what: what.clone() });
        if *is_done {
            note(AuditEvent::ActionAnswered { number, outcome: "done".to_owned(), text: String::new() });
        }
    }
    Audit {
        id: "run".to_owned(),
        kind,
        resumes: None,
        primary: "old".to_owned(),
        servers: Vec::new(),
        dry_run: false,
        allow_data_loss: false,
        token: Some(7),
        steps,
        holds: None,
        possible_loss: None,
        choice: None,
        pause_ms: None,
        outcome: None,
    }
}

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

fn seen(writable: bool, last: u64) -> ActionOutcome {
    let executed = GtidSet::parse(Flavour::MySql, &format!("{UUID}:1-{last}"))
        .expect("the text must be a valid GTID set");
    ActionOutcome::ServerStatus(PrimaryStatus { writable, waiting: None, executed })
}

/// Recovers a failover or switchover. `s0` is the outcome of the probe of the candidate, `old` that of the
/// old primary. Every other action succeeds. Returns the actions that changed something, and the audit
/// record.
fn done_about(audit: &Audit, s0: ActionOutcome, old: ActionOutcome) -> (Vec<RunAction>, Audit) {
    let mut acts = Vec::new();
    let traces = InterruptedRun::of(audit)
        .expect("the audit record must be that of an interrupted failover or switchover");
    let recovered = recover(traces, None, |act, _| {
        match act {
            RunAction::CheckLease => return ActionOutcome::LeaseHeld(LeaseToken(8)),
            RunAction::ProbeServer { server } => {
                return if server == "s0" { s0.clone() } else { old.clone() };
            }
            _ => {}
        }
        if act.changes_state() {
            acts.push(act.clone());
        }
        ActionOutcome::Done
    });
    (acts, recovered)
}

fn failover(done: usize) -> Audit {
    let (server, acker) = (|| "s0".to_owned(), || "relay0".to_owned());
    let all = [
        RunAction::StopAcker { acker: acker() },
        RunAction::DrainRelayLog { server: server() },
        RunAction::EnableSemiSyncSource { server: server(), acks: 1 },
        RunAction::MakeWritable { server: server() },
        RunAction::RepointAcker { acker: acker(), server: server() },
        RunAction::RunRouteHook { hook: "routes".to_owned(), server: server() },
    ];
    let ordered: Vec<_> =
        all.into_iter().take(done).enumerate().map(|(at, act)| (act, at + 1 < done)).collect();
    record(RunKind::Failover, &ordered)
}

fn dead() -> ActionOutcome {
    ActionOutcome::Failed("refused".to_owned())
}

#[test]
fn a_failover_is_undone_until_the_candidate_takes_writes_and_finished_from_then_on() {
    let start = RunAction::StartAcker { acker: "relay0".to_owned() };
    let unmake = RunAction::DisableSemiSyncSource { server: "s0".to_owned() };
    let read_only = RunAction::MakeReadOnly { server: "s0".to_owned() };
    let follow = RunAction::RepointAcker { acker: "relay0".to_owned(), server: "s0".to_owned() };
    let hook = RunAction::RunRouteHook { hook: "routes".to_owned(), server: "s0".to_owned() };
    assert_eq!(InterruptedRun::of(&failover(0)), None);
    let undone = |done: usize, wanted: &[&RunAction]| {
        let (acts, audit) = done_about(&failover(done), seen(false, 9), dead());
        assert_eq!(acts.iter().collect::<Vec<_>>(), wanted, "{audit}");
        assert!(
            matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
            "the audit record has the wrong outcome: {audit}"
        );
        assert!(
            audit.to_string().contains("recovery of run"),
            "the audit record has the wrong contents: {audit}"
        );
    };
    undone(1, &[&start]);
    undone(2, &[&unmake, &start]);
    undone(3, &[&unmake, &start]);
    undone(4, &[&read_only, &unmake, &start]);
    // The candidate takes writes, whether or not the failover or switchover got the answer.
    for done in 4..=6 {
        let (acts, audit) = done_about(&failover(done), seen(true, 12), dead());
        // It is unknown whether the hook has completed, so it is run again.
        assert_eq!(acts, [follow.clone(), hook.clone()], "{audit}");
        assert_eq!(
            audit.outcome,
            Some(RunOutcome::Promoted { server: "s0".to_owned(), left: Vec::new() }),
            "{audit}"
        );
    }
}

#[test]
fn nothing_is_done_if_the_state_of_the_servers_is_uncertain() {
    let held = || RunAction::PauseWrites { server: "old".to_owned(), within_ms: 500, grace_ms: 100 };
    let prepared = || RunAction::PrepareSemiSyncSource { server: "s0".to_owned(), acks: 1 };
    let read = || RunAction::ReadAcker { acker: "relay0".to_owned() };
    let switchover = record(RunKind::Switchover, &[(read(), true), (prepared(), true), (held(), false)]);
    let nothing = |audit: &Audit, s0: ActionOutcome, old: ActionOutcome, why: &str| {
        let (acts, audit) = done_about(audit, s0, old);
        let Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Interrupted { reason, .. } }) =
            &audit.outcome
        else {
            panic!("the audit record has the wrong outcome: {audit}")
        };
        assert!(
            acts.is_empty() && reason.contains(why),
            "the recovery must do nothing and report {why:?}: {audit}"
        );
    };
    let silent = || ActionOutcome::Unknown("silence".to_owned());
    nothing(&switchover, silent(), seen(false, 9), "s0 cannot be probed");
    nothing(&switchover, seen(false, 9), silent(), "old cannot be probed");
    nothing(&switchover, seen(true, 9), seen(true, 9), "both s0 and old take writes");
    // The candidate took writes and was restarted, so its commits may have been acknowledged.
    nothing(&switchover, seen(false, 10), seen(false, 9), &format!("s0 has executed {UUID}:10"));
    nothing(&failover(5), seen(false, 12), dead(), "was made primary");
    // A failover or switchover needs no recovery if it did not pause writes, or if it has ended.
    assert_eq!(
        InterruptedRun::of(&record(RunKind::Switchover, &[(read(), true), (prepared(), false)])),
        None
    );
    let refusal = SafetyRefusal::NoLease { reason: String::new() };
    assert_eq!(
        InterruptedRun::of(&Audit { outcome: Some(RunOutcome::Unchanged { refusal }), ..switchover.clone() }),
        None
    );

    // Another manager has repointed an acker since, so the failover or switchover is obsolete. If another
    // manager only stopped the acker, the failover of that manager was interrupted too.
    for (stopped, code, why) in [
        (false, "TW-MGR-0073", "another manager has acted since: relay0 was repointed in term 8"),
        (true, "TW-MGR-0072", "another manager has acted since: relay0 was stopped in term 8"),
    ] {
        let mut effects = 0;
        let traces = InterruptedRun::of(&switchover)
            .expect("the audit record must be that of an interrupted failover or switchover");
        let audit = recover(traces, None, |act, _| {
            effects += usize::from(act.changes_state());
            match act {
                RunAction::CheckLease => ActionOutcome::LeaseHeld(LeaseToken(9)),
                RunAction::CheckAckerTerm { term: 7, .. } => {
                    ActionOutcome::LaterTerm { term: LeaseToken(8), stopped }
                }
                _ => seen(false, 9),
            }
        });
        let Some(RunOutcome::Unchanged { refusal }) = &audit.outcome else {
            panic!("the audit record has the wrong outcome: {audit}")
        };
        assert!(
            effects == 0 && refusal.code() == code && refusal.to_string().contains(why),
            "the audit record has the wrong outcome: {audit}"
        );
    }
}

/// An acker that does not answer may have been repointed by a manager with newer records.
#[test]
fn ackers_that_do_not_answer_are_not_repointed_to_the_old_primary() {
    let held = RunAction::PauseWrites { server: "old".to_owned(), within_ms: 500, grace_ms: 100 };
    let read = |acker: &str| (RunAction::ReadAcker { acker: acker.to_owned() }, true);
    let run = record(RunKind::Switchover, &[read("relay0"), read("relay1"), (held, false)]);
    let with = |answering: &[&str]| {
        let mut acts = Vec::new();
        let audit = recover(
            InterruptedRun::of(&run)
                .expect("the audit record must be that of an interrupted failover or switchover"),
            None,
            |act, _| {
                match act {
                    RunAction::CheckLease => return ActionOutcome::LeaseHeld(LeaseToken(8)),
                    RunAction::ProbeServer { .. } => return seen(false, 9),
                    RunAction::CheckAckerTerm { acker, .. } if !answering.contains(&acker.as_str()) => {
                        return ActionOutcome::Unknown("timed out".to_owned());
                    }
                    RunAction::RepointAcker { acker, .. } => acts.push(acker.clone()),
                    _ => {}
                }
                ActionOutcome::Done
            },
        );
        (acts, audit)
    };
    let (acts, audit) = with(&[]);
    assert!(
        acts.is_empty() && audit.end().contains("none of the ackers relay0, relay1 answers"),
        "the audit record has the wrong contents: {audit}"
    );
    let (acts, audit) = with(&["relay1"]);
    assert_eq!(acts, ["relay1"]);
    // The next recovery must repoint the acker that did not answer.
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Incomplete { to_undo, .. }) if to_undo.len() == 1),
        "the audit record lists the wrong remaining actions: {audit}"
    );
    let (acts, audit) = with(&["relay0", "relay1"]);
    assert_eq!(acts, ["relay0", "relay1"]);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn a_candidate_that_may_take_writes_keeps_the_old_primary_read_only() {
    let held = RunAction::PauseWrites { server: "old".to_owned(), within_ms: 500, grace_ms: 100 };
    let prepared = RunAction::PrepareSemiSyncSource { server: "s0".to_owned(), acks: 1 };
    let traces = InterruptedRun::of(&record(RunKind::Switchover, &[(prepared, true), (held, true)]))
        .expect("the audit record must be that of an interrupted failover or switchover");
    let mut acts = Vec::new();
    let audit = recover(traces, None, |act, _| {
        match act {
            RunAction::CheckLease => return ActionOutcome::LeaseHeld(LeaseToken(8)),
            RunAction::ProbeServer { .. } => return seen(false, 9),
            RunAction::CheckAckerTerm { .. } => return ActionOutcome::Done,
            _ => acts.push(act.clone()),
        }
        ActionOutcome::Unknown("timed out".to_owned())
    });
    assert_eq!(acts, [RunAction::MakeReadOnly { server: "s0".to_owned() }]);
    let Some(RunOutcome::Incomplete { to_undo, .. }) = &audit.outcome else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    // The old primary may take writes only if it waits for as many ACKs as the audit record says.
    let released = RunAction::ResumeWrites { server: "old".to_owned(), acks: 1 };
    assert!(
        to_undo.len() == 3 && to_undo.contains(&released),
        "the audit record lists the wrong remaining actions: {audit}"
    );
}
