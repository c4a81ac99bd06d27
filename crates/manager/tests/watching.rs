//! What is kept of what was heard, and what it amounts to: deaths that are noticed at once, and what was promised before.

use std::time::Duration;

use tailwater_manager::action_executor::AckerReport;
use tailwater_manager::analysis::{AnalysisSettings, FailoverGuard, FailureCode, FindingAction};
use tailwater_manager::candidates::GtidOrigin;
use tailwater_manager::cluster_watch::watch_checkpoint::{ManagerStart, StoredCheckpoint};
use tailwater_manager::cluster_watch::{
    ClusterEvent, ClusterState, RelayAssignment, RelayProbeResult, WatchCheckpoint, WatchedCluster,
};
use tailwater_manager::lease::LeaseToken;
use tailwater_manager::lossless::{AckPolicyHistory, AckRequirement, AckerEvidence, AckerStop};
use tailwater_manager::observation::{
    ConnectedReplica, IoState, ProbeError, SemiSyncSource, ServerState, ThreadError, WaitPoint,
};
use tailwater_manager::probe::ping::{Ping, PingKind};
use tailwater_manager::probe_failure::ProbeFailure;

use crate::topology::{UUIDS, follows, from, gtids, look, plan, seen};

const RELAY: &str = "tailwater";

fn chronicle() -> ClusterState {
    let cluster = WatchedCluster {
        plan: plan(&["db2"]),
        followers: vec!["db2".to_owned()],
        ackers: [RELAY.to_owned()].into(),
        logged: None,
    };
    ClusterState::new(cluster, AnalysisSettings::default())
}

fn ping(outcome: Result<(), ProbeFailure>) -> ClusterEvent {
    let outcome = outcome.map_err(|failure| ProbeError { failure, message: failure.to_string() });
    ClusterEvent::Pinged("db1".to_owned(), Ping { kind: PingKind::Select, took: Duration::ZERO, outcome })
}

fn primary(clients: u32, timeout_ms: u64) -> ClusterEvent {
    primary_with(clients, timeout_ms, &[])
}

/// With these replicas registered.
fn primary_with(clients: u32, timeout_ms: u64, ids: &[u32]) -> ClusterEvent {
    let replicas =
        ids.iter().map(|id| ConnectedReplica { server_id: *id, host: String::new(), port: 0, uuid: None });
    let replicas = replicas.collect();
    let semi_sync_source = Some(SemiSyncSource {
        enabled: true,
        active: true,
        timeout_ms,
        wait_point: WaitPoint::AfterSync,
        wait_no_replica: true,
        acks_needed: 1,
        clients,
        waiting_sessions: 0,
        acknowledged: 5,
        unacknowledged: 0,
        after_restart: true,
    });
    ClusterEvent::ServerProbed(Box::new(seen("db1", ServerState { semi_sync_source, replicas, ..look(1) })))
}

fn relay(is_streaming: bool, heard_ago_ms: u64) -> ClusterEvent {
    relay_that_follows("db1", is_streaming, heard_ago_ms)
}

fn relay_that_follows(server: &str, is_streaming: bool, heard_ago_ms: u64) -> ClusterEvent {
    let led = RelayAssignment {
        term: LeaseToken(1),
        follows: server.to_owned(),
        followed_in: LeaseToken(1),
        is_stopped: false,
    };
    let look = RelayProbeResult {
        is_streaming,
        acknowledges: true,
        heard_ago_ms: Some(heard_ago_ms),
        heartbeat_ms: None,
        led,
    };
    ClusterEvent::RelayProbed(RELAY.to_owned(), Ok(look))
}

fn holds(last: u64) -> ClusterEvent {
    let set = gtids(&format!("{}:1-{last}", UUIDS[1]));
    let acker = AckerEvidence {
        name: RELAY.to_owned(),
        durable: true,
        stop: AckerStop::Unknown,
        holds: Some(set.clone()),
    };
    ClusterEvent::AckerReported(RELAY.to_owned(), AckerReport { acker, before: set, term: LeaseToken(1) })
}

fn settled(regimes: Option<&AckPolicyHistory>) -> bool {
    regimes.is_some_and(|regimes| {
        regimes.that_count().all(|regime| regime.acks == AckRequirement::Required(1) && regime.strangers == 0)
    })
}

/// The codes at that moment, each with whether it is acted on.
fn codes(chronicle: &ClusterState, now_ms: u64) -> Vec<(FailureCode, bool)> {
    let findings = chronicle.findings(&FailoverGuard::default(), now_ms);
    findings.iter().map(|finding| (finding.code, finding.action == FindingAction::FailOver)).collect()
}

#[test]
fn a_refusal_that_the_relay_confirms_is_acted_on_at_once() {
    let mut chronicle = chronicle();
    chronicle.hear(0, ping(Ok(())));
    chronicle.hear(10, relay(true, 0));
    chronicle.hear(20, primary(1, u64::MAX));
    chronicle.hear(100, ping(Ok(())));
    assert_eq!(codes(&chronicle, 100), []);
    chronicle.hear(200, ping(Err(ProbeFailure::Refused)));
    assert_eq!(codes(&chronicle, 200), [], "the relay may yet hear it");
    chronicle.hear(210, relay(false, 200));
    assert!(
        codes(&chronicle, 211).contains(&(FailureCode::DeadPrimary, true)),
        "{:?}",
        codes(&chronicle, 211)
    );
    chronicle.hear(220, ping(Ok(())));
    assert!(!codes(&chronicle, 221).contains(&(FailureCode::DeadPrimary, true)), "it is back");
}

/// A relay that was away when this primary took the place of another still hears that one.
#[test]
fn a_relay_that_follows_another_server_says_nothing_of_the_primary() {
    let watched = |follows: &str| {
        let mut chronicle = chronicle();
        chronicle.hear(0, ping(Ok(())));
        chronicle.hear(10, relay_that_follows(follows, true, 0));
        chronicle.hear(20, holds(10));
        chronicle.hear(30, primary(1, u64::MAX));
        chronicle
    };
    let mut astray = watched("db3");
    assert!(!settled(astray.regimes()), "whoever acknowledges there is a stranger: {:?}", astray.regimes());
    assert_eq!(codes(&astray, 40), [], "one that starts, or turns to another server, is no failure");
    assert_eq!(codes(&astray, 3_010), [(FailureCode::RelayDetached, false)]);
    // What it hears does not keep a dead primary alive ...
    astray.hear(1_000, ping(Err(ProbeFailure::Refused)));
    astray.hear(1_100, relay_that_follows("db3", true, 0));
    assert!(codes(&astray, 1_110).contains(&(FailureCode::DeadPrimary, true)), "{:?}", codes(&astray, 1_110));
    assert_eq!(astray.known().map(|known| known.unverified_ms), Some(0));
    let mut hears = watched("db1");
    hears.hear(1_000, ping(Err(ProbeFailure::Refused)));
    hears.hear(1_100, relay(true, 0));
    assert!(!codes(&hears, 1_110).contains(&(FailureCode::DeadPrimary, true)), "{:?}", codes(&hears, 1_110));
    // ... and what it loses is no word against one that is only silent to us.
    let mut silent = watched("db3");
    silent.hear(1_000, ping(Err(ProbeFailure::TimedOut)));
    silent.hear(4_900, relay_that_follows("db3", false, 4_000));
    assert!(
        !codes(&silent, 5_000).contains(&(FailureCode::DeadPrimary, true)),
        "{:?}",
        codes(&silent, 5_000)
    );
}

#[test]
fn a_replica_that_reads_from_the_primary_confirms_it_too() {
    let mut chronicle = chronicle();
    chronicle.hear(0, ping(Ok(())));
    chronicle.hear(10, relay(false, 0));
    chronicle.hear(20, primary(0, u64::MAX));
    chronicle
        .hear(30, ClusterEvent::ServerProbed(Box::new(seen("db2", follows(2, from("db1", 3306, Some(1)))))));
    assert_eq!(chronicle.direct_replicas(), ["db2"]);
    chronicle.hear(1_000, ping(Err(ProbeFailure::TimedOut)));
    let error = ThreadError { number: 2003, message: "(110 \"Connection timed out\")".into() };
    let mut lost = from("db1", 3306, Some(1));
    (lost.io, lost.io_error) = (IoState::Connecting, Some(error));
    chronicle.hear(4_100, ClusterEvent::ServerProbed(Box::new(seen("db2", follows(2, lost)))));
    chronicle.hear(4_100, relay(false, 4_000));
    assert!(
        codes(&chronicle, 4_200).contains(&(FailureCode::DeadPrimary, true)),
        "{:?}",
        codes(&chronicle, 4_200)
    );
}

#[test]
fn what_was_promised_is_known_once_the_relay_holds_what_was_before() {
    let mut chronicle = chronicle();
    assert!(chronicle.known().is_none());
    chronicle.hear(0, primary(1, u64::MAX));
    assert!(chronicle.regimes().is_none(), "who is connected there nobody can tell yet");
    chronicle.hear(0, relay(true, 0));
    chronicle.hear(10, primary(1, u64::MAX));
    assert!(!settled(chronicle.regimes()), "nobody watched what was before the first look");
    chronicle.hear(20, holds(9));
    chronicle.hear(30, primary(1, u64::MAX));
    assert!(!settled(chronicle.regimes()), "the tenth is not held");
    chronicle.hear(40, holds(10));
    chronicle.hear(50, primary(1, u64::MAX));
    assert!(settled(chronicle.regimes()));
    let known = chronicle.known().expect("it was seen");
    assert!(matches!(known.origin, GtidOrigin::MySql(_)));
    assert_eq!(known.unverified_ms, 0);
    chronicle.hear(900, ping(Ok(())));
    assert_eq!(chronicle.known().map(|known| known.unverified_ms), Some(850));
}

#[test]
fn of_a_primary_that_was_never_seen_the_log_tells_who_it_was() {
    let version = tailwater_manager::candidates::ServerVersion::read("10.11.6-MariaDB-log");
    let logged = Some((GtidOrigin::MariaDb(7), version));
    let cluster = WatchedCluster { plan: plan(&["db2"]), logged, ..WatchedCluster::default() };
    let chronicle = ClusterState::new(cluster, AnalysisSettings::default());
    let known = chronicle.known().expect("the log knows");
    assert_eq!((known.origin, known.version), (GtidOrigin::MariaDb(7), version));
    assert!(chronicle.regimes().is_none() && known.executed.is_empty());
}

/// A manager is restarted, and the primary dies before it was looked at again.
#[test]
fn what_the_manager_before_this_one_knew_counts_until_the_first_look() {
    let mut before = chronicle();
    before.hear(0, relay(true, 0));
    before.hear(5, holds(10));
    before.hear(10, primary(1, u64::MAX));
    assert!(settled(before.regimes()));
    let (memory, ago_ms) = before.to_remember(700).expect("it was looked at");
    assert_eq!((ago_ms, memory.primary.as_str()), (690, "db1"));
    before.freeze_regimes(true);
    assert!(before.to_remember(700).is_none(), "a run is under way");
    let text = serde_json::to_string(&memory).expect("JSON");
    assert_eq!(serde_json::from_str::<WatchCheckpoint>(&text).expect("a memory"), memory);

    let logged =
        Some((GtidOrigin::MySql([1; 16]), tailwater_manager::candidates::ServerVersion::read("9.7.1")));
    let begin = || {
        let cluster = WatchedCluster { logged, ..chronicle().cluster().clone() };
        let mut chronicle = ClusterState::new(cluster, AnalysisSettings::default());
        chronicle.hear(5_000, relay(false, 0));
        chronicle
    };
    let mut chronicle = begin();
    assert!(chronicle.regimes().is_none());
    chronicle.remember(5_000, memory.clone(), 4_000);
    assert!(settled(chronicle.regimes()));
    let known = chronicle.known().expect("the log knows who it was");
    assert_eq!((known.executed, known.unverified_ms), (memory.executed.clone(), 4_000));
    // It lived on, and nobody has looked at it.
    chronicle.hear(6_000, ping(Ok(())));
    assert_eq!(chronicle.known().map(|known| known.unverified_ms), Some(5_000));
    chronicle.hear(6_100, primary(1, 1_000));
    assert!(!settled(chronicle.regimes()), "what was seen counts, not what somebody remembers");
    assert_eq!(chronicle.known().map(|known| known.unverified_ms), Some(0));
    // Nor is it heard once there was a look, or of another primary.
    chronicle.remember(6_200, memory.clone(), 0);
    assert!(!settled(chronicle.regimes()));
    let mut of_another = begin();
    of_another.remember(5_000, WatchCheckpoint { primary: "db2".to_owned(), ..memory }, 0);
    assert!(of_another.regimes().is_none());
}

#[test]
fn a_memory_counts_only_where_nothing_has_happened_since() {
    let executed = gtids(&format!("{}:1-10", UUIDS[1]));
    let mut before = chronicle();
    before.hear(0, relay(true, 0));
    before.hear(10, primary(1, u64::MAX));
    let regimes = before.regimes().expect("a look").clone();
    let memory = WatchCheckpoint { primary: "db1".to_owned(), executed, regimes };
    let marked =
        StoredCheckpoint { memory: memory.clone(), looked_ms: 1_000, boot: "this".to_owned(), term: 7 };
    let begins = ManagerStart { primary: "db1", now_ms: 1_500, boot: "this", term: 7 };
    let told = |begins: &ManagerStart<'_>| marked.clone().for_one_that(begins);
    assert_eq!(told(&begins), Some((memory, 500)));
    // Another leads; the machine was started anew; another manager has given the relay orders; the clock is another one.
    assert_eq!(told(&ManagerStart { primary: "db2", ..begins.clone() }), None);
    assert_eq!(told(&ManagerStart { boot: "last", ..begins.clone() }), None);
    assert_eq!(told(&ManagerStart { term: 8, ..begins.clone() }), None);
    assert_eq!(told(&ManagerStart { now_ms: 900, ..begins }), None);
}

#[test]
fn somebody_else_who_acknowledges_is_a_stranger_until_he_is_gone() {
    let mut chronicle = chronicle();
    chronicle.hear(0, relay(true, 0));
    chronicle.hear(5, holds(10));
    chronicle.hear(10, primary(2, u64::MAX));
    assert_eq!(chronicle.regimes().map(|regimes| regimes.current().strangers), Some(1));
    chronicle.hear(20, primary(1, u64::MAX));
    assert!(settled(chronicle.regimes()), "{:?}", chronicle.regimes());
}

#[test]
fn a_relay_that_has_just_lost_its_stream_is_no_stranger() {
    let strangers = |chronicle: &ClusterState| chronicle.regimes().map(|regimes| regimes.current().strangers);
    let streaming = |clients: u32| {
        let mut chronicle = chronicle();
        chronicle.hear(0, relay(true, 0));
        chronicle.hear(5, holds(10));
        chronicle.hear(10, primary_with(clients, u64::MAX, &[7]));
        chronicle
    };
    // The primary has not noticed yet that the connection is gone.
    let mut lost = streaming(1);
    lost.hear(20, relay(false, 0));
    lost.hear(30, primary_with(1, u64::MAX, &[7]));
    assert!(settled(lost.regimes()), "{:?}", lost.regimes());
    let mut silent = streaming(1);
    silent.hear(20, ClusterEvent::RelayProbed(RELAY.to_owned(), Err(ProbeFailure::Refused)));
    silent.hear(30, primary_with(1, u64::MAX, &[7]));
    assert!(settled(silent.regimes()), "{:?}", silent.regimes());
    // It would have noticed by now; or there is one more than the relay can account for; or somebody has come.
    lost.hear(10_500, primary_with(1, u64::MAX, &[7]));
    assert_eq!(strangers(&lost), Some(1));
    silent.hear(40, primary_with(2, u64::MAX, &[7]));
    assert_eq!(strangers(&silent), Some(1));
    let mut joined = streaming(1);
    joined.hear(20, relay(false, 0));
    joined.hear(30, primary_with(1, u64::MAX, &[7, 8]));
    assert_eq!(strangers(&joined), Some(1));
    joined.hear(40, primary_with(1, u64::MAX, &[7, 8]));
    assert_eq!(strangers(&joined), Some(1));
    // A stranger who was there stays one, when the relay's connection is the one that has gone.
    let mut both = streaming(2);
    both.hear(20, relay(false, 0));
    both.hear(30, primary_with(1, u64::MAX, &[7]));
    assert_eq!(strangers(&both), Some(1));
    both.hear(40, primary_with(0, u64::MAX, &[]));
    assert_eq!(strangers(&both), Some(0));
}

#[test]
fn nothing_is_noted_of_who_acknowledges_while_a_failover_runs() {
    let mut chronicle = chronicle();
    chronicle.hear(0, relay(true, 0));
    chronicle.hear(5, holds(10));
    chronicle.hear(10, primary(1, u64::MAX));
    chronicle.hear(20, primary(1, u64::MAX));
    let before = chronicle.regimes().cloned();
    chronicle.freeze_regimes(true);
    chronicle.hear(30, primary(1, 1_000));
    assert_eq!(chronicle.regimes(), before.as_ref());
    chronicle.freeze_regimes(false);
    chronicle.hear(40, primary(1, 1_000));
    assert!(!settled(chronicle.regimes()));
}
