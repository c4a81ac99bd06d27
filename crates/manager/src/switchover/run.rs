//! The machine: which acts, when, and what their answers lead to.

use std::collections::BTreeMap;

use tailwater_wire::gtid::GtidSet;

use super::order::{Order, Primary};
use crate::choice::{Assessment, Choice, Feed, LogSupply, Question, Server, choose};
use crate::failover::{Act, Answer, Audit, End, Kind, Note, Numbered, Phase, Step};
use crate::lease::Token;
use crate::lossless::{Acker, Acks, Stop};
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
    order: Order,
    phase: Phase,
    /// What comes when the lease was found to be held.
    then: Then,
    token: Option<Token>,
    next_number: u32,
    waiting: BTreeMap<u32, Act>,
    /// Acts of the phase that wait for those before them.
    queue: Vec<Act>,
    /// What would undo all that was done, the last first.
    undo: Vec<Act>,
    /// What could not be undone is tried once more.
    tried_again: bool,
    /// Something could not be undone in this round.
    undo_failed: bool,
    /// What was done, perhaps, and cannot be undone.
    stays: Vec<Act>,
    changed: bool,
    primary: Option<Primary>,
    servers: Vec<Server>,
    ackers: BTreeMap<String, (Acker, GtidSet)>,
    /// Servers that failed as candidates in this run, with why.
    rejected: BTreeMap<String, String>,
    chosen: Option<Assessment>,
    /// When the primary was told to take no more writes.
    paused_at_ms: Option<u64>,
    /// All that the primary executed, told after it had stopped.
    position: Option<GtidSet>,
    /// The new primary takes writes: there is only forward.
    promoted: bool,
    left: Vec<Act>,
    refusal: Option<Refusal>,
    audit: Audit,
}

impl Switchover {
    /// One that has not begun.
    pub fn new(order: Order) -> Self {
        let audit = Audit {
            id: order.id.clone(),
            kind: Kind::Switchover,
            primary: order.primary.clone(),
            dry_run: order.dry_run,
            allow_data_loss: false,
            token: None,
            steps: Vec::new(),
            holds: None,
            may_be_missing: None,
            choice: None,
            pause_ms: None,
            outcome: None,
        };
        Self {
            order,
            phase: Phase::Lease,
            then: Then::Phase(Phase::Confirm),
            token: None,
            next_number: 1,
            waiting: BTreeMap::new(),
            queue: Vec::new(),
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
            paused_at_ms: None,
            position: None,
            promoted: false,
            left: Vec::new(),
            refusal: None,
            audit,
        }
    }

    /// The first acts. `at_ms` here and below is the time since the beginning.
    pub fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        self.enter(at_ms, Phase::Confirm)
    }

    /// Takes the answer to an act. Answers that nobody waits for are noted and change nothing.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        let act = match self.waiting.remove(&number) {
            Some(act) if self.audit.outcome.is_none() => act,
            _ => {
                self.note(at_ms, Note::Ignored { number });
                return Vec::new();
            }
        };
        let (outcome, text) = answer.words();
        self.note(at_ms, Note::Answered { number, outcome: outcome.to_owned(), text });
        if act == Act::CheckLease {
            return self.lease_answered(at_ms, answer);
        }
        self.take(at_ms, &act, answer)
    }

    /// The lease was lost, or ended: nothing more is done.
    pub fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        if self.audit.outcome.is_none() {
            let refusal = Refusal::NoLease { reason: reason.to_owned() };
            self.note(at_ms, Note::Refused { refusal: refusal.clone() });
            self.over(Some(refusal));
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The term of the lease; goes along with every act.
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// The record so far; to be stored after each step, before the acts that it returned are done.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// When the acts that are waited for have to be answered: whoever drives answers them then, with [`Answer::Unknown`].
    /// `None` while clients can write.
    pub fn deadline_ms(&self) -> Option<u64> {
        let paused_at_ms = self.paused_at_ms.filter(|_| !self.promoted && self.phase != Phase::Undo)?;
        Some(paused_at_ms.saturating_add(self.order.write_pause_ms_max))
    }

    /// Whether acts are no longer given up when their record cannot be stored.
    pub fn is_beyond_refusing(&self) -> bool {
        self.promoted || self.paused_at_ms.is_some()
    }

    /// Whether clients wait for each act.
    pub fn is_hurried(&self) -> bool {
        let is_told = self.audit.pause_ms.is_some();
        !is_told && self.paused_at_ms.is_some() && self.phase != Phase::Pause
    }

    fn note(&mut self, at_ms: u64, note: Note) {
        self.audit.steps.push(Step { at_ms, phase: self.phase, note });
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
        let reason = match answer {
            Answer::Held(token) if self.token.is_none_or(|first| first == token) => {
                self.token = Some(token);
                self.audit.token = Some(token.0);
                return self.go(at_ms);
            }
            // Between the two somebody else may have acted.
            Answer::Held(_) => "another term of the lease has begun".to_owned(),
            Answer::Failed(reason) | Answer::Unknown(reason) => reason,
            _ => "the question for the lease was answered with something else".to_owned(),
        };
        self.lease_lost(at_ms, &reason);
        Vec::new()
    }

    /// What waited for the lease, which is held; unless it is too late for it.
    fn go(&mut self, at_ms: u64) -> Vec<Numbered> {
        let then = self.then.clone();
        if self.is_late(at_ms) && self.refusal.is_none() {
            let step = match &then {
                Then::Act(act) => act.to_string(),
                Then::Phase(Phase::Writable) => "let the candidate take writes".to_owned(),
                Then::Phase(_) => "have the candidate and the ackers ready".to_owned(),
            };
            let refusal = self.exceeded(step);
            return self.refuse(at_ms, refusal);
        }
        match then {
            Then::Act(act) => vec![self.order_act(at_ms, act)],
            Then::Phase(phase) => {
                self.phase = phase;
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
        let in_order = matches!(phase, Phase::Confirm | Phase::Routes);
        if in_order && acts.len() > 1 {
            self.queue = acts.split_off(1);
        }
        let ordered: Vec<Numbered> = acts.into_iter().map(|act| self.order_act(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn acts(&self, at_ms: u64, phase: Phase) -> Vec<Act> {
        let order = &self.order;
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let each_acker = |act: &dyn Fn(String) -> Act| order.ackers.iter().cloned().map(act).collect();
        let left_ms = self.deadline_ms().map_or(order.catch_up_ms_max, |end| end.saturating_sub(at_ms));
        match phase {
            // Servers before ackers: what a server was seen to have, the ackers hold when they are asked.
            Phase::Confirm => {
                let ackers: Vec<Act> = each_acker(&|acker| Act::ReadAcker { acker });
                [Act::LookAtServers, Act::LookAtPrimary].into_iter().chain(ackers).collect()
            }
            Phase::Prepare | Phase::Drain => {
                let executed = self.primary.as_ref().map(|primary| &primary.executed);
                let Some(what) = self.position.as_ref().or(executed) else { return Vec::new() };
                let what = what.to_string();
                let mut acts: Vec<Act> = each_acker(&|acker| {
                    let what = what.clone();
                    Act::AwaitAcker { acker, what, within_ms: left_ms }
                });
                acts.push(Act::AwaitServer {
                    server: server.clone(),
                    what: what.clone(),
                    within_ms: left_ms,
                });
                if phase == Phase::Prepare && !order.dry_run {
                    acts.push(Act::Prepare { server, acks: order.acks_required });
                }
                acts
            }
            Phase::Pause => {
                // The other half is for the candidate and the ackers.
                let (server, within_ms) = (order.primary.clone(), left_ms / 2);
                vec![Act::HoldWrites { server, within_ms, grace_ms: order.grace_ms.min(within_ms) }]
            }
            Phase::Fence => {
                let mut acts: Vec<Act> = each_acker(&|acker| Act::StopAcker { acker });
                acts.push(Act::Drain { server });
                acts
            }
            Phase::Source => vec![Act::MakeSource { server, acks: order.acks_required }],
            Phase::Follow => each_acker(&|acker| Act::Follow { acker, server: server.clone() }),
            Phase::Writable => vec![Act::MakeWritable { server }],
            Phase::Routes => {
                let hooks = order.route_hooks.iter();
                hooks.map(|hook| Act::RouteHook { hook: hook.clone(), server: server.clone() }).collect()
            }
            Phase::Others => {
                let replicas = order.direct_replicas.iter().filter(|replica| **replica != server);
                let repoint = replicas.map(|replica| Act::Repoint { replica: replica.clone() });
                let has = self.position.as_ref().map(ToString::to_string).unwrap_or_default();
                repoint.chain([Act::Demote { server: order.primary.clone(), has }]).collect()
            }
            // A candidate that may be writable comes first, and alone. Of the rest nothing waits for the other: without its
            // ackers the primary waits, and loses nothing; and it does not wait for a candidate that does not answer.
            Phase::Undo => {
                let first = self.undo.iter().position(|act| matches!(act, Act::MakeReadOnly { .. }));
                first.map_or_else(|| self.undo.clone(), |at| vec![self.undo[at].clone()])
            }
            _ => Vec::new(),
        }
    }

    fn order_act(&mut self, at_ms: u64, act: Act) -> Numbered {
        // Noted before it is done: whether it was is not known until it is answered.
        if self.phase != Phase::Undo && act.changes() {
            self.changed = true;
            let undo = match &act {
                // Of both at once.
                Act::Drain { server } => Some(Act::UnmakeSource { server: server.clone() }),
                Act::MakeSource { .. } => None,
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
                None if matches!(act, Act::MakeSource { .. }) => {}
                None => self.stays.push(act.clone()),
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        self.note(at_ms, Note::Ordered { number, what: act.clone() });
        self.waiting.insert(number, act.clone());
        (number, act)
    }

    /// What an answer means for its act.
    fn take(&mut self, at_ms: u64, act: &Act, answer: Answer) -> Vec<Numbered> {
        match (act, answer) {
            (Act::LookAtServers, Answer::Servers(servers)) => self.servers = servers,
            (Act::LookAtPrimary, Answer::Primary(primary)) => self.primary = Some(primary),
            (
                Act::ReadAcker { acker: name } | Act::StopAcker { acker: name },
                Answer::Acker { acker, before },
            ) => drop(self.ackers.insert(name.clone(), (acker, before))),
            // The judge of what is not told is the rule that needs it.
            (Act::ReadAcker { .. }, _) => {}
            (Act::HoldWrites { .. }, Answer::Position(position)) => {
                self.audit.holds = Some(position.to_string());
                self.position = Some(position);
            }
            (Act::MakeWritable { .. }, Answer::Done | Answer::Noted(_)) => {
                self.promoted = true;
                self.pause_is_over(at_ms);
            }
            (_, Answer::Done | Answer::Noted(_)) => {}
            (_, other) => return self.failed(at_ms, act, other.words().1),
        }
        if self.phase == Phase::Undo {
            self.undo.retain(|undo| undo != act);
            if matches!(act, Act::ReleaseWrites { .. }) {
                self.pause_is_over(at_ms);
            }
        }
        self.go_on(at_ms)
    }

    fn pause_is_over(&mut self, at_ms: u64) {
        self.audit.pause_ms = self.paused_at_ms.map(|began| at_ms.saturating_sub(began));
    }

    /// Whether nobody has been able to write for longer than is allowed.
    fn is_late(&self, at_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| at_ms >= deadline)
    }

    /// After an act that went well, or whose failure does not matter by itself.
    fn go_on(&mut self, at_ms: u64) -> Vec<Numbered> {
        if !self.queue.is_empty() {
            let next = self.queue.remove(0);
            return self.after_the_lease(at_ms, Then::Act(next));
        }
        match self.refusal.clone() {
            _ if !self.waiting.is_empty() => Vec::new(),
            Some(refusal) if self.phase != Phase::Undo => self.refuse(at_ms, refusal),
            _ => self.conclude(at_ms),
        }
    }

    /// After an act that failed, or nobody knows whether.
    fn failed(&mut self, at_ms: u64, act: &Act, reason: String) -> Vec<Numbered> {
        if self.phase == Phase::Undo {
            self.undo_failed = true;
            return self.go_on(at_ms);
        }
        if self.promoted {
            self.left.push(act.clone());
            return self.go_on(at_ms);
        }
        let is_candidates = matches!(act, Act::AwaitServer { .. } | Act::Prepare { .. });
        if self.phase == Phase::Prepare && is_candidates && self.order.wanted.is_none() {
            // Another server may do; nothing has changed for this one.
            if let Some(chosen) = self.chosen.take() {
                self.rejected.insert(chosen.server, format!("{act}: {reason}"));
            }
            self.waiting.clear();
            return self.choose(at_ms);
        }
        // What runs beside it is waited for: nothing is undone while it is being done.
        let step = act.to_string();
        let refusal = if self.is_late(at_ms) { self.exceeded(step) } else { Refusal::Step { step, reason } };
        self.refusal.get_or_insert(refusal);
        self.queue.clear();
        self.go_on(at_ms)
    }

    fn exceeded(&self, step: String) -> Refusal {
        let (primary, bound_ms) = (self.order.primary.clone(), self.order.write_pause_ms_max);
        Refusal::PauseExceeded { primary, bound_ms, step }
    }

    /// All acts of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<Numbered> {
        let next = match self.phase {
            Phase::Confirm => return self.choose(at_ms),
            Phase::Prepare if self.order.dry_run => None,
            Phase::Prepare => Some(Phase::Pause),
            Phase::Pause => Some(Phase::Drain),
            Phase::Drain => Some(Phase::Fence),
            Phase::Fence => match self.not_exactly_there() {
                Some(refusal) => return self.refuse(at_ms, refusal),
                None => Some(Phase::Source),
            },
            Phase::Source => Some(Phase::Follow),
            Phase::Follow => Some(Phase::Writable),
            Phase::Writable => Some(Phase::Routes),
            Phase::Routes => Some(Phase::Others),
            Phase::Undo if !self.undo.is_empty() && !(self.undo_failed && self.tried_again) => {
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

    /// What stands against a switchover before anything is changed.
    fn not_ready(&self) -> Option<Refusal> {
        let order = &self.order;
        let mut reasons = Vec::new();
        match &self.primary {
            None => reasons.push("it was not seen".to_owned()),
            Some(primary) if !primary.writable => reasons.push("it takes no writes".to_owned()),
            Some(primary) => {
                let acks = primary.waiting.as_ref().map(crate::lossless::Waiting::acks);
                if !matches!(acks, Some(Acks::Required(_))) {
                    let problems = match acks {
                        Some(Acks::NotLossless(problems)) => problems,
                        _ => "semi-sync is not loaded".to_owned(),
                    };
                    return Some(Refusal::NotLossless { primary: order.primary.clone(), problems });
                }
            }
        }
        for name in &order.ackers {
            match self.ackers.get(name) {
                None => reasons.push(format!("the acker {name} does not answer")),
                Some((acker, _)) if !acker.durable => {
                    reasons.push(format!("{name} acknowledges before it is durable"));
                }
                Some((acker, _)) if acker.holds.is_none() => {
                    reasons.push(format!("the log of {name} cannot be read"));
                }
                Some(_) => {}
            }
        }
        let ackers = u32::try_from(order.ackers.len()).unwrap_or(u32::MAX);
        if ackers < order.acks_required {
            let needed = order.acks_required;
            reasons.push(format!("{ackers} ackers cannot give the {needed} ACKs of a commit"));
        }
        let (primary, reasons) = (order.primary.clone(), (!reasons.is_empty()).then(|| reasons.join(", "))?);
        Some(Refusal::NotReady { primary, reasons })
    }

    /// Who becomes primary, if all is as it has to be.
    fn choose(&mut self, at_ms: u64) -> Vec<Numbered> {
        if let Some(refusal) = self.not_ready() {
            return self.refuse(at_ms, refusal);
        }
        for server in &mut self.servers {
            if let Some(reason) = self.rejected.get(&server.name) {
                server.reached = Err(reason.clone());
            } else if server.feed != Feed::Replication {
                // The ackers cannot go on where its own GTIDs begin.
                server.reached = Err("a channel feeds it, and its binlog has GTIDs of its own".to_owned());
            }
        }
        self.servers.retain(|server| server.name != self.order.primary);
        let choice = self.choice();
        let best = choice.best(self.order.wanted.as_deref()).cloned();
        self.audit.choice = Some(choice);
        match best {
            Ok(best) => {
                self.chosen = Some(best);
                self.enter(at_ms, Phase::Prepare)
            }
            Err(refusal) => self.refuse(at_ms, refusal),
        }
    }

    fn choice(&self) -> Choice {
        let order = &self.order;
        // Every one of them holds all that is acknowledged, or will before the end; the first gives what is lacked.
        let empty = GtidSet::empty(order.origin.flavour());
        let first = order.ackers.first().and_then(|name| self.ackers.get_key_value(name));
        let log = match first {
            Some((name, (acker, before))) => LogSupply {
                name: name.clone(),
                holds: acker.holds.clone().unwrap_or(empty),
                before: before.clone(),
            },
            None => LogSupply { name: "no log".to_owned(), holds: empty.clone(), before: empty },
        };
        choose(&Question {
            region: order.region.as_deref(),
            version: order.version,
            origin: order.origin,
            log: &log,
            servers: &self.servers,
            across_regions: order.across_regions,
            catch_up_ms_max: order.catch_up_ms_max,
        })
    }

    /// What the stopped ackers hold is what the primary told, or somebody wrote to it all the same.
    fn not_exactly_there(&self) -> Option<Refusal> {
        let position = self.position.as_ref()?;
        for (name, (acker, _)) in &self.ackers {
            let refuse = |reason: String| {
                Some(Refusal::Step { step: Act::StopAcker { acker: name.clone() }.to_string(), reason })
            };
            let Some(holds) = &acker.holds else { return refuse("its log cannot be read".to_owned()) };
            if acker.stop != Stop::Lasting {
                return refuse("it did not stop for good".to_owned());
            }
            let more = |one: &GtidSet, than: &GtidSet| match one.subtract(than) {
                Ok(more) => more.to_string(),
                Err(_) => one.to_string(),
            };
            if !holds.is_subset_of(position) {
                return refuse(format!(
                    "it holds {}, written after {} took no more writes; which account does read_only not bind?",
                    more(holds, position),
                    self.order.primary
                ));
            }
            if !position.is_subset_of(holds) {
                return refuse(format!("it lacks {}", more(position, holds)));
            }
        }
        None
    }

    /// Stops, and undoes what was done.
    fn refuse(&mut self, at_ms: u64, refusal: Refusal) -> Vec<Numbered> {
        self.note(at_ms, Note::Refused { refusal: refusal.clone() });
        self.queue.clear();
        self.waiting.clear();
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
        self.audit.outcome = Some(match refusal {
            None if self.order.dry_run => self.planned(server),
            None => End::Promoted { server, left: std::mem::take(&mut self.left) },
            Some(_) if self.promoted => End::Promoted { server, left: self.still_to_do() },
            Some(refusal) if !self.changed => End::Unchanged { refusal },
            Some(refusal) if self.undo.is_empty() => End::Undone { refusal, stays },
            Some(refusal) => End::Left { refusal, to_undo: std::mem::take(&mut self.undo), stays },
        });
        self.waiting.clear();
        self.queue.clear();
        self.phase = Phase::Over;
    }

    /// Behind the promotion: what was not answered, and what comes in phases that were not begun.
    fn still_to_do(&mut self) -> Vec<Act> {
        let mut acts = std::mem::take(&mut self.left);
        acts.extend(self.waiting.values().filter(|act| act.changes()).cloned());
        acts.append(&mut self.queue);
        let begun = [Phase::Routes, Phase::Others].into_iter().position(|phase| phase == self.phase);
        for phase in [Phase::Routes, Phase::Others].into_iter().skip(begun.map_or(0, |at| at + 1)) {
            acts.extend(self.acts(0, phase));
        }
        acts
    }

    fn planned(&self, server: String) -> End {
        let (order, expected) = (&self.order, &self.order.expected);
        let mut acts = vec![Act::Prepare { server, acks: order.acks_required }];
        let mut expected_ms = expected.of(&acts[0]);
        for phase in [
            Phase::Pause,
            Phase::Fence,
            Phase::Source,
            Phase::Follow,
            Phase::Writable,
            Phase::Routes,
            Phase::Others,
        ] {
            let of_phase = self.acts(0, phase);
            let each = of_phase.iter().map(|act| expected.of(act));
            let took_ms = if phase == Phase::Routes { each.sum() } else { each.max().unwrap_or_default() };
            expected_ms = expected_ms.saturating_add(took_ms);
            acts.extend(of_phase);
        }
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        End::Planned { server, acts, expected_ms }
    }
}
