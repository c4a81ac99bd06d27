//! A small model of a cluster, for tests of switchovers and of their recovery. In the model each action takes
//! time, may fail, or may take effect without an answer. Clients write wherever they can.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tailwater_manager::candidates::{CandidateServer, GtidOrigin, ReplicationKind};
use tailwater_manager::failover::ExpectedDurations;
use tailwater_manager::lossless_rules::{AckerEvidence, AckerStop, SemiSyncWait};
use tailwater_manager::model::{ActionOutcome, Audit, LeaseToken, PrimaryStatus, RunAction};
use tailwater_manager::switchover::{Switchover, SwitchoverRequest};
use tailwater_topology::{Promotion, ServerVersion};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{GtidSet, MysqlGtid};

const OLD: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const VERSION: ServerVersion = ServerVersion { major: 9, minor: 7, patch: 1 };
pub const PAUSE_MS_MAX: u64 = 100;

fn set(last: u64) -> GtidSet {
    let text = if last == 0 { String::new() } else { format!("{OLD}:1-{last}") };
    GtidSet::parse(Flavour::MySql, &text).expect("the text must be a valid GTID set")
}

/// Returns the last transaction number in a GTID set of the model.
fn last(what: &str) -> u64 {
    what.rsplit(['-', ':']).next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

/// What happens to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Done,
    Failed,
    /// The action takes effect, but its answer is lost.
    DoneButAnswerLost,
    /// The action is lost on its way, and has no effect.
    RequestLost,
}

/// The model: the primary `old`, its ackers and its replicas. A position is a number of transactions.
#[derive(Debug, Clone)]
pub struct World {
    pub acks: usize,
    pub old_writable: bool,
    /// Whether an account can write to `old` although it is read-only.
    pub privileged: bool,
    /// Whether the servers have an errant transaction.
    pub errant: bool,
    pub old_last: u64,
    /// For each acker: how many transactions it holds, and from which server it captures.
    pub ackers: BTreeMap<String, (u64, Option<String>)>,
    /// For each server: how many transactions it has executed.
    pub servers: BTreeMap<String, u64>,
    pub waits_for: BTreeMap<String, usize>,
    pub detached: BTreeSet<String>,
    pub writable: BTreeSet<String>,
    pub acknowledged: u64,
    pub lease: bool,
    pub effects: usize,
}

impl World {
    pub fn new(ackers: usize, servers: usize, acks: usize) -> Self {
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

    pub fn captures_from(&self, server: &str) -> usize {
        self.ackers.values().filter(|(_, from)| from.as_deref() == Some(server)).count()
    }

    /// Returns the servers on which commits of clients are acknowledged.
    pub fn primaries(&self) -> Vec<&str> {
        let old = (self.old_writable && self.captures_from("old") >= self.acks).then_some("old");
        let servers = self.writable.iter().filter(|server| {
            self.waits_for.get(*server).is_none_or(|acks| self.captures_from(server) >= *acks)
        });
        servers.map(String::as_str).chain(old).collect()
    }

    /// Advances the time by 1 ms: clients write, and ackers and replicas receive, each as far as it can.
    pub fn live(&mut self) {
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

    /// Executes the action in the model, if that is possible, and returns its answer.
    pub fn apply(&mut self, act: &RunAction) -> ActionOutcome {
        self.effects += usize::from(act.changes_state());
        match act {
            RunAction::CheckLease if self.lease => return ActionOutcome::LeaseHeld(LeaseToken(7)),
            RunAction::CheckLease => {
                return ActionOutcome::Failed("another manager holds the lease".to_owned());
            }
            RunAction::ProbeCandidates => return ActionOutcome::Candidates(self.look()),
            RunAction::ProbePrimary => return ActionOutcome::ServerStatus(self.primary()),
            RunAction::ProbeServer { server } => return ActionOutcome::ServerStatus(self.glance(server)),
            RunAction::ReadAcker { acker } => return self.acker(acker, AckerStop::Unknown),
            RunAction::WaitForServer { server, what, .. } if self.servers[server] < last(what) => {
                return ActionOutcome::Failed("the server is not up to date in time".to_owned());
            }
            RunAction::WaitForAcker { acker, what, .. } if self.ackers[acker].0 < last(what) => {
                return ActionOutcome::Failed("the server is not up to date in time".to_owned());
            }
            RunAction::PauseWrites { .. } => {
                self.old_writable = false;
                return ActionOutcome::WritesPaused(set(self.old_last));
            }
            RunAction::ResumeWrites { .. } => self.old_writable = true,
            RunAction::StopAcker { acker } => {
                self.ackers.get_mut(acker).expect("the model must have this acker").1 = None;
                return self.acker(acker, AckerStop::Persistent);
            }
            RunAction::StartAcker { acker } => {
                let from = &mut self.ackers.get_mut(acker).expect("the model must have this acker").1;
                from.get_or_insert_with(|| "old".to_owned());
            }
            RunAction::DrainRelayLog { server } => drop(self.detached.insert(server.clone())),
            RunAction::EnableSemiSyncSource { server, acks } => {
                self.waits_for.insert(
                    server.clone(),
                    usize::try_from(*acks).expect("the number of ACKs must fit into the integer type"),
                );
            }
            RunAction::DisableSemiSyncSource { server } => {
                self.waits_for.remove(server);
                self.detached.remove(server);
            }
            RunAction::MakeWritable { server } => drop(self.writable.insert(server.clone())),
            RunAction::MakeReadOnly { server } => drop(self.writable.remove(server)),
            RunAction::RepointAcker { acker, server } => {
                self.ackers.get_mut(acker).expect("the model must have this acker").1 = Some(server.clone());
            }
            _ => {}
        }
        ActionOutcome::Done
    }

    fn acker(&self, name: &str, stop: AckerStop) -> ActionOutcome {
        let holds = Some(set(self.ackers[name].0));
        let acker = AckerEvidence { name: name.to_owned(), durable: true, stop, holds };
        ActionOutcome::AckerState { acker, before: set(0) }
    }

    fn glance(&self, server: &str) -> PrimaryStatus {
        let (writable, last) = match self.servers.get(server) {
            Some(last) => (self.writable.contains(server), *last),
            None => (self.old_writable, self.old_last),
        };
        PrimaryStatus { writable, waiting: None, executed: set(last) }
    }

    fn primary(&self) -> PrimaryStatus {
        let waiting = SemiSyncWait {
            active: true,
            after_sync: true,
            timeout_ms: u64::MAX,
            waits_without_ackers: true,
            acks_required: u32::try_from(self.acks)
                .expect("the number of ACKs must fit into the integer type"),
            unacknowledged: 0,
            survives_restart: true,
        };
        PrimaryStatus { writable: self.old_writable, waiting: Some(waiting), executed: set(self.old_last) }
    }

    fn look(&self) -> Vec<CandidateServer> {
        let errant = if self.errant { "4e11fa47-71ca-11e1-9e33-c80aa9429562:1" } else { "" };
        let errant = GtidSet::parse(Flavour::MySql, errant).expect("the text must be a valid GTID set");
        let has =
            |last: u64| Some(set(last).union(&errant).expect("both GTID sets must have the same flavour"));
        let each = self.servers.iter().map(|(name, executed)| CandidateServer {
            name: name.clone(),
            reached: Ok(()),
            flavour: Flavour::MySql,
            version: VERSION,
            region: None,
            promotion: Promotion::Neutral,
            feed: ReplicationKind::Native,
            received: has(*executed),
            executed: has(*executed),
            purged: Some(set(0)),
            log_bin: true,
            log_replica_updates: true,
            durable: true,
            applier_error: None,
            semi_sync_unavailable: None,
            failed: None,
            catch_up_ms: Some(0),
        });
        each.collect()
    }
}

pub fn order(world: &World) -> SwitchoverRequest {
    SwitchoverRequest {
        id: "run".to_owned(),
        primary: "old".to_owned(),
        origin: GtidOrigin::MySql(
            MysqlGtid::parse(&format!("{OLD}:1")).expect("the text must be a valid GTID").uuid,
        ),
        version: VERSION,
        region: None,
        ackers: world.ackers.keys().cloned().collect(),
        route_hooks: vec!["routes".to_owned()],
        direct_replicas: vec!["s0".to_owned()],
        acks_required: u32::try_from(world.acks).expect("the number of ACKs must fit into the integer type"),
        wanted: None,
        across_regions: false,
        catch_up_ms_max: 1000,
        write_pause_ms_max: PAUSE_MS_MAX,
        grace_ms: 20,
        dry_run: false,
        expected: ExpectedDurations { stop_ms: 5, hook_ms: 50, supply_ms: 20, change_ms: 3, follow_ms: 30 },
    }
}

/// An action in flight, with the time at which it ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    ends_ms: std::cmp::Reverse<u64>,
    number: u32,
    act: RunAction,
}

/// Runs the switchover to its end, as the driver does. Actions run in parallel, each for its own duration,
/// and none beyond the deadline. If `lease_goes` is given, the lease is lost before the action with that
/// number.
pub fn run(
    world: &mut World,
    order: SwitchoverRequest,
    fate: impl FnMut(&RunAction) -> (Fate, u64),
    lease_goes: Option<u32>,
) -> Audit {
    run_until(world, order, fate, lease_goes, None).0
}

/// Runs the switchover as [`run`] does. If `dies` is given, the manager dies when it orders the action with
/// that number. Actions in flight at that time, or when the lease is lost, may still take effect. Returns the
/// audit record as it was in the memory of the manager, and the version that was stored last.
pub fn run_until(
    world: &mut World,
    order: SwitchoverRequest,
    mut fate: impl FnMut(&RunAction) -> (Fate, u64),
    lease_goes: Option<u32>,
    dies: Option<u32>,
) -> (Audit, Option<Audit>) {
    let mut stored = None;
    let mut switchover = Switchover::new(order);
    let mut under_way = BinaryHeap::new();
    let mut fates = BTreeMap::new();
    let mut at_ms = 0u64;
    let mut next = switchover.begin(0);
    loop {
        if !switchover.skips_audit_store() && next.iter().any(|(_, act)| act.changes_state()) {
            stored = Some(switchover.audit().clone());
        }
        let is_last = dies.is_some_and(|dies| next.iter().any(|(number, _)| *number >= dies));
        for (number, act) in next {
            let (fate, takes_ms) = fate(&act);
            let takes_ms = if act == RunAction::CheckLease { 0 } else { takes_ms };
            fates.insert(number, fate);
            under_way.push(UnderWay { ends_ms: std::cmp::Reverse(at_ms + takes_ms), number, act });
        }
        if is_last {
            end_without_manager(world, under_way, &fates);
            break;
        }
        let Some(UnderWay { ends_ms, number, act }) = under_way.pop() else { break };
        let wanted_ms = ends_ms.0;
        let ends_ms = switchover.deadline_ms().map_or(wanted_ms, |deadline| wanted_ms.min(deadline));
        while at_ms < ends_ms {
            at_ms += 1;
            world.live();
        }
        assert!(at_ms < 100_000, "the switchover does not end: {}", switchover.audit());
        if lease_goes.is_some_and(|goes| goes <= number) {
            world.lease = false;
        }
        let answer = match fates[&number] {
            // The action takes effect after the deadline, when the switchover no longer waits for it.
            Fate::Done if wanted_ms > ends_ms => {
                world.apply(&act);
                ActionOutcome::Unknown("the bound".to_owned())
            }
            Fate::Done => world.apply(&act),
            Fate::Failed => ActionOutcome::Failed("no".to_owned()),
            Fate::DoneButAnswerLost => {
                world.apply(&act);
                ActionOutcome::Unknown("timed out".to_owned())
            }
            Fate::RequestLost => ActionOutcome::Unknown("timed out".to_owned()),
        };
        check_primaries(world, switchover.audit());
        next = switchover.answer(at_ms, number, answer);
        check_bound(&switchover, at_ms, &next);
        if switchover.audit().outcome.is_some() {
            // A late answer must have no effect.
            assert!(next.is_empty() && switchover.answer(at_ms, number, ActionOutcome::Done).is_empty());
            stored = Some(switchover.audit().clone());
            if !world.lease {
                end_without_manager(world, under_way, &fates);
            }
            break;
        }
    }
    (switchover.audit().clone(), stored)
}

/// Lets the actions in flight take effect, or not, after the manager has disappeared.
fn end_without_manager(world: &mut World, under_way: BinaryHeap<UnderWay>, fates: &BTreeMap<u32, Fate>) {
    for UnderWay { number, act, .. } in under_way {
        if matches!(fates[&number], Fate::Done | Fate::DoneButAnswerLost) {
            world.apply(&act);
        }
    }
}

/// Checks that at most one server acknowledges commits of clients, and that this server lacks no acknowledged
/// commit.
pub fn check_primaries(world: &World, audit: &Audit) {
    let primaries = world.primaries();
    assert!(primaries.len() <= 1, "there are two primaries, {primaries:?}: {audit}");
    assert!(!world.old_writable || world.writable.is_empty(), "two servers are writable: {audit}");
    if let Some(server) = primaries.iter().find(|server| **server != "old") {
        assert!(world.servers[*server] >= world.acknowledged, "{server} lacks a commit: {audit}");
    }
}

/// Checks that no action that changes a server starts after the deadline, except undo actions and the actions
/// after the candidate has begun to take writes.
fn check_bound(switchover: &Switchover, at_ms: u64, next: &[(u32, RunAction)]) {
    let Some(deadline_ms) = switchover.deadline_ms() else { return };
    if at_ms >= deadline_ms {
        assert!(
            !next.iter().any(|(_, act)| act.changes_state()),
            "an action starts after the deadline, {next:?}: {}",
            switchover.audit()
        );
    }
}

/// Whether the cluster is in the same state as before the switchover.
pub fn is_as_before(world: &World) -> bool {
    world.old_writable
        && world.writable.is_empty()
        && world.waits_for.is_empty()
        && world.detached.is_empty()
        && world.captures_from("old") == world.ackers.len()
}
