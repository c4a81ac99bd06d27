//! The machine: looks, decides, and undoes or finishes.

use std::collections::{BTreeMap, BTreeSet};

use super::traces::Traces;
use crate::failover::{Act, Answer, Audit, Course, End, Kind, Note, Numbered, Phase};
use crate::lease::Token;
use crate::refusal::Refusal;
use crate::switchover::Primary;

/// A recovery as it is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// Names this run.
    pub id: String,
    /// What is left.
    pub traces: Traces,
    /// Hooks that lead clients, in order; those that were done are not done again.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
}

/// One recovery.
#[derive(Debug, Clone)]
pub struct Recovery {
    order: Order,
    /// What comes when the lease was found to be held.
    then: Then,
    /// What the servers say; why of one that says nothing.
    seen: BTreeMap<String, Result<Primary, String>>,
    /// Ackers that somebody has led since, as they say, and those that stand still by that: nothing is to be done.
    led: Vec<String>,
    stopped: Vec<String>,
    /// Ackers that nobody has led since, as they say. Of the others nobody knows; they are not led anywhere.
    unled: BTreeSet<String>,
    /// What is still to be undone, the most pressing first.
    undo: Vec<Act>,
    /// What is under way is all that is still to be undone.
    undoes_the_rest: bool,
    /// The candidate takes writes.
    promoted: bool,
    left: Vec<Act>,
    refusal: Option<Refusal>,
    course: Course,
}

#[derive(Debug, Clone)]
enum Then {
    Phase(Phase),
    Act(Act),
}

impl Recovery {
    /// One that has not begun.
    pub fn new(order: Order) -> Self {
        let traces = &order.traces;
        let audit = Audit {
            resumes: Some(traces.run.clone()),
            may_be_missing: traces.may_be_missing.clone(),
            ..Audit::new(&order.id, traces.kind, &traces.primary)
        };
        Self {
            order,
            then: Then::Phase(Phase::Confirm),
            seen: BTreeMap::new(),
            led: Vec::new(),
            stopped: Vec::new(),
            unled: BTreeSet::new(),
            undo: Vec::new(),
            undoes_the_rest: false,
            promoted: false,
            left: Vec::new(),
            refusal: None,
            course: Course::new(audit),
        }
    }

    /// The first acts. `at_ms` here and below is the time since the beginning.
    pub fn begin(&mut self, at_ms: u64) -> Vec<Numbered> {
        self.after_the_lease(at_ms, Then::Phase(Phase::Confirm))
    }

    /// Takes the answer to an act. Answers that nobody waits for are noted and change nothing.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: Answer) -> Vec<Numbered> {
        let Some(act) = self.course.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == Act::CheckLease {
            return self.lease_answered(at_ms, answer);
        }
        self.take(&act, answer);
        if let Some(next) = self.course.next() {
            return self.after_the_lease(at_ms, Then::Act(next));
        }
        if self.course.waiting.is_empty() { self.conclude(at_ms) } else { Vec::new() }
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

    /// The record so far.
    pub fn audit(&self) -> &Audit {
        &self.course.audit
    }

    fn after_the_lease(&mut self, at_ms: u64, then: Then) -> Vec<Numbered> {
        self.then = then;
        vec![self.course.order(at_ms, Act::CheckLease)]
    }

    fn lease_answered(&mut self, at_ms: u64, answer: Answer) -> Vec<Numbered> {
        if let Err(reason) = self.course.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        match self.then.clone() {
            Then::Act(act) => vec![self.course.order(at_ms, act)],
            Then::Phase(phase) => {
                self.course.phase = phase;
                self.start(at_ms)
            }
        }
    }

    /// The acts of the phase, the lease being held.
    fn start(&mut self, at_ms: u64) -> Vec<Numbered> {
        self.undoes_the_rest = self.course.phase == Phase::Undo && !self.may_be_writable();
        let mut acts = self.acts(self.course.phase);
        if self.course.phase == Phase::Routes && acts.len() > 1 {
            self.course.queue = acts.split_off(1);
        }
        let ordered: Vec<Numbered> = acts.into_iter().map(|act| self.course.order(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn acts(&self, phase: Phase) -> Vec<Act> {
        let traces = &self.order.traces;
        let server = traces.candidate.clone().unwrap_or_default();
        let ackers = traces.ackers.iter().cloned();
        match phase {
            Phase::Confirm => {
                // Only whose word counts: a dead primary is not waited for.
                let candidate = traces.candidate.iter().filter(|_| traces.may_be_writable);
                let primary = (traces.kind == Kind::Switchover).then_some(&traces.primary);
                let looks = candidate.chain(primary).map(|server| Act::Glance { server: server.clone() });
                let checks = ackers.map(|acker| Act::CheckAcker { acker, term: traces.term });
                looks.chain(checks).collect()
            }
            // A candidate that may be writable comes first, and alone.
            Phase::Undo => {
                // What is not ordered stays to be undone, by the next try.
                let undo = self.undo.iter().filter(|act| match act {
                    Act::Follow { acker, .. } | Act::StartAcker { acker } => self.unled.contains(acker),
                    _ => true,
                });
                undo.take(if self.may_be_writable() { 1 } else { usize::MAX }).cloned().collect()
            }
            Phase::Follow => ackers
                .filter(|acker| self.unled.contains(acker))
                .map(|acker| Act::Follow { acker, server: server.clone() })
                .collect(),
            Phase::Routes => {
                let hooks = self.order.route_hooks.iter();
                let hooks = hooks.filter(|hook| !traces.route_hooks_done.contains(hook));
                hooks.map(|hook| Act::RouteHook { hook: hook.clone(), server: server.clone() }).collect()
            }
            Phase::Others => {
                let replicas = self.order.direct_replicas.iter();
                let replicas = replicas.filter(|replica| **replica != server && **replica != traces.primary);
                let mut acts: Vec<Act> =
                    replicas.map(|replica| Act::Repoint { replica: replica.clone() }).collect();
                if let (Kind::Switchover, Some(Ok(seen))) = (traces.kind, self.seen.get(&server)) {
                    // The candidate had executed all that the old primary had when it became writable.
                    let (server, has) = (traces.primary.clone(), seen.executed.to_string());
                    acts.push(Act::Demote { server, has });
                }
                acts
            }
            _ => Vec::new(),
        }
    }

    /// What an answer means for its act.
    fn take(&mut self, act: &Act, answer: Answer) {
        let is_done = matches!(answer, Answer::Done | Answer::Noted(_));
        match (act, answer) {
            (Act::Glance { server }, Answer::Primary(seen)) => {
                self.seen.insert(server.clone(), Ok(seen));
            }
            (Act::Glance { server }, other) => {
                self.seen.insert(server.clone(), Err(other.words().1));
            }
            (Act::CheckAcker { acker, .. }, led @ Answer::Led { stopped, .. }) => {
                let who = if stopped { &mut self.stopped } else { &mut self.led };
                who.push(format!("{acker} {}", led.words().1));
            }
            (Act::CheckAcker { acker, .. }, Answer::Done) => {
                self.unled.insert(acker.clone());
            }
            // Another may tell.
            (Act::CheckAcker { .. }, _) => {}
            (act, _) if is_done => self.undo.retain(|undo| undo != act),
            (act, _) if self.promoted => self.left.push(act.clone()),
            _ => {}
        }
    }

    /// All acts of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<Numbered> {
        let next = match self.course.phase {
            Phase::Confirm => match self.decide() {
                Ok(phase) => Some(phase),
                Err(refusal) => {
                    self.course.note(at_ms, Note::Refused { refusal: refusal.clone() });
                    self.over(Some(refusal));
                    return Vec::new();
                }
            },
            // Behind the candidate that takes no writes for certain comes all else.
            Phase::Undo if !self.undoes_the_rest && !self.may_be_writable() => Some(Phase::Undo),
            Phase::Follow => Some(Phase::Routes),
            Phase::Routes => Some(Phase::Others),
            _ => None,
        };
        match next {
            Some(phase) => self.after_the_lease(at_ms, Then::Phase(phase)),
            None => {
                let refusal = self.refusal.take();
                self.over(refusal);
                Vec::new()
            }
        }
    }

    /// Whether the candidate is still to be made read-only.
    fn may_be_writable(&self) -> bool {
        matches!(self.undo.first(), Some(Act::MakeReadOnly { .. }))
    }

    /// Forward or back, by what the servers say; or why neither.
    fn decide(&mut self) -> Result<Phase, Refusal> {
        let run = self.order.traces.run.clone();
        if !self.stopped.is_empty() {
            let reason = format!("somebody has acted since: {}", self.stopped.join(", "));
            return Err(Refusal::Interrupted { run, reason });
        }
        if !self.led.is_empty() {
            return Err(Refusal::Superseded { run, by: self.led.join(", ") });
        }
        self.forward_or_back().map_err(|reason| Refusal::Interrupted { run, reason })
    }

    fn forward_or_back(&mut self) -> Result<Phase, String> {
        let traces = &self.order.traces;
        if self.unled.is_empty() && !traces.ackers.is_empty() {
            return Err(format!("none of {} can be asked", traces.ackers.join(", ")));
        }
        let Some(server) = traces.candidate.clone().filter(|_| traces.may_be_writable) else {
            return Ok(self.back());
        };
        let seen = |server: &String| match self.seen.get(server) {
            Some(Ok(seen)) => Ok(seen),
            Some(Err(reason)) => Err(format!("{server} cannot be asked: {reason}")),
            None => Err(format!("{server} was not asked")),
        };
        let (candidate, primary) = (seen(&server)?, seen(&traces.primary));
        let is_switchover = traces.kind == Kind::Switchover;
        if candidate.writable {
            if is_switchover && primary.as_ref().is_ok_and(|primary| primary.writable) {
                let other = &traces.primary;
                return Err(format!("both {server} and {other} take writes: make the wrong one read-only"));
            }
            self.promoted = true;
            return Ok(Phase::Follow);
        }
        // It may have been primary and have been made read-only, or started anew: then it has what nobody else has.
        if traces.was_promoted {
            return Err(format!("{server} was made primary and takes no writes: let it, or replace it"));
        }
        if is_switchover {
            let primary = primary?;
            if !candidate.executed.is_subset_of(&primary.executed) {
                let more = candidate.executed.subtract(&primary.executed);
                let more = more.map(|more| more.to_string()).unwrap_or_default();
                return Err(format!("{server} has executed {more}, which {} has not", traces.primary));
            }
        }
        Ok(self.back())
    }

    /// Everything that may have been done is to be undone.
    fn back(&mut self) -> Phase {
        let traces = &self.order.traces;
        let mut undo = Vec::new();
        if let Some(server) = &traces.candidate {
            if traces.may_be_writable {
                undo.push(Act::MakeReadOnly { server: server.clone() });
            }
            undo.push(Act::UnmakeSource { server: server.clone() });
        }
        undo.extend(traces.ackers.iter().cloned().map(|acker| match traces.kind {
            Kind::Switchover => Act::Follow { acker, server: traces.primary.clone() },
            Kind::Failover => Act::StartAcker { acker },
        }));
        if traces.may_be_held {
            undo.push(Act::ReleaseWrites { server: traces.primary.clone(), acks: traces.acks });
        }
        let reason = "its manager ended in the midst of it".to_owned();
        self.refusal = Some(Refusal::Interrupted { run: traces.run.clone(), reason });
        self.undo = undo;
        Phase::Undo
    }

    fn over(&mut self, refusal: Option<Refusal>) {
        let refusal = self.refusal.take().or(refusal);
        let server = self.order.traces.candidate.clone().unwrap_or_default();
        let stays = self.order.traces.stays.clone();
        let is_begun = self.course.phase > Phase::Confirm;
        let outcome = match refusal {
            _ if self.promoted => End::Promoted { server, left: self.still_to_do() },
            Some(refusal) if !is_begun => End::Unchanged { refusal },
            Some(refusal) if self.undo.is_empty() => End::Undone { refusal, stays },
            Some(refusal) => End::Left { refusal, to_undo: std::mem::take(&mut self.undo), stays },
            None => End::Promoted { server, left: Vec::new() },
        };
        self.course.end(outcome);
    }

    /// What failed, what was not answered, and what comes in phases that were not begun.
    fn still_to_do(&mut self) -> Vec<Act> {
        let mut acts = std::mem::take(&mut self.left);
        acts.extend(self.course.waiting.values().filter(|act| act.changes()).cloned());
        acts.append(&mut self.course.queue);
        let phases = [Phase::Follow, Phase::Routes, Phase::Others];
        let begun = phases.into_iter().position(|phase| phase == self.course.phase).map_or(0, |at| at + 1);
        for phase in phases.into_iter().skip(begun) {
            acts.extend(self.acts(phase));
        }
        acts
    }
}
