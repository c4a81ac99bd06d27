//! Checks that the data which several processes share keeps its spelling: audit records in files and in etcd,
//! failover guards, and findings over HTTP. Managers of different versions read this data, so its names must
//! not change when names in the code change.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::candidates::{
    Advantage, BackfillSource, CandidateAssessment, CandidateRanking, Drawback, ExclusionReason,
};
use tailwater_manager::cluster_watch::watch_checkpoint::StoredCheckpoint;
use tailwater_manager::lossless_rules::PossibleLoss;
use tailwater_manager::model::{Audit, AuditEntry, AuditEvent, RunAction, RunKind, RunOutcome, RunPhase};
use tailwater_topology::ServerVersion;
use tailwater_topology::failure_analysis::{
    ClusterFinding, Downtime, FailoverGuard, FailoverHold, FailureCode, FindingAction,
};

const VERSION: ServerVersion = ServerVersion { major: 9, minor: 7, patch: 1 };

/// Returns all safety rules. A new rule must be added here and to the fixture.
fn refusals() -> Vec<SafetyRefusal> {
    let [primary, reason, server] = ["db1", "a reason", "db2"].map(str::to_owned);
    vec![
        SafetyRefusal::NotLossless { primary: primary.clone(), problems: reason.clone() },
        SafetyRefusal::NotVerified { primary: primary.clone(), reason: reason.clone() },
        SafetyRefusal::TooFewAckers { stopped: 1, needed: 2, missing: reason.clone() },
        SafetyRefusal::Unfenced { primary: primary.clone(), reason: reason.clone() },
        SafetyRefusal::Diverged { one: "a".to_owned(), other: "b".to_owned(), detail: reason.clone() },
        SafetyRefusal::NoCandidate { reasons: reason.clone() },
        SafetyRefusal::CandidateUnfit { server: server.clone(), reasons: reason.clone() },
        SafetyRefusal::NotConfirmed { primary: primary.clone(), reason: reason.clone() },
        SafetyRefusal::NoLease { reason: reason.clone() },
        SafetyRefusal::StepFailed { step: "a step".to_owned(), reason: reason.clone() },
        SafetyRefusal::NotReady { primary: primary.clone(), reasons: reason.clone() },
        SafetyRefusal::PauseExceeded { primary, bound_ms: 1000, step: "a step".to_owned() },
        SafetyRefusal::Interrupted { run: "run-1".to_owned(), reason: reason.clone() },
        SafetyRefusal::Superseded { run: "run-1".to_owned(), by: reason.clone() },
        SafetyRefusal::RejoinUnsafe { server, reason },
    ]
}

fn acts() -> Vec<RunAction> {
    let [server, acker, hook, what] = ["db2", "relay1", "vip", "0-1-5..9"].map(str::to_owned);
    vec![
        RunAction::CheckLease,
        RunAction::ConfirmFailure,
        RunAction::StopAcker { acker: acker.clone() },
        RunAction::ReadAcker { acker: acker.clone() },
        RunAction::RunFenceHook { hook: hook.clone() },
        RunAction::ProbeCandidates,
        RunAction::Backfill { server: server.clone(), from: acker.clone(), what: what.clone() },
        RunAction::DrainRelayLog { server: server.clone() },
        RunAction::EnableSemiSyncSource { server: server.clone(), acks: 1 },
        RunAction::MakeWritable { server: server.clone() },
        RunAction::RepointAcker { acker: acker.clone(), server: server.clone() },
        RunAction::RepointReplica { replica: server.clone() },
        RunAction::RunRouteHook { hook, server: server.clone() },
        RunAction::CheckAckerTerm { acker: acker.clone(), term: 7 },
        RunAction::ProbePrimary,
        RunAction::ProbeServer { server: server.clone() },
        RunAction::PrepareSemiSyncSource { server: server.clone(), acks: 1 },
        RunAction::PersistSemiSyncSource { server: server.clone(), acks: 1 },
        RunAction::WaitForServer { server: server.clone(), what: what.clone(), within_ms: 100 },
        RunAction::WaitForAcker { acker: acker.clone(), what: what.clone(), within_ms: 100 },
        RunAction::PauseWrites { server: server.clone(), within_ms: 100, grace_ms: 50 },
        RunAction::ResumeWrites { server: server.clone(), acks: 1 },
        RunAction::Demote { server: server.clone(), has: what },
        RunAction::StartAcker { acker },
        RunAction::DisableSemiSyncSource { server: server.clone() },
        RunAction::MakeReadOnly { server },
    ]
}

fn phases() -> Vec<RunPhase> {
    vec![
        RunPhase::Lease,
        RunPhase::Confirm,
        RunPhase::Fence,
        RunPhase::FenceHooks,
        RunPhase::ProveCompleteness,
        RunPhase::ChooseCandidate,
        RunPhase::Prepare,
        RunPhase::CatchUp,
        RunPhase::Pause,
        RunPhase::Backfill,
        RunPhase::Drain,
        RunPhase::EnableSemiSync,
        RunPhase::MakeWritable,
        RunPhase::RepointAckers,
        RunPhase::RepointReplicas,
        RunPhase::RouteClients,
        RunPhase::Undo,
        RunPhase::Finished,
    ]
}

fn ends() -> Vec<RunOutcome> {
    let [server, reason] = ["db2", "a reason"].map(str::to_owned);
    let refusal = SafetyRefusal::NoLease { reason };
    let act = || vec![RunAction::MakeWritable { server: "db2".to_owned() }];
    vec![
        RunOutcome::Promoted { server: server.clone(), left: act() },
        RunOutcome::Unchanged { refusal: refusal.clone() },
        RunOutcome::Undone { refusal: refusal.clone(), irreversible: act() },
        RunOutcome::Incomplete { refusal, to_undo: act(), irreversible: act() },
        RunOutcome::Planned { server, acts: act(), expected_ms: 7 },
    ]
}

fn choice() -> CandidateRanking {
    let [text, region] = ["text", "north"].map(str::to_owned);
    let excluded = vec![
        ExclusionReason::NotReached { reason: text.clone() },
        ExclusionReason::Failed { reason: text.clone() },
        ExclusionReason::MustNot,
        ExclusionReason::Unknown,
        ExclusionReason::Errant { gtids: text.clone() },
        ExclusionReason::Gap { gtids: text.clone(), log: "relay1".to_owned() },
        ExclusionReason::OtherRegion { region: region.clone() },
        ExclusionReason::OtherFlavour,
        ExclusionReason::NoBinlog,
        ExclusionReason::NoReplicaUpdates,
        ExclusionReason::NoSemiSync { reason: text.clone() },
        ExclusionReason::OwnGtids,
        ExclusionReason::Partial,
        ExclusionReason::ApplierStopped { error: text.clone() },
    ];
    let against = vec![
        Drawback::NotPreferred,
        Drawback::OtherRegion { region },
        Drawback::CannotFollow { server: "db3".to_owned(), version: VERSION },
        Drawback::OlderThanPrimary { version: VERSION },
        Drawback::NotDurable,
        Drawback::Behind { ms: 5 },
        Drawback::Slow { ms: 5 },
        Drawback::LeavesBehind { servers: vec!["db3".to_owned()] },
    ];
    let advantages = vec![
        Advantage::Preferred,
        Advantage::ReceivedAll,
        Advantage::ExecutedAll,
        Advantage::Durable,
        Advantage::SameRegion,
    ];
    let backfills = vec![BackfillSource { from: "relay1".to_owned(), from_log: true, what: text.clone() }];
    CandidateRanking {
        ranked: vec![CandidateAssessment {
            server: "db2".to_owned(),
            excluded,
            against,
            advantages,
            lacks: Some(text.clone()),
            backfills,
            drains: Some(text),
        }],
    }
}

/// Returns an audit record that contains everything that a record can contain, with one of the outcomes.
fn audit() -> Audit {
    let ordered =
        acts().into_iter().zip(1..).map(|(what, number)| AuditEvent::ActionOrdered { number, what });
    let refused = refusals().into_iter().map(|refusal| AuditEvent::RuleRefused { refusal });
    let others = [
        AuditEvent::ActionAnswered { number: 1, outcome: "done".to_owned(), text: "term 7".to_owned() },
        AuditEvent::LateAnswer { number: 2 },
        AuditEvent::RuleOverridden { refusal: SafetyRefusal::NoCandidate { reasons: "none".to_owned() } },
    ];
    let notes = ordered.chain(refused).chain(others);
    let steps = notes.zip(phases().into_iter().cycle()).zip(0..);
    Audit {
        resumes: Some("run-0".to_owned()),
        dry_run: true,
        allow_data_loss: true,
        token: Some(7),
        steps: steps.map(|((note, phase), at_ms)| AuditEntry { at_ms, phase, note }).collect(),
        holds: Some("0-1-9".to_owned()),
        possible_loss: Some(PossibleLoss {
            after: Some("0-1-9".to_owned()),
            known: Some("0-1-10".to_owned()),
            held_by: vec!["relay2".to_owned()],
            grows: true,
        }),
        choice: Some(choice()),
        pause_ms: Some(120),
        outcome: ends().pop(),
        ..Audit::new("run-1", RunKind::Switchover, "db1")
    }
}

fn guard() -> FailoverGuard {
    let mut guard = FailoverGuard::default();
    guard.pause();
    guard.failed_over(7);
    guard.add_downtime(Downtime {
        server: Some("db2".to_owned()),
        from_ms: 1,
        until_ms: 2,
        reason: "new disk".to_owned(),
    });
    guard
}

fn findings() -> Vec<ClusterFinding> {
    let held = [
        FailoverHold::Paused,
        FailoverHold::Downtime { until_ms: 7, reason: "new disk".to_owned() },
        FailoverHold::Cooldown { until_ms: 7 },
        FailoverHold::SplitBrain,
    ];
    let actions =
        [FindingAction::FailOver, FindingAction::Alarm].into_iter().chain(held.map(FindingAction::Held));
    let finding = |(code, action)| ClusterFinding {
        code,
        server: "db1".to_owned(),
        since_ms: 5,
        evidence: vec!["the manager: timed out".to_owned()],
        action,
        rule: (code == FailureCode::FailoverNotReady).then(|| "TW-MGR-0032".to_owned()),
    };
    let actions: Vec<FindingAction> = actions.collect();
    FailureCode::ALL.into_iter().zip(actions.into_iter().cycle()).map(finding).collect()
}

fn is_written_as(value: &impl Serialize, fixture: &str) {
    let expected: serde_json::Value = serde_json::from_str(fixture).expect("the fixture must be valid JSON");
    assert_eq!(serde_json::to_value(value).expect("the value must be serializable as JSON"), expected);
}

fn is_read_and_written_as<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &T,
    fixture: &str,
) {
    assert_eq!(&serde_json::from_str::<T>(fixture).expect("the fixture must be valid JSON"), value);
    is_written_as(value, fixture);
}

#[test]
fn audit_records_keep_their_spelling() {
    is_read_and_written_as(&audit(), include_str!("json_compatibility_between_versions/audit.json"));
    is_read_and_written_as(&ends(), include_str!("json_compatibility_between_versions/outcomes.json"));
}

#[test]
fn failover_guards_keep_their_spelling() {
    is_read_and_written_as(&guard(), include_str!("json_compatibility_between_versions/guard.json"));
}

/// Only Tailwater itself reads the checkpoint file. So it writes the new names of JSON keys, and can still
/// read the old names.
#[test]
fn checkpoints_of_earlier_versions_can_be_read() {
    let old = include_str!("json_compatibility_between_versions/checkpoint.json");
    let stored: StoredCheckpoint =
        serde_json::from_str(old).expect("a checkpoint of an earlier version must be readable");
    assert_eq!((stored.probed_at_ms, stored.term), (5, 7));
    let policies = &stored.checkpoint.ack_policies;
    assert_eq!(policies.current().unconfigured_replicas, 1);
    assert!(policies.waits_after_restart());
    assert_eq!(policies.relevant_policies().count(), 2);
    let again = serde_json::to_string(&stored).expect("the value must be serializable as JSON");
    assert_eq!(
        serde_json::from_str::<StoredCheckpoint>(&again).expect("the text must be a valid checkpoint"),
        stored
    );
}

#[test]
fn findings_keep_their_spelling() {
    is_written_as(&findings(), include_str!("json_compatibility_between_versions/findings.json"));
}
