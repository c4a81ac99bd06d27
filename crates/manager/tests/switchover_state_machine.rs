//! Tests of the switchover state machine on a small model of a cluster. In the model each action takes time,
//! may fail, may take effect without an answer, or may find that the lease is lost. Clients write wherever
//! they can.

pub mod simulated_cluster;

use proptest::prelude::*;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::model::{Audit, AuditEvent, RunAction, RunOutcome};
use tailwater_manager::switchover::SwitchoverRequest;

use self::simulated_cluster::{Fate, PAUSE_MS_MAX, World, is_as_before, order, run};

/// Runs the usual switchover request. The lease is held throughout.
fn run_with(world: &mut World, mut fate: impl FnMut(&RunAction) -> Fate) -> Audit {
    let order = order(world);
    run(world, order, |act| (fate(act), 2), None)
}

/// Checks what must hold at the end of every switchover.
fn check(world: &World, audit: &Audit) {
    match audit.outcome.as_ref().unwrap_or_else(|| panic!("the switchover has no outcome: {audit}")) {
        RunOutcome::Promoted { server, left } => {
            assert!(
                world.writable.contains(server) && world.writable.len() == 1,
                "the servers are in the wrong state; audit record: {audit}"
            );
            assert!(!world.old_writable, "the servers are in the wrong state; audit record: {audit}");
            assert_eq!(world.captures_from(server), world.ackers.len(), "{audit}");
            let pause_ms =
                audit.pause_ms.expect("the audit record must contain the length of the write pause");
            assert!(pause_ms <= PAUSE_MS_MAX, "writes were paused for too long; audit record: {audit}");
            // The demotion of the old primary must be executed, or be listed as remaining.
            let demotes = |act: &RunAction| matches!(act, RunAction::Demote { .. });
            let done = audit
                .steps
                .iter()
                .any(|step| matches!(&step.note, AuditEvent::ActionOrdered { what, .. } if demotes(what)));
            assert!(
                done || left.iter().any(demotes),
                "the demotion of the old primary is missing; audit record: {audit}"
            );
        }
        RunOutcome::Unchanged { .. } => assert_eq!(world.effects, 0, "{audit}"),
        RunOutcome::Undone { .. } => {
            assert!(is_as_before(world), "the servers are not as they were before; audit record: {audit}")
        }
        RunOutcome::Incomplete { to_undo, .. } => {
            // Another manager executes the remaining undo actions from the audit record.
            let mut world = world.clone();
            for act in to_undo {
                world.apply(act);
            }
            assert!(is_as_before(&world), "the servers are not as they were before; audit record: {audit}");
        }
        RunOutcome::Planned { .. } => {
            panic!("the outcome is a plan, although this is not a dry run: {audit}")
        }
    }
    let text = serde_json::to_string(audit).expect("the value must be serializable as JSON");
    assert_eq!(&serde_json::from_str::<Audit>(&text).expect("the text must be a valid audit record"), audit);
}

fn refusal(audit: &Audit) -> &SafetyRefusal {
    match &audit.outcome {
        Some(
            RunOutcome::Unchanged { refusal }
            | RunOutcome::Undone { refusal, .. }
            | RunOutcome::Incomplete { refusal, .. },
        ) => refusal,
        _ => panic!("the switchover was not refused: {audit}"),
    }
}

#[test]
fn a_primary_that_is_alive_is_switched_over() {
    let mut world = World::new(2, 2, 1);
    let audit = run_with(&mut world, |_| Fate::Done);
    check(&world, &audit);
    assert_eq!(
        audit.outcome,
        Some(RunOutcome::Promoted { server: "s0".to_owned(), left: Vec::new() }),
        "{audit}"
    );
    // The actions that pause writes, wait, stop, enable semi-sync, repoint and make writable take 2 ms each.
    assert_eq!((world.captures_from("s0"), audit.pause_ms), (2, Some(12)), "{audit}");
    let text = audit.to_string();
    for part in
        ["switchover of old", "pause writes on old", "no writes were taken for 12 ms", "s0 is primary"]
    {
        assert!(text.contains(part), "the audit record does not contain {part:?}: {text}");
    }
}

#[test]
fn the_candidate_is_prepared_before_the_pause_and_becomes_writable_last() {
    let mut world = World::new(2, 1, 1);
    let audit = run_with(&mut world, |_| Fate::Done);
    let at = |wanted: &dyn Fn(&RunAction) -> bool| {
        audit
            .steps
            .iter()
            .position(|step| matches!(&step.note, AuditEvent::ActionOrdered { what, .. } if wanted(what)))
            .expect("the audit record must contain the action")
    };
    let pause = at(&|act| matches!(act, RunAction::PauseWrites { .. }));
    assert!(
        at(&|act| matches!(act, RunAction::PrepareSemiSyncSource { .. } | RunAction::WaitForServer { .. }))
            < pause
    );
    let writable = at(&|act| matches!(act, RunAction::MakeWritable { .. }));
    assert!(at(&|act| matches!(act, RunAction::RepointAcker { acker, .. } if acker == "relay1")) < writable);
    assert!(at(&|act| matches!(act, RunAction::Demote { .. })) > writable);
}

#[test]
fn a_switchover_that_exceeds_the_limit_of_the_pause_is_undone() {
    let mut world = World::new(1, 1, 1);
    let ordered = order(&world);
    let slow = |act: &RunAction| match act {
        RunAction::RepointAcker { server, .. } if server == "s0" => (Fate::Done, 500),
        _ => (Fate::Done, 2),
    };
    let audit = run(&mut world, ordered, slow, None);
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Undone { refusal: SafetyRefusal::PauseExceeded { step, .. }, .. })
        if step.contains("relay0")),
        "the audit record has the wrong outcome: {audit}"
    );
    // The pause takes as long as its limit, plus 2 ms for the undo actions, which run in parallel.
    assert_eq!(audit.pause_ms, Some(PAUSE_MS_MAX + 2), "{audit}");
}

#[test]
fn a_demotion_that_waits_for_acks_that_do_not_come_is_undone() {
    // The statement that sets read_only waits for commits in flight, and these commits wait for ACKs. The
    // statement may take half of the time limit of the pause.
    let mut world = World::new(1, 1, 1);
    let mut within = None;
    let audit = run_with(&mut world, |act| match act {
        RunAction::PauseWrites { within_ms, grace_ms, .. } => {
            within = Some((*within_ms, *grace_ms));
            Fate::Failed
        }
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert_eq!(within, Some((PAUSE_MS_MAX / 2, 20)));
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Undone { refusal: SafetyRefusal::StepFailed { .. }, .. })),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn a_write_despite_read_only_is_detected() {
    let mut world = World::new(1, 1, 1);
    world.privileged = true;
    let audit = run_with(&mut world, |_| Fate::Done);
    check(&world, &audit);
    assert!(
        matches!(refusal(&audit), SafetyRefusal::StepFailed { reason, .. } if reason.contains("read_only")),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn an_undo_action_that_fails_is_repeated_once() {
    let mut world = World::new(1, 1, 1);
    let mut tried = 0;
    let audit = run_with(&mut world, |act| match act {
        RunAction::MakeWritable { .. } => Fate::Failed,
        RunAction::RepointAcker { server, .. } if server == "old" && tried == 0 => {
            tried += 1;
            Fate::RequestLost
        }
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
    // An acker that does not come back must not keep the primary read-only.
    let mut world = World::new(2, 1, 1);
    let audit = run_with(&mut world, |act| match act {
        RunAction::MakeWritable { .. } => Fate::Failed,
        RunAction::RepointAcker { acker, server } if acker == "relay1" && server == "old" => {
            Fate::RequestLost
        }
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Incomplete { to_undo, .. }) if to_undo.len() == 1),
        "the audit record lists the wrong remaining actions: {audit}"
    );
    assert!(world.old_writable);
}

#[test]
fn a_candidate_that_may_be_writable_keeps_the_old_primary_read_only() {
    let mut world = World::new(1, 1, 1);
    let audit = run_with(&mut world, |act| match act {
        RunAction::MakeWritable { .. } => Fate::DoneButAnswerLost,
        RunAction::MakeReadOnly { .. } => Fate::RequestLost,
        _ => Fate::Done,
    });
    check(&world, &audit);
    let Some(RunOutcome::Incomplete { to_undo, .. }) = &audit.outcome else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    assert_eq!(to_undo[0], RunAction::MakeReadOnly { server: "s0".to_owned() });
    assert!(!world.old_writable);
}

#[test]
fn if_a_candidate_does_not_catch_up_another_one_is_used_or_writes_are_not_paused() {
    let stuck = |act: &RunAction| match act {
        RunAction::WaitForServer { server, .. } if server == "s0" => Fate::Failed,
        _ => Fate::Done,
    };
    let mut world = World::new(1, 2, 1);
    let audit = run_with(&mut world, stuck);
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Promoted { server, .. }) if server == "s1"),
        "the audit record has the wrong outcome: {audit}"
    );
    let mut world = World::new(1, 2, 1);
    let wanted = SwitchoverRequest { wanted: Some("s0".to_owned()), ..order(&world) };
    let audit = run(&mut world, wanted, |act| (stuck(act), 2), None);
    assert!(
        matches!(refusal(&audit), SafetyRefusal::StepFailed { .. }) && audit.pause_ms.is_none(),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn writes_are_not_paused_while_the_candidate_lags_too_far_behind() {
    let slow = |act: &RunAction| match act {
        RunAction::WaitForServer { server, .. } if server == "s0" => (Fate::Done, 60),
        _ => (Fate::Done, 2),
    };
    // Another server has a small lag, so it is promoted instead.
    let mut world = World::new(1, 2, 1);
    let ordered = order(&world);
    let audit = run(&mut world, ordered, slow, None);
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Promoted { server, .. }) if server == "s1"),
        "the audit record has the wrong outcome: {audit}"
    );
    // No server has a small lag. The reason contains the lag.
    let mut world = World::new(1, 1, 1);
    let wanted = SwitchoverRequest { wanted: Some("s0".to_owned()), ..order(&world) };
    let audit = run(&mut world, wanted, slow, None);
    assert!(
        matches!(refusal(&audit), SafetyRefusal::NotReady { reasons, .. } if reasons.contains("60 ms")),
        "the audit record has the wrong outcome: {audit}"
    );
    assert!(
        audit.pause_ms.is_none() && is_as_before(&world),
        "the servers are not as they were before; audit record: {audit}"
    );
    // The lag of the candidate becomes smaller with each round.
    let mut world = World::new(1, 1, 1);
    let mut behind_ms = 40;
    let ordered = order(&world);
    let nearing = |act: &RunAction| match act {
        RunAction::WaitForServer { .. } => {
            behind_ms = std::cmp::max(2, behind_ms - 5);
            (Fate::Done, behind_ms)
        }
        _ => (Fate::Done, 2),
    };
    let audit = run(&mut world, ordered, nearing, None);
    check(&world, &audit);
    assert_eq!(audit.pause_ms, Some(15), "{audit}");
}

#[test]
fn a_switchover_whose_conditions_are_not_met_is_refused_and_changes_nothing() {
    let refused =
        |world: &mut World, change: &dyn Fn(&mut SwitchoverRequest), fate: &dyn Fn(&RunAction) -> Fate| {
            let mut ordered = order(world);
            change(&mut ordered);
            let audit = run(world, ordered, |act| (fate(act), 2), None);
            assert!(
                matches!(audit.outcome, Some(RunOutcome::Unchanged { .. })),
                "the audit record has the wrong outcome: {audit}"
            );
            check(world, &audit);
            refusal(&audit).clone()
        };
    let done = |_: &RunAction| Fate::Done;
    let mut read_only = World::new(1, 1, 1);
    read_only.old_writable = false;
    let why = refused(&mut read_only, &|_| {}, &done);
    assert!(
        matches!(&why, SafetyRefusal::NotReady { reasons, .. } if reasons.contains("no writes")),
        "the switchover was refused for the wrong reason: {why}"
    );
    let silent = |act: &RunAction| {
        if matches!(act, RunAction::ReadAcker { .. }) { Fate::RequestLost } else { Fate::Done }
    };
    let why = refused(&mut World::new(1, 1, 1), &|_| {}, &silent);
    assert!(
        matches!(&why, SafetyRefusal::NotReady { reasons, .. } if reasons.contains("relay0")),
        "the switchover was refused for the wrong reason: {why}"
    );
    let why = refused(&mut World::new(1, 1, 1), &|order| order.acks_required = 2, &done);
    assert!(
        matches!(&why, SafetyRefusal::NotReady { .. }),
        "the switchover was refused for the wrong reason: {why}"
    );
    let why = refused(&mut World::new(1, 1, 1), &|order| order.wanted = Some("s9".to_owned()), &done);
    assert!(
        matches!(&why, SafetyRefusal::CandidateUnfit { .. }),
        "the switchover was refused for the wrong reason: {why}"
    );
    let why = refused(&mut World::new(1, 0, 1), &|_| {}, &done);
    assert!(
        matches!(&why, SafetyRefusal::NoCandidate { .. }),
        "the switchover was refused for the wrong reason: {why}"
    );
    let mut errant = World::new(1, 1, 1);
    errant.errant = true;
    let why = refused(&mut errant, &|_| {}, &done);
    assert!(
        matches!(&why, SafetyRefusal::NoCandidate { reasons } if reasons.contains("4e11fa47")),
        "the switchover was refused for the wrong reason: {why}"
    );
}

#[test]
fn a_dry_run_changes_nothing_and_reports_the_plan() {
    let mut world = World::new(1, 1, 1);
    let done = run_with(&mut world.clone(), |_| Fate::Done);
    let done: Vec<_> = done
        .steps
        .iter()
        .filter_map(|step| match &step.note {
            AuditEvent::ActionOrdered { what, .. } if what.changes_state() => {
                Some(std::mem::discriminant(what))
            }
            _ => None,
        })
        .collect();
    let dry = SwitchoverRequest { dry_run: true, ..order(&world) };
    let plan = run(&mut world, dry, |_| (Fate::Done, 2), None);
    assert_eq!(world.effects, 0);
    let Some(RunOutcome::Planned { server, acts, expected_ms }) = &plan.outcome else {
        panic!("the outcome is not a plan: {plan}")
    };
    // The plan must list what the real switchover does. The order of actions that run in parallel may differ.
    let planned: Vec<_> = acts.iter().map(std::mem::discriminant).collect();
    assert!(
        planned.len() == done.len() && planned.iter().all(|act| done.contains(act)),
        "the dry run returned the wrong plan: {plan}"
    );
    // In ms: prepare 3, pause 3, stop 5 (with semi-sync in parallel), repoint 30, writable 3, route 50, all
    // other actions 3.
    assert_eq!((server.as_str(), *expected_ms), ("s0", 97), "{plan}");
}

fn any_fate() -> impl Strategy<Value = (Fate, u64)> {
    let fate = prop_oneof![
        14 => Just(Fate::Done),
        1 => Just(Fate::Failed),
        1 => Just(Fate::DoneButAnswerLost),
        1 => Just(Fate::RequestLost),
    ];
    (fate, prop_oneof![8 => 0u64..15, 1 => 0u64..300])
}

fn cases() -> u32 {
    if std::env::var_os("TAILWATER_LONG").is_some() { 20_000 } else { 500 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever fails or takes long, two servers never take writes, no commit is missing, and the limit of
    /// the pause is kept. Each switchover ends with an outcome, and the cluster is in the state that this
    /// outcome describes.
    #[test]
    fn with_any_faults_there_is_at_most_one_primary_and_the_outcome_is_true(
        ackers in 1usize..4,
        acks in 1usize..4,
        servers in 0usize..3,
        fates in prop::collection::vec(any_fate(), 1..80),
        lease_goes in prop::option::weighted(0.3, 1u32..60),
        privileged in prop::bool::weighted(0.1),
    ) {
        let mut world = World::new(ackers, servers, acks.min(ackers));
        world.privileged = privileged;
        let mut fates = fates.into_iter().cycle();
        let ordered = order(&world);
        let audit = run(&mut world, ordered, |_| fates.next().expect("the cyclic iterator must never end"), lease_goes);
        check(&world, &audit);
    }

    /// If no action fails or takes long, a new primary is always promoted.
    #[test]
    fn without_faults_a_new_primary_is_promoted(
        ackers in 1usize..4,
        acks in 1usize..4,
        servers in 1usize..4,
        takes in prop::collection::vec(1u64..8, 1..20),
    ) {
        let mut world = World::new(ackers, servers, acks.min(ackers));
        let mut takes = takes.into_iter().cycle();
        let ordered = order(&world);
        let audit =
            run(&mut world, ordered, |_| (Fate::Done, takes.next().expect("the cyclic iterator must never end")), None);
        check(&world, &audit);
        let promoted = matches!(&audit.outcome, Some(RunOutcome::Promoted { left, .. }) if left.is_empty());
        prop_assert!(promoted, "no server was promoted; audit record: {}", audit);
    }
}
