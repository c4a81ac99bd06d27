//! Tests of the loop that drives a failover, with a scripted executor. They check what is stored and when.
//! They also check what happens if an action has no answer, if the lease ends in any phase, and if the audit
//! record cannot be stored.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailwater_manager::SafetyRefusal;
use tailwater_manager::action_executor::ActionExecutor;
use tailwater_manager::candidates::{CandidateServer, GtidOrigin, ReplicationKind};
use tailwater_manager::failover::{ExpectedDurations, Failover, FailoverRequest};
use tailwater_manager::failover_driver::action_loop::ConfirmationFuture;
use tailwater_manager::failover_driver::{
    AuditError, AuditFolder, AuditStore, ConfirmFailure, DriverTimeouts, LeaseCheck, RunDriver,
};
use tailwater_manager::lossless_rules::{
    AckPolicyHistory, AckerEvidence, AckerStop, PolicyObservation, SemiSyncWait,
};
use tailwater_manager::model::{ActionOutcome, Audit, LeaseToken, RunAction, RunOutcome, RunPhase};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio::sync::{Notify, watch};

const OLD: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const VERSION: ServerVersion = ServerVersion { major: 9, minor: 7, patch: 1 };

fn set() -> GtidSet {
    GtidSet::parse(Flavour::MySql, &format!("{OLD}:1-9")).expect("the text must be a valid GTID set")
}

fn order(dry_run: bool) -> FailoverRequest {
    let ackers: BTreeSet<String> = ["relay".to_owned()].into();
    let waiting = SemiSyncWait {
        active: true,
        after_sync: true,
        timeout_ms: u64::MAX,
        waits_without_ackers: true,
        acks_required: 1,
        unacknowledged: 0,
        survives_restart: true,
    };
    let holds = [("relay".to_owned(), set())].into();
    let look = PolicyObservation {
        waiting: &waiting,
        ackers: &ackers,
        unconfigured_replicas: 0,
        executed: &set(),
        holds: &holds,
    };
    FailoverRequest {
        id: "run-1".to_owned(),
        primary: "old".to_owned(),
        origin: GtidOrigin::MySql([0x3e; 16]),
        version: VERSION,
        region: None,
        last_known: Some(set()),
        ack_policies: Some(AckPolicyHistory::begin(&look)),
        primary_state_age_ms: 0,
        primary_state_max_age_ms: 1000,
        ackers: ackers.into_iter().collect(),
        fence_hooks: vec!["off".to_owned()],
        route_hooks: vec!["route".to_owned()],
        direct_replicas: vec!["other".to_owned()],
        acks_required: 1,
        wanted: None,
        across_regions: false,
        catch_up_ms_max: 1000,
        allow_data_loss: false,
        dry_run,
        expected: ExpectedDurations { stop_ms: 1, hook_ms: 1, supply_ms: 1, change_ms: 1, follow_ms: 1 },
    }
}

/// A predicate that selects actions.
type Which = fn(&RunAction) -> bool;

/// One failover or switchover: which actions were executed, and which faults are injected.
#[derive(Default)]
struct Script {
    done: Mutex<Vec<RunAction>>,
    /// The executor never answers these actions.
    hangs: Option<Which>,
    /// The executor panics at these actions.
    panics: Option<Which>,
    /// The lease ends while these actions are executed.
    ends_the_lease: Option<Which>,
    lease: Arc<Lease>,
    /// The audit record that was stored last, which the executor checks before each action.
    stored: Arc<Records>,
}

#[derive(Default)]
struct Lease {
    is_lost: AtomicBool,
    lost: Notify,
    checks: AtomicU64,
    /// How many lease checks succeed; `None` if all do.
    checks_max: Option<u64>,
}

impl Lease {
    fn record_lease_loss(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
        self.lost.notify_waiters();
    }
}

struct TermOf(Arc<Lease>);

impl LeaseCheck for TermOf {
    fn check(&self) -> Result<LeaseToken, String> {
        let checks = self.0.checks.fetch_add(1, Ordering::SeqCst);
        if self.0.is_lost.load(Ordering::SeqCst) || self.0.checks_max.is_some_and(|max| checks >= max) {
            return Err("another manager holds the lease".to_owned());
        }
        Ok(LeaseToken(7))
    }

    async fn ended(&self) -> String {
        loop {
            let lost = self.0.lost.notified();
            if self.0.is_lost.load(Ordering::SeqCst) {
                return "the lease was not renewed".to_owned();
            }
            lost.await;
        }
    }
}

/// Keeps the last audit record. From a given phase on, storing a record fails.
#[derive(Default)]
struct Records {
    last: Mutex<Option<Audit>>,
    fails_from: Option<RunPhase>,
}

impl AuditStore for Records {
    fn save(&self, audit: &Audit) -> Result<(), AuditError> {
        let phase = audit.steps.last().map(|step| step.phase);
        if self.fails_from.is_some_and(|from| phase.is_some_and(|phase| phase >= from)) {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(AuditError { path: PathBuf::from("record"), source });
        }
        *self.last.lock().unwrap() = Some(audit.clone());
        Ok(())
    }
}

struct Yes;

impl ConfirmFailure for Yes {
    fn confirm(&self) -> ConfirmationFuture<'_> {
        Box::pin(async { Ok("the primary is dead".to_owned()) })
    }
}

impl ActionExecutor for Script {
    async fn execute(&self, act: &RunAction, token: LeaseToken) -> ActionOutcome {
        assert_eq!(token, LeaseToken(7));
        if act.changes_state() && self.stored.fails_from.is_none() {
            let stored = self.stored.last.lock().unwrap();
            let knows = stored.as_ref().is_some_and(|audit| {
                let steps = serde_json::to_string(&audit.steps).unwrap();
                steps.contains(&serde_json::to_string(act).unwrap())
            });
            assert!(knows, "{act} is executed before the audit record with it is stored");
        }
        self.done.lock().unwrap().push(act.clone());
        if self.hangs.is_some_and(|of| of(act)) {
            pending::<()>().await;
        }
        assert!(!self.panics.is_some_and(|of| of(act)), "a panic that the script injects");
        if self.ends_the_lease.is_some_and(|of| of(act)) {
            self.lease.record_lease_loss();
            pending::<()>().await;
        }
        match act {
            RunAction::StopAcker { acker } | RunAction::ReadAcker { acker } => ActionOutcome::AckerState {
                acker: AckerEvidence {
                    name: acker.clone(),
                    durable: true,
                    stop: AckerStop::Persistent,
                    holds: Some(set()),
                },
                before: GtidSet::empty(Flavour::MySql),
            },
            RunAction::ProbeCandidates => ActionOutcome::Candidates(vec![server("new")]),
            _ => ActionOutcome::Done,
        }
    }
}

fn server(name: &str) -> CandidateServer {
    CandidateServer {
        name: name.to_owned(),
        reached: Ok(()),
        flavour: Flavour::MySql,
        version: VERSION,
        region: None,
        promotion: Promotion::Neutral,
        feed: ReplicationKind::Native,
        received: Some(set()),
        executed: Some(set()),
        purged: Some(GtidSet::empty(Flavour::MySql)),
        log_bin: true,
        log_replica_updates: true,
        durable: true,
        applier_error: None,
        semi_sync_unavailable: None,
        failed: None,
        catch_up_ms: Some(0),
    }
}

async fn drive(script: Script, dry_run: bool) -> (Audit, Vec<RunAction>) {
    let (lease, stored) = (Arc::clone(&script.lease), Arc::clone(&script.stored));
    let executor = Arc::new(script);
    let driver = RunDriver {
        executor: Arc::clone(&executor),
        term: TermOf(lease),
        confirm: Arc::new(Yes),
        records: stored.clone(),
        limits: DriverTimeouts { act_ms_max: 50, catch_up_ms_max: 50 },
    };
    let (progress, seen) = watch::channel(None);
    let audit = driver.drive(&mut Failover::new(order(dry_run)), &progress).await;
    assert_eq!(
        seen.borrow().as_ref(),
        Some(&audit),
        "the last published version must be the final audit record"
    );
    if stored.fails_from.is_none() {
        assert_eq!(stored.last.lock().unwrap().as_ref(), Some(&audit), "the final record must be stored");
    }
    let done = executor.done.lock().unwrap().clone();
    (audit, done)
}

#[tokio::test]
async fn actions_are_executed_in_order_up_to_a_new_primary() {
    let (audit, done) = drive(Script::default(), false).await;
    assert_eq!(
        audit.outcome,
        Some(RunOutcome::Promoted { server: "new".into(), left: Vec::new() }),
        "{audit}"
    );
    let expected =
        ["stop capture", "fence hook off", "probe the", "that new received", "wait for 1", "writable"];
    let actions: Vec<String> = done.iter().map(ToString::to_string).collect();
    let mut at = 0;
    for part in expected {
        at += actions[at..]
            .iter()
            .position(|act| act.contains(part))
            .unwrap_or_else(|| panic!("no action contains {part:?}: {actions:?}"));
    }
    assert_eq!(audit.token, Some(7));
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let (audit, done) = drive(Script::default(), true).await;
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Planned { server, .. }) if server == "new"),
        "the audit record has the wrong outcome: {audit}"
    );
    assert!(done.iter().all(|act| !act.changes_state()), "the driver executed the wrong actions: {done:?}");
}

#[tokio::test]
async fn an_action_without_an_answer_ends_at_its_time_limit() {
    let hangs: [Which; 4] = [
        |act| matches!(act, RunAction::StopAcker { .. }),
        |act| matches!(act, RunAction::ProbeCandidates),
        |act| matches!(act, RunAction::DrainRelayLog { .. }),
        |act| matches!(act, RunAction::EnableSemiSyncSource { .. }),
    ];
    for hang in hangs {
        let (audit, _) = drive(Script { hangs: Some(hang), ..Script::default() }, false).await;
        let is_back = matches!(audit.outcome, Some(RunOutcome::Undone { .. }));
        assert!(is_back, "the servers are not as they were before; audit record: {audit}");
        assert!(
            audit.to_string().contains("no answer within 50 ms"),
            "the audit record has the wrong contents: {audit}"
        );
    }
    // After the promotion, an action without an answer is listed as remaining.
    let hang: Which = |act| matches!(act, RunAction::RepointAcker { .. } | RunAction::RunRouteHook { .. });
    let (audit, _) = drive(Script { hangs: Some(hang), ..Script::default() }, false).await;
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Promoted { left, .. }) if left.len() == 2),
        "the audit record lists the wrong remaining actions: {audit}"
    );
}

#[tokio::test]
async fn a_panicked_action_has_an_unknown_outcome() {
    let panics: Which = |act| matches!(act, RunAction::EnableSemiSyncSource { .. });
    let (audit, _) = drive(Script { panics: Some(panics), ..Script::default() }, false).await;
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
    assert!(
        audit.to_string().contains("the task of the action stopped"),
        "the audit record has the wrong contents: {audit}"
    );
}

#[tokio::test]
async fn when_the_lease_ends_during_an_action_the_failover_ends_at_once_in_each_phase() {
    let cases: [(Which, bool); 8] = [
        (|act| matches!(act, RunAction::StopAcker { .. }), false),
        (|act| matches!(act, RunAction::RunFenceHook { .. }), false),
        (|act| matches!(act, RunAction::ProbeCandidates), false),
        (|act| matches!(act, RunAction::DrainRelayLog { .. }), false),
        (|act| matches!(act, RunAction::EnableSemiSyncSource { .. }), false),
        (|act| matches!(act, RunAction::MakeWritable { .. }), false),
        (|act| matches!(act, RunAction::RepointAcker { .. }), true),
        (|act| matches!(act, RunAction::RunRouteHook { .. }), true),
    ];
    for (case, is_promoted) in cases {
        let script = Script { ends_the_lease: Some(case), ..Script::default() };
        let (audit, done) = drive(script, false).await;
        assert!(done.last().is_some_and(case), "no action may follow, not even an undo action: {done:?}");
        match &audit.outcome {
            Some(RunOutcome::Promoted { left, .. }) => {
                assert!(
                    is_promoted && !left.is_empty(),
                    "the audit record lists the wrong remaining actions: {audit}"
                )
            }
            Some(RunOutcome::Incomplete { refusal: SafetyRefusal::NoLease { .. }, to_undo, .. }) => {
                assert!(
                    !is_promoted && !to_undo.is_empty(),
                    "the audit record lists the wrong remaining actions: {audit}"
                );
            }
            _ => panic!("the audit record has the wrong outcome: {audit}"),
        }
    }
}

#[tokio::test]
async fn after_a_failed_lease_check_no_action_is_executed() {
    for checks_max in 0..16 {
        let lease = Arc::new(Lease { checks_max: Some(checks_max), ..Lease::default() });
        let script = Script { lease: Arc::clone(&lease), ..Script::default() };
        let (audit, _) = drive(script, false).await;
        let asked = lease.checks.load(Ordering::SeqCst);
        assert!(asked <= checks_max + 1, "the lease was checked again after a failed check");
        assert!(audit.outcome.is_some());
        if checks_max == 0 {
            assert!(
                matches!(audit.outcome, Some(RunOutcome::Unchanged { .. })),
                "the audit record has the wrong outcome: {audit}"
            );
        }
    }
}

#[tokio::test]
async fn before_the_promotion_an_action_is_not_executed_if_its_audit_record_cannot_be_stored() {
    let fails = |from| Arc::new(Records { fails_from: Some(from), ..Records::default() });
    let (audit, done) = drive(Script { stored: fails(RunPhase::Fence), ..Script::default() }, false).await;
    assert!(
        !done.iter().any(|act| matches!(act, RunAction::StopAcker { .. } | RunAction::MakeWritable { .. })),
        "the driver executed the wrong actions: {done:?}"
    );
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
    assert!(
        audit.to_string().contains("the audit record with this action cannot be stored"),
        "the audit record has the wrong contents: {audit}"
    );

    let (audit, done) =
        drive(Script { stored: fails(RunPhase::EnableSemiSync), ..Script::default() }, false).await;
    assert!(
        !done.iter().any(|act| matches!(
            act,
            RunAction::EnableSemiSyncSource { .. } | RunAction::MakeWritable { .. }
        )),
        "the driver executed the wrong actions: {done:?}"
    );
    assert!(
        done.iter().any(|act| matches!(act, RunAction::StartAcker { .. })),
        "the undo actions must be executed although the audit record cannot be stored: {done:?}"
    );
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Undone { .. })),
        "the audit record has the wrong outcome: {audit}"
    );

    let (audit, _) =
        drive(Script { stored: fails(RunPhase::RepointAckers), ..Script::default() }, false).await;
    assert!(
        matches!(&audit.outcome, Some(RunOutcome::Promoted { left, .. }) if left.is_empty()),
        "the audit record lists the wrong remaining actions: {audit}"
    );
}

#[tokio::test]
async fn records_are_stored_as_files_and_can_be_read_again() {
    let (audit, _) = drive(Script::default(), false).await;
    let folder = tempfile::tempdir().unwrap();
    let records = AuditFolder::new(folder.path().join("records"));
    assert!(records.list().unwrap().is_empty());
    let unfinished = Audit { outcome: None, ..audit.clone() };
    records.save(&unfinished).unwrap();
    assert_eq!(records.load("run-1").unwrap(), Some(unfinished));
    assert!(!folder.path().join("records/run-1.txt").exists());
    records.save(&audit).unwrap();
    assert_eq!(records.load("run-1").unwrap(), Some(audit.clone()));
    let text = std::fs::read_to_string(folder.path().join("records/run-1.txt")).unwrap();
    assert_eq!(text, audit.to_string());
    assert_eq!(records.list().unwrap(), ["run-1"]);
    assert_eq!(records.load("run-2").unwrap(), None);
    assert_eq!(records.load("../run-1").unwrap(), None);
    for name in ["../x", "a/b", "", ".hidden"] {
        let named = Audit { id: name.to_owned(), ..audit.clone() };
        assert!(records.save(&named).is_err(), "a record with this name must not be stored: {name:?}");
    }
    std::fs::write(folder.path().join("records/run-3.json"), "{").unwrap();
    assert!(records.load("run-3").is_err());
}

/// A failover or switchover ends even if all actions that change something stay without an answer.
#[tokio::test]
async fn a_failover_ends_in_bounded_time_if_no_action_is_answered() {
    let hang: Which = |act| act.changes_state();
    let driven = drive(Script { hangs: Some(hang), ..Script::default() }, false);
    let (audit, _) =
        tokio::time::timeout(Duration::from_secs(60), driven).await.expect("the failover must end");
    assert!(
        matches!(audit.outcome, Some(RunOutcome::Incomplete { .. })),
        "the audit record has the wrong outcome: {audit}"
    );
}
