//! What holds of the analysis whatever is said, by whom, and in which order.

use proptest::prelude::*;
use tailwater_manager::analysis::sighting::SemiSyncVitals;
use tailwater_manager::analysis::{
    Action, Cast, Code, Finding, Guard, Observer, Record, Saw, Settings, Sighting, Vitals, analyse,
};
use tailwater_manager::failure::{Failure, Sign};
use tailwater_manager::observing::ping::PingKind;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

/// The last one is a stranger.
const NAMES: [&str; 5] = ["db1", "db2", "db3", "r1", "db9"];

fn cast() -> Cast {
    Cast { primary: "db1".into(), replicas: vec!["db2".into(), "db3".into()], relays: vec!["r1".into()] }
}

fn failure() -> impl Strategy<Value = Failure> {
    proptest::sample::select(vec![
        Failure::Refused,
        Failure::TimedOut,
        Failure::NoRoute,
        Failure::Broken,
        Failure::Denied,
        Failure::TooManyConnections,
        Failure::ShuttingDown,
        Failure::ReadOnly,
        Failure::DiskFull,
        Failure::Other,
    ])
}

fn vitals() -> impl Strategy<Value = Vitals> {
    (1..4_u32, any::<bool>(), any::<bool>(), 1..30_u64, 0..30_u64, 0..3_u64, any::<bool>()).prop_map(
        |(server_id, writable, replicates, sequence, lag, waiting, active)| Vitals {
            replication_is_known: true,
            identity: server_id.to_string(),
            server_id,
            writable,
            executed: GtidSet::parse(Flavour::MariaDb, &format!("0-{server_id}-{sequence}")).unwrap(),
            replicates,
            io_stopped: None,
            sql_stopped: None,
            lag_seconds: Some(lag),
            semi_sync: Some(SemiSyncVitals {
                enabled: true,
                active,
                lossless: true,
                clients: 1,
                acks_needed: 1,
                waiting_sessions: waiting,
                acknowledged: sequence,
                unacknowledged: lag,
            }),
        },
    )
}

/// Something that is said at a time; some of it comes late.
fn sighting() -> impl Strategy<Value = Sighting> {
    let kind = proptest::sample::select(vec![PingKind::Select, PingKind::Connect, PingKind::Insert]);
    let said = prop_oneof![
        4 => (kind.clone(), failure()).prop_map(|(kind, failure)| Saw::Failed(kind, failure)),
        2 => kind.clone().prop_map(Saw::Answered),
        2 => vitals().prop_map(|vitals| Saw::Vitals(Box::new(vitals))),
        3 => failure().prop_map(Saw::Lost),
        2 => (proptest::option::of(0..20_000_u64), proptest::option::of(1..2_000_u64))
            .prop_map(|(heard_ms, heartbeat_ms)| Saw::Streaming { heard_ms, heartbeat_ms }),
        1 => (kind.clone(), 0..20_000_u64).prop_map(|(kind, asked_ms)| Saw::Late(kind, asked_ms)),
        1 => Just(Saw::Rewound("the log is ahead".into())),
    ];
    (0..20_000_u64, 0..NAMES.len(), 0..NAMES.len(), said).prop_map(|(at_ms, who, about, saw)| {
        let name = NAMES[who].to_owned();
        let observer = match (&saw, name.as_str()) {
            (Saw::Failed(..) | Saw::Answered(_) | Saw::Late(..) | Saw::Vitals(_), _) => Observer::Manager,
            (_, "r1") => Observer::Relay(name),
            _ => Observer::Replica(name),
        };
        Sighting { at_ms, observer, about: NAMES[about].to_owned(), saw }
    })
}

fn story() -> impl Strategy<Value = Vec<Sighting>> {
    proptest::collection::vec(sighting(), 0..60)
}

fn told(story: &[Sighting]) -> Record {
    let mut record = Record::new(cast(), Settings::default());
    for sighting in story {
        record.note(sighting.clone());
    }
    record
}

fn fails_over(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.action == Action::FailOver)
}

proptest! {
    #[test]
    fn there_is_one_verdict_on_the_primary(story in story(), now in 0..40_000_u64) {
        let findings = analyse(&told(&story), &Guard::default(), now);
        let of = |code| findings.iter().filter(|finding| finding.code == code).count();
        prop_assert!(of(Code::DeadPrimary) + of(Code::UnreachablePrimary) <= 1);
        for finding in &findings {
            prop_assert_eq!(finding.action == Action::FailOver, finding.code == Code::DeadPrimary && fails_over(&findings));
            prop_assert!(!finding.evidence.is_empty(), "{:?}", finding);
            prop_assert!(finding.server != "db9", "{:?}", finding);
            let of_primary = matches!(
                finding.code,
                Code::DeadPrimary
                    | Code::UnreachablePrimary
                    | Code::RewoundPrimary
                    | Code::PrimaryReadOnlyOrFull
                    | Code::SemiSyncBlocked
                    | Code::SemiSyncDegraded
            );
            prop_assert_eq!(of_primary, finding.server == "db1", "{:?}", finding);
        }
    }

    /// Silence of one observer, however long, is no reason to act.
    #[test]
    fn nobody_acts_on_what_the_manager_alone_does_not_hear(story in story(), now in 0..400_000_u64) {
        let alone: Vec<_> = story
            .into_iter()
            .filter(|sighting| match &sighting.saw {
                Saw::Failed(_, failure) => failure.sign() != Sign::Gone,
                // The others have nothing to say of the primary, or cannot tell.
                Saw::Lost(_) => false,
                Saw::Streaming { heard_ms, .. } => heard_ms.is_none(),
                _ => true,
            })
            .collect();
        let mut record = told(&alone);
        prop_assert!(!fails_over(&analyse(&record, &Guard::default(), now)));
        // Everybody else is well, and still has nothing to say of it.
        let by_manager = |at_ms, about: &str, saw| Sighting {
            at_ms,
            observer: Observer::Manager,
            about: about.to_owned(),
            saw,
        };
        record.note(by_manager(20_000, "db1", Saw::Failed(PingKind::Select, Failure::TimedOut)));
        for name in ["db2", "db3", "r1"] {
            record.note(by_manager(now.max(20_000), name, Saw::Answered(PingKind::Connect)));
        }
        let now = now.max(20_000);
        prop_assert!(!fails_over(&analyse(&record, &Guard::default(), now)));
    }

    /// Whoever hears the primary now keeps everybody from acting.
    #[test]
    fn one_who_hears_it_is_enough_to_hold(story in story(), now in 20_000..40_000_u64) {
        let mut record = told(&story);
        let saw = Saw::Streaming { heard_ms: Some(now), heartbeat_ms: None };
        record.note(Sighting { at_ms: now, observer: Observer::Relay("r1".into()), about: "db1".into(), saw });
        prop_assert!(!fails_over(&analyse(&record, &Guard::default(), now)));
    }

    /// An answer, even an error, is a sign of life.
    #[test]
    fn an_answer_is_a_sign_of_life(story in story(), failure in failure(), now in 20_000..40_000_u64) {
        prop_assume!(failure.sign() == Sign::Alive);
        let mut record = told(&story);
        let saw = Saw::Failed(PingKind::Connect, failure);
        record.note(Sighting { at_ms: now, observer: Observer::Manager, about: "db1".into(), saw });
        let findings = analyse(&record, &Guard::default(), now);
        let is_dead = |finding: &Finding| matches!(finding.code, Code::DeadPrimary | Code::UnreachablePrimary);
        prop_assert!(!findings.iter().any(is_dead), "{:?}", findings);
    }

    #[test]
    fn nothing_is_done_while_it_is_paused_or_cools_down(story in story(), now in 20_000..40_000_u64) {
        let record = told(&story);
        let (mut paused, mut cooling) = (Guard::default(), Guard::default());
        paused.pause();
        cooling.failed_over(now - 1);
        for guard in [&paused, &cooling] {
            prop_assert!(!fails_over(&analyse(&record, guard, now)));
        }
        // What is seen is the same.
        let codes = |guard| analyse(&record, guard, now).into_iter().map(|finding| finding.code).collect::<Vec<_>>();
        prop_assert_eq!(codes(&paused), codes(&Guard::default()));
    }

    #[test]
    fn strangers_change_nothing(story in story(), now in 0..40_000_u64) {
        let stranger = |sighting: &Sighting| {
            let by = match &sighting.observer {
                Observer::Manager => false,
                Observer::Relay(name) | Observer::Replica(name) => name == "db9",
            };
            by || sighting.about == "db9"
        };
        let known: Vec<_> = story.iter().filter(|sighting| !stranger(sighting)).cloned().collect();
        let guard = Guard::default();
        prop_assert_eq!(analyse(&told(&story), &guard, now), analyse(&told(&known), &guard, now));
    }
}
