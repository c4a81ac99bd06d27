//! Tests of the state of a watched cluster: what it keeps of the events, and which findings it produces. The
//! death of a primary is detected at once, and the ack policies from before the death are known.

use std::time::Duration;

use tailwater_manager::action_executor::AckerReport;
use tailwater_manager::candidates::GtidOrigin;
use tailwater_manager::cluster_watch::watch_checkpoint::{ManagerStart, StoredCheckpoint};
use tailwater_manager::cluster_watch::{ClusterEvent, ClusterState, WatchCheckpoint, WatchedCluster};
use tailwater_manager::lossless_rules::{AckPolicyHistory, AckRequirement, AckerEvidence, AckerStop};
use tailwater_manager::model::{LeaseToken, RelayAssignment, RelayProbeResult};
use tailwater_topology::failure_analysis::{AnalysisSettings, FailoverGuard, FailureCode, FindingAction};
use tailwater_topology::probe_failure::ProbeFailure;
use tailwater_topology::server_state::{
    ConnectedReplica, IoState, PingKind, PingResult, ProbeError, SemiSyncSource, ServerState, ThreadError,
    WaitPoint,
};

use crate::topology_tree::{UUIDS, follows, from, gtids, look, plan, seen};

const RELAY: &str = "tailwater";

fn cluster_state() -> ClusterState {
    let cluster = WatchedCluster {
        plan: plan(&["db2"]),
        followers: vec!["db2".to_owned()],
        ackers: [RELAY.to_owned()].into(),
        log_origin: None,
    };
    ClusterState::new(cluster, AnalysisSettings::default())
}

fn ping(outcome: Result<(), ProbeFailure>) -> ClusterEvent {
    let outcome = outcome.map_err(|failure| ProbeError { failure, message: failure.to_string() });
    ClusterEvent::Pinged(
        "db1".to_owned(),
        PingResult { kind: PingKind::Select, took: Duration::ZERO, outcome },
    )
}

fn primary(clients: u32, timeout_ms: u64) -> ClusterEvent {
    primary_with(clients, timeout_ms, &[])
}

/// An observation of the primary, whose list of replicas contains the `server_id`s in `ids`.
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
        survives_restart: true,
    });
    ClusterEvent::ServerProbed(Box::new(seen("db1", ServerState { semi_sync_source, replicas, ..look(1) })))
}

fn relay(is_streaming: bool, heard_ago_ms: u64) -> ClusterEvent {
    relay_that_follows("db1", is_streaming, heard_ago_ms)
}

fn relay_that_follows(server: &str, is_streaming: bool, heard_ago_ms: u64) -> ClusterEvent {
    let led = RelayAssignment {
        term: LeaseToken(1),
        source: server.to_owned(),
        assigned_term: LeaseToken(1),
        is_stopped: false,
    };
    let look = RelayProbeResult {
        is_streaming,
        acknowledges: true,
        heard_ago_ms: Some(heard_ago_ms),
        heartbeat_ms: None,
        assignment: led,
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

fn settled(ack_policies: Option<&AckPolicyHistory>) -> bool {
    ack_policies.is_some_and(|ack_policies| {
        ack_policies
            .relevant_policies()
            .all(|policy| policy.acks == AckRequirement::Required(1) && policy.unconfigured_replicas == 0)
    })
}

/// Returns the failure codes at `now_ms`. Each comes with a flag that is true if the manager would fail over.
fn codes(cluster_state: &ClusterState, now_ms: u64) -> Vec<(FailureCode, bool)> {
    let findings = cluster_state.findings(&FailoverGuard::default(), now_ms);
    findings.iter().map(|finding| (finding.code, finding.action == FindingAction::FailOver)).collect()
}

#[test]
fn a_refused_connection_that_the_relay_confirms_triggers_a_failover_at_once() {
    let mut cluster_state = cluster_state();
    cluster_state.apply(0, ping(Ok(())));
    cluster_state.apply(10, relay(true, 0));
    cluster_state.apply(20, primary(1, u64::MAX));
    cluster_state.apply(100, ping(Ok(())));
    assert_eq!(codes(&cluster_state, 100), []);
    cluster_state.apply(200, ping(Err(ProbeFailure::Refused)));
    assert_eq!(codes(&cluster_state, 200), [], "the relay may still receive from the primary");
    cluster_state.apply(210, relay(false, 200));
    assert!(
        codes(&cluster_state, 211).contains(&(FailureCode::DeadPrimary, true)),
        "the cluster state returned the wrong findings: {:?}",
        codes(&cluster_state, 211)
    );
    cluster_state.apply(220, ping(Ok(())));
    assert!(!codes(&cluster_state, 221).contains(&(FailureCode::DeadPrimary, true)), "the primary is back");
}

/// A relay that was unreachable when the primary changed still streams from the former primary.
#[test]
fn a_relay_that_follows_another_server_gives_no_information_on_the_primary() {
    let watched = |follows: &str| {
        let mut cluster_state = cluster_state();
        cluster_state.apply(0, ping(Ok(())));
        cluster_state.apply(10, relay_that_follows(follows, true, 0));
        cluster_state.apply(20, holds(10));
        cluster_state.apply(30, primary(1, u64::MAX));
        cluster_state
    };
    let mut astray = watched("db3");
    assert!(
        !settled(astray.ack_policies()),
        "the connected semi-sync replica must count as unconfigured: {:?}",
        astray.ack_policies()
    );
    assert_eq!(codes(&astray, 40), [], "a relay that starts or changes its source is not a failure");
    assert_eq!(codes(&astray, 3_010), [(FailureCode::RelayDetached, false)]);
    // This relay streams from db3, so its stream does not show that the primary is alive.
    astray.apply(1_000, ping(Err(ProbeFailure::Refused)));
    astray.apply(1_100, relay_that_follows("db3", true, 0));
    assert!(
        codes(&astray, 1_110).contains(&(FailureCode::DeadPrimary, true)),
        "the cluster state returned the wrong findings: {:?}",
        codes(&astray, 1_110)
    );
    assert_eq!(astray.known_primary().map(|known| known.primary_state_age_ms), Some(0));
    let mut hears = watched("db1");
    hears.apply(1_000, ping(Err(ProbeFailure::Refused)));
    hears.apply(1_100, relay(true, 0));
    assert!(
        !codes(&hears, 1_110).contains(&(FailureCode::DeadPrimary, true)),
        "the cluster state returned the wrong findings: {:?}",
        codes(&hears, 1_110)
    );
    // If a relay that streams from db3 loses its stream, that does not confirm the death of the primary,
    // which is only silent to the manager.
    let mut silent = watched("db3");
    silent.apply(1_000, ping(Err(ProbeFailure::TimedOut)));
    silent.apply(4_900, relay_that_follows("db3", false, 4_000));
    assert!(
        !codes(&silent, 5_000).contains(&(FailureCode::DeadPrimary, true)),
        "the cluster state returned the wrong findings: {:?}",
        codes(&silent, 5_000)
    );
}

#[test]
fn a_replica_that_reads_from_the_primary_also_confirms_its_death() {
    let mut cluster_state = cluster_state();
    cluster_state.apply(0, ping(Ok(())));
    cluster_state.apply(10, relay(false, 0));
    cluster_state.apply(20, primary(0, u64::MAX));
    cluster_state
        .apply(30, ClusterEvent::ServerProbed(Box::new(seen("db2", follows(2, from("db1", 3306, Some(1)))))));
    assert_eq!(cluster_state.direct_replicas(), ["db2"]);
    cluster_state.apply(1_000, ping(Err(ProbeFailure::TimedOut)));
    let error = ThreadError { number: 2003, message: "(110 \"Connection timed out\")".into() };
    let mut lost = from("db1", 3306, Some(1));
    (lost.io, lost.io_error) = (IoState::Connecting, Some(error));
    cluster_state.apply(4_100, ClusterEvent::ServerProbed(Box::new(seen("db2", follows(2, lost)))));
    cluster_state.apply(4_100, relay(false, 4_000));
    assert!(
        codes(&cluster_state, 4_200).contains(&(FailureCode::DeadPrimary, true)),
        "the cluster state returned the wrong findings: {:?}",
        codes(&cluster_state, 4_200)
    );
}

#[test]
fn ack_policies_count_once_the_relay_holds_the_earlier_transactions() {
    let mut cluster_state = cluster_state();
    assert!(cluster_state.known_primary().is_none());
    cluster_state.apply(0, primary(1, u64::MAX));
    assert!(
        cluster_state.ack_policies().is_none(),
        "before the relay is probed it is unknown which clients are connected"
    );
    cluster_state.apply(0, relay(true, 0));
    cluster_state.apply(10, primary(1, u64::MAX));
    assert!(
        !settled(cluster_state.ack_policies()),
        "the commits before the first observation must not count as lossless"
    );
    cluster_state.apply(20, holds(9));
    cluster_state.apply(30, primary(1, u64::MAX));
    assert!(!settled(cluster_state.ack_policies()), "the relay does not hold the tenth transaction");
    cluster_state.apply(40, holds(10));
    cluster_state.apply(50, primary(1, u64::MAX));
    assert!(settled(cluster_state.ack_policies()));
    let known = cluster_state.known_primary().expect("the primary must have been observed");
    assert!(matches!(known.origin, GtidOrigin::MySql(_)));
    assert_eq!(known.primary_state_age_ms, 0);
    cluster_state.apply(900, ping(Ok(())));
    assert_eq!(cluster_state.known_primary().map(|known| known.primary_state_age_ms), Some(850));
}

#[test]
fn the_log_identifies_a_primary_that_was_never_observed() {
    let version = tailwater_topology::ServerVersion::read("10.11.6-MariaDB-log");
    let log_origin = Some((GtidOrigin::MariaDb(7), version));
    let cluster = WatchedCluster { plan: plan(&["db2"]), log_origin, ..WatchedCluster::default() };
    let cluster_state = ClusterState::new(cluster, AnalysisSettings::default());
    let known = cluster_state.known_primary().expect("the log must identify the primary");
    assert_eq!((known.origin, known.version), (GtidOrigin::MariaDb(7), version));
    assert!(cluster_state.ack_policies().is_none() && known.executed.is_empty());
}

/// The manager restarts, and the primary dies before the new process has observed it.
#[test]
fn the_checkpoint_of_the_previous_manager_counts_until_the_first_observation() {
    let mut before = cluster_state();
    before.apply(0, relay(true, 0));
    before.apply(5, holds(10));
    before.apply(10, primary(1, u64::MAX));
    assert!(settled(before.ack_policies()));
    let (memory, ago_ms) = before.checkpoint(700).expect("the primary must have been observed");
    assert_eq!((ago_ms, memory.primary.as_str()), (690, "db1"));
    before.freeze_ack_policies(true);
    assert!(before.checkpoint(700).is_none(), "no checkpoint is made during a failover or switchover");
    let text = serde_json::to_string(&memory).expect("the value must be serializable as JSON");
    assert_eq!(
        serde_json::from_str::<WatchCheckpoint>(&text).expect("the text must be a valid checkpoint"),
        memory
    );

    let log_origin = Some((GtidOrigin::MySql([1; 16]), tailwater_topology::ServerVersion::read("9.7.1")));
    let begin = || {
        let cluster = WatchedCluster { log_origin, ..cluster_state().cluster().clone() };
        let mut cluster_state = ClusterState::new(cluster, AnalysisSettings::default());
        cluster_state.apply(5_000, relay(false, 0));
        cluster_state
    };
    let mut cluster_state = begin();
    assert!(cluster_state.ack_policies().is_none());
    cluster_state.restore_checkpoint(5_000, memory.clone(), 4_000);
    assert!(settled(cluster_state.ack_policies()));
    let known = cluster_state.known_primary().expect("the log must identify the primary");
    assert_eq!((known.executed, known.primary_state_age_ms), (memory.executed.clone(), 4_000));
    // After the checkpoint was restored, the primary answered a ping, but was not observed.
    cluster_state.apply(6_000, ping(Ok(())));
    assert_eq!(cluster_state.known_primary().map(|known| known.primary_state_age_ms), Some(5_000));
    cluster_state.apply(6_100, primary(1, 1_000));
    assert!(!settled(cluster_state.ack_policies()), "the observation counts, not the checkpoint");
    assert_eq!(cluster_state.known_primary().map(|known| known.primary_state_age_ms), Some(0));
    // A checkpoint is ignored after the first observation, and if it is of another primary.
    cluster_state.restore_checkpoint(6_200, memory.clone(), 0);
    assert!(!settled(cluster_state.ack_policies()));
    let mut of_another = begin();
    of_another.restore_checkpoint(5_000, WatchCheckpoint { primary: "db2".to_owned(), ..memory }, 0);
    assert!(of_another.ack_policies().is_none());
}

#[test]
fn a_checkpoint_is_valid_only_if_nothing_has_changed_since() {
    let executed = gtids(&format!("{}:1-10", UUIDS[1]));
    let mut before = cluster_state();
    before.apply(0, relay(true, 0));
    before.apply(10, primary(1, u64::MAX));
    let ack_policies = before.ack_policies().expect("the primary must have been observed").clone();
    let memory = WatchCheckpoint { primary: "db1".to_owned(), executed, ack_policies };
    let marked = StoredCheckpoint {
        checkpoint: memory.clone(),
        probed_at_ms: 1_000,
        boot: "this".to_owned(),
        term: 7,
    };
    let begins = ManagerStart { primary: "db1", now_ms: 1_500, boot: "this", term: 7 };
    let reported = |begins: &ManagerStart<'_>| marked.clone().for_start(begins);
    assert_eq!(reported(&begins), Some((memory, 500)));
    // The checkpoint is not valid in four cases: another server is the primary; the machine was restarted;
    // another manager has given the relay orders; the clock was set back.
    assert_eq!(reported(&ManagerStart { primary: "db2", ..begins.clone() }), None);
    assert_eq!(reported(&ManagerStart { boot: "last", ..begins.clone() }), None);
    assert_eq!(reported(&ManagerStart { term: 8, ..begins.clone() }), None);
    assert_eq!(reported(&ManagerStart { now_ms: 900, ..begins }), None);
}

#[test]
fn an_unconfigured_semi_sync_replica_counts_until_it_disconnects() {
    let mut cluster_state = cluster_state();
    cluster_state.apply(0, relay(true, 0));
    cluster_state.apply(5, holds(10));
    cluster_state.apply(10, primary(2, u64::MAX));
    assert_eq!(
        cluster_state.ack_policies().map(|ack_policies| ack_policies.current().unconfigured_replicas),
        Some(1)
    );
    cluster_state.apply(20, primary(1, u64::MAX));
    assert!(
        settled(cluster_state.ack_policies()),
        "the ack policies are wrong: {:?}",
        cluster_state.ack_policies()
    );
}

#[test]
fn a_relay_that_has_just_lost_its_stream_does_not_count_as_an_unconfigured_replica() {
    let unconfigured_replicas = |cluster_state: &ClusterState| {
        cluster_state.ack_policies().map(|ack_policies| ack_policies.current().unconfigured_replicas)
    };
    let streaming = |clients: u32| {
        let mut cluster_state = cluster_state();
        cluster_state.apply(0, relay(true, 0));
        cluster_state.apply(5, holds(10));
        cluster_state.apply(10, primary_with(clients, u64::MAX, &[7]));
        cluster_state
    };
    // The primary has not noticed yet that the relay's connection is closed.
    let mut lost = streaming(1);
    lost.apply(20, relay(false, 0));
    lost.apply(30, primary_with(1, u64::MAX, &[7]));
    assert!(settled(lost.ack_policies()), "the ack policies are wrong: {:?}", lost.ack_policies());
    let mut silent = streaming(1);
    silent.apply(20, ClusterEvent::RelayProbed(RELAY.to_owned(), Err(ProbeFailure::Refused)));
    silent.apply(30, primary_with(1, u64::MAX, &[7]));
    assert!(settled(silent.ack_policies()), "the ack policies are wrong: {:?}", silent.ack_policies());
    // An unconfigured replica must be counted in three cases: the primary would have noticed the closed
    // connection by now; the primary counts one client more than the relay explains; another client has
    // connected.
    lost.apply(10_500, primary_with(1, u64::MAX, &[7]));
    assert_eq!(unconfigured_replicas(&lost), Some(1));
    silent.apply(40, primary_with(2, u64::MAX, &[7]));
    assert_eq!(unconfigured_replicas(&silent), Some(1));
    let mut weakest_of = streaming(1);
    weakest_of.apply(20, relay(false, 0));
    weakest_of.apply(30, primary_with(1, u64::MAX, &[7, 8]));
    assert_eq!(unconfigured_replicas(&weakest_of), Some(1));
    weakest_of.apply(40, primary_with(1, u64::MAX, &[7, 8]));
    assert_eq!(unconfigured_replicas(&weakest_of), Some(1));
    // If the relay's connection closes, an unconfigured replica that was connected before is still counted.
    let mut both = streaming(2);
    both.apply(20, relay(false, 0));
    both.apply(30, primary_with(1, u64::MAX, &[7]));
    assert_eq!(unconfigured_replicas(&both), Some(1));
    both.apply(40, primary_with(0, u64::MAX, &[]));
    assert_eq!(unconfigured_replicas(&both), Some(0));
}

#[test]
fn ack_policies_are_frozen_during_a_failover() {
    let mut cluster_state = cluster_state();
    cluster_state.apply(0, relay(true, 0));
    cluster_state.apply(5, holds(10));
    cluster_state.apply(10, primary(1, u64::MAX));
    cluster_state.apply(20, primary(1, u64::MAX));
    let before = cluster_state.ack_policies().cloned();
    cluster_state.freeze_ack_policies(true);
    cluster_state.apply(30, primary(1, 1_000));
    assert_eq!(cluster_state.ack_policies(), before.as_ref());
    cluster_state.freeze_ack_policies(false);
    cluster_state.apply(40, primary(1, 1_000));
    assert!(!settled(cluster_state.ack_policies()));
}
