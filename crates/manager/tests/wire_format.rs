//! What several processes read keeps its spelling: audit records in files and in etcd, what holds failovers back, and findings over
//! HTTP. Managers of different versions share them, so the names here do not follow those of the code.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tailwater_manager::Refusal;
use tailwater_manager::analysis::{Action, Code, Downtime, Finding, Guard, Hold};
use tailwater_manager::choice::{Against, Assessment, Choice, Excluded, For, Supply, Version};
use tailwater_manager::failover::{Act, Audit, End, Kind, Note, Phase, Step};
use tailwater_manager::lossless::MayBeMissing;

const VERSION: Version = Version { major: 9, minor: 7, patch: 1 };

/// All of them; a new one has to be added here and to the fixture.
fn refusals() -> Vec<Refusal> {
    let [primary, reason, server] = ["db1", "a reason", "db2"].map(str::to_owned);
    vec![
        Refusal::NotLossless { primary: primary.clone(), problems: reason.clone() },
        Refusal::NotVerified { primary: primary.clone(), reason: reason.clone() },
        Refusal::Incomplete { stopped: 1, needed: 2, missing: reason.clone() },
        Refusal::Unfenced { primary: primary.clone(), reason: reason.clone() },
        Refusal::Diverged { one: "a".to_owned(), other: "b".to_owned(), detail: reason.clone() },
        Refusal::NoCandidate { reasons: reason.clone() },
        Refusal::Unfit { server: server.clone(), reasons: reason.clone() },
        Refusal::NotConfirmed { primary: primary.clone(), reason: reason.clone() },
        Refusal::NoLease { reason: reason.clone() },
        Refusal::Step { step: "a step".to_owned(), reason: reason.clone() },
        Refusal::NotReady { primary: primary.clone(), reasons: reason.clone() },
        Refusal::PauseExceeded { primary, bound_ms: 1000, step: "a step".to_owned() },
        Refusal::Interrupted { run: "run-1".to_owned(), reason: reason.clone() },
        Refusal::Superseded { run: "run-1".to_owned(), by: reason.clone() },
        Refusal::NotBroughtBack { server, reason },
    ]
}

fn acts() -> Vec<Act> {
    let [server, acker, hook, what] = ["db2", "relay1", "vip", "0-1-5..9"].map(str::to_owned);
    vec![
        Act::CheckLease,
        Act::Confirm,
        Act::StopAcker { acker: acker.clone() },
        Act::ReadAcker { acker: acker.clone() },
        Act::FenceHook { hook: hook.clone() },
        Act::LookAtServers,
        Act::Supply { server: server.clone(), from: acker.clone(), what: what.clone() },
        Act::Drain { server: server.clone() },
        Act::MakeSource { server: server.clone(), acks: 1 },
        Act::MakeWritable { server: server.clone() },
        Act::Follow { acker: acker.clone(), server: server.clone() },
        Act::Repoint { replica: server.clone() },
        Act::RouteHook { hook, server: server.clone() },
        Act::CheckAcker { acker: acker.clone(), term: 7 },
        Act::LookAtPrimary,
        Act::Glance { server: server.clone() },
        Act::Prepare { server: server.clone(), acks: 1 },
        Act::SettleSource { server: server.clone(), acks: 1 },
        Act::AwaitServer { server: server.clone(), what: what.clone(), within_ms: 100 },
        Act::AwaitAcker { acker: acker.clone(), what: what.clone(), within_ms: 100 },
        Act::HoldWrites { server: server.clone(), within_ms: 100, grace_ms: 50 },
        Act::ReleaseWrites { server: server.clone(), acks: 1 },
        Act::Demote { server: server.clone(), has: what },
        Act::StartAcker { acker },
        Act::UnmakeSource { server: server.clone() },
        Act::MakeReadOnly { server },
    ]
}

fn phases() -> Vec<Phase> {
    vec![
        Phase::Lease,
        Phase::Confirm,
        Phase::Fence,
        Phase::FenceHooks,
        Phase::Prove,
        Phase::Choose,
        Phase::Prepare,
        Phase::CatchUp,
        Phase::Pause,
        Phase::Supply,
        Phase::Drain,
        Phase::Source,
        Phase::Writable,
        Phase::Follow,
        Phase::Others,
        Phase::Routes,
        Phase::Undo,
        Phase::Over,
    ]
}

fn ends() -> Vec<End> {
    let [server, reason] = ["db2", "a reason"].map(str::to_owned);
    let refusal = Refusal::NoLease { reason };
    let act = || vec![Act::MakeWritable { server: "db2".to_owned() }];
    vec![
        End::Promoted { server: server.clone(), left: act() },
        End::Unchanged { refusal: refusal.clone() },
        End::Undone { refusal: refusal.clone(), stays: act() },
        End::Left { refusal, to_undo: act(), stays: act() },
        End::Planned { server, acts: act(), expected_ms: 7 },
    ]
}

fn choice() -> Choice {
    let [text, region] = ["text", "north"].map(str::to_owned);
    let excluded = vec![
        Excluded::NotReached { reason: text.clone() },
        Excluded::Failed { reason: text.clone() },
        Excluded::MustNot,
        Excluded::Unknown,
        Excluded::Errant { gtids: text.clone() },
        Excluded::Gap { gtids: text.clone(), log: "relay1".to_owned() },
        Excluded::OtherRegion { region: region.clone() },
        Excluded::OtherFlavour,
        Excluded::NoBinlog,
        Excluded::NoReplicaUpdates,
        Excluded::NoSemiSync { reason: text.clone() },
        Excluded::OwnGtids,
        Excluded::Partial,
        Excluded::ApplierStopped { error: text.clone() },
    ];
    let against = vec![
        Against::NotPreferred,
        Against::OtherRegion { region },
        Against::CannotFollow { server: "db3".to_owned(), version: VERSION },
        Against::OlderThanPrimary { version: VERSION },
        Against::NotDurable,
        Against::Behind { ms: 5 },
        Against::Slow { ms: 5 },
        Against::LeavesBehind { servers: vec!["db3".to_owned()] },
    ];
    let favour = vec![For::Preferred, For::ReceivedAll, For::ExecutedAll, For::Durable, For::SameRegion];
    let supplies = vec![Supply { from: "relay1".to_owned(), from_log: true, what: text.clone() }];
    Choice {
        ranked: vec![Assessment {
            server: "db2".to_owned(),
            excluded,
            against,
            favour,
            lacks: Some(text.clone()),
            supplies,
            drains: Some(text),
        }],
    }
}

/// One record with everything that a record can have but the other outcomes.
fn audit() -> Audit {
    let ordered = acts().into_iter().zip(1..).map(|(what, number)| Note::Ordered { number, what });
    let refused = refusals().into_iter().map(|refusal| Note::Refused { refusal });
    let others = [
        Note::Answered { number: 1, outcome: "done".to_owned(), text: "term 7".to_owned() },
        Note::Ignored { number: 2 },
        Note::Overridden { refusal: Refusal::NoCandidate { reasons: "none".to_owned() } },
    ];
    let notes = ordered.chain(refused).chain(others);
    let steps = notes.zip(phases().into_iter().cycle()).zip(0..);
    Audit {
        resumes: Some("run-0".to_owned()),
        dry_run: true,
        allow_data_loss: true,
        token: Some(7),
        steps: steps.map(|((note, phase), at_ms)| Step { at_ms, phase, note }).collect(),
        holds: Some("0-1-9".to_owned()),
        may_be_missing: Some(MayBeMissing {
            after: Some("0-1-9".to_owned()),
            known: Some("0-1-10".to_owned()),
            held_by: vec!["relay2".to_owned()],
            grows: true,
        }),
        choice: Some(choice()),
        pause_ms: Some(120),
        outcome: ends().pop(),
        ..Audit::new("run-1", Kind::Switchover, "db1")
    }
}

fn guard() -> Guard {
    let mut guard = Guard::default();
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

fn findings() -> Vec<Finding> {
    let held = [
        Hold::Paused,
        Hold::Downtime { until_ms: 7, reason: "new disk".to_owned() },
        Hold::Cooldown { until_ms: 7 },
        Hold::SplitBrain,
    ];
    let actions = [Action::FailOver, Action::Alarm].into_iter().chain(held.map(Action::Held));
    let finding = |(code, action)| Finding {
        code,
        server: "db1".to_owned(),
        since_ms: 5,
        evidence: vec!["the manager: timed out".to_owned()],
        action,
        rule: (code == Code::FailoverNotReady).then(|| "TW-MGR-0032".to_owned()),
    };
    let actions: Vec<Action> = actions.collect();
    Code::ALL.into_iter().zip(actions.into_iter().cycle()).map(finding).collect()
}

fn is_written_as(value: &impl Serialize, fixture: &str) {
    let expected: serde_json::Value = serde_json::from_str(fixture).expect("a fixture");
    assert_eq!(serde_json::to_value(value).expect("JSON"), expected);
}

fn is_read_and_written_as<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &T,
    fixture: &str,
) {
    assert_eq!(&serde_json::from_str::<T>(fixture).expect("a fixture"), value);
    is_written_as(value, fixture);
}

#[test]
fn audit_records_keep_their_spelling() {
    is_read_and_written_as(&audit(), include_str!("wire_format/audit.json"));
    is_read_and_written_as(&ends(), include_str!("wire_format/outcomes.json"));
}

#[test]
fn failover_guards_keep_their_spelling() {
    is_read_and_written_as(&guard(), include_str!("wire_format/guard.json"));
}

#[test]
fn findings_keep_their_spelling() {
    is_written_as(&findings(), include_str!("wire_format/findings.json"));
}
