//! Model check of the lossless rules. It explores every state of a few ackers and commits, and every order of
//! events.
//!
//! Each message is delivered by a separate action, which may never happen. So the states without this action
//! cover network partitions, in one direction and in both. In the same way, the states in which the primary
//! does nothing for a while cover a paused primary.
//!
//! The verdict comes from the real [`assess_loss`] and the real [`AckPolicyHistory`]. The model of the
//! primary, the ackers and the manager does only what each of them guarantees. Each mutation breaks one of
//! these guarantees, and the check must find the commit that is lost because of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::FxHashMap;
use tailwater_manager::lossless_rules::{
    AckPolicyHistory, AckRequirement, AckerEvidence, AckerStop, LossEvidence, PolicyObservation,
    SemiSyncWait, assess_loss,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

const ACKERS_MAX: usize = 3;

/// Which guarantee is broken, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// One acker fewer than the rule requires counts as enough.
    OneAckerLess,
    /// Ackers acknowledge transactions that they have not synced, and report that they have synced them.
    AckBeforeDurable,
    /// A stopped acker captures again after a crash, although it reported that the stop is persistent.
    StopNotPersistent,
    /// The log of an acker is read while the acker still captures.
    ReadBeforeStop,
    /// The report of an acker contains transactions that are not durable yet.
    ReportsReceived,
    /// The primary stops waiting and falls back to asynchronous replication.
    FallsBack,
    /// The primary restarts without semi-sync.
    RestartsWithoutSemiSync,
    /// An unconfigured semi-sync replica sends ACKs, and the manager does not observe it.
    UnconfiguredReplicaNotObserved,
    /// The number of ACKs is lowered before the weaker policy is recorded.
    LoweredBeforeRecorded,
    /// After the number of ACKs is raised, the new number applies at once, also for transactions that were
    /// acknowledged before.
    EarlierPolicyDropped,
    /// The manager still records observations while it stops ackers.
    RecordsWhileStopping,
    /// The failover continues from the log that holds the least.
    ShortestLogUsed,
}

/// The parameters of one exploration.
#[derive(Debug, Clone, Copy)]
struct Setup {
    ackers: usize,
    acks: u8,
    commits: u8,
    /// Whether an unconfigured replica sends ACKs without storing anything. The manager observes this
    /// replica.
    unconfigured_replica: bool,
    /// How often the number of ACKs may change.
    changes: u8,
    /// Whether the ackers report that they are durable.
    durable: bool,
    stop: AckerStop,
    broken: Broken,
}

impl Setup {
    fn of(ackers: usize, acks: u8, commits: u8) -> Self {
        Self {
            ackers,
            acks,
            commits,
            unconfigured_replica: false,
            changes: 0,
            durable: true,
            stop: AckerStop::Persistent,
            broken: Broken::Nothing,
        }
    }

    fn broken(self, broken: Broken) -> Self {
        Self { broken, ..self }
    }
}

/// The state of an acker. Positions are numbers of commits in the primary's binlog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct AckerState {
    received: u8,
    durable: u8,
    /// The newest ACK that is on its way to the primary.
    ack: u8,
    /// The newest ACK that the primary has received.
    seen: u8,
    stopped: bool,
    /// The position that the acker has reported to the manager.
    heard: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    ackers: [AckerState; ACKERS_MAX],
    unconfigured_seen: u8,
    alive: bool,
    waits: bool,
    acks: u8,
    written: u8,
    acknowledged: u8,
    changed: u8,
    /// The ack policies that the manager has recorded, as an index of [`Explorer::notes`].
    ack_policies: u16,
    /// The position at which the new primary continues.
    promoted: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Write,
    Send(usize),
    Sync(usize),
    Ack(usize),
    Deliver(usize),
    UnconfiguredReplicaAcks,
    TimeOut,
    Crash(usize),
    Die,
    Return,
    Stop(usize),
    ReadReport(usize),
    Raise,
    RecordLower,
    Lower,
    Look,
    Promote,
}

struct Explorer {
    setup: Setup,
    notes: Vec<AckPolicyHistory>,
    /// Cached verdicts of [`assess_loss`], by the facts that the manager knows.
    verdicts: FxHashMap<([Option<u8>; ACKERS_MAX], u16), Option<u8>>,
    looks: FxHashMap<(u16, u8, u8, [u8; ACKERS_MAX]), u16>,
}

#[derive(Debug)]
struct Outcome {
    states: usize,
    promotions: usize,
    lost: Option<Vec<Action>>,
}

fn set(position: u8) -> GtidSet {
    let text = match position {
        0 => String::new(),
        last => format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{last}"),
    };
    GtidSet::parse(Flavour::MySql, &text).expect("the text must be a valid GTID set")
}

fn position(set: &GtidSet) -> u8 {
    match set {
        GtidSet::MySql(set) => {
            u8::try_from(set.count()).expect("the number of transactions in the model must fit into 8 bits")
        }
        GtidSet::MariaDb(_) => panic!("the model must use only MySQL GTIDs"),
    }
}

fn name(acker: usize) -> String {
    format!("relay{acker}")
}

impl Explorer {
    fn new(setup: Setup) -> Self {
        Self { setup, notes: Vec::new(), verdicts: FxHashMap::default(), looks: FxHashMap::default() }
    }

    fn waiting(&self, acks: u8) -> SemiSyncWait {
        let less = u32::from(self.setup.broken == Broken::OneAckerLess);
        SemiSyncWait {
            active: true,
            after_sync: true,
            timeout_ms: u64::MAX,
            waits_without_ackers: true,
            acks_required: u32::from(acks) + less,
            unacknowledged: 0,
            survives_restart: true,
        }
    }

    /// Returns the ack policies after an observation with the given values.
    fn look(&mut self, old: Option<u16>, acks: u8, executed: u8, durable: [u8; ACKERS_MAX]) -> u16 {
        let key = (old.unwrap_or(u16::MAX), acks, executed, durable);
        if let Some(known) = self.looks.get(&key) {
            return *known;
        }
        let names: BTreeSet<String> = (0..self.setup.ackers).map(name).collect();
        let holds: BTreeMap<String, GtidSet> =
            (0..self.setup.ackers).map(|acker| (name(acker), set(durable[acker]))).collect();
        let forgets = self.setup.broken == Broken::EarlierPolicyDropped;
        let look = PolicyObservation {
            waiting: &self.waiting(acks),
            ackers: &names,
            unconfigured_replicas: u32::from(
                self.setup.unconfigured_replica
                    && self.setup.broken != Broken::UnconfiguredReplicaNotObserved,
            ),
            executed: &set(if forgets { 0 } else { executed }),
            holds: &holds,
        };
        let ack_policies = match old.map(|old| self.notes[usize::from(old)].clone()) {
            Some(mut ack_policies) if !forgets => {
                ack_policies.observe(&look);
                ack_policies
            }
            _ => AckPolicyHistory::begin(&look),
        };
        let index = self.note(ack_policies);
        self.looks.insert(key, index);
        index
    }

    fn note(&mut self, ack_policies: AckPolicyHistory) -> u16 {
        let index = self.notes.iter().position(|known| *known == ack_policies).unwrap_or_else(|| {
            self.notes.push(ack_policies);
            self.notes.len() - 1
        });
        u16::try_from(index).expect("the number of policies in the model must fit into 16 bits")
    }

    /// Returns the position at which the manager would promote, if the rules allow it.
    fn verdict(&mut self, heard: [Option<u8>; ACKERS_MAX], ack_policies: u16) -> Option<u8> {
        if let Some(known) = self.verdicts.get(&(heard, ack_policies)) {
            return *known;
        }
        let ackers: Vec<AckerEvidence> = heard
            .iter()
            .enumerate()
            .filter_map(|(index, heard)| {
                let holds = Some(set((*heard)?));
                Some(AckerEvidence {
                    name: name(index),
                    durable: self.setup.durable,
                    stop: self.setup.stop,
                    holds,
                })
            })
            .collect();
        let verdict = assess_loss(&LossEvidence {
            primary: "old",
            ack_policies: Some(&self.notes[usize::from(ack_policies)]),
            primary_state_age_ms: 0,
            primary_state_max_age_ms: 0,
            ackers: &ackers,
            last_known: None,
            fenced_by: None,
        });
        let shortest = heard.iter().flatten().min().copied();
        let end = match verdict.is_complete() {
            false => None,
            true if self.setup.broken == Broken::ShortestLogUsed => shortest,
            true => verdict.holds.as_ref().map(position),
        };
        self.verdicts.insert((heard, ack_policies), end);
        end
    }

    fn start(&mut self) -> World {
        let ack_policies = self.look(None, self.setup.acks, 0, [0; ACKERS_MAX]);
        World {
            ackers: [AckerState::default(); ACKERS_MAX],
            unconfigured_seen: 0,
            alive: true,
            waits: true,
            acks: self.setup.acks,
            written: 0,
            acknowledged: 0,
            changed: 0,
            ack_policies,
            promoted: None,
        }
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::Write, Action::Die, Action::Return, Action::Promote];
        for acker in 0..self.setup.ackers {
            actions.extend([
                Action::Send(acker),
                Action::Sync(acker),
                Action::Ack(acker),
                Action::Deliver(acker),
                Action::Crash(acker),
                Action::Stop(acker),
                Action::ReadReport(acker),
            ]);
        }
        if self.setup.unconfigured_replica {
            actions.push(Action::UnconfiguredReplicaAcks);
        }
        if self.setup.broken == Broken::FallsBack {
            actions.push(Action::TimeOut);
        }
        if self.setup.changes > 0 {
            actions.extend([Action::Raise, Action::RecordLower, Action::Lower, Action::Look]);
        }
        actions
    }

    /// Returns the state after an action; `None` if the action cannot happen in the state `world`.
    fn step(&mut self, world: World, action: Action) -> Option<World> {
        let mut next = world;
        match action {
            Action::Write if world.alive && world.written < self.setup.commits => next.written += 1,
            Action::Die if world.alive => next.alive = false,
            Action::Return if !world.alive => {
                // The restart loses the ACKs that the primary had received, but not the commits that it had
                // written.
                next.alive = true;
                next.unconfigured_seen = 0;
                next.ackers.iter_mut().for_each(|acker| acker.seen = 0);
                next.waits = self.setup.broken != Broken::RestartsWithoutSemiSync;
            }
            Action::UnconfiguredReplicaAcks if world.alive => next.unconfigured_seen = world.written,
            Action::TimeOut if world.alive => next.acknowledged = world.written,
            Action::Raise if world.acks < 2 && world.changed < self.setup.changes => {
                next.acks += 1;
                next.changed += 1;
            }
            Action::RecordLower if world.acks > 1 && self.may_record(&world) => {
                let mut ack_policies = self.notes[usize::from(world.ack_policies)].clone();
                ack_policies.announce_weaker(u32::from(world.acks) - 1, &set(world.acknowledged));
                next.ack_policies = self.note(ack_policies);
            }
            Action::Lower
                if world.acks > 1 && world.changed < self.setup.changes && self.may_lower(&world) =>
            {
                next.acks -= 1;
                next.changed += 1;
            }
            Action::Look if world.alive && self.may_record(&world) => {
                let durable = world.ackers.map(|acker| acker.durable);
                next.ack_policies =
                    self.look(Some(world.ack_policies), world.acks, world.acknowledged, durable);
            }
            Action::Promote if world.promoted.is_none() => {
                next.promoted =
                    Some(self.verdict(world.ackers.map(|acker| acker.heard), world.ack_policies)?);
            }
            Action::Send(a)
            | Action::Sync(a)
            | Action::Ack(a)
            | Action::Deliver(a)
            | Action::Crash(a)
            | Action::Stop(a)
            | Action::ReadReport(a) => self.acker(&world, &mut next.ackers[a], action)?,
            _ => return None,
        }
        self.acknowledge(&mut next);
        (next != world).then_some(next)
    }

    fn may_record(&self, world: &World) -> bool {
        self.setup.broken == Broken::RecordsWhileStopping || world.ackers.iter().all(|acker| !acker.stopped)
    }

    fn may_lower(&self, world: &World) -> bool {
        let noted = &self.notes[usize::from(world.ack_policies)].current().acks;
        self.setup.broken == Broken::LoweredBeforeRecorded
            || *noted == AckRequirement::Required(u32::from(world.acks) - 1)
    }

    fn acker(&self, world: &World, acker: &mut AckerState, action: Action) -> Option<()> {
        let broken = self.setup.broken;
        match action {
            Action::Send(_) if world.alive && !acker.stopped && acker.received < world.written => {
                acker.received += 1
            }
            Action::Sync(_) => acker.durable = acker.received,
            Action::Ack(_) if !acker.stopped => {
                acker.ack = if broken == Broken::AckBeforeDurable { acker.received } else { acker.durable };
            }
            // An ACK that is on its way arrives even if the acker has crashed or stopped since.
            Action::Deliver(_) if world.alive => acker.seen = acker.ack,
            Action::Crash(_) => {
                acker.received = acker.durable;
                acker.stopped &=
                    broken != Broken::StopNotPersistent && self.setup.stop == AckerStop::Persistent;
            }
            Action::Stop(_) => acker.stopped = true,
            Action::ReadReport(_) if acker.stopped || broken == Broken::ReadBeforeStop => {
                let held = if broken == Broken::ReportsReceived { acker.received } else { acker.durable };
                acker.heard = Some(held);
            }
            _ => return None,
        }
        Some(())
    }

    /// Lets the primary acknowledge commits to clients, as far as its ACKs allow.
    fn acknowledge(&self, world: &mut World) {
        if !world.alive {
            return;
        }
        let acked = if world.waits {
            let mut seen: Vec<u8> =
                world.ackers[..self.setup.ackers].iter().map(|acker| acker.seen).collect();
            if self.setup.unconfigured_replica {
                seen.push(world.unconfigured_seen);
            }
            seen.sort_unstable_by(|a, b| b.cmp(a));
            seen.get(usize::from(world.acks) - 1).copied().unwrap_or(0)
        } else {
            world.written
        };
        world.acknowledged = world.acknowledged.max(acked.min(world.written));
    }

    /// Sorts the ackers. They differ only in their names, so states that differ only in the order of the
    /// ackers count as the same state. The states must stay separate if the policies refer to ackers by name.
    fn normal(&self, mut world: World) -> World {
        if self.setup.changes == 0 {
            world.ackers[..self.setup.ackers].sort_unstable();
        }
        world
    }

    /// Whether the promotion is safe: no acknowledged commit is missing, and some log holds everything up to
    /// the promoted position.
    fn is_safe(&self, world: &World) -> bool {
        let held = world.ackers.iter().map(|acker| acker.durable).max().unwrap_or(0);
        world.promoted.is_none_or(|end| world.acknowledged <= end && end <= held)
    }

    fn explore(mut self) -> Outcome {
        let start = self.start();
        let actions = self.actions();
        let mut came_from: FxHashMap<World, Option<(World, Action)>> = FxHashMap::default();
        let mut queue = VecDeque::from([start]);
        let mut promotions = 0;
        came_from.insert(start, None);
        while let Some(world) = queue.pop_front() {
            for action in &actions {
                let Some(next) = self.step(world, *action) else { continue };
                let next = self.normal(next);
                if came_from.contains_key(&next) {
                    continue;
                }
                came_from.insert(next, Some((world, *action)));
                promotions += usize::from(*action == Action::Promote);
                if !self.is_safe(&next) {
                    return Outcome {
                        states: came_from.len(),
                        promotions,
                        lost: Some(path(&came_from, next)),
                    };
                }
                queue.push_back(next);
            }
        }
        Outcome { states: came_from.len(), promotions, lost: None }
    }
}

/// Returns the actions that led to a state.
fn path(came_from: &FxHashMap<World, Option<(World, Action)>>, end: World) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut at = end;
    while let Some((before, action)) = came_from[&at] {
        actions.push(action);
        at = before;
    }
    actions.reverse();
    actions
}

fn holds(setup: Setup) {
    let outcome = Explorer::new(setup).explore();
    eprintln!("{setup:?}: {} states, {} promotions", outcome.states, outcome.promotions);
    assert_eq!(outcome.lost, None, "{setup:?}");
    assert!(outcome.promotions > 0, "no promotion happened, so nothing was checked: {setup:?}");
}

fn never_promotes(setup: Setup) {
    let outcome = Explorer::new(setup).explore();
    assert_eq!(outcome.promotions, 0, "{setup:?}");
}

fn loses(setup: Setup) {
    let outcome = Explorer::new(setup).explore();
    let lost =
        outcome.lost.unwrap_or_else(|| panic!("the check does not detect {:?}: {setup:?}", setup.broken));
    eprintln!("the broken guarantee {:?} loses commits: {lost:?}", setup.broken);
}

#[test]
fn no_acknowledged_commit_is_lost_with_one_and_two_ackers() {
    holds(Setup::of(1, 1, 3));
    holds(Setup::of(2, 1, 2));
    holds(Setup::of(2, 2, 2));
}

#[test]
fn no_acknowledged_commit_is_lost_with_three_ackers() {
    let commits = if std::env::var_os("TAILWATER_LONG").is_some() { 3 } else { 2 };
    for acks in 1..=3 {
        holds(Setup::of(3, acks, commits));
    }
}

#[test]
fn an_observed_unconfigured_replica_requires_one_more_stopped_acker() {
    never_promotes(Setup { unconfigured_replica: true, ..Setup::of(1, 1, 1) });
    never_promotes(Setup { unconfigured_replica: true, ..Setup::of(2, 1, 1) });
    holds(Setup { unconfigured_replica: true, ..Setup::of(2, 2, 2) });
}

#[test]
fn a_change_of_the_number_of_acks_loses_nothing() {
    holds(Setup { changes: 2, ..Setup::of(2, 1, 2) });
    holds(Setup { changes: 3, ..Setup::of(2, 2, 1) });
}

#[test]
fn ackers_that_report_a_weakness_prove_nothing() {
    never_promotes(Setup { durable: false, ..Setup::of(2, 1, 1).broken(Broken::AckBeforeDurable) });
    never_promotes(Setup { stop: AckerStop::UntilRestart, ..Setup::of(2, 1, 1) });
}

#[test]
fn each_broken_guarantee_is_detected() {
    loses(Setup::of(2, 1, 1).broken(Broken::OneAckerLess));
    loses(Setup::of(3, 2, 1).broken(Broken::OneAckerLess));
    loses(Setup::of(2, 1, 1).broken(Broken::AckBeforeDurable));
    loses(Setup::of(1, 1, 1).broken(Broken::StopNotPersistent));
    loses(Setup::of(2, 2, 1).broken(Broken::ReadBeforeStop));
    loses(Setup::of(1, 1, 1).broken(Broken::ReportsReceived));
    loses(Setup::of(2, 1, 1).broken(Broken::FallsBack));
    loses(Setup::of(2, 1, 1).broken(Broken::RestartsWithoutSemiSync));
    loses(Setup {
        unconfigured_replica: true,
        ..Setup::of(2, 1, 1).broken(Broken::UnconfiguredReplicaNotObserved)
    });
    loses(Setup { changes: 2, ..Setup::of(2, 2, 1).broken(Broken::LoweredBeforeRecorded) });
    loses(Setup { changes: 2, ..Setup::of(2, 1, 1).broken(Broken::EarlierPolicyDropped) });
    loses(Setup { changes: 2, ..Setup::of(2, 1, 1).broken(Broken::RecordsWhileStopping) });
    loses(Setup::of(2, 1, 1).broken(Broken::ShortestLogUsed));
}
