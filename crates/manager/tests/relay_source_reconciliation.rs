//! Tests how the primary is determined from audit records and relays. A model covers relays that are down
//! during failovers, and managers that die. The next holder of the lease then repoints the relays that it can
//! observe.

use proptest::prelude::*;
use tailwater_manager::SafetyRefusal;
use tailwater_manager::audit_history::{PrimaryRecord, RecordedPrimary};
use tailwater_manager::model::{
    Audit, AuditEntry, AuditEvent, LeaseToken, RelayAssignment, RunAction, RunKind, RunOutcome, RunPhase,
};

fn assignment(term: u64, source: &str, assigned_term: u64) -> RelayAssignment {
    let (term, assigned_term) = (LeaseToken(term), LeaseToken(assigned_term));
    RelayAssignment { term, source: source.to_owned(), assigned_term, is_stopped: false }
}

fn stopped(assignment: RelayAssignment) -> RelayAssignment {
    RelayAssignment { is_stopped: true, ..assignment }
}

fn decided(term: u64, server: &str) -> RecordedPrimary {
    RecordedPrimary::Known(PrimaryRecord { term: LeaseToken(term), server: server.to_owned() })
}

/// Returns the name of the primary in lease term 9; `unknown` if it cannot be determined.
fn leader(recorded: &RecordedPrimary, relays: &[RelayAssignment]) -> String {
    let decision = PrimaryRecord::of(recorded, relays, (1, LeaseToken(9)));
    decision.map_or_else(|| "unknown".to_owned(), |decision| decision.server)
}

#[test]
fn the_decision_of_the_latest_lease_term_counts() {
    let nothing = RecordedPrimary::NeverChanged;
    let who = |relays: &[RelayAssignment]| leader(&nothing, relays);
    assert_eq!(who(&[]), "unknown");
    assert_eq!(
        who(&[assignment(0, "db1", 0), assignment(3, "db1", 0)]),
        "unknown",
        "no relay has ever had an order"
    );
    // The second relay was unreachable when the primary changed.
    let relays = [assignment(7, "db2", 7), assignment(6, "db1", 6)];
    assert_eq!(who(&relays), "db2");
    // The second relay got orders in lease term 8 from a failover that was undone, but no order to follow a
    // server.
    assert_eq!(who(&[assignment(7, "db2", 7), assignment(8, "db1", 6)]), "db2");
    // The two relays contradict each other. The audit record of this manager's last failover or switchover
    // decides, but only if it has the same lease term as the orders of these relays.
    let relays = [assignment(7, "db2", 7), assignment(7, "db3", 7)];
    assert_eq!(who(&relays), "unknown");
    assert_eq!(leader(&decided(7, "db3"), &relays), "db3");
    assert_eq!(leader(&decided(6, "db3"), &relays), "unknown");
    assert_eq!(leader(&RecordedPrimary::Unfinished { term: LeaseToken(7) }, &relays[..1]), "unknown");
    assert_eq!(leader(&RecordedPrimary::Unfinished { term: LeaseToken(6) }, &relays[..1]), "db2");
    // All relays were unreachable, or are of a version that does not report the lease term.
    assert_eq!(leader(&decided(7, "db2"), &[assignment(6, "db1", 6), assignment(7, "db1", 0)]), "db2");
    // With two ACKs required, a failover may have stopped only one of two relays. The relay observed here may
    // be the one that was not stopped.
    assert_eq!(PrimaryRecord::of(&decided(7, "db2"), &[assignment(7, "db2", 7)], (2, LeaseToken(9))), None);
    // Another manager has had the lease after this manager.
    assert_eq!(who(&[assignment(10, "db2", 7)]), "unknown");
}

#[test]
fn a_relay_that_a_failover_has_stopped_is_not_started_before_the_failover_has_ended() {
    let relays = [assignment(7, "db2", 7), stopped(assignment(7, "db1", 6))];
    assert_eq!(
        leader(&RecordedPrimary::NeverChanged, &relays),
        "unknown",
        "the primary must be unknown, because another failover in that lease term may have stopped the relay"
    );
    let decision = PrimaryRecord::of(&decided(7, "db2"), &relays, (1, LeaseToken(9)))
        .expect("the primary must be known");
    assert_eq!(decision.server, "db2");
    assert!(
        decision.needs_repoint(&relays[1]),
        "a relay that the same failover stopped and could not repoint must be repointed now"
    );
    assert!(!decision.needs_repoint(&relays[0]) && !decision.needs_repoint(&assignment(5, "db2", 5)));
    for since in
        [stopped(assignment(8, "db2", 7)), stopped(assignment(7, "db2", 7)), stopped(assignment(8, "db1", 6))]
    {
        assert_eq!(
            leader(&RecordedPrimary::NeverChanged, &[assignment(7, "db2", 7), since.clone()]),
            "unknown",
            "{since:?}"
        );
    }
    for since in [stopped(assignment(8, "db2", 7)), stopped(assignment(8, "db1", 6))] {
        assert_eq!(leader(&decided(7, "db2"), &[since]), "unknown");
    }
    // An operator has stopped the relay by hand. The order has the current lease term, so the relay stays
    // stopped.
    let fenced = stopped(assignment(7, "db2", 7));
    assert_eq!(leader(&decided(7, "db2"), std::slice::from_ref(&fenced)), "db2");
    assert!(!decision.needs_repoint(&fenced) && !decision.needs_repoint(&stopped(assignment(7, "db2", 0))));
    assert!(decision.needs_repoint(&stopped(assignment(7, "db2", 6))));
    assert_eq!(
        leader(&decided(7, "db2"), &[stopped(assignment(7, "db2", 6))]),
        "db2",
        "the audit record of lease term 7 explains why the relay is stopped"
    );
}

#[test]
fn an_audit_record_that_no_relay_confirms_counts_as_outdated() {
    let decision = PrimaryRecord { term: LeaseToken(7), server: "db2".to_owned() };
    assert!(decision.is_confirmed(&[assignment(6, "db1", 6), assignment(8, "db2", 7)]));
    // An operator repointed these relays by hand in the same lease term, or a manager of an older version
    // repointed them in a later term.
    assert!(!decision.is_confirmed(&[
        assignment(7, "db1", 7),
        assignment(8, "db2", 0),
        assignment(8, "db2", 6)
    ]));
}

fn audit(id: &str, token: u64, outcome: Option<RunOutcome>) -> Audit {
    let note =
        AuditEvent::ActionOrdered { number: 1, what: RunAction::StopAcker { acker: "relay".to_owned() } };
    Audit {
        token: Some(token),
        steps: vec![AuditEntry { at_ms: 1, phase: RunPhase::Fence, note }],
        outcome,
        ..Audit::new(id, RunKind::Failover, "db1")
    }
}

fn refusal() -> SafetyRefusal {
    SafetyRefusal::StepFailed { step: "a step".to_owned(), reason: "refused by the test".to_owned() }
}

fn promoted(server: &str) -> Option<RunOutcome> {
    Some(RunOutcome::Promoted { server: server.to_owned(), left: Vec::new() })
}

fn undone() -> Option<RunOutcome> {
    Some(RunOutcome::Undone { refusal: refusal(), irreversible: Vec::new() })
}

fn left() -> Option<RunOutcome> {
    Some(RunOutcome::Incomplete { refusal: refusal(), to_undo: Vec::new(), irreversible: Vec::new() })
}

#[test]
fn after_an_undone_failover_the_earlier_audit_record_decides() {
    let unchanged = || Some(RunOutcome::Unchanged { refusal: refusal() });
    let first = audit("a", 3, promoted("db2"));
    let undecided = |term| RecordedPrimary::Unfinished { term: LeaseToken(term) };
    let of = |newest_first: &[&Audit]| RecordedPrimary::of(newest_first.iter().map(|audit| (*audit).clone()));
    assert_eq!(of(&[]), RecordedPrimary::NeverChanged);
    for nothing in [unchanged(), undone()] {
        assert_eq!(of(&[&audit("b", 4, nothing), &first]), decided(3, "db2"));
    }
    let dry = Audit { dry_run: true, ..audit("b", 4, None) };
    assert_eq!(of(&[&dry, &first]), decided(3, "db2"));
    // The last failover or switchover was interrupted, or left to an operator. The primary is unknown until a
    // later failover, switchover or recovery completes.
    for open in [None, left()] {
        let open = audit("b", 4, open);
        let resumed = |token, outcome| Audit { resumes: Some("b".to_owned()), ..audit("c", token, outcome) };
        assert_eq!(of(&[&open, &first]), undecided(4));
        assert_eq!(of(&[&audit("c", 5, promoted("db3")), &open, &first]), decided(5, "db3"));
        assert_eq!(of(&[&resumed(5, undone()), &open, &first]), decided(3, "db2"));
        assert_eq!(of(&[&resumed(5, promoted("db3")), &open, &first]), decided(5, "db3"));
        for half in [None, left(), unchanged()] {
            assert_eq!(of(&[&resumed(5, half), &open, &first]), undecided(4));
        }
        let by = "another".to_owned();
        let superseded =
            Some(RunOutcome::Unchanged { refusal: SafetyRefusal::Superseded { run: "b".to_owned(), by } });
        assert_eq!(of(&[&resumed(5, superseded), &open, &first]), decided(3, "db2"));
    }
    let untouched = Audit { steps: Vec::new(), ..audit("b", 4, None) };
    assert_eq!(of(&[&untouched, &first]), decided(3, "db2"));
}

/// What happens to a cluster of relays in the model.
#[derive(Debug, Clone)]
enum Event {
    /// A failover, in a new lease term or in the previous one. Either the manager whose records are read
    /// executes it (`own`), or another manager does. A relay whose bit in `stop` or `follow` is 0 does not
    /// receive the order to stop or to follow.
    FailOver { to: usize, own: bool, new_term: bool, stop: u8, follow: u8, dies: bool },
    /// The manager whose records are read takes the lease, and repoints the relays that it can observe.
    Lead { sees: u8 },
}

fn event() -> impl Strategy<Value = Event> {
    let fail_over = (0_usize..4, any::<[bool; 3]>(), any::<u8>(), any::<u8>());
    prop_oneof![
        fail_over.prop_map(|(to, [own, new_term, dies], stop, follow)| Event::FailOver {
            to,
            own,
            new_term,
            stop,
            follow,
            dies
        }),
        any::<u8>().prop_map(|sees| Event::Lead { sees }),
        any::<u8>().prop_map(|_| Event::Lead { sees: u8::MAX }),
    ]
}

#[derive(Debug)]
struct World {
    /// Number of ACKs that a commit needs.
    acks: usize,
    relays: Vec<RelayAssignment>,
    leader: String,
    term: u64,
    /// Whether the manager whose records are read holds the lease.
    is_own: bool,
    /// The audit records, with the newest first.
    records: Vec<Audit>,
    /// Whether the last failover or switchover has ended and one of the managers has its audit record.
    is_settled: bool,
}

const SERVERS: [&str; 4] = ["db0", "db1", "db2", "db3"];

fn has(mask: u8, at: usize) -> bool {
    mask >> at & 1 == 1
}

impl World {
    fn new(relays: usize, acks: usize) -> Self {
        let relays = vec![assignment(0, "db0", 0); relays];
        let (leader, records) = ("db0".to_owned(), Vec::new());
        Self { acks, relays, leader, term: 1, is_own: true, records, is_settled: false }
    }

    /// Returns how many relays follow a server. This includes stopped relays that never got an order to
    /// follow.
    fn led_to(&self, server: &str) -> usize {
        let is_led = |assignment: &&RelayAssignment| {
            assignment.source == server
                && (!assignment.is_stopped || assignment.assigned_term == LeaseToken(0))
        };
        self.relays.iter().filter(is_led).count()
    }

    /// How many relays acknowledge the commits of a server.
    fn follow(&self, server: &str) -> usize {
        self.relays.iter().filter(|assignment| assignment.source == server && !assignment.is_stopped).count()
    }

    fn tell(&mut self, at: usize, server: &str) {
        self.relays[at] = assignment(self.term, server, self.term);
    }

    fn fail_over(&mut self, to: usize, (stop, follow): (u8, u8), dies: bool) {
        let to = format!("db{to}");
        let (count, enough) = (self.relays.len(), self.relays.len() - self.acks + 1);
        let stops: Vec<_> = (0..count).filter(|at| has(stop, *at)).collect();
        let stood: Vec<_> = self.relays.iter().map(|assignment| assignment.is_stopped).collect();
        for at in &stops {
            let relay = &mut self.relays[*at];
            (relay.term, relay.is_stopped) = (LeaseToken(self.term), true);
        }
        let outcome = if dies {
            self.is_settled = false;
            None
        } else if stops.len() < enough || to == self.leader {
            // The failover is undone: the relays that receive the order start again. A relay that was already
            // stopped before this failover stays stopped until it is repointed.
            for at in stops.iter().filter(|at| has(follow, **at) && !stood[**at]) {
                self.relays[*at].is_stopped = false;
            }
            self.is_settled &= !stops.iter().any(|at| stood[*at]);
            match stops.iter().all(|at| has(follow, *at)) {
                true => undone(),
                false => {
                    self.is_settled = false;
                    left()
                }
            }
        } else {
            self.leader.clone_from(&to);
            for at in (0..count).filter(|at| has(follow, *at)) {
                self.tell(at, &to);
            }
            // The audit records of another manager are not read here, so a relay must report the assignment.
            // That relay must not have been stopped since, and no relay may report another assignment of the
            // same lease term.
            let is_told = (0..count).any(|at| has(follow, at));
            let contradicts = |assignment: &RelayAssignment| match assignment.is_stopped {
                true => assignment.term == LeaseToken(self.term),
                false => assignment.source != to && assignment.assigned_term == LeaseToken(self.term),
            };
            self.is_settled = self.is_own || (is_told && !self.relays.iter().any(contradicts));
            promoted(&to)
        };
        if self.is_own {
            let id = format!("{:06}", self.records.len());
            let mut record = audit(&id, self.term, outcome);
            if stops.is_empty() {
                record.steps.clear();
            }
            self.records.insert(0, record);
        }
    }

    /// Reconciles the observed relays. Returns the primary, as far as the manager can determine it.
    fn lead(&mut self, sees: u8) -> Option<String> {
        (self.term, self.is_own) = (self.term + 1, true);
        let seen: Vec<_> = (0..self.relays.len()).filter(|at| has(sees, *at)).collect();
        let relays: Vec<_> = seen.iter().map(|at| self.relays[*at].clone()).collect();
        let recorded = RecordedPrimary::of(self.records.iter().cloned());
        let acks = u32::try_from(self.acks).expect("the number of ACKs must fit into 32 bits");
        let decision = PrimaryRecord::of(&recorded, &relays, (acks, LeaseToken(self.term)))?;
        for at in seen {
            if decision.needs_repoint(&self.relays[at]) {
                self.tell(at, &decision.server);
            }
        }
        Some(decision.server)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Whatever is down, dies or is not observed: only the primary may get as many relays as commits need. If
    /// all relays are observed and every failover and switchover is finished, all relays follow the primary
    /// afterwards.
    #[test]
    fn a_reconciliation_never_gives_a_former_primary_enough_ackers_to_commit(
        relays in 1_usize..5,
        acks in 1_usize..4,
        events in prop::collection::vec(event(), 1..12),
    ) {
        let mut world = World::new(relays, acks.min(relays));
        for event in events {
            match event {
                Event::FailOver { to, own, new_term, stop, follow, dies } => {
                    if new_term || own != world.is_own {
                        (world.term, world.is_own) = (world.term + 1, own);
                    }
                    world.fail_over(to, (stop, follow), dies);
                }
                Event::Lead { sees } => {
                    let followed = SERVERS.map(|server| world.follow(server));
                    let leader = world.lead(sees);
                    let sees_all = (0..relays).all(|at| has(sees, at));
                    if sees_all && let Some(leader) = &leader {
                        prop_assert_eq!(leader, &world.leader, "{:?}", world);
                    }
                    if sees_all && world.is_settled {
                        prop_assert_eq!(world.led_to(&world.leader), relays, "{:?}", world);
                    }
                    for (server, before) in SERVERS.into_iter().zip(followed) {
                        let most = before.max(world.acks - 1);
                        let is_fenced = server == world.leader || world.follow(server) <= most;
                        prop_assert!(is_fenced, "{} gets enough ackers to commit: {:?}", server, world);
                    }
                }
            }
        }
    }
}
