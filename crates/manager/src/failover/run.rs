//! The machine: which acts, when, and what their answers lead to.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_wire::gtid::GtidSet;

use super::act::{Act, Answer, Phase};
use super::audit::{Audit, End, Kind, Note};
use super::course::Course;
use super::order::Order;
use crate::choice::{Assessment, LogSupply, Question, Server, choose};
use crate::lease::Token;
use crate::lossless::{Acker, Evidence, Stop, Verdict, judge};
use crate::refusal::Refusal;

/// An act with its number.
pub type Numbered = (u32, Act);

/// What waits for the lease.
#[derive(Debug, Clone)]
enum Then {
    Phase(Phase),
    Act(Act),
}

/// One failover.
#[derive(Debug, Clone)]
pub struct Failover {
    order: Order,
    /// What comes when the lease was found to be held.
    then: Then,
    /// What would undo all that was done, the last first.
    undo: Vec<Act>,
    /// Something could not be undone in this round.
    undo_failed: bool,
    /// What could not be undone is tried once more.
    tried_again: bool,
    /// Something was changed, undoable or not.
    changed: bool,
    ackers: Vec<Acker>,
    before: BTreeMap<String, GtidSet>,
    fenced_by: Option<String>,
    verdict: Option<Verdict>,
    servers: Vec<Server>,
    /// Servers that failed as candidates in this run, with why.
    rejected: BTreeMap<String, String>,
    chosen: Option<Assessment>,
    /// What was done, perhaps, and cannot be undone.
    stays: Vec<Act>,
    /// The new primary takes writes: there is only forward.
    promoted: bool,
    left: Vec<Act>,
    refusal: Option<Refusal>,
    plan: Vec<Act>,
    course: Course,
}

impl Failover {
    /// One that has not begun.
    pub fn new(order: Order) -> Self {
        let audit = Audit {
            dry_run: order.dry_run,
            allow_data_loss: order.allow_data_loss,
            ..Audit::new(&order.id, Kind::Failover, &order.primary)
        };
        Self {
            order,
            then: Then::Phase(Phase::Confirm),
            undo: Vec::new(),
            undo_failed: false,
            tried_again: false,
            changed: false,
            ackers: Vec::new(),
            before: BTreeMap::new(),
            fenced_by: None,
            verdict: None,
            servers: Vec::new(),
            rejected: BTreeMap::new(),
            chosen: None,
            stays: Vec::new(),
            promoted: false,
            left: Vec::new(),
            refusal: None,
            plan: Vec::new(),
            course: Course::new(audit),
        }
    }

    /// The first acts. `at_ms` here and below is the time since the beginning.
    pub fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        self.enter(at_ms, Phase::Confirm)
    }

    /// Takes the answer to an act. Answers that nobody waits for are noted and change nothing.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        let Some(act) = self.course.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == Act::CheckLease {
            return self.lease_answered(at_ms, answer);
        }
        self.take(at_ms, &act, answer)
    }

    /// The lease was lost, or ended: nothing more is done.
    pub fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        if let Some(refusal) = self.course.lose(at_ms, reason) {
            self.over(Some(refusal));
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.course.phase
    }

    /// The term of the lease; goes along with every act.
    pub fn token(&self) -> Option<Token> {
        self.course.token
    }

    /// The record so far; to be stored after each step, before the acts that it returned are done.
    pub fn audit(&self) -> &Audit {
        &self.course.audit
    }

    /// Begins a phase: with the question for the lease.
    fn enter(&mut self, at_ms: u64, phase: Phase) -> Vec<Numbered> {
        self.after_the_lease(at_ms, Then::Phase(phase))
    }

    fn after_the_lease(&mut self, at_ms: u64, then: Then) -> Vec<Numbered> {
        self.then = then;
        vec![self.order_act(at_ms, Act::CheckLease)]
    }

    fn lease_answered(&mut self, at_ms: u64, answer: Answer) -> Vec<Numbered> {
        if let Err(reason) = self.course.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        match self.then.clone() {
            Then::Act(act) => vec![self.order_act(at_ms, act)],
            Then::Phase(phase) => {
                self.course.phase = phase;
                self.start(at_ms, phase)
            }
        }
    }

    /// The acts of a phase, the lease being held.
    fn start(&mut self, at_ms: u64, phase: Phase) -> Vec<Numbered> {
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let ackers = self.order.ackers.clone().into_iter();
        let mut acts: Vec<Act> = match phase {
            Phase::Confirm => vec![Act::Confirm],
            Phase::Fence if self.order.dry_run => ackers.map(|acker| Act::ReadAcker { acker }).collect(),
            Phase::Fence => ackers.map(|acker| Act::StopAcker { acker }).collect(),
            Phase::FenceHooks => {
                self.order.fence_hooks.iter().map(|hook| Act::FenceHook { hook: hook.clone() }).collect()
            }
            Phase::Choose => vec![Act::LookAtServers],
            Phase::Supply => self.supplies(&server),
            Phase::Drain => vec![Act::Drain { server }],
            Phase::Source => vec![Act::MakeSource { server, acks: self.order.acks_required }],
            Phase::Writable => vec![Act::MakeWritable { server }],
            Phase::Follow => ackers.map(|acker| Act::Follow { acker, server: server.clone() }).collect(),
            Phase::Others => {
                let replicas = self.order.direct_replicas.iter().filter(|replica| **replica != server);
                replicas.map(|replica| Act::Repoint { replica: replica.clone() }).collect()
            }
            Phase::Routes => {
                let hooks = self.order.route_hooks.iter();
                hooks.map(|hook| Act::RouteHook { hook: hook.clone(), server: server.clone() }).collect()
            }
            Phase::Undo => self.undo_now(),
            Phase::Lease | Phase::Prove | Phase::Prepare | Phase::CatchUp | Phase::Pause | Phase::Over => {
                Vec::new()
            }
        };
        if self.order.dry_run {
            self.plan(phase, &mut acts);
        }
        // What may run side by side does; the rest in order, each only after the one before.
        let together = matches!(phase, Phase::Fence | Phase::Follow | Phase::Others | Phase::Undo);
        if !together && acts.len() > 1 {
            self.course.queue = acts.split_off(1);
        }
        let ordered: Vec<Numbered> = acts.into_iter().map(|act| self.order_act(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    /// A candidate that may take writes comes first, and alone: while it does, the old primary stays fenced. Of the rest nothing
    /// waits for the other: an acker that does not answer keeps none from capturing again.
    fn undo_now(&self) -> Vec<Act> {
        let first = self.undo.iter().find(|act| matches!(act, Act::MakeReadOnly { .. }));
        first.map_or_else(|| self.undo.clone(), |act| vec![act.clone()])
    }

    /// In a dry run what would change something goes into the plan, and is taken for done.
    fn plan(&mut self, phase: Phase, acts: &mut Vec<Act>) {
        if phase == Phase::Fence {
            let stops = self.order.ackers.iter().map(|acker| Act::StopAcker { acker: acker.clone() });
            self.plan.extend(stops);
        }
        if phase == Phase::FenceHooks {
            self.fenced_by = self.order.fence_hooks.first().cloned();
        }
        if acts.iter().any(Act::changes) {
            self.plan.append(acts);
        }
    }

    fn order_act(&mut self, at_ms: u64, act: Act) -> Numbered {
        // Noted before it is done: whether it was is not known until it is answered.
        let undoes = self.course.phase == Phase::Undo || self.undo.contains(&act);
        if !undoes && act.changes() {
            self.changed = true;
            match act.undone_by() {
                Some(undo) => self.undo.insert(0, undo),
                None => self.stays.push(act.clone()),
            }
        }
        self.course.order(at_ms, act)
    }

    /// What an answer means for its act.
    fn take(&mut self, at_ms: u64, act: &Act, answer: Answer) -> Vec<Numbered> {
        let failure = match (act, answer) {
            (Act::Confirm, Answer::Confirmed(_)) => None,
            (Act::Confirm, other) => {
                let reason = other.words().1;
                let primary = self.order.primary.clone();
                return self.refuse(at_ms, Refusal::NotConfirmed { primary, reason });
            }
            (
                Act::StopAcker { acker: name } | Act::ReadAcker { acker: name },
                Answer::Acker { mut acker, before },
            ) => {
                acker.name.clone_from(name);
                if let Stop::Refused { .. } = acker.stop {
                    // It did nothing.
                    self.undo.retain(|undo| Some(undo) != act.undone_by().as_ref());
                } else if self.order.dry_run {
                    // It answers, so it can be stopped; that is what the plan rests on.
                    acker.stop = Stop::Lasting;
                }
                self.ackers.push(acker);
                self.before.insert(name.clone(), before);
                None
            }
            // An acker that does not answer is one that does not count; the proof is the judge of that.
            (Act::StopAcker { .. } | Act::ReadAcker { .. }, _) => None,
            (Act::FenceHook { hook }, Answer::Done | Answer::Noted(_)) => {
                self.fenced_by = Some(hook.clone());
                None
            }
            // The other hooks, and the ackers, may suffice.
            (Act::FenceHook { .. }, _) => None,
            (Act::LookAtServers, Answer::Servers(servers)) => {
                self.servers = servers;
                None
            }
            (Act::MakeWritable { .. }, Answer::Done | Answer::Noted(_)) => {
                self.promoted = true;
                None
            }
            (_, Answer::Done | Answer::Noted(_)) => None,
            (_, other) => Some(other.words().1),
        };
        match failure {
            Some(reason) => self.failed(at_ms, act, reason),
            None => self.go_on(at_ms, act),
        }
    }

    /// After an act that went well, or whose failure does not matter by itself.
    fn go_on(&mut self, at_ms: u64, act: &Act) -> Vec<Numbered> {
        if self.course.phase == Phase::Undo {
            self.undo.retain(|undo| undo != act);
        } else if matches!(act, Act::UnmakeSource { .. }) {
            self.undo.retain(|undo| undo != act);
            return self.enter(at_ms, Phase::Choose);
        }
        self.go_on_behind(at_ms)
    }

    fn go_on_behind(&mut self, at_ms: u64) -> Vec<Numbered> {
        if let Some(next) = self.course.next() {
            return self.after_the_lease(at_ms, Then::Act(next));
        }
        // Nobody waits for an acker on a dead host when the others prove everything.
        let proven =
            self.course.phase == Phase::Fence && !self.order.dry_run && self.verdict_now().is_complete();
        if self.course.waiting.is_empty() || proven {
            self.course.waiting.clear();
            return self.conclude(at_ms);
        }
        Vec::new()
    }

    /// After an act that failed, or nobody knows whether.
    fn failed(&mut self, at_ms: u64, act: &Act, reason: String) -> Vec<Numbered> {
        if self.course.phase == Phase::Undo {
            self.undo_failed = true;
            return self.go_on_behind(at_ms);
        }
        if self.course.phase > Phase::Writable {
            self.left.push(act.clone());
            return self.go_on(at_ms, act);
        }
        if matches!(act, Act::UnmakeSource { .. }) {
            // It takes no writes, and stays to be undone: nothing that another has to wait for.
            return self.enter(at_ms, Phase::Choose);
        }
        let may_give_way = matches!(self.course.phase, Phase::Supply | Phase::Drain | Phase::Source);
        // What may be missing has been told of this choice: another server may miss more.
        if may_give_way
            && self.order.wanted.is_none()
            && (self.course.phase != Phase::Source || self.course.audit.may_be_missing.is_none())
            && let Some(Assessment { server, .. }) = self.chosen.take()
        {
            self.rejected.insert(server.clone(), format!("{act}: {reason}"));
            self.course.queue.clear();
            // Another server may do. Behind its draining this one replicates no more, and may wait for ACKs.
            if self.course.phase == Phase::Source {
                return self.after_the_lease(at_ms, Then::Act(Act::UnmakeSource { server }));
            }
            return self.enter(at_ms, Phase::Choose);
        }
        self.refuse(at_ms, Refusal::Step { step: act.to_string(), reason })
    }

    /// All acts of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<Numbered> {
        match self.course.phase {
            Phase::Confirm => self.enter(at_ms, Phase::Fence),
            Phase::Fence => self.enter(at_ms, Phase::FenceHooks),
            Phase::FenceHooks | Phase::Prove => self.prove(at_ms),
            Phase::Choose => self.choose(at_ms),
            Phase::Supply => self.enter(at_ms, Phase::Drain),
            Phase::Drain => self.enter(at_ms, Phase::Source),
            Phase::Source => self.enter(at_ms, Phase::Writable),
            Phase::Writable => self.enter(at_ms, Phase::Follow),
            Phase::Follow => self.enter(at_ms, Phase::Others),
            Phase::Others => self.enter(at_ms, Phase::Routes),
            Phase::Undo if self.undo.is_empty() || (self.undo_failed && self.tried_again) => {
                let refusal = self.refusal.take();
                self.over(refusal);
                Vec::new()
            }
            Phase::Undo => {
                self.tried_again |= std::mem::take(&mut self.undo_failed);
                self.enter(at_ms, Phase::Undo)
            }
            Phase::Routes | Phase::Lease | Phase::Prepare | Phase::CatchUp | Phase::Pause | Phase::Over => {
                self.over(None);
                Vec::new()
            }
        }
    }

    fn verdict_now(&self) -> Verdict {
        let order = &self.order;
        judge(&Evidence {
            primary: &order.primary,
            regimes: order.regimes.as_ref(),
            unverified_ms: order.unverified_ms,
            unverified_ms_max: order.unverified_ms_max,
            ackers: &self.ackers,
            last_known: order.last_known.as_ref(),
            fenced_by: self.fenced_by.as_deref(),
        })
    }

    fn prove(&mut self, at_ms: u64) -> Vec<Numbered> {
        self.course.phase = Phase::Prove;
        let verdict = self.verdict_now();
        self.course.audit.holds = verdict.holds.as_ref().map(ToString::to_string);
        if let Some(refusal) = verdict.refuses(self.order.allow_data_loss).cloned() {
            return self.refuse(at_ms, refusal);
        }
        for refusal in &verdict.refusals {
            self.course.note(at_ms, Note::Overridden { refusal: refusal.clone() });
        }
        self.course.audit.may_be_missing.clone_from(&verdict.may_be_missing);
        self.verdict = Some(verdict);
        self.enter(at_ms, Phase::Choose)
    }

    fn choose(&mut self, at_ms: u64) -> Vec<Numbered> {
        for server in &mut self.servers {
            if let Some(reason) = self.rejected.get(&server.name) {
                server.fail(reason);
            }
        }
        let order = &self.order;
        let log = self.log();
        let choice = choose(&Question {
            region: order.region.as_deref(),
            version: order.version,
            origin: order.origin,
            log: &log,
            servers: &self.servers,
            across_regions: order.across_regions,
            catch_up_ms_max: order.catch_up_ms_max,
        });
        let best = choice.best(order.wanted.as_deref()).cloned();
        self.course.audit.choice = Some(choice);
        match best {
            Ok(best) => {
                self.chosen = Some(best);
                self.enter(at_ms, Phase::Supply)
            }
            Err(refusal) => self.refuse(at_ms, refusal),
        }
    }

    /// The log to go on with: of the holders the one that reaches back farthest. Without any, what the servers themselves
    /// have, which the operator has accepted.
    fn log(&self) -> LogSupply {
        let verdict = self.verdict.as_ref();
        let holders = verdict.map(|verdict| verdict.holders.as_slice()).unwrap_or_default();
        let reaches = |one: &&String| {
            holders
                .iter()
                .filter_map(|other| self.before.get(other))
                .all(|other| self.before.get(*one).is_some_and(|before| before.is_subset_of(other)))
        };
        let name = holders.iter().find(reaches).or(holders.first());
        if let (Some(name), Some(holds)) = (name, verdict.and_then(|verdict| verdict.holds.clone())) {
            let before = self.before.get(name).cloned().unwrap_or_else(|| holds.clone());
            return LogSupply { name: name.clone(), holds, before };
        }
        let empty = GtidSet::empty(self.order.origin.flavour());
        let reached = self.servers.iter().filter(|server| server.reached.is_ok());
        let holds = reached
            .filter_map(|server| server.received.as_ref())
            .fold(empty, |all, received| all.union(received).unwrap_or(all));
        LogSupply { name: "no log".to_owned(), before: holds.clone(), holds }
    }

    fn supplies(&self, server: &str) -> Vec<Act> {
        let supplies = self.chosen.iter().flat_map(|chosen| &chosen.supplies);
        supplies
            .map(|supply| Act::Supply {
                server: server.to_owned(),
                from: supply.from.clone(),
                what: supply.what.clone(),
            })
            .collect()
    }

    /// Stops, and undoes what was done.
    fn refuse(&mut self, at_ms: u64, refusal: Refusal) -> Vec<Numbered> {
        self.course.note(at_ms, Note::Refused { refusal: refusal.clone() });
        self.course.queue.clear();
        self.course.waiting.clear();
        if self.undo.is_empty() {
            self.over(Some(refusal));
            return Vec::new();
        }
        self.refusal = Some(refusal);
        self.enter(at_ms, Phase::Undo)
    }

    fn over(&mut self, refusal: Option<Refusal>) {
        // Of an undoing that was cut short the first reason counts.
        let refusal = self.refusal.take().or(refusal);
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let stays = std::mem::take(&mut self.stays);
        if self.promoted {
            // Of candidates that failed before it.
            let unmade = |act: &&Act| matches!(act, Act::UnmakeSource { server: one } if *one != server);
            self.left.extend(self.undo.iter().filter(unmade).cloned());
        }
        let outcome = match refusal {
            None if self.order.dry_run => self.planned(server),
            None => End::Promoted { server, left: std::mem::take(&mut self.left) },
            Some(_) if self.promoted => End::Promoted { server, left: self.still_to_do() },
            Some(refusal) if !self.changed => End::Unchanged { refusal },
            Some(refusal) if self.undo.is_empty() => End::Undone { refusal, stays },
            Some(refusal) => End::Left { refusal, to_undo: std::mem::take(&mut self.undo), stays },
        };
        self.course.end(outcome);
    }

    /// Behind the promotion: what was not answered, and what comes in phases that were not begun.
    fn still_to_do(&mut self) -> Vec<Act> {
        let mut acts: BTreeSet<Act> = std::mem::take(&mut self.left).into_iter().collect();
        acts.extend(self.course.waiting.values().filter(|act| act.changes()).cloned());
        acts.extend(std::mem::take(&mut self.course.queue));
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let begun = |phase: Phase| self.course.phase >= phase;
        if !begun(Phase::Follow) {
            acts.extend(
                self.order
                    .ackers
                    .iter()
                    .map(|acker| Act::Follow { acker: acker.clone(), server: server.clone() }),
            );
        }
        if !begun(Phase::Others) {
            acts.extend(
                self.order.direct_replicas.iter().map(|replica| Act::Repoint { replica: replica.clone() }),
            );
        }
        if !begun(Phase::Routes) {
            acts.extend(
                self.order
                    .route_hooks
                    .iter()
                    .map(|hook| Act::RouteHook { hook: hook.clone(), server: server.clone() }),
            );
        }
        acts.into_iter().collect()
    }

    fn planned(&mut self, server: String) -> End {
        let acts = std::mem::take(&mut self.plan);
        let mut expected_ms = 0u64;
        let mut at = 0;
        while let Some(act) = acts.get(at) {
            // Acts of one kind that run side by side take as long as one.
            let together = matches!(act, Act::StopAcker { .. } | Act::Follow { .. } | Act::Repoint { .. });
            let alike = |other: &&Act| std::mem::discriminant(*other) == std::mem::discriminant(act);
            let count = if together { acts[at..].iter().take_while(alike).count() } else { 1 };
            let drains = matches!(act, Act::Drain { .. });
            let drain_ms =
                self.servers.iter().find(|one| drains && one.name == server).and_then(|one| one.catch_up_ms);
            expected_ms = expected_ms.saturating_add(drain_ms.unwrap_or_else(|| self.order.expected.of(act)));
            at += count;
        }
        End::Planned { server, acts, expected_ms }
    }
}
