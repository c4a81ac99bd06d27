//! Tests of the failover state machine on a small model of a cluster. In the model each action may fail, may
//! take effect without an answer, or may find that the lease is lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::candidates::{CandidateServer, GtidOrigin, ReplicationKind};
use tailwater_manager::failover::{ExpectedDurations, Failover, FailoverRequest};
use tailwater_manager::lossless_rules::{
    AckPolicyHistory, AckerEvidence, AckerStop, PolicyObservation, SemiSyncWait,
};
use tailwater_manager::model::{
    ActionOutcome, Audit, AuditEntry, AuditEvent, LeaseToken, RunAction, RunOutcome,
};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtid};

const OLD: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const VERSION: ServerVersion = ServerVersion { major: 9, minor: 7, patch: 1 };

pub fn set(last: u64) -> GtidSet {
    let text = if last == 0 { String::new() } else { format!("{OLD}:1-{last}") };
    GtidSet::parse(Flavour::MySql, &text).expect("the text must be a valid GTID set")
}

/// What happens to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    /// The action takes effect, but its answer is lost.
    DoneButAnswerLost,
    /// The action is lost on its way, and has no effect.
    RequestLost,
    /// An acker has accepted an order of a later lease term, and refuses. Any other action fails.
    Stale,
}

/// A model of the servers and ackers. A position is a number of transactions.
#[derive(Debug, Clone)]
pub struct World {
    acks: usize,
    /// For each acker: how many transactions it holds, and from which server it captures.
    ackers: BTreeMap<String, (u64, Option<String>)>,
    /// For each server: how many transactions it received, and how many it executed.
    servers: BTreeMap<String, (u64, u64)>,
    waits_for: BTreeMap<String, usize>,
    writable: BTreeSet<String>,
    /// Number of transactions that were acknowledged to clients before the failure.
    acknowledged: u64,
    old_lives: bool,
    lease: bool,
    effects: usize,
}

impl World {
    pub fn new(ackers: &[u64], servers: &[(u64, u64)], acks: usize) -> Self {
        let mut held = ackers.to_vec();
        held.sort_unstable_by(|a, b| b.cmp(a));
        let old = || Some("old".to_owned());
        Self {
            acks,
            ackers: ackers
                .iter()
                .enumerate()
                .map(|(at, holds)| (format!("relay{at}"), (*holds, old())))
                .collect(),
            servers: servers.iter().enumerate().map(|(at, has)| (format!("s{at}"), *has)).collect(),
            waits_for: BTreeMap::new(),
            writable: BTreeSet::new(),
            acknowledged: held[acks - 1],
            old_lives: false,
            lease: true,
            effects: 0,
        }
    }

    fn captures_from(&self, server: &str) -> usize {
        self.ackers.values().filter(|(_, from)| from.as_deref() == Some(server)).count()
    }

    /// Whether commits on a server are acknowledged to clients.
    fn acknowledges(&self, server: &str) -> bool {
        match server {
            // The old primary may still be alive.
            "old" => self.captures_from("old") >= self.acks,
            _ => {
                self.writable.contains(server)
                    && self.waits_for.get(server).is_none_or(|acks| self.captures_from(server) >= *acks)
            }
        }
    }

    fn primaries(&self) -> Vec<&str> {
        let all = self.servers.keys().map(String::as_str).chain(["old"]);
        all.filter(|server| self.acknowledges(server)).collect()
    }

    /// Simulates that the old primary, if it is alive, commits more transactions. The relays that capture
    /// from it receive them, and its clients get an OK for each commit that enough relays acknowledge.
    fn live(&mut self) {
        if !self.old_lives {
            return;
        }
        let newest = self.ackers.values().map(|(holds, _)| *holds).max().unwrap_or(0) + 1;
        for (holds, from) in self.ackers.values_mut() {
            if from.as_deref() == Some("old") {
                *holds = newest;
            }
        }
        if self.captures_from("old") >= self.acks {
            self.acknowledged = newest;
        }
    }

    /// Executes the action in the model, and returns its answer.
    fn apply(&mut self, act: &RunAction) -> ActionOutcome {
        self.effects += usize::from(act.changes_state());
        match act {
            RunAction::CheckLease if self.lease => return ActionOutcome::LeaseHeld(LeaseToken(7)),
            RunAction::CheckLease => {
                return ActionOutcome::Failed("another manager holds the lease".to_owned());
            }
            RunAction::ConfirmFailure => {
                return ActionOutcome::FailureConfirmed("connection refused".to_owned());
            }
            RunAction::StopAcker { acker } => {
                self.ackers.get_mut(acker).expect("the model must have this acker").1 = None;
                return self.acker(acker, AckerStop::Persistent);
            }
            RunAction::ReadAcker { acker } => return self.acker(acker, AckerStop::Unknown),
            RunAction::StartAcker { acker } => {
                self.ackers.get_mut(acker).expect("the model must have this acker").1 = Some("old".to_owned())
            }
            RunAction::ProbeCandidates => return ActionOutcome::Candidates(self.look()),
            RunAction::Backfill { server, what, .. } => {
                let last = what
                    .rsplit(['-', ':'])
                    .next()
                    .and_then(|last| last.parse().ok())
                    .expect("the GTID set must end with a number");
                self.servers.get_mut(server).expect("the model must have this server").0 = last;
            }
            RunAction::DrainRelayLog { server } => {
                let has = self.servers.get_mut(server).expect("the model must have this server");
                has.1 = has.0;
            }
            RunAction::EnableSemiSyncSource { server, acks } => {
                self.waits_for.insert(
                    server.clone(),
                    usize::try_from(*acks).expect("the number of ACKs must fit into the integer type"),
                );
            }
            RunAction::DisableSemiSyncSource { server } => drop(self.waits_for.remove(server)),
            RunAction::MakeWritable { server } => drop(self.writable.insert(server.clone())),
            RunAction::MakeReadOnly { server } => drop(self.writable.remove(server)),
            RunAction::RepointAcker { acker, server } => {
                self.ackers.get_mut(acker).expect("the model must have this acker").1 = Some(server.clone());
            }
            _ => {}
        }
        ActionOutcome::Done
    }

    fn acker(&self, name: &str, stop: AckerStop) -> ActionOutcome {
        let holds = Some(set(self.ackers[name].0));
        let acker = AckerEvidence { name: name.to_owned(), durable: true, stop, holds };
        ActionOutcome::AckerState { acker, before: set(0) }
    }

    pub fn look(&self) -> Vec<CandidateServer> {
        let each = self.servers.iter().map(|(name, (received, executed))| CandidateServer {
            name: name.clone(),
            reached: Ok(()),
            flavour: Flavour::MySql,
            version: VERSION,
            region: None,
            promotion: Promotion::Neutral,
            feed: ReplicationKind::Native,
            received: Some(set(*received)),
            executed: Some(set(*executed)),
            purged: Some(set(0)),
            log_bin: true,
            log_replica_updates: true,
            durable: true,
            applier_error: None,
            semi_sync_unavailable: None,
            failed: None,
            catch_up_ms: Some((received - executed) * 10),
        });
        each.collect()
    }
}

pub fn order(world: &World) -> FailoverRequest {
    let names: BTreeSet<String> = world.ackers.keys().cloned().collect();
    let waiting = SemiSyncWait {
        active: true,
        after_sync: true,
        timeout_ms: u64::MAX,
        waits_without_ackers: true,
        acks_required: u32::try_from(world.acks).expect("the number of ACKs must fit into the integer type"),
        unacknowledged: 0,
        survives_restart: true,
    };
    let holds = names.iter().map(|name| (name.clone(), set(0))).collect();
    let look = PolicyObservation {
        waiting: &waiting,
        ackers: &names,
        unconfigured_replicas: 0,
        executed: &set(0),
        holds: &holds,
    };
    FailoverRequest {
        id: "run".to_owned(),
        primary: "old".to_owned(),
        origin: GtidOrigin::MySql(
            MysqlGtid::parse(&format!("{OLD}:1")).expect("the text must be a valid GTID").uuid,
        ),
        version: VERSION,
        region: None,
        last_known: None,
        ack_policies: Some(AckPolicyHistory::begin(&look)),
        primary_state_age_ms: 0,
        primary_state_max_age_ms: 1000,
        ackers: names.into_iter().collect(),
        fence_hooks: Vec::new(),
        route_hooks: vec!["routes".to_owned()],
        direct_replicas: vec!["s0".to_owned()],
        acks_required: u32::try_from(world.acks).expect("the number of ACKs must fit into the integer type"),
        wanted: None,
        across_regions: false,
        catch_up_ms_max: 10_000,
        allow_data_loss: false,
        dry_run: false,
        expected: ExpectedDurations { stop_ms: 5, hook_ms: 50, supply_ms: 20, change_ms: 3, follow_ms: 30 },
    }
}

/// Runs the failover to its end. If `lease_goes` is given, the lease is lost before the action with that
/// number.
fn run(
    world: &mut World,
    order: FailoverRequest,
    mut fate: impl FnMut(&RunAction) -> Fate,
    lease_goes: Option<u32>,
) -> Audit {
    let mut failover = Failover::new(order);
    let mut queue: VecDeque<_> = failover.begin(0).into();
    let mut at_ms = 0;
    while let Some((number, act)) = queue.pop_front() {
        assert!(at_ms < 1000, "the failover does not end: {}", failover.audit());
        at_ms += 1;
        if lease_goes == Some(number) {
            world.lease = false;
        }
        world.live();
        let answer = match fate(&act) {
            Fate::Done => world.apply(&act),
            Fate::Failed => ActionOutcome::Failed("no".to_owned()),
            Fate::DoneButAnswerLost => {
                world.apply(&act);
                ActionOutcome::Unknown("timed out".to_owned())
            }
            Fate::RequestLost => ActionOutcome::Unknown("timed out".to_owned()),
            Fate::Stale => match &act {
                RunAction::StopAcker { acker } | RunAction::ReadAcker { acker } => {
                    world.acker(acker, AckerStop::Refused { term: 7, seen: 4711 })
                }
                _ => ActionOutcome::Failed("no".to_owned()),
            },
        };
        let primaries = world.primaries();
        assert!(
            primaries.len() <= 1,
            "there are two primaries, {primaries:?}, after {act}: {}",
            failover.audit()
        );
        for server in primaries.iter().filter(|server| **server != "old") {
            let (received, executed) = world.servers[*server];
            assert!(
                executed >= world.acknowledged && received == executed,
                "the new primary lacks transactions: {}",
                failover.audit()
            );
        }
        let held = matches!(answer, ActionOutcome::LeaseHeld(_));
        let next = failover.answer(at_ms, number, answer);
        assert!(
            held || !next.iter().any(|(_, act)| act.changes_state()),
            "the lease was not checked before: {next:?}"
        );
        queue.extend(next);
        if failover.audit().outcome.is_some() {
            // A late answer must have no effect.
            assert!(failover.answer(at_ms, number, ActionOutcome::Done).is_empty());
            break;
        }
    }
    failover.audit().clone()
}

/// Runs the usual failover request. The lease is held throughout.
fn run_with(world: &mut World, fate: impl FnMut(&RunAction) -> Fate) -> Audit {
    let order = order(world);
    run(world, order, fate, None)
}

/// Checks what must hold at the end of every failover.
fn check(world: &World, audit: &Audit) {
    let fenced = || world.captures_from("old") < world.acks;
    match audit.outcome.as_ref().unwrap_or_else(|| panic!("the failover has no outcome: {audit}")) {
        RunOutcome::Promoted { server, left } => {
            assert!(
                world.writable.contains(server) && world.writable.len() == 1,
                "the servers are in the wrong state; audit record: {audit}"
            );
            assert!(fenced(), "the old primary is not fenced; audit record: {audit}");
            let follow = |acker: &String| {
                left.iter()
                    .any(|act| matches!(act, RunAction::RepointAcker { acker: one, .. } if one == acker))
            };
            for (acker, (_, from)) in &world.ackers {
                assert!(
                    from.as_ref() == Some(server) || follow(acker),
                    "the audit record does not list the repointing of {acker}: {audit}"
                );
            }
        }
        RunOutcome::Unchanged { .. } => assert_eq!(world.effects, 0, "{audit}"),
        RunOutcome::Undone { .. } => {
            assert!(
                world.writable.is_empty() && world.waits_for.is_empty(),
                "the servers are in the wrong state; audit record: {audit}"
            );
            assert_eq!(world.captures_from("old"), world.ackers.len(), "{audit}");
        }
        RunOutcome::Incomplete { to_undo, .. } => {
            // Another manager executes the remaining undo actions from the audit record.
            let mut world = world.clone();
            for act in to_undo {
                world.apply(act);
            }
            assert!(
                world.writable.is_empty() && world.waits_for.is_empty(),
                "the servers are in the wrong state; audit record: {audit}"
            );
            assert_eq!(world.captures_from("old"), world.ackers.len(), "{audit}");
        }
        RunOutcome::Planned { .. } => {
            panic!("the outcome is a plan, although this is not a dry run: {audit}")
        }
    }
    let text = serde_json::to_string(audit).expect("the value must be serializable as JSON");
    assert_eq!(&serde_json::from_str::<Audit>(&text).expect("the text must be a valid audit record"), audit);
    // Each action must be ordered only once, and before its answer.
    let mut ordered = BTreeSet::new();
    for step in &audit.steps {
        match &step.note {
            AuditEvent::ActionOrdered { number, .. } => assert!(ordered.insert(*number)),
            AuditEvent::ActionAnswered { number, .. } => assert!(ordered.contains(number)),
            _ => {}
        }
    }
}

#[test]
fn a_dead_primary_is_replaced() {
    let mut world = World::new(&[10, 9], &[(8, 6), (5, 5)], 1);
    let audit = run_with(&mut world, |_| Fate::Done);
    check(&world, &audit);
    assert_eq!(
        audit.outcome,
        Some(RunOutcome::Promoted { server: "s0".to_owned(), left: Vec::new() }),
        "{audit}"
    );
    assert_eq!(world.servers["s0"], (10, 10));
    assert_eq!((world.captures_from("s0"), audit.token), (2, Some(7)));
    let text = audit.to_string();
    for part in ["stop capture on relay0", "send", "make s0 writable", "s0 is primary"] {
        assert!(text.contains(part), "the audit record does not contain {part:?}: {text}");
    }
}

#[test]
fn an_acker_that_the_proof_does_not_need_is_not_waited_for() {
    let mut world = World::new(&[10, 9], &[(8, 8)], 2);
    let mut failover = Failover::new(order(&world));
    let mut acts = failover.begin(0);
    while !acts.iter().any(|(_, act)| matches!(act, RunAction::StopAcker { .. })) {
        let (number, act) = acts.remove(0);
        acts.extend(failover.answer(0, number, world.apply(&act)));
    }
    // If a commit needs the ACKs of both ackers, one acker alone proves everything.
    assert_eq!(acts.len(), 2);
    let (number, act) = acts.remove(0);
    let next = failover.answer(1, number, world.apply(&act));
    assert!(
        matches!(next[..], [(_, RunAction::CheckLease)]),
        "the failover returned the wrong next actions: {next:?}"
    );
}

#[test]
fn with_too_few_ackers_the_failover_is_refused_and_everything_is_undone() {
    let mut world = World::new(&[10, 9], &[(8, 8)], 1);
    let lost = |act: &RunAction| match act {
        RunAction::StopAcker { acker } if acker == "relay1" => Fate::DoneButAnswerLost,
        _ => Fate::Done,
    };
    let audit = run_with(&mut world, lost);
    check(&world, &audit);
    let Some(RunOutcome::Undone { refusal: SafetyRefusal::TooFewAckers { missing, .. }, .. }) =
        &audit.outcome
    else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    assert!(missing.contains("relay1"), "the refusal has the wrong text on the missing acker: {missing}");
    // With `--allow-data-loss` the failover continues, and the audit record says what may be missing.
    let mut world = World::new(&[10, 9], &[(8, 8)], 1);
    let allowed = FailoverRequest { allow_data_loss: true, ..order(&world) };
    let audit = run(&mut world, allowed, lost, None);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Promoted { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
    let missing = audit.possible_loss.expect("the audit record must contain the possible loss");
    assert_eq!((missing.held_by.as_slice(), missing.grows), (["relay1".to_owned()].as_slice(), true));
}

#[test]
fn ackers_that_refuse_this_lease_term_are_reported_and_need_no_undo() {
    let stale = |act: &RunAction| match act {
        RunAction::StopAcker { acker } | RunAction::ReadAcker { acker } if acker == "relay1" => Fate::Stale,
        _ => Fate::Done,
    };
    for dry_run in [false, true] {
        let mut world = World::new(&[10, 9], &[(8, 8)], 1);
        let order = FailoverRequest { dry_run, ..order(&world) };
        let audit = run(&mut world, order, stale, None);
        check(&world, &audit);
        let Some(
            RunOutcome::Undone { refusal: SafetyRefusal::TooFewAckers { missing, .. }, .. }
            | RunOutcome::Unchanged { refusal: SafetyRefusal::TooFewAckers { missing, .. } },
        ) = &audit.outcome
        else {
            panic!("the audit record has the wrong outcome: {audit}")
        };
        assert!(
            missing.contains("relay1 (refuses orders of term 7 of the lease"),
            "the refusal has the wrong text on the missing acker: {missing}"
        );
        assert!(
            missing.contains("term 4711") && missing.contains("raise-terms"),
            "the refusal has the wrong text on the missing acker: {missing}"
        );
        let starts = RunAction::StartAcker { acker: "relay1".to_owned() };
        let is_it = |step: &AuditEntry| matches!(&step.note, AuditEvent::ActionOrdered { what, .. } if *what == starts);
        assert!(!audit.steps.iter().any(is_it), "an acker that refused needs no undo action: {audit}");
    }
}

#[test]
fn if_a_candidate_fails_another_one_is_promoted() {
    let mut world = World::new(&[10, 10], &[(10, 9), (4, 4)], 1);
    let stuck = |act: &RunAction| match act {
        RunAction::DrainRelayLog { server } if server == "s0" => Fate::RequestLost,
        _ => Fate::Done,
    };
    let audit = run_with(&mut world, stuck);
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Promoted { server, .. }) if server == "s1"),
        "the audit record has the wrong outcome: {audit}"
    );
}

/// For example, semi-sync cannot be loaded on the candidate. The candidate then replicates again, and the
/// next server is promoted in the same failover.
#[test]
fn if_a_candidate_cannot_wait_for_acks_another_one_is_promoted() {
    let unfit = |act: &RunAction| match act {
        RunAction::EnableSemiSyncSource { server, .. } if server == "s0" => Fate::Failed,
        _ => Fate::Done,
    };
    let mut world = World::new(&[10, 10], &[(10, 10), (4, 4)], 1);
    let audit = run_with(&mut world, unfit);
    check(&world, &audit);
    assert_eq!(
        audit.outcome,
        Some(RunOutcome::Promoted { server: "s1".to_owned(), left: Vec::new() }),
        "{audit}"
    );
    let unmade = RunAction::DisableSemiSyncSource { server: "s0".to_owned() };
    let is_unmade =
        |step: &AuditEntry| matches!(&step.note, AuditEvent::ActionOrdered { what, .. } if *what == unmade);
    assert!(audit.steps.iter().any(is_unmade), "the audit record has the wrong contents: {audit}");
    let choice = audit.choice.as_ref().expect("the audit record must contain the choice of the candidate");
    let exclusion =
        choice.ranked.iter().find(|one| one.server == "s0").map(|one| format!("{:?}", one.excluded));
    assert!(
        exclusion.is_some_and(|reason| reason.contains("have s0 wait for 1 ACK: no")),
        "the ranking has the wrong reasons against the servers: {choice:?}"
    );

    // If the undo action for the failed candidate has no answer, the audit record lists it as remaining. The
    // undo action does not delay the failover.
    let silent = |act: &RunAction| match act {
        RunAction::EnableSemiSyncSource { server, .. } if server == "s0" => Fate::DoneButAnswerLost,
        RunAction::DisableSemiSyncSource { .. } => Fate::RequestLost,
        _ => Fate::Done,
    };
    let mut world = World::new(&[10, 10], &[(10, 10), (4, 4)], 1);
    let audit = run_with(&mut world, silent);
    check(&world, &audit);
    let left = vec![unmade];
    assert_eq!(audit.outcome, Some(RunOutcome::Promoted { server: "s1".to_owned(), left }), "{audit}");

    // If there is no other server, everything is undone. A server that the operator requested is not replaced
    // by another server.
    let mut world = World::new(&[10, 10], &[(10, 10)], 1);
    let audit = run_with(&mut world, unfit);
    check(&world, &audit);
    let Some(RunOutcome::Undone { refusal: SafetyRefusal::NoCandidate { reasons }, .. }) = &audit.outcome
    else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    assert!(
        reasons.contains("s0: an attempt to promote the server failed: have s0 wait for 1 ACK: no"),
        "the ranking has the wrong reasons against the servers: {reasons}"
    );
    let mut world = World::new(&[10, 10], &[(10, 10), (4, 4)], 1);
    let wanted = FailoverRequest { wanted: Some("s0".to_owned()), ..order(&world) };
    let audit = run(&mut world, wanted, unfit, None);
    check(&world, &audit);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { refusal: SafetyRefusal::StepFailed { .. }, .. })),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn a_server_that_may_be_writable_keeps_the_old_primary_fenced() {
    let mut world = World::new(&[10, 10], &[(10, 10)], 1);
    let silent = |act: &RunAction| match act {
        RunAction::MakeWritable { .. } => Fate::DoneButAnswerLost,
        RunAction::MakeReadOnly { .. } => Fate::RequestLost,
        _ => Fate::Done,
    };
    let audit = run_with(&mut world, silent);
    check(&world, &audit);
    let Some(RunOutcome::Incomplete { to_undo, .. }) = &audit.outcome else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    assert_eq!(to_undo[0], RunAction::MakeReadOnly { server: "s0".to_owned() });
    assert_eq!(world.captures_from("old"), 0);
}

#[test]
fn an_acker_that_does_not_answer_does_not_keep_the_others_stopped() {
    let starts = std::cell::Cell::new(0);
    let away = |act: &RunAction| match act {
        RunAction::StopAcker { acker } | RunAction::StartAcker { acker } if acker == "relay1" => {
            starts.set(starts.get() + usize::from(matches!(act, RunAction::StartAcker { .. })));
            Fate::RequestLost
        }
        _ => Fate::Done,
    };
    let mut world = World::new(&[10, 9, 9], &[(8, 8)], 1);
    let audit = run_with(&mut world, away);
    check(&world, &audit);
    let Some(RunOutcome::Incomplete { to_undo, refusal: SafetyRefusal::TooFewAckers { .. }, .. }) =
        &audit.outcome
    else {
        panic!("the audit record has the wrong outcome: {audit}")
    };
    assert_eq!(to_undo, &[RunAction::StartAcker { acker: "relay1".to_owned() }]);
    assert_eq!((world.captures_from("old"), starts.get()), (3, 2), "the undo must be tried twice: {audit}");

    // If the acker answers the second time, it is started then.
    starts.set(0);
    let late = |act: &RunAction| match act {
        RunAction::StopAcker { acker } if acker == "relay1" => Fate::DoneButAnswerLost,
        RunAction::StartAcker { acker } if acker == "relay1" && starts.replace(starts.get() + 1) == 0 => {
            Fate::RequestLost
        }
        _ => Fate::Done,
    };
    let mut world = World::new(&[10, 9, 9], &[(8, 8)], 1);
    let audit = run_with(&mut world, late);
    check(&world, &audit);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
}

#[test]
fn a_dry_run_changes_nothing_and_reports_the_plan() {
    let mut world = World::new(&[10, 9], &[(8, 6)], 1);
    let audit = run(&mut world.clone(), order(&world), |_| Fate::Done, None);
    let done: Vec<RunAction> = audit
        .steps
        .iter()
        .filter_map(|step| match &step.note {
            AuditEvent::ActionOrdered { what, .. } if what.changes_state() => Some(what.clone()),
            _ => None,
        })
        .collect();
    let dry = FailoverRequest { dry_run: true, ..order(&world) };
    let plan = run(&mut world, dry, |_| Fate::Done, None);
    assert_eq!(world.effects, 0);
    let Some(RunOutcome::Planned { server, acts, expected_ms }) = &plan.outcome else {
        panic!("the outcome is not a plan: {plan}")
    };
    // The plan must list what the real failover does.
    assert_eq!((server.as_str(), acts), ("s0", &done));
    // In ms: stops 5, backfill 20, drain 20 (the server's own estimate), semi-sync 3, writable 3, repoint 30,
    // route 50.
    assert_eq!(*expected_ms, 131, "{plan}");
    // A dry run must refuse where the real failover refuses.
    let refused = FailoverRequest { dry_run: true, ackers: vec!["relay0".to_owned()], ..order(&world) };
    let plan = run(&mut world, refused, |_| Fate::Done, None);
    assert!(
        matches!(plan.outcome, Some(RunOutcome::Unchanged { refusal: SafetyRefusal::TooFewAckers { .. } })),
        "the dry run returned the wrong plan: {plan}"
    );
}

#[test]
fn an_unconfirmed_failure_changes_nothing() {
    let mut world = World::new(&[10], &[(10, 10)], 1);
    let alive = |act: &RunAction| if *act == RunAction::ConfirmFailure { Fate::Failed } else { Fate::Done };
    let audit = run_with(&mut world, alive);
    check(&world, &audit);
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Unchanged { refusal: SafetyRefusal::NotConfirmed { .. } })),
        "the audit record has the wrong outcome: {audit}"
    );
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Done),
        1 => Just(Fate::Failed),
        1 => Just(Fate::DoneButAnswerLost),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::Stale),
    ]
}

fn cases() -> u32 {
    if std::env::var_os("TAILWATER_LONG").is_some() { 20_000 } else { 500 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever fails, there are never two primaries that acknowledge, and every new primary has all
    /// acknowledged transactions. Each failover ends with an outcome, and the cluster is in the state that
    /// this outcome describes.
    #[test]
    fn with_any_faults_there_is_at_most_one_primary_and_the_outcome_is_true(
        ackers in prop::collection::vec(0u64..12, 1..4),
        acks in 1usize..4,
        servers in prop::collection::vec((0u64..12, 0u64..12), 0..3),
        fates in prop::collection::vec(any_fate(), 1..60),
        lease_goes in prop::option::weighted(0.3, 1u32..60),
        old_lives in any::<bool>(),
    ) {
        let acks = acks.min(ackers.len());
        let servers: Vec<_> = servers.iter().map(|(a, b)| (*a.max(b), *a.min(b))).collect();
        let mut world = World::new(&ackers, &servers, acks);
        world.old_lives = old_lives;
        let mut fates = fates.into_iter().cycle();
        let ordered = order(&world);
        let audit = run(&mut world, ordered, |_| fates.next().expect("the cyclic iterator must never end"), lease_goes);
        check(&world, &audit);
    }

    /// If no action fails, the failover always replaces the dead primary. The simulated cluster has at least
    /// one server that can be promoted.
    #[test]
    fn without_faults_a_new_primary_is_promoted(
        ackers in prop::collection::vec(0u64..12, 1..4),
        acks in 1usize..4,
        servers in prop::collection::vec((0u64..12, 0u64..12), 1..4),
    ) {
        let acks = acks.min(ackers.len());
        let servers: Vec<_> = servers.iter().map(|(a, b)| (*a.max(b), *a.min(b))).collect();
        let mut world = World::new(&ackers, &servers, acks);
        let ordered = order(&world);
        let audit = run(&mut world, ordered, |_| Fate::Done, None);
        check(&world, &audit);
        let promoted = matches!(&audit.outcome, Some(RunOutcome::Promoted { left, .. }) if left.is_empty());
        prop_assert!(promoted, "no server was promoted; audit record: {}", audit);
    }
}
