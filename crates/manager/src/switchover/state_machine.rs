//! The machine: which acts, when, and what their answers lead to.

use std::collections::BTreeMap;

use tailwater_wire::gtid::GtidSet;

use super::catch_up::{CatchUpProgress, CatchUpVerdict};
use super::request::{PrimaryStatus, SwitchoverRequest};
use crate::candidates::{CandidateAssessment, CandidateServer};
use crate::failover::{
    ActionOutcome, Audit, AuditEvent, NumberedAction, RunAction, RunKind, RunOutcome, RunPhase, RunState,
};
use crate::lease::LeaseToken;
use crate::lossless::AckerEvidence;
use crate::safety_refusal::SafetyRefusal;

/// What waits for the lease.
#[derive(Debug, Clone)]
enum SwitchoverContinuation {
    Phase(RunPhase),
    Action(RunAction),
}

/// One switchover.
#[derive(Debug, Clone)]
pub struct Switchover {
    pub(super) order: SwitchoverRequest,
    /// What comes when the lease was found to be held, by the number of the question.
    then: BTreeMap<u32, SwitchoverContinuation>,
    /// What would undo all that was done, the last first.
    pub(super) undo: Vec<RunAction>,
    /// What could not be undone is tried once more.
    tried_again: bool,
    /// Something could not be undone in this round.
    undo_failed: bool,
    /// What was done, perhaps, and cannot be undone.
    irreversible: Vec<RunAction>,
    changed: bool,
    pub(super) primary: Option<PrimaryStatus>,
    pub(super) servers: Vec<CandidateServer>,
    pub(super) ackers: BTreeMap<String, (AckerEvidence, GtidSet)>,
    /// Servers that failed as candidates in this run, with why.
    pub(super) rejected: BTreeMap<String, String>,
    pub(super) chosen: Option<CandidateAssessment>,
    /// How far the candidate is behind the primary, before its writes are held.
    pub(super) catch_up: CatchUpProgress,
    /// When the primary was told to take no more writes.
    paused_at_ms: Option<u64>,
    /// All that the primary executed, told after it had stopped.
    pub(super) position: Option<GtidSet>,
    /// The new primary takes writes: there is only forward.
    promoted: bool,
    pub(super) left: Vec<RunAction>,
    refusal: Option<SafetyRefusal>,
    pub(super) run: RunState,
}

impl Switchover {
    /// One that has not begun.
    pub fn new(order: SwitchoverRequest) -> Self {
        let audit =
            Audit { dry_run: order.dry_run, ..Audit::new(&order.id, RunKind::Switchover, &order.primary) };
        Self {
            order,
            then: BTreeMap::new(),
            undo: Vec::new(),
            tried_again: false,
            undo_failed: false,
            irreversible: Vec::new(),
            changed: false,
            primary: None,
            servers: Vec::new(),
            ackers: BTreeMap::new(),
            rejected: BTreeMap::new(),
            chosen: None,
            catch_up: CatchUpProgress::default(),
            paused_at_ms: None,
            position: None,
            promoted: false,
            left: Vec::new(),
            refusal: None,
            run: RunState::new(audit),
        }
    }

    /// The first acts. `at_ms` here and below is the time since the beginning.
    pub fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        self.enter(at_ms, RunPhase::Confirm)
    }

    /// Takes the answer to an act. Answers that nobody waits for are noted and change nothing.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let Some(act) = self.run.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == RunAction::CheckLease {
            return self.lease_answered(at_ms, number, answer);
        }
        self.take(at_ms, &act, answer)
    }

    /// The lease was lost, or ended: nothing more is done.
    pub fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        if let Some(refusal) = self.run.record_lease_loss(at_ms, reason) {
            self.over(Some(refusal));
        }
    }

    /// Where it stands.
    pub fn phase(&self) -> RunPhase {
        self.run.phase
    }

    /// The term of the lease; goes along with every act.
    pub fn token(&self) -> Option<LeaseToken> {
        self.run.token
    }

    /// The record so far; to be stored after each step, before the acts that it returned are done.
    pub fn audit(&self) -> &Audit {
        &self.run.audit
    }

    /// When the acts that are waited for have to be answered: whoever drives answers them then, with [`ActionOutcome::Unknown`].
    /// `None` while clients can write.
    pub fn deadline_ms(&self) -> Option<u64> {
        let paused_at_ms =
            self.paused_at_ms.filter(|_| !self.promoted && self.run.phase != RunPhase::Undo)?;
        Some(paused_at_ms.saturating_add(self.order.write_pause_ms_max))
    }

    /// Whether acts are no longer given up when their record cannot be stored.
    pub fn must_continue(&self) -> bool {
        self.promoted || self.paused_at_ms.is_some()
    }

    /// Whether clients wait for each act.
    pub fn skips_audit_store(&self) -> bool {
        let is_told = self.run.audit.pause_ms.is_some();
        !is_told && self.paused_at_ms.is_some() && self.run.phase != RunPhase::Pause
    }

    /// Begins a phase: with the question for the lease.
    pub(super) fn enter(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        self.after_the_lease(at_ms, SwitchoverContinuation::Phase(phase))
    }

    fn after_the_lease(&mut self, at_ms: u64, then: SwitchoverContinuation) -> Vec<NumberedAction> {
        let question = self.issue_action(at_ms, RunAction::CheckLease);
        self.then.insert(question.0, then);
        vec![question]
    }

    fn lease_answered(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let then = self.then.remove(&number);
        if let Err(reason) = self.run.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        then.map_or_else(Vec::new, |then| self.go(at_ms, then))
    }

    /// What waited for the lease, which is held; unless it is too late for it.
    fn go(&mut self, at_ms: u64, then: SwitchoverContinuation) -> Vec<NumberedAction> {
        if self.is_late(at_ms) && self.refusal.is_none() {
            let step = match &then {
                SwitchoverContinuation::Action(act) => act.to_string(),
                SwitchoverContinuation::Phase(RunPhase::MakeWritable) => {
                    "let the candidate take writes".to_owned()
                }
                SwitchoverContinuation::Phase(_) => "have the candidate and the ackers ready".to_owned(),
            };
            let refusal = self.exceeded(step);
            if self.run.waiting.is_empty() {
                return self.refuse(at_ms, refusal);
            }
            // Nothing is undone while it is being done.
            self.refusal = Some(refusal);
            return Vec::new();
        }
        match then {
            // Beside it something failed.
            SwitchoverContinuation::Action(_)
                if self.refusal.is_some() && self.run.phase != RunPhase::Undo =>
            {
                self.go_on(at_ms)
            }
            SwitchoverContinuation::Action(act) => vec![self.issue_action(at_ms, act)],
            SwitchoverContinuation::Phase(phase) => {
                self.run.phase = phase;
                self.start(at_ms, phase)
            }
        }
    }

    /// The acts of a phase, the lease being held.
    fn start(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        if phase == RunPhase::Pause {
            self.paused_at_ms = Some(at_ms);
        }
        let mut acts = self.acts(at_ms, phase);
        // What may run side by side does; the rest in order, each only after the one before.
        let in_order = matches!(phase, RunPhase::Confirm | RunPhase::CatchUp | RunPhase::RouteClients);
        if in_order && acts.len() > 1 {
            self.run.queue = acts.split_off(1);
        }
        let ordered: Vec<NumberedAction> =
            acts.into_iter().map(|act| self.issue_action(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn issue_action(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        // Noted before it is done: whether it was is not known until it is answered.
        if self.run.phase != RunPhase::Undo && act.changes_state() {
            self.changed = true;
            let undo = match &act {
                // Of all three at once.
                RunAction::DrainRelayLog { server } => {
                    Some(RunAction::DisableSemiSyncSource { server: server.clone() })
                }
                RunAction::EnableSemiSyncSource { .. } | RunAction::PersistSemiSyncSource { .. } => None,
                RunAction::PauseWrites { server, .. } => {
                    Some(RunAction::ResumeWrites { server: server.clone(), acks: self.order.acks_required })
                }
                // That starts it as well.
                RunAction::RepointAcker { acker, .. } => {
                    let start = RunAction::StartAcker { acker: acker.clone() };
                    self.undo.retain(|undo| *undo != start);
                    let (acker, server) = (acker.clone(), self.order.primary.clone());
                    Some(RunAction::RepointAcker { acker, server })
                }
                other => other.undo_action(),
            };
            match undo {
                Some(undo) => self.undo.insert(0, undo),
                None if matches!(
                    act,
                    RunAction::EnableSemiSyncSource { .. } | RunAction::PersistSemiSyncSource { .. }
                ) => {}
                None => self.irreversible.push(act.clone()),
            }
        }
        self.run.order(at_ms, act)
    }

    /// What an answer means for its act.
    fn take(&mut self, at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Vec<NumberedAction> {
        match (act, answer) {
            (RunAction::ProbeCandidates, ActionOutcome::Candidates(servers)) => self.servers = servers,
            (
                RunAction::ProbePrimary | RunAction::ProbeServer { .. },
                ActionOutcome::ServerStatus(primary),
            ) => {
                let waiting = self.primary.take().and_then(|before| before.waiting);
                self.primary = Some(PrimaryStatus { waiting: primary.waiting.or(waiting), ..primary });
            }
            (
                RunAction::ReadAcker { acker: name } | RunAction::StopAcker { acker: name },
                ActionOutcome::AckerState { acker, before },
            ) => drop(self.ackers.insert(name.clone(), (acker, before))),
            // The judge of what is not told is the rule that needs it.
            (RunAction::ReadAcker { .. }, _) => {}
            (RunAction::PauseWrites { .. }, ActionOutcome::WritesPaused(position)) => {
                self.run.audit.holds = Some(position.to_string());
                self.position = Some(position);
            }
            (RunAction::MakeWritable { .. }, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => {
                self.promoted = true;
                self.pause_is_over(at_ms);
            }
            (_, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => {}
            (_, other) => return self.failed(at_ms, act, other.summary().1),
        }
        if self.run.phase == RunPhase::Undo {
            self.undo.retain(|undo| undo != act);
            if matches!(act, RunAction::ResumeWrites { .. }) {
                self.pause_is_over(at_ms);
            }
        }
        if let Some(next) = self.next_of(at_ms, act).filter(|_| self.refusal.is_none()) {
            return self.after_the_lease(at_ms, SwitchoverContinuation::Action(next));
        }
        self.go_on(at_ms)
    }

    fn pause_is_over(&mut self, at_ms: u64) {
        self.run.audit.pause_ms = self.paused_at_ms.map(|began| at_ms.saturating_sub(began));
    }

    /// Whether nobody has been able to write for longer than is allowed.
    fn is_late(&self, at_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| at_ms >= deadline)
    }

    /// After an act that went well, or whose failure does not matter by itself.
    fn go_on(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        if let Some(next) = self.run.next() {
            return self.after_the_lease(at_ms, SwitchoverContinuation::Action(next));
        }
        match self.refusal.clone() {
            _ if !self.run.waiting.is_empty() => Vec::new(),
            Some(refusal) if self.run.phase != RunPhase::Undo => self.refuse(at_ms, refusal),
            _ => self.conclude(at_ms),
        }
    }

    /// After an act that failed, or nobody knows whether.
    fn failed(&mut self, at_ms: u64, act: &RunAction, reason: String) -> Vec<NumberedAction> {
        if self.run.phase == RunPhase::Undo {
            self.undo_failed = true;
            return self.go_on(at_ms);
        }
        if self.promoted {
            self.left.push(act.clone());
            return self.go_on(at_ms);
        }
        let is_candidates =
            matches!(act, RunAction::WaitForServer { .. } | RunAction::PrepareSemiSyncSource { .. });
        let is_before = matches!(self.run.phase, RunPhase::Prepare | RunPhase::CatchUp);
        if is_before && is_candidates && self.order.wanted.is_none() {
            // Another server may do; nothing has changed for this one.
            if let Some(chosen) = self.chosen.take() {
                self.rejected.insert(chosen.server, format!("{act}: {reason}"));
            }
            self.run.waiting.clear();
            self.run.queue.clear();
            return self.choose_candidate(at_ms);
        }
        // What runs beside it is waited for: nothing is undone while it is being done.
        let step = act.to_string();
        let refusal = if self.is_late(at_ms) {
            self.exceeded(step)
        } else {
            SafetyRefusal::StepFailed { step, reason }
        };
        self.refusal.get_or_insert(refusal);
        self.run.queue.clear();
        self.go_on(at_ms)
    }

    fn exceeded(&self, step: String) -> SafetyRefusal {
        let (primary, bound_ms) = (self.order.primary.clone(), self.order.write_pause_ms_max);
        SafetyRefusal::PauseExceeded { primary, bound_ms, step }
    }

    /// All acts of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        let next = match self.run.phase {
            RunPhase::Confirm => return self.choose_candidate(at_ms),
            RunPhase::Prepare if self.order.dry_run => None,
            RunPhase::Prepare => Some(RunPhase::CatchUp),
            RunPhase::CatchUp => match self.catch_up.verdict(self.order.write_pause_ms_max) {
                CatchUpVerdict::Near => Some(RunPhase::Pause),
                CatchUpVerdict::NextRound => Some(RunPhase::CatchUp),
                CatchUpVerdict::TooFarBehind { behind_ms } => {
                    return self.reject_lagging_candidate(at_ms, behind_ms);
                }
            },
            RunPhase::Pause => Some(RunPhase::Fence),
            RunPhase::Fence => match self.not_exactly_there() {
                Some(refusal) => return self.refuse(at_ms, refusal),
                None => Some(RunPhase::RepointAckers),
            },
            RunPhase::RepointAckers => Some(RunPhase::MakeWritable),
            RunPhase::MakeWritable => Some(RunPhase::RouteClients),
            RunPhase::RouteClients => Some(RunPhase::RepointReplicas),
            RunPhase::Undo if self.undo.is_empty() || (self.undo_failed && self.tried_again) => None,
            RunPhase::Undo => {
                self.tried_again |= std::mem::take(&mut self.undo_failed);
                Some(RunPhase::Undo)
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
    fn reject_lagging_candidate(&mut self, at_ms: u64, behind_ms: u64) -> Vec<NumberedAction> {
        let server = self.chosen.take().map(|chosen| chosen.server).unwrap_or_default();
        let reason = format!(
            "{server} stays {behind_ms} ms behind what {} executes; have it execute more side by side, or wait for fewer \
             writes",
            self.order.primary
        );
        if self.order.wanted.is_none() {
            self.rejected.insert(server, reason);
            return self.choose_candidate(at_ms);
        }
        self.refuse(at_ms, SafetyRefusal::NotReady { primary: self.order.primary.clone(), reasons: reason })
    }

    /// Stops, and undoes what was done.
    pub(super) fn refuse(&mut self, at_ms: u64, refusal: SafetyRefusal) -> Vec<NumberedAction> {
        self.run.note(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
        self.run.queue.clear();
        self.run.waiting.clear();
        if self.undo.is_empty() {
            self.over(Some(refusal));
            return Vec::new();
        }
        self.refusal = Some(refusal);
        self.enter(at_ms, RunPhase::Undo)
    }

    fn over(&mut self, refusal: Option<SafetyRefusal>) {
        // Of an undoing that was cut short the first reason counts.
        let refusal = self.refusal.take().or(refusal);
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let irreversible = std::mem::take(&mut self.irreversible);
        let outcome = match refusal {
            None if self.order.dry_run => self.planned(server),
            None => RunOutcome::Promoted { server, left: std::mem::take(&mut self.left) },
            Some(_) if self.promoted => RunOutcome::Promoted { server, left: self.remaining_actions() },
            Some(refusal) if !self.changed => RunOutcome::Unchanged { refusal },
            Some(refusal) if self.undo.is_empty() => RunOutcome::Undone { refusal, irreversible },
            Some(refusal) => {
                RunOutcome::Incomplete { refusal, to_undo: std::mem::take(&mut self.undo), irreversible }
            }
        };
        self.run.end(outcome);
    }
}
