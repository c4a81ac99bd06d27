//! The machine of a switchover against a small world in which every act takes time, may fail, take effect without an answer,
//! or find that the lease is gone, while clients write wherever they can.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use proptest::prelude::*;
use tailwater_manager::Refusal;
use tailwater_manager::choice::{Feed, Origin, Promotion, Server, Version};
use tailwater_manager::failover::{Act, Answer, Audit, End, Expected, Note};
use tailwater_manager::lease::Token;
use tailwater_manager::lossless::{Acker, Stop, Waiting};
use tailwater_manager::switchover::{Order, Primary, Switchover};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtid};

const OLD: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const VERSION: Version = Version { major: 9, minor: 7, patch: 1 };
const PAUSE_MS_MAX: u64 = 100;

fn set(last: u64) -> GtidSet {
    let text = if last == 0 { String::new() } else { format!("{OLD}:1-{last}") };
    GtidSet::parse(Flavour::MySql, &text).expect("a set")
}

/// The end of a set that the world made.
fn last(what: &str) -> u64 {
    what.rsplit(['-', ':']).next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

/// How an act fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Failed,
    /// It takes effect and nobody hears of it.
    DoneUnheard,
    /// It does not, and nobody hears of that.
    LostOnTheWay,
}

/// The primary `old`, its ackers and replicas; positions are numbers of transactions.
#[derive(Debug, Clone)]
struct World {
    acks: usize,
    old_writable: bool,
    /// Some account writes to `old` although it is read-only.
    privileged: bool,
    /// The servers have a transaction that nobody else has.
    errant: bool,
    old_last: u64,
    /// What each acker holds, and whom it captures from.
    ackers: BTreeMap<String, (u64, Option<String>)>,
    /// What each server executed.
    servers: BTreeMap<String, u64>,
    waits_for: BTreeMap<String, usize>,
    detached: BTreeSet<String>,
    writable: BTreeSet<String>,
    acknowledged: u64,
    lease: bool,
    effects: usize,
}

impl World {
    fn new(ackers: usize, servers: usize, acks: usize) -> Self {
        let old = || Some("old".to_owned());
        Self {
            acks,
            old_writable: true,
            privileged: false,
            errant: false,
            old_last: 10,
            ackers: (0..ackers).map(|at| (format!("relay{at}"), (10, old()))).collect(),
            servers: (0..servers).map(|at| (format!("s{at}"), 9)).collect(),
            waits_for: BTreeMap::new(),
            detached: BTreeSet::new(),
            writable: BTreeSet::new(),
            acknowledged: 10,
            lease: true,
            effects: 0,
        }
    }

    fn captures_from(&self, server: &str) -> usize {
        self.ackers.values().filter(|(_, from)| from.as_deref() == Some(server)).count()
    }

    /// Servers on which commits of clients go through.
    fn primaries(&self) -> Vec<&str> {
        let old = (self.old_writable && self.captures_from("old") >= self.acks).then_some("old");
        let servers = self.writable.iter().filter(|server| {
            self.waits_for.get(*server).is_none_or(|acks| self.captures_from(server) >= *acks)
        });
        servers.map(String::as_str).chain(old).collect()
    }

    /// A moment goes by: clients write, ackers and replicas receive, each as far as it can.
    fn live(&mut self) {
        if (self.old_writable || self.privileged) && self.captures_from("old") >= self.acks {
            self.old_last += 1;
            self.acknowledged = self.old_last;
        }
        for (holds, from) in self.ackers.values_mut() {
            if from.as_deref() == Some("old") {
                *holds = self.old_last;
            }
        }
        let longest = self.ackers.values().map(|(holds, _)| *holds).max().unwrap_or(0);
        for (name, executed) in &mut self.servers {
            if !self.detached.contains(name) && *executed < longest {
                *executed += 2.min(longest - *executed);
            }
        }
    }

    /// Does it, if it can be done. What it gives back is the answer, if it gets through.
    fn apply(&mut self, act: &Act) -> Answer {
        self.effects += usize::from(act.changes());
        match act {
            Act::CheckLease if self.lease => return Answer::Held(Token(7)),
            Act::CheckLease => return Answer::Failed("another manager holds it".to_owned()),
            Act::LookAtServers => return Answer::Servers(self.look()),
            Act::LookAtPrimary => return Answer::Primary(self.primary()),
            Act::ReadAcker { acker } => return self.acker(acker, Stop::Unknown),
            Act::AwaitServer { server, what, .. } if self.servers[server] < last(what) => {
                return Answer::Failed("not in time".to_owned());
            }
            Act::AwaitAcker { acker, what, .. } if self.ackers[acker].0 < last(what) => {
                return Answer::Failed("not in time".to_owned());
            }
            Act::HoldWrites { .. } => {
                self.old_writable = false;
                return Answer::Position(set(self.old_last));
            }
            Act::ReleaseWrites { .. } => self.old_writable = true,
            Act::StopAcker { acker } => {
                self.ackers.get_mut(acker).expect("known").1 = None;
                return self.acker(acker, Stop::Lasting);
            }
            Act::StartAcker { acker } => {
                let from = &mut self.ackers.get_mut(acker).expect("known").1;
                from.get_or_insert_with(|| "old".to_owned());
            }
            Act::Drain { server } => drop(self.detached.insert(server.clone())),
            Act::MakeSource { server, acks } => {
                self.waits_for.insert(server.clone(), usize::try_from(*acks).expect("few"));
            }
            Act::UnmakeSource { server } => {
                self.waits_for.remove(server);
                self.detached.remove(server);
            }
            Act::MakeWritable { server } => drop(self.writable.insert(server.clone())),
            Act::MakeReadOnly { server } => drop(self.writable.remove(server)),
            Act::Follow { acker, server } => {
                self.ackers.get_mut(acker).expect("known").1 = Some(server.clone());
            }
            _ => {}
        }
        Answer::Done
    }

    fn acker(&self, name: &str, stop: Stop) -> Answer {
        let holds = Some(set(self.ackers[name].0));
        let acker = Acker { name: name.to_owned(), durable: true, stop, holds };
        Answer::Acker { acker, before: set(0) }
    }

    fn primary(&self) -> Primary {
        let waiting = Waiting {
            active: true,
            after_sync: true,
            timeout_ms: u64::MAX,
            waits_without_ackers: true,
            acks_required: u32::try_from(self.acks).expect("few"),
            unacknowledged: 0,
            after_restart: true,
        };
        Primary { writable: self.old_writable, waiting: Some(waiting), executed: set(self.old_last) }
    }

    fn look(&self) -> Vec<Server> {
        let errant = if self.errant { "4e11fa47-71ca-11e1-9e33-c80aa9429562:1" } else { "" };
        let errant = GtidSet::parse(Flavour::MySql, errant).expect("a set");
        let has = |last: u64| Some(set(last).union(&errant).expect("of one flavour"));
        let each = self.servers.iter().map(|(name, executed)| Server {
            name: name.clone(),
            reached: Ok(()),
            flavour: Flavour::MySql,
            version: VERSION,
            region: None,
            promotion: Promotion::Neutral,
            feed: Feed::Replication,
            received: has(*executed),
            executed: has(*executed),
            purged: Some(set(0)),
            log_bin: true,
            log_replica_updates: true,
            durable: true,
            applier_error: None,
            catch_up_ms: Some(0),
        });
        each.collect()
    }
}

fn order(world: &World) -> Order {
    Order {
        id: "run".to_owned(),
        primary: "old".to_owned(),
        origin: Origin::MySql(MysqlGtid::parse(&format!("{OLD}:1")).expect("a GTID").uuid),
        version: VERSION,
        region: None,
        ackers: world.ackers.keys().cloned().collect(),
        route_hooks: vec!["routes".to_owned()],
        direct_replicas: vec!["s0".to_owned()],
        acks_required: u32::try_from(world.acks).expect("few"),
        wanted: None,
        across_regions: false,
        catch_up_ms_max: 1000,
        write_pause_ms_max: PAUSE_MS_MAX,
        grace_ms: 20,
        dry_run: false,
        expected: Expected { stop_ms: 5, hook_ms: 50, supply_ms: 20, change_ms: 3, follow_ms: 30 },
    }
}

/// One act that is under way: when it ends, and how.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    ends_ms: std::cmp::Reverse<u64>,
    number: u32,
    act: Act,
}

/// Runs it to its end, as a driver does: acts side by side, each as long as it takes, and none longer than the deadline.
/// The lease goes before the act of that number, if one is given.
fn run(
    world: &mut World,
    order: Order,
    mut fate: impl FnMut(&Act) -> (Fate, u64),
    lease_goes: Option<u32>,
) -> Audit {
    let mut switchover = Switchover::new(order);
    let mut under_way = BinaryHeap::new();
    let mut fates = BTreeMap::new();
    let mut at_ms = 0u64;
    let mut next = switchover.begin(0);
    loop {
        for (number, act) in next {
            let (fate, takes_ms) = fate(&act);
            let takes_ms = if act == Act::CheckLease { 0 } else { takes_ms };
            fates.insert(number, fate);
            under_way.push(UnderWay { ends_ms: std::cmp::Reverse(at_ms + takes_ms), number, act });
        }
        let Some(UnderWay { ends_ms, number, act }) = under_way.pop() else { break };
        let wanted_ms = ends_ms.0;
        let ends_ms = switchover.deadline_ms().map_or(wanted_ms, |deadline| wanted_ms.min(deadline));
        while at_ms < ends_ms {
            at_ms += 1;
            world.live();
        }
        assert!(at_ms < 100_000, "it does not end: {}", switchover.audit());
        if lease_goes.is_some_and(|goes| goes <= number) {
            world.lease = false;
        }
        let answer = match fates[&number] {
            // It may take effect when nobody waits any more.
            Fate::Done if wanted_ms > ends_ms => {
                world.apply(&act);
                Answer::Unknown("the bound".to_owned())
            }
            Fate::Done => world.apply(&act),
            Fate::Failed => Answer::Failed("no".to_owned()),
            Fate::DoneUnheard => {
                world.apply(&act);
                Answer::Unknown("timed out".to_owned())
            }
            Fate::LostOnTheWay => Answer::Unknown("timed out".to_owned()),
        };
        check_primaries(world, switchover.audit());
        next = switchover.answer(at_ms, number, answer);
        check_bound(&switchover, at_ms, &next);
        if switchover.audit().outcome.is_some() {
            // What comes late changes nothing any more.
            assert!(next.is_empty() && switchover.answer(at_ms, number, Answer::Done).is_empty());
            break;
        }
    }
    switchover.audit().clone()
}

/// Never two on which clients' commits go through, and none that lacks one.
fn check_primaries(world: &World, audit: &Audit) {
    let primaries = world.primaries();
    assert!(primaries.len() <= 1, "two primaries, {primaries:?}: {audit}");
    assert!(!world.old_writable || world.writable.is_empty(), "two writable: {audit}");
    if let Some(server) = primaries.iter().find(|server| **server != "old") {
        assert!(world.servers[*server] >= world.acknowledged, "{server} lacks a commit: {audit}");
    }
}

/// Once the bound is passed nothing but undoing is begun, until the candidate takes writes.
fn check_bound(switchover: &Switchover, at_ms: u64, next: &[(u32, Act)]) {
    let Some(deadline_ms) = switchover.deadline_ms() else { return };
    if at_ms >= deadline_ms {
        assert!(!next.iter().any(|(_, act)| act.changes()), "{next:?}: {}", switchover.audit());
    }
}

/// The usual order, with the lease held throughout.
fn run_with(world: &mut World, mut fate: impl FnMut(&Act) -> Fate) -> Audit {
    let order = order(world);
    run(world, order, |act| (fate(act), 2), None)
}

/// The primary is as it was.
fn is_as_before(world: &World) -> bool {
    world.old_writable
        && world.writable.is_empty()
        && world.waits_for.is_empty()
        && world.detached.is_empty()
        && world.captures_from("old") == world.ackers.len()
}

/// What must hold of every end.
fn check(world: &World, audit: &Audit) {
    match audit.outcome.as_ref().unwrap_or_else(|| panic!("no end: {audit}")) {
        End::Promoted { server, left } => {
            assert!(world.writable.contains(server) && world.writable.len() == 1, "{audit}");
            assert!(!world.old_writable, "{audit}");
            assert_eq!(world.captures_from(server), world.ackers.len(), "{audit}");
            let pause_ms = audit.pause_ms.expect("a pause");
            assert!(pause_ms <= PAUSE_MS_MAX, "{audit}");
            // What was to come is done, or named.
            let demotes = |act: &Act| matches!(act, Act::Demote { .. });
            let done = audit
                .steps
                .iter()
                .any(|step| matches!(&step.note, Note::Ordered { what, .. } if demotes(what)));
            assert!(done || left.iter().any(demotes), "{audit}");
        }
        End::Unchanged { .. } => assert_eq!(world.effects, 0, "{audit}"),
        End::Undone { .. } => assert!(is_as_before(world), "{audit}"),
        End::Left { to_undo, .. } => {
            // Whoever does what is left has what was before.
            let mut world = world.clone();
            for act in to_undo {
                world.apply(act);
            }
            assert!(is_as_before(&world), "{audit}");
        }
        End::Planned { .. } => panic!("not asked for: {audit}"),
    }
    let text = serde_json::to_string(audit).expect("JSON");
    assert_eq!(&serde_json::from_str::<Audit>(&text).expect("an audit record"), audit);
}

fn refusal(audit: &Audit) -> &Refusal {
    match &audit.outcome {
        Some(End::Unchanged { refusal } | End::Undone { refusal, .. } | End::Left { refusal, .. }) => refusal,
        _ => panic!("not refused: {audit}"),
    }
}

#[test]
fn a_primary_that_lives_is_switched_over() {
    let mut world = World::new(2, 2, 1);
    let audit = run_with(&mut world, |_| Fate::Done);
    check(&world, &audit);
    assert_eq!(audit.outcome, Some(End::Promoted { server: "s0".to_owned(), left: Vec::new() }), "{audit}");
    // Hold, wait, stop, source, follow and writable, of 2 ms each.
    assert_eq!((world.captures_from("s0"), audit.pause_ms), (2, Some(12)), "{audit}");
    let text = audit.to_string();
    for part in
        ["switchover of old", "hold the writes to old", "no writes were taken for 12 ms", "s0 is primary"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_candidate_is_ready_before_the_pause_and_writable_last() {
    let mut world = World::new(2, 1, 1);
    let audit = run_with(&mut world, |_| Fate::Done);
    let at = |wanted: &dyn Fn(&Act) -> bool| {
        audit
            .steps
            .iter()
            .position(|step| matches!(&step.note, Note::Ordered { what, .. } if wanted(what)))
            .expect("ordered")
    };
    let pause = at(&|act| matches!(act, Act::HoldWrites { .. }));
    assert!(at(&|act| matches!(act, Act::Prepare { .. } | Act::AwaitServer { .. })) < pause);
    let writable = at(&|act| matches!(act, Act::MakeWritable { .. }));
    assert!(at(&|act| matches!(act, Act::Follow { acker, .. } if acker == "relay1")) < writable);
    assert!(at(&|act| matches!(act, Act::Demote { .. })) > writable);
}

#[test]
fn what_takes_longer_than_the_bound_is_undone() {
    let mut world = World::new(1, 1, 1);
    let ordered = order(&world);
    let slow = |act: &Act| match act {
        Act::Follow { server, .. } if server == "s0" => (Fate::Done, 500),
        _ => (Fate::Done, 2),
    };
    let audit = run(&mut world, ordered, slow, None);
    check(&world, &audit);
    assert!(
        matches!(&audit.outcome, Some(End::Undone { refusal: Refusal::PauseExceeded { step, .. }, .. })
        if step.contains("relay0")),
        "{audit}"
    );
    // The bound, and the undoing, side by side.
    assert_eq!(audit.pause_ms, Some(PAUSE_MS_MAX + 2), "{audit}");
}

#[test]
fn a_demotion_that_waits_for_acks_that_do_not_come_is_undone() {
    // Setting read_only waits for commits in flight, which wait for ACKs. It gets half the bound.
    let mut world = World::new(1, 1, 1);
    let mut within = None;
    let audit = run_with(&mut world, |act| match act {
        Act::HoldWrites { within_ms, grace_ms, .. } => {
            within = Some((*within_ms, *grace_ms));
            Fate::Failed
        }
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert_eq!(within, Some((PAUSE_MS_MAX / 2, 20)));
    assert!(matches!(&audit.outcome, Some(End::Undone { refusal: Refusal::Step { .. }, .. })), "{audit}");
}

#[test]
fn an_account_that_read_only_does_not_bind_is_noticed() {
    let mut world = World::new(1, 1, 1);
    world.privileged = true;
    let audit = run_with(&mut world, |_| Fate::Done);
    check(&world, &audit);
    assert!(
        matches!(refusal(&audit), Refusal::Step { reason, .. } if reason.contains("read_only")),
        "{audit}"
    );
}

#[test]
fn what_cannot_be_undone_at_once_is_tried_once_more() {
    let mut world = World::new(1, 1, 1);
    let mut tried = 0;
    let audit = run_with(&mut world, |act| match act {
        Act::MakeWritable { .. } => Fate::Failed,
        Act::Follow { server, .. } if server == "old" && tried == 0 => {
            tried += 1;
            Fate::LostOnTheWay
        }
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert!(matches!(audit.outcome, Some(End::Undone { .. })), "{audit}");
    // An acker that does not come back is no reason to keep the primary from writes.
    let mut world = World::new(2, 1, 1);
    let audit = run_with(&mut world, |act| match act {
        Act::MakeWritable { .. } => Fate::Failed,
        Act::Follow { acker, server } if acker == "relay1" && server == "old" => Fate::LostOnTheWay,
        _ => Fate::Done,
    });
    check(&world, &audit);
    assert!(matches!(&audit.outcome, Some(End::Left { to_undo, .. }) if to_undo.len() == 1), "{audit}");
    assert!(world.old_writable);
}

#[test]
fn a_candidate_that_may_be_writable_keeps_the_primary_from_writes() {
    let mut world = World::new(1, 1, 1);
    let audit = run_with(&mut world, |act| match act {
        Act::MakeWritable { .. } => Fate::DoneUnheard,
        Act::MakeReadOnly { .. } => Fate::LostOnTheWay,
        _ => Fate::Done,
    });
    check(&world, &audit);
    let Some(End::Left { to_undo, .. }) = &audit.outcome else { panic!("{audit}") };
    assert_eq!(to_undo[0], Act::MakeReadOnly { server: "s0".to_owned() });
    assert!(!world.old_writable);
}

#[test]
fn a_candidate_that_does_not_catch_up_gives_way_or_nothing_is_held() {
    let stuck = |act: &Act| match act {
        Act::AwaitServer { server, .. } if server == "s0" => Fate::Failed,
        _ => Fate::Done,
    };
    let mut world = World::new(1, 2, 1);
    let audit = run_with(&mut world, stuck);
    check(&world, &audit);
    assert!(matches!(&audit.outcome, Some(End::Promoted { server, .. }) if server == "s1"), "{audit}");
    let mut world = World::new(1, 2, 1);
    let wanted = Order { wanted: Some("s0".to_owned()), ..order(&world) };
    let audit = run(&mut world, wanted, |act| (stuck(act), 2), None);
    assert!(matches!(refusal(&audit), Refusal::Step { .. }) && audit.pause_ms.is_none(), "{audit}");
}

#[test]
fn what_is_not_as_it_has_to_be_refuses_and_changes_nothing() {
    let refused = |world: &mut World, change: &dyn Fn(&mut Order), fate: &dyn Fn(&Act) -> Fate| {
        let mut ordered = order(world);
        change(&mut ordered);
        let audit = run(world, ordered, |act| (fate(act), 2), None);
        assert!(matches!(audit.outcome, Some(End::Unchanged { .. })), "{audit}");
        check(world, &audit);
        refusal(&audit).clone()
    };
    let done = |_: &Act| Fate::Done;
    let mut read_only = World::new(1, 1, 1);
    read_only.old_writable = false;
    let why = refused(&mut read_only, &|_| {}, &done);
    assert!(matches!(&why, Refusal::NotReady { reasons, .. } if reasons.contains("no writes")), "{why}");
    let silent =
        |act: &Act| if matches!(act, Act::ReadAcker { .. }) { Fate::LostOnTheWay } else { Fate::Done };
    let why = refused(&mut World::new(1, 1, 1), &|_| {}, &silent);
    assert!(matches!(&why, Refusal::NotReady { reasons, .. } if reasons.contains("relay0")), "{why}");
    let why = refused(&mut World::new(1, 1, 1), &|order| order.acks_required = 2, &done);
    assert!(matches!(&why, Refusal::NotReady { .. }), "{why}");
    let why = refused(&mut World::new(1, 1, 1), &|order| order.wanted = Some("s9".to_owned()), &done);
    assert!(matches!(&why, Refusal::Unfit { .. }), "{why}");
    let why = refused(&mut World::new(1, 0, 1), &|_| {}, &done);
    assert!(matches!(&why, Refusal::NoCandidate { .. }), "{why}");
    let mut errant = World::new(1, 1, 1);
    errant.errant = true;
    let why = refused(&mut errant, &|_| {}, &done);
    assert!(matches!(&why, Refusal::NoCandidate { reasons } if reasons.contains("4e11fa47")), "{why}");
}

#[test]
fn a_dry_run_changes_nothing_and_tells_the_plan() {
    let mut world = World::new(1, 1, 1);
    let done = run_with(&mut world.clone(), |_| Fate::Done);
    let done: Vec<_> = done
        .steps
        .iter()
        .filter_map(|step| match &step.note {
            Note::Ordered { what, .. } if what.changes() => Some(std::mem::discriminant(what)),
            _ => None,
        })
        .collect();
    let dry = Order { dry_run: true, ..order(&world) };
    let plan = run(&mut world, dry, |_| (Fate::Done, 2), None);
    assert_eq!(world.effects, 0);
    let Some(End::Planned { server, acts, expected_ms }) = &plan.outcome else { panic!("{plan}") };
    // The plan is what the real run does.
    assert_eq!(acts.iter().map(std::mem::discriminant).collect::<Vec<_>>(), done, "{plan}");
    // Prepare 3, hold 3, stop 5, source 3, follow 30, writable 3, route 50, others 3.
    assert_eq!((server.as_str(), *expected_ms), ("s0", 100), "{plan}");
}

fn any_fate() -> impl Strategy<Value = (Fate, u64)> {
    let fate = prop_oneof![
        14 => Just(Fate::Done),
        1 => Just(Fate::Failed),
        1 => Just(Fate::DoneUnheard),
        1 => Just(Fate::LostOnTheWay),
    ];
    (fate, prop_oneof![8 => 0u64..15, 1 => 0u64..300])
}

fn cases() -> u32 {
    if std::env::var_os("TAILWATER_LONG").is_some() { 20_000 } else { 500 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever fails or takes long, there are never two servers that take writes, no commit is missing, the pause is kept,
    /// and each run ends in a state that has a name and is what the name says.
    #[test]
    fn every_run_ends_well(
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
        let audit = run(&mut world, ordered, |_| fates.next().expect("endless"), lease_goes);
        check(&world, &audit);
    }

    /// Where nothing fails and all is quick, it always comes to an end that is wanted.
    #[test]
    fn without_failures_there_is_a_new_primary(
        ackers in 1usize..4,
        acks in 1usize..4,
        servers in 1usize..4,
        takes in prop::collection::vec(1u64..8, 1..20),
    ) {
        let mut world = World::new(ackers, servers, acks.min(ackers));
        let mut takes = takes.into_iter().cycle();
        let ordered = order(&world);
        let audit = run(&mut world, ordered, |_| (Fate::Done, takes.next().expect("endless")), None);
        check(&world, &audit);
        let promoted = matches!(&audit.outcome, Some(End::Promoted { left, .. }) if left.is_empty());
        prop_assert!(promoted, "{}", audit);
    }
}
