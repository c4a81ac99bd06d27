//! Properties of the failure analysis that hold for any reports, from any observers, in any order.

use proptest::prelude::*;
use tailwater_topology::failure_analysis::observer_report::SemiSyncHealth;
use tailwater_topology::failure_analysis::{
    AnalysisSettings, ClusterFinding, ClusterMembers, FailoverGuard, FailureCode, FindingAction,
    ObservationHistory, Observed, Observer, ObserverReport, ServerHealth, analyse,
};
use tailwater_topology::probe_failure::{Liveness, ProbeFailure};
use tailwater_topology::server_state::{ConnectionUsage, PingKind};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

/// Server names in the reports. The last one is not a member of the cluster.
const NAMES: [&str; 5] = ["db1", "db2", "db3", "r1", "db9"];

fn members() -> ClusterMembers {
    ClusterMembers {
        primary: "db1".into(),
        replicas: vec!["db2".into(), "db3".into()],
        relays: vec!["r1".into()],
    }
}

fn failure() -> impl Strategy<Value = ProbeFailure> {
    proptest::sample::select(vec![
        ProbeFailure::Refused,
        ProbeFailure::TimedOut,
        ProbeFailure::NoRoute,
        ProbeFailure::ConnectionLost,
        ProbeFailure::Denied,
        ProbeFailure::TooManyConnections,
        ProbeFailure::ShuttingDown,
        ProbeFailure::ReadOnly,
        ProbeFailure::DiskFull,
        ProbeFailure::Other,
    ])
}

fn vitals() -> impl Strategy<Value = ServerHealth> {
    (1..4_u32, any::<bool>(), any::<bool>(), 1..30_u64, 0..30_u64, 0..3_u64, any::<bool>()).prop_map(
        |(server_id, writable, replicates, sequence, lag, waiting, active)| ServerHealth {
            is_replication_known: true,
            identity: server_id.to_string(),
            server_id,
            writable,
            executed: GtidSet::parse(Flavour::MariaDb, &format!("0-{server_id}-{sequence}")).unwrap(),
            replicates,
            io_stopped: None,
            sql_stopped: None,
            lag_seconds: Some(lag),
            semi_sync: Some(SemiSyncHealth {
                enabled: true,
                active,
                lossless: true,
                clients: 1,
                acks_needed: 1,
                waiting_sessions: waiting,
                acknowledged: sequence,
                unacknowledged: lag,
            }),
            connections: ConnectionUsage {
                connected: lag,
                connections_max: 25,
                ..ConnectionUsage::default()
            },
        },
    )
}

/// A report at a random time. The reports are not sorted, so some of them arrive late.
fn sighting() -> impl Strategy<Value = ObserverReport> {
    let kind = proptest::sample::select(vec![PingKind::Select, PingKind::Connect, PingKind::Insert]);
    let observed = prop_oneof![
        4 => (kind.clone(), failure()).prop_map(|(kind, failure)| Observed::Failed(kind, failure)),
        2 => kind.clone().prop_map(Observed::Answered),
        2 => vitals().prop_map(|vitals| Observed::Health(Box::new(vitals))),
        3 => failure().prop_map(Observed::StreamLost),
        2 => (proptest::option::of(0..20_000_u64), proptest::option::of(1..2_000_u64))
            .prop_map(|(heard_ms, heartbeat_ms)| Observed::Streaming { heard_ms, heartbeat_ms }),
        1 => (kind.clone(), 0..20_000_u64).prop_map(|(kind, asked_ms)| Observed::Overdue(kind, asked_ms)),
        1 => Just(Observed::HistoryRewound("the log is ahead".into())),
    ];
    (0..20_000_u64, 0..NAMES.len(), 0..NAMES.len(), observed).prop_map(|(at_ms, who, about, saw)| {
        let name = NAMES[who].to_owned();
        let observer = match (&saw, name.as_str()) {
            (
                Observed::Failed(..) | Observed::Answered(_) | Observed::Overdue(..) | Observed::Health(_),
                _,
            ) => Observer::Manager,
            (_, "r1") => Observer::Relay(name),
            _ => Observer::Replica(name),
        };
        ObserverReport { at_ms, observer, about: NAMES[about].to_owned(), saw }
    })
}

fn story() -> impl Strategy<Value = Vec<ObserverReport>> {
    proptest::collection::vec(sighting(), 0..60)
}

fn told(story: &[ObserverReport]) -> ObservationHistory {
    let mut record = ObservationHistory::new(members(), AnalysisSettings::default());
    for sighting in story {
        record.add(sighting.clone());
    }
    record
}

fn fails_over(findings: &[ClusterFinding]) -> bool {
    findings.iter().any(|finding| finding.action == FindingAction::FailOver)
}

proptest! {
    #[test]
    fn at_most_one_finding_says_whether_the_primary_is_dead_or_unreachable(story in story(), now in 0..40_000_u64) {
        let findings = analyse(&told(&story), &FailoverGuard::default(), now);
        let of = |code| findings.iter().filter(|finding| finding.code == code).count();
        prop_assert!(of(FailureCode::DeadPrimary) + of(FailureCode::UnreachablePrimary) <= 1);
        for finding in &findings {
            prop_assert_eq!(finding.action == FindingAction::FailOver, finding.code == FailureCode::DeadPrimary && fails_over(&findings));
            prop_assert!(!finding.evidence.is_empty(), "the analysis returned a wrong finding: {:?}", finding);
            prop_assert!(finding.server != "db9", "the analysis returned a wrong finding: {:?}", finding);
            let of_primary = matches!(
                finding.code,
                FailureCode::DeadPrimary
                    | FailureCode::UnreachablePrimary
                    | FailureCode::RewoundPrimary
                    | FailureCode::PrimaryReadOnlyOrFull
                    | FailureCode::OutOfConnections
                    | FailureCode::SemiSyncBlocked
                    | FailureCode::SemiSyncDegraded
            );
            prop_assert_eq!(of_primary, finding.server == "db1", "{:?}", finding);
        }
    }

    /// The silence of one observer is never a reason for a failover, however long it lasts.
    #[test]
    fn silence_to_the_manager_alone_triggers_no_failover(story in story(), now in 0..400_000_u64) {
        let alone: Vec<_> = story
            .into_iter()
            .filter(|sighting| match &sighting.saw {
                Observed::Failed(_, failure) => failure.liveness() != Liveness::Down,
                // The other observers do not report on the primary, or do not know when they last received
                // from it.
                Observed::StreamLost(_) => false,
                Observed::Streaming { heard_ms, .. } => heard_ms.is_none(),
                _ => true,
            })
            .collect();
        let mut record = told(&alone);
        prop_assert!(!fails_over(&analyse(&record, &FailoverGuard::default(), now)));
        // All other members answer the manager, and still do not report on the primary.
        let by_manager = |at_ms, about: &str, saw| ObserverReport {
            at_ms,
            observer: Observer::Manager,
            about: about.to_owned(),
            saw,
        };
        record.add(by_manager(20_000, "db1", Observed::Failed(PingKind::Select, ProbeFailure::TimedOut)));
        for name in ["db2", "db3", "r1"] {
            record.add(by_manager(now.max(20_000), name, Observed::Answered(PingKind::Connect)));
        }
        let now = now.max(20_000);
        prop_assert!(!fails_over(&analyse(&record, &FailoverGuard::default(), now)));
    }

    /// One observer that receives data from the primary prevents a failover.
    #[test]
    fn one_observer_that_receives_from_the_primary_prevents_a_failover(story in story(), now in 20_000..40_000_u64) {
        let mut record = told(&story);
        let saw = Observed::Streaming { heard_ms: Some(now), heartbeat_ms: None };
        record.add(ObserverReport { at_ms: now, observer: Observer::Relay("r1".into()), about: "db1".into(), saw });
        prop_assert!(!fails_over(&analyse(&record, &FailoverGuard::default(), now)));
    }

    /// An answer from the primary shows that it is alive, even if the answer is an error.
    #[test]
    fn an_answer_is_a_sign_of_life(story in story(), failure in failure(), now in 20_000..40_000_u64) {
        prop_assume!(failure.liveness() == Liveness::Alive);
        let mut record = told(&story);
        let saw = Observed::Failed(PingKind::Connect, failure);
        record.add(ObserverReport { at_ms: now, observer: Observer::Manager, about: "db1".into(), saw });
        let findings = analyse(&record, &FailoverGuard::default(), now);
        let is_dead = |finding: &ClusterFinding| matches!(finding.code, FailureCode::DeadPrimary | FailureCode::UnreachablePrimary);
        prop_assert!(!findings.iter().any(is_dead), "the analysis returned a wrong finding: {:?}", findings);
    }

    #[test]
    fn no_failover_happens_during_a_pause_or_a_cool_down(story in story(), now in 20_000..40_000_u64) {
        let record = told(&story);
        let (mut paused, mut cooling) = (FailoverGuard::default(), FailoverGuard::default());
        paused.pause();
        cooling.failed_over(now - 1);
        for guard in [&paused, &cooling] {
            prop_assert!(!fails_over(&analyse(&record, guard, now)));
        }
        // The guard must not change which failures are found.
        let codes = |guard| analyse(&record, guard, now).into_iter().map(|finding| finding.code).collect::<Vec<_>>();
        prop_assert_eq!(codes(&paused), codes(&FailoverGuard::default()));
    }

    #[test]
    fn reports_by_or_about_unknown_servers_change_nothing(story in story(), now in 0..40_000_u64) {
        let stranger = |sighting: &ObserverReport| {
            let by = match &sighting.observer {
                Observer::Manager => false,
                Observer::Relay(name) | Observer::Replica(name) => name == "db9",
            };
            by || sighting.about == "db9"
        };
        let known: Vec<_> = story.iter().filter(|sighting| !stranger(sighting)).cloned().collect();
        let guard = FailoverGuard::default();
        prop_assert_eq!(analyse(&told(&story), &guard, now), analyse(&told(&known), &guard, now));
    }
}
