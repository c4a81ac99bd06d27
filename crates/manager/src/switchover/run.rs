//! The machine: which acts, when, and what their answers lead to.

use std::collections::BTreeMap;

use tailwater_wire::gtid::GtidSet;

use super::catching_up::{CatchingUp, Verdict};
use super::order::{Order, Primary};
use crate::choice::{Assessment, Server};
use crate::failover::{Act, Answer, Audit, Course, End, Kind, Note, Numbered, Phase};
use crate::lease::Token;
use crate::lossless::Acker;
use crate::refusal::Refusal;

/// What waits for the lease.
#[derive(Debug, Clone)]
enum Then {
    Phase(Phase),
    Act(Act),
}

/// One switchover.
#[derive(Debug, Clone)]
pub struct Switchover {
    pub(super) order: Order,
    /// What comes when the lease was found to be held, by the number of the question.
    then: BTreeMap<u32, Then>,
    /// What would undo all that was done, the last first.
    pub(super) undo: Vec<Act>,
    /// What could not be undone is tried once more.
    tried_again: bool,
    /// Something could not be undone in this round.
    undo_failed: bool,
    /// What was done, perhaps, and cannot be undone.
    stays: Vec<Act>,
    changed: bool,
    pub(super) primary: Option<Primary>,
    pub(super) servers: Vec<Server>,
    pub(super) ackers: BTreeMap<String, (Acker, GtidSet)>,
    /// Servers that failed as candidates in this run, with why.
    pub(super) rejected: BTreeMap<String, String>,
    pub(super) chosen: Option<Assessment>,
    /// How far the candidate is behind the primary, before its writes are held.
    pub(super) catching_up: CatchingUp,
    /// When the primary was told to take no more writes.
    paused_at_ms: Option<u64>,
    /// All that the primary executed, told after it had stopped.
    pub(super) position: Option<GtidSet>,
    /// The new primary takes writes: there is only forward.
    promoted: bool,
    pub(super) left: Vec<Act>,
    refusal: Option<Refusal>,
    pub(super) course: Course,
}

impl Switchover {
    /// One that has not begun.
    pub fn new(order: Order) -> Self {
        let audit =
            Audit { dry_run: order.dry_run, ..Audit::new(&order.id, Kind::Switchover, &order.primary) };
        Self {
            order,
            then: BTreeMap::new(),
            undo: Vec::new(),
            tried_again: false,
            undo_failed: false,
            stays: Vec::new(),
            changed: false,
            primary: None,
            servers: Vec::new(),
            ackers: BTreeMap::new(),
            rejected: BTreeMap::new(),
            chosen: None,
            catching_up: CatchingUp::default(),
            paused_at_ms: None,
            position: None,
            promoted: false,
            left: Vec::new(),
            refusal: None,
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
            return self.lease_answered(at_ms, number, answer);
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

    /// When the acts that are waited for have to be answered: whoever drives answers them then, with [`Answer::Unknown`].
    /// `None` while clients can write.
    pub fn deadline_ms(&self) -> Option<u64> {
        let paused_at_ms =
            self.paused_at_ms.filter(|_| !self.promoted && self.course.phase != Phase::Undo)?;
        Some(paused_at_ms.saturating_add(self.order.write_pause_ms_max))
    }

    /// Whether acts are no longer given up when their record cannot be stored.
    pub fn is_beyond_refusing(&self) -> bool {
        self.promoted || self.paused_at_ms.is_some()
    }

    /// Whether clients wait for each act.
    pub fn is_hurried(&self) -> bool {
        let is_told = self.course.audit.pause_ms.is_some();
        !is_told && self.paused_at_ms.is_some() && self.course.phase != Phase::Pause
    }

    /// Begins a phase: with the question for the lease.
    pub(super) fn enter(&mut self, at_ms: u64, phase: Phase) -> Vec<Numbered> {
        self.after_the_lease(at_ms, Then::Phase(phase))
    }

    fn after_the_lease(&mut self, at_ms: u64, then: Then) -> Vec<Numbered> {
        let question = self.order_act(at_ms, Act::CheckLease);
        self.then.insert(question.0, then);
        vec![question]
    }

    fn lease_answered(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        let then = self.then.remove(&number);
        if let Err(reason) = self.course.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        then.map_or_else(Vec::new, |then| self.go(at_ms, then))
    }

    /// What waited for the lease, which is held; unless it is too late for it.
    fn go(&mut self, at_ms: u64, then: Then) -> Vec<Numbered> {
        if self.is_late(at_ms) && self.refusal.is_none() {
            let step = match &then {
                Then::Act(act) => act.to_string(),
                Then::Phase(Phase::Writable) => "let the candidate take writes".to_owned(),
                Then::Phase(_) => "have the candidate and the ackers ready".to_owned(),
            };
            let refusal = self.exceeded(step);
            if self.course.waiting.is_empty() {
                return self.refuse(at_ms, refusal);
            }
            // Nothing is undone while it is being done.
            self.refusal = Some(refusal);
            return Vec::new();
        }
        match then {
            // Beside it something failed.
            Then::Act(_) if self.refusal.is_some() && self.course.phase != Phase::Undo => self.go_on(at_ms),
            Then::Act(act) => vec![self.order_act(at_ms, act)],
            Then::Phase(phase) => {
                self.course.phase = phase;
                self.start(at_ms, phase)
            }
        }
    }

    /// The acts of a phase, the lease being held.
    fn start(&mut self, at_ms: u64, phase: Phase) -> Vec<Numbered> {
        if phase == Phase::Pause {
            self.paused_at_ms = Some(at_ms);
        }
        let mut acts = self.acts(at_ms, phase);
        // What may run side by side does; the rest in order, each only after the one before.
        let in_order = matches!(phase, Phase::Confirm | Phase::CatchUp | Phase::Routes);
        if in_order && acts.len() > 1 {
            self.course.queue = acts.split_off(1);
        }
        let ordered: Vec<Numbered> = acts.into_iter().map(|act| self.order_act(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn order_act(&mut self, at_ms: u64, act: Act) -> Numbered {
        // Noted before it is done: whether it was is not known until it is answered.
        if self.course.phase != Phase::Undo && act.changes() {
            self.changed = true;
            let undo = match &act {
                // Of all three at once.
                Act::Drain { server } => Some(Act::UnmakeSource { server: server.clone() }),
                Act::MakeSource { .. } | Act::SettleSource { .. } => None,
                Act::HoldWrites { server, .. } => {
                    Some(Act::ReleaseWrites { server: server.clone(), acks: self.order.acks_required })
                }
                // That starts it as well.
                Act::Follow { acker, .. } => {
                    let start = Act::StartAcker { acker: acker.clone() };
                    self.undo.retain(|undo| *undo != start);
                    let (acker, server) = (acker.clone(), self.order.primary.clone());
                    Some(Act::Follow { acker, server })
                }
                other => other.undone_by(),
            };
            match undo {
                Some(undo) => self.undo.insert(0, undo),
                None if matches!(act, Act::MakeSource { .. } | Act::SettleSource { .. }) => {}
                None => self.stays.push(act.clone()),
            }
        }
        self.course.order(at_ms, act)
    }

    /// What an answer means for its act.
    fn take(&mut self, at_ms: u64, act: &Act, answer: Answer) -> Vec<Numbered> {
        match (act, answer) {
            (Act::LookAtServers, Answer::Servers(servers)) => self.servers = servers,
            (Act::LookAtPrimary | Act::Glance { .. }, Answer::Primary(primary)) => {
                let waiting = self.primary.take().and_then(|before| before.waiting);
                self.primary = Some(Primary { waiting: primary.waiting.or(waiting), ..primary });
            }
            (
                Act::ReadAcker { acker: name } | Act::StopAcker { acker: name },
                Answer::Acker { acker, before },
            ) => drop(self.ackers.insert(name.clone(), (acker, before))),
            // The judge of what is not told is the rule that needs it.
            (Act::ReadAcker { .. }, _) => {}
            (Act::HoldWrites { .. }, Answer::Position(position)) => {
                self.course.audit.holds = Some(position.to_string());
                self.position = Some(position);
            }
            (Act::MakeWritable { .. }, Answer::Done | Answer::Noted(_)) => {
                self.promoted = true;
                self.pause_is_over(at_ms);
            }
            (_, Answer::Done | Answer::Noted(_)) => {}
            (_, other) => return self.failed(at_ms, act, other.words().1),
        }
        if self.course.phase == Phase::Undo {
            self.undo.retain(|undo| undo != act);
            if matches!(act, Act::ReleaseWrites { .. }) {
                self.pause_is_over(at_ms);
            }
        }
        if let Some(next) = self.next_of(at_ms, act).filter(|_| self.refusal.is_none()) {
            return self.after_the_lease(at_ms, Then::Act(next));
        }
        self.go_on(at_ms)
    }

    fn pause_is_over(&mut self, at_ms: u64) {
        self.course.audit.pause_ms = self.paused_at_ms.map(|began| at_ms.saturating_sub(began));
    }

    /// Whether nobody has been able to write for longer than is allowed.
    fn is_late(&self, at_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| at_ms >= deadline)
    }

    /// After an act that went well, or whose failure does not matter by itself.
    fn go_on(&mut self, at_ms: u64) -> Vec<Numbered> {
        if let Some(next) = self.course.next() {
            return self.after_the_lease(at_ms, Then::Act(next));
        }
        match self.refusal.clone() {
            _ if !self.course.waiting.is_empty() => Vec::new(),
            Some(refusal) if self.course.phase != Phase::Undo => self.refuse(at_ms, refusal),
            _ => self.conclude(at_ms),
        }
    }

    /// After an act that failed, or nobody knows whether.
    fn failed(&mut self, at_ms: u64, act: &Act, reason: String) -> Vec<Numbered> {
        if self.course.phase == Phase::Undo {
            self.undo_failed = true;
            return self.go_on(at_ms);
        }
        if self.promoted {
            self.left.push(act.clone());
            return self.go_on(at_ms);
        }
        let is_candidates = matches!(act, Act::AwaitServer { .. } | Act::Prepare { .. });
        let is_before = matches!(self.course.phase, Phase::Prepare | Phase::CatchUp);
        if is_before && is_candidates && self.order.wanted.is_none() {
            // Another server may do; nothing has changed for this one.
            if let Some(chosen) = self.chosen.take() {
                self.rejected.insert(chosen.server, format!("{act}: {reason}"));
            }
            self.course.waiting.clear();
            self.course.queue.clear();
            return self.choose(at_ms);
        }
        // What runs beside it is waited for: nothing is undone while it is being done.
        let step = act.to_string();
        let refusal = if self.is_late(at_ms) { self.exceeded(step) } else { Refusal::Step { step, reason } };
        self.refusal.get_or_insert(refusal);
        self.course.queue.clear();
        self.go_on(at_ms)
    }

    fn exceeded(&self, step: String) -> Refusal {
        let (primary, bound_ms) = (self.order.primary.clone(), self.order.write_pause_ms_max);
        Refusal::PauseExceeded { primary, bound_ms, step }
    }

    /// All acts of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<Numbered> {
        let next = match self.course.phase {
            Phase::Confirm => return self.choose(at_ms),
            Phase::Prepare if self.order.dry_run => None,
            Phase::Prepare => Some(Phase::CatchUp),
            Phase::CatchUp => match self.catching_up.verdict(self.order.write_pause_ms_max) {
                Verdict::Near => Some(Phase::Pause),
                Verdict::Again => Some(Phase::CatchUp),
                Verdict::TooFar { behind_ms } => return self.stays_behind(at_ms, behind_ms),
            },
            Phase::Pause => Some(Phase::Fence),
            Phase::Fence => match self.not_exactly_there() {
                Some(refusal) => return self.refuse(at_ms, refusal),
                None => Some(Phase::Follow),
            },
            Phase::Follow => Some(Phase::Writable),
            Phase::Writable => Some(Phase::Routes),
            Phase::Routes => Some(Phase::Others),
            Phase::Undo if self.undo.is_empty() || (self.undo_failed && self.tried_again) => None,
            Phase::Undo => {
                self.tried_again |= std::mem::take(&mut self.undo_failed);
                Some(Phase::Undo)
            }
            _ => None,
        };
        match next {
            Some(phase) => self.enter(at_ms, phase),
            None => {
                let refusal = self.refusal.take();
                self.over(refusal);
                Vec::new()
            }
        }
    }

    /// A candidate that never comes near would make the pause as long as it is behind.
    fn stays_behind(&mut self, at_ms: u64, behind_ms: u64) -> Vec<Numbered> {
        let server = self.chosen.take().map(|chosen| chosen.server).unwrap_or_default();
        let reason = format!(
            "{server} stays {behind_ms} ms behind what {} executes; have it execute more side by side, or wait for fewer \
             writes",
            self.order.primary
        );
        if self.order.wanted.is_none() {
            self.rejected.insert(server, reason);
            return self.choose(at_ms);
        }
        self.refuse(at_ms, Refusal::NotReady { primary: self.order.primary.clone(), reasons: reason })
    }

    /// Stops, and undoes what was done.
    pub(super) fn refuse(&mut self, at_ms: u64, refusal: Refusal) -> Vec<Numbered> {
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
}
