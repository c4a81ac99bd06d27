//! The state machine: which actions follow which outcomes.

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

/// What follows a successful lease check.
#[derive(Debug, Clone)]
enum SwitchoverContinuation {
    Phase(RunPhase),
    Action(RunAction),
}

/// A switchover.
#[derive(Debug, Clone)]
pub struct Switchover {
    pub(super) order: SwitchoverRequest,
    /// What follows each pending lease check, by its number.
    then: BTreeMap<u32, SwitchoverContinuation>,
    /// Actions that undo everything so far, the last one first.
    pub(super) undo: Vec<RunAction>,
    /// Failed undo actions are being repeated.
    tried_again: bool,
    /// An undo action failed in this round.
    undo_failed: bool,
    /// Actions that cannot be undone, and may have taken effect.
    irreversible: Vec<RunAction>,
    changed: bool,
    pub(super) primary: Option<PrimaryStatus>,
    pub(super) servers: Vec<CandidateServer>,
    pub(super) ackers: BTreeMap<String, (AckerEvidence, GtidSet)>,
    /// Servers that failed as candidates in this run, with the reason.
    pub(super) rejected: BTreeMap<String, String>,
    pub(super) chosen: Option<CandidateAssessment>,
    /// How far the candidate is behind before the pause.
    pub(super) catch_up: CatchUpProgress,
    /// When writes on the primary were paused.
    paused_at_ms: Option<u64>,
    /// All transactions executed by the primary, read after its writes stopped.
    pub(super) position: Option<GtidSet>,
    /// The new primary takes writes, so the run only continues.
    promoted: bool,
    pub(super) left: Vec<RunAction>,
    refusal: Option<SafetyRefusal>,
    pub(super) run: RunState,
}

impl Switchover {
    /// A switchover that has not started.
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

    /// Returns the first actions. `at_ms` here and below counts from the start of the run.
    pub fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        self.enter(at_ms, RunPhase::Confirm)
    }

    /// Takes the outcome of an action, and returns the next actions. An outcome that is not waited for is
    /// only recorded.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let Some(act) = self.run.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == RunAction::CheckLease {
            return self.lease_answered(at_ms, number, answer);
        }
        self.take(at_ms, &act, answer)
    }

    /// Ends the run because the lease is lost.
    pub fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        if let Some(refusal) = self.run.record_lease_loss(at_ms, reason) {
            self.over(Some(refusal));
        }
    }

    /// The present phase.
    pub fn phase(&self) -> RunPhase {
        self.run.phase
    }

    /// The lease term, passed with every action.
    pub fn token(&self) -> Option<LeaseToken> {
        self.run.token
    }

    /// The audit record so far. Store it after each step, before the returned actions are executed.
    pub fn audit(&self) -> &Audit {
        &self.run.audit
    }

    /// When all actions in flight must be answered; the driver answers those that are not with
    /// [`ActionOutcome::Unknown`]. `None` while clients can write.
    pub fn deadline_ms(&self) -> Option<u64> {
        let paused_at_ms =
            self.paused_at_ms.filter(|_| !self.promoted && self.run.phase != RunPhase::Undo)?;
        Some(paused_at_ms.saturating_add(self.order.write_pause_ms_max))
    }

    /// Whether actions are executed even if their record cannot be stored.
    pub fn must_continue(&self) -> bool {
        self.promoted || self.paused_at_ms.is_some()
    }

    /// Whether clients wait for each action.
    pub fn skips_audit_store(&self) -> bool {
        let is_told = self.run.audit.pause_ms.is_some();
        !is_told && self.paused_at_ms.is_some() && self.run.phase != RunPhase::Pause
    }

    /// Enters a phase, beginning with a lease check.
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

    /// Continues after a successful lease check, unless the pause is over.
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
            // Nothing is undone while it is still being done.
            self.refusal = Some(refusal);
            return Vec::new();
        }
        match then {
            // A parallel action failed.
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

    /// Orders the actions of a phase, after the lease check.
    fn start(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        if phase == RunPhase::Pause {
            self.paused_at_ms = Some(at_ms);
        }
        let mut acts = self.acts(at_ms, phase);
        // All other phases run in parallel.
        let in_order = matches!(phase, RunPhase::Confirm | RunPhase::CatchUp | RunPhase::RouteClients);
        if in_order && acts.len() > 1 {
            self.run.queue = acts.split_off(1);
        }
        let ordered: Vec<NumberedAction> =
            acts.into_iter().map(|act| self.issue_action(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn issue_action(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        // Recorded before the action is executed, because its effect is unknown until it is answered.
        if self.run.phase != RunPhase::Undo && act.changes_state() {
            self.changed = true;
            let undo = match &act {
                // One undo action for all three.
                RunAction::DrainRelayLog { server } => {
                    Some(RunAction::DisableSemiSyncSource { server: server.clone() })
                }
                RunAction::EnableSemiSyncSource { .. } | RunAction::PersistSemiSyncSource { .. } => None,
                RunAction::PauseWrites { server, .. } => {
                    Some(RunAction::ResumeWrites { server: server.clone(), acks: self.order.acks_required })
                }
                // It also starts the acker.
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

    /// Applies the outcome of an action.
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
            // The rule that needs the answer decides.
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

    /// Whether the write pause has exceeded its limit.
    fn is_late(&self, at_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| at_ms >= deadline)
    }

    /// After a successful action, or one whose failure is tolerated.
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

    /// After an action that failed or whose outcome is unknown.
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
            // Try another server; nothing has changed for this one.
            if let Some(chosen) = self.chosen.take() {
                self.rejected.insert(chosen.server, format!("{act}: {reason}"));
            }
            self.run.waiting.clear();
            self.run.queue.clear();
            return self.choose_candidate(at_ms);
        }
        // Parallel actions are waited for: nothing is undone while it is still being done.
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

    /// All actions of the phase are answered.
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

    /// A candidate that never catches up would make the pause as long as its lag.
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

    /// Refuses to continue, and undoes the actions so far.
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
        // If an undo was interrupted, the first reason counts.
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
