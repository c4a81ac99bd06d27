//! The state machine of a failover or switchover: it decides which actions follow each outcome.

use std::collections::BTreeMap;

use super::failover_state::RunState;
use super::phase_rules::{Applied, Decision, NextStep, PhaseRule, RunProcedure, UndoRule};
use crate::failover_driver::RunMachine;
use crate::model::{
    ActionOutcome, Audit, AuditEvent, LeaseToken, NumberedAction, RunAction, RunOutcome, RunPhase,
};
use crate::safety_refusals::SafetyRefusal;

/// A failover or switchover: its procedure and its state.
#[derive(Debug, Clone)]
pub struct PhaseMachine<P> {
    procedure: P,
    run: RunState,
    /// The next step after each pending lease check, by the number of the check.
    after_lease_check: BTreeMap<u32, NextStep>,
}

impl<P: RunProcedure> PhaseMachine<P> {
    /// Creates a failover or switchover that has not started.
    pub(crate) fn start_with(procedure: P, run: RunState) -> Self {
        Self { procedure, run, after_lease_check: BTreeMap::new() }
    }

    /// Returns the first actions. `at_ms` is the time since the start of the failover or switchover, in this
    /// method and in the other methods.
    pub fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        match P::PHASES.first() {
            Some(first) => self.enter(at_ms, first.phase),
            None => Vec::new(),
        }
    }

    /// Takes the outcome of an action, and returns the next actions. If the failover or switchover does not
    /// wait for this outcome, it is only recorded.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let Some(act) = self.run.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == RunAction::CheckLease {
            return self.lease_answered(at_ms, number, answer);
        }
        match self.procedure.apply(&mut self.run, at_ms, &act, answer) {
            Applied::Done => {
                self.run.undo.remove(&act);
                self.follow_up(at_ms, &act)
            }
            Applied::Tolerated => self.follow_up(at_ms, &act),
            Applied::Failed(reason) => self.failed(at_ms, &act, reason),
            Applied::Refused(refusal) => self.refuse(at_ms, refusal),
        }
    }

    /// Ends the failover or switchover because the lease is lost.
    pub fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        if self.run.audit.outcome.is_some() {
            return;
        }
        let refusal = SafetyRefusal::NoLease { reason: reason.to_owned() };
        self.run.record(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
        // If the lease is lost during an undo, the audit record keeps the reason for the undo.
        self.run.refusal.get_or_insert(refusal);
        self.finish();
    }

    /// Returns the present phase.
    pub fn phase(&self) -> RunPhase {
        self.run.phase
    }

    /// Returns the lease term, which is passed with every action.
    pub fn token(&self) -> Option<LeaseToken> {
        self.run.token
    }

    /// Returns the audit record so far. The driver must store it after each step, before it executes the
    /// returned actions.
    pub fn audit(&self) -> &Audit {
        &self.run.audit
    }

    /// Returns when all actions in flight must be answered. At that time, the driver answers the remaining
    /// actions with [`ActionOutcome::Unknown`]. `None` while clients can write, and while actions are undone.
    pub fn deadline_ms(&self) -> Option<u64> {
        let is_bounded = !self.run.promoted && self.run.phase != RunPhase::Undo;
        self.procedure.deadline_ms().filter(|_| is_bounded)
    }

    /// Whether actions are executed even if the audit record cannot be stored.
    pub fn must_continue(&self) -> bool {
        self.run.promoted || self.run.phase == RunPhase::Undo || self.procedure.must_continue()
    }

    /// Whether clients wait for the actions of the present phase.
    pub fn skips_audit_store(&self) -> bool {
        self.procedure.skips_audit_store(&self.run)
    }

    /// Enters a phase, which begins with a lease check.
    fn enter(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        self.check_lease(at_ms, NextStep::Phase(phase))
    }

    fn check_lease(&mut self, at_ms: u64, then: NextStep) -> Vec<NumberedAction> {
        let check = self.run.order(at_ms, RunAction::CheckLease);
        self.after_lease_check.insert(check.0, then);
        vec![check]
    }

    fn lease_answered(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let then = self.after_lease_check.remove(&number);
        if let Err(reason) = self.run.take_lease(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        then.map_or_else(Vec::new, |then| self.take_step(at_ms, then))
    }

    /// Executes the step after a successful lease check. If the deadline has passed, refuses to continue
    /// instead.
    fn take_step(&mut self, at_ms: u64, step: NextStep) -> Vec<NumberedAction> {
        if self.is_late(at_ms) && self.run.refusal.is_none() {
            let refusal = self.procedure.deadline_refusal(&step);
            if self.run.in_flight.is_empty() {
                return self.refuse(at_ms, refusal);
            }
            // The undo waits, because no action is undone while another action is still in flight.
            self.run.refusal = Some(refusal);
            return Vec::new();
        }
        match step {
            // A parallel action of this phase failed, so this action is not started.
            NextStep::Action(_) if self.run.refusal.is_some() && self.run.phase != RunPhase::Undo => {
                self.proceed(at_ms)
            }
            NextStep::Action(act) => vec![self.issue(at_ms, act)],
            NextStep::Phase(phase) => self.begin_phase(at_ms, phase),
        }
    }

    /// Orders the actions of a phase. The lease has been checked before.
    fn begin_phase(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        self.run.phase = phase;
        self.procedure.begin_phase(&mut self.run, at_ms);
        let mut acts = match phase {
            RunPhase::Undo => self.run.undo.next_round(|act| self.procedure.may_undo(act)),
            phase => self.procedure.actions(&self.run, at_ms, phase),
        };
        self.procedure.keep_for_plan(&self.run, &mut acts);
        let is_parallel = phase == RunPhase::Undo || rule::<P>(phase).is_some_and(|rule| rule.is_parallel);
        if !is_parallel && acts.len() > 1 {
            self.run.queue = acts.split_off(1);
        }
        let ordered: Vec<NumberedAction> = acts.into_iter().map(|act| self.issue(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn issue(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        // The undo action is recorded before the action is executed: until its outcome is known, the action
        // may have taken effect.
        let undoes = self.run.phase == RunPhase::Undo || self.run.undo.contains(&act);
        if !undoes && act.changes_state() {
            self.run.undo.set_changed();
            match self.procedure.undo_rule(&mut self.run, &act) {
                UndoRule::By(undo) => self.run.undo.push(undo),
                UndoRule::ByEarlierEntry => {}
                UndoRule::Irreversible => self.run.undo.push_irreversible(act.clone()),
            }
        }
        self.run.order(at_ms, act)
    }

    /// Continues after an action that did not fail, or whose failure is tolerated.
    fn follow_up(&mut self, at_ms: u64, act: &RunAction) -> Vec<NumberedAction> {
        let next = self.procedure.follow_up(&self.run, at_ms, act);
        match next.filter(|_| self.run.refusal.is_none()) {
            Some(next) => self.check_lease(at_ms, next),
            None => self.proceed(at_ms),
        }
    }

    /// Orders the next action of the phase, or ends the phase once no action is in flight.
    fn proceed(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        if let Some(next) = self.run.next_queued() {
            return self.check_lease(at_ms, NextStep::Action(next));
        }
        let refusal = self.run.refusal.clone().filter(|_| self.run.phase != RunPhase::Undo);
        let is_decided = refusal.is_none() && self.procedure.is_phase_decided(&self.run);
        if !self.run.in_flight.is_empty() && !is_decided {
            return Vec::new();
        }
        self.run.in_flight.clear();
        match refusal {
            Some(refusal) => self.refuse(at_ms, refusal),
            None => self.conclude(at_ms),
        }
    }

    /// Continues after an action that failed, or whose outcome is unknown.
    fn failed(&mut self, at_ms: u64, act: &RunAction, reason: String) -> Vec<NumberedAction> {
        if self.run.phase == RunPhase::Undo {
            self.run.undo.record_failure();
            return self.proceed(at_ms);
        }
        if self.run.promoted {
            self.run.remaining.push(act.clone());
            return self.proceed(at_ms);
        }
        if self.run.refusal.is_none()
            && let Some(decision) = self.procedure.recover_from(&mut self.run, act, &reason)
        {
            self.run.abandon_phase();
            return self.decide(at_ms, decision);
        }
        let refusal = if self.is_late(at_ms) {
            self.procedure.deadline_refusal(&NextStep::Action(act.clone()))
        } else {
            SafetyRefusal::StepFailed { step: act.to_string(), reason }
        };
        // Waits for the parallel actions of the phase: no action is undone while another action is still in
        // flight.
        self.run.refusal.get_or_insert(refusal);
        self.run.queue.clear();
        self.proceed(at_ms)
    }

    /// Ends a phase when all its actions are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        let decision = match self.run.phase {
            RunPhase::Undo => match self.run.undo.end_round(|act| self.procedure.may_undo(act)) {
                true => Decision::Go(NextStep::Phase(RunPhase::Undo)),
                false => Decision::Finish,
            },
            _ => self.procedure.conclude(&mut self.run, at_ms),
        };
        self.decide(at_ms, decision)
    }

    fn decide(&mut self, at_ms: u64, decision: Decision) -> Vec<NumberedAction> {
        match decision {
            Decision::Continue => {
                let phases = P::PHASES.iter().map(|rule| rule.phase);
                match phases.skip_while(|phase| *phase != self.run.phase).nth(1) {
                    Some(next) => self.enter(at_ms, next),
                    None => self.finish(),
                }
            }
            Decision::Go(step) => self.check_lease(at_ms, step),
            Decision::Refuse(refusal) => self.refuse(at_ms, refusal),
            Decision::Undo(refusal) => {
                self.run.refusal = Some(refusal);
                self.enter(at_ms, RunPhase::Undo)
            }
            Decision::Finish => self.finish(),
        }
    }

    /// Whether the deadline of the failover or switchover has passed.
    fn is_late(&self, at_ms: u64) -> bool {
        self.deadline_ms().is_some_and(|deadline| at_ms >= deadline)
    }

    /// Refuses to continue, and undoes the actions that the failover or switchover has executed.
    fn refuse(&mut self, at_ms: u64, refusal: SafetyRefusal) -> Vec<NumberedAction> {
        self.run.record(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
        self.run.abandon_phase();
        self.run.refusal = Some(refusal);
        match self.run.undo.entries() {
            [] => self.finish(),
            _ => self.enter(at_ms, RunPhase::Undo),
        }
    }

    /// Finishes the failover or switchover. No action follows.
    fn finish(&mut self) -> Vec<NumberedAction> {
        let refusal = self.run.refusal.take();
        let outcome = match refusal {
            _ if self.run.promoted => {
                RunOutcome::Promoted { server: self.procedure.candidate(), left: self.remaining_actions() }
            }
            None => self.procedure.planned().unwrap_or_else(|| RunOutcome::Promoted {
                server: self.procedure.candidate(),
                left: self.remaining_actions(),
            }),
            Some(refusal) if !self.run.undo.is_changed() => RunOutcome::Unchanged { refusal },
            Some(refusal) => match self.run.undo.take() {
                (to_undo, irreversible) if to_undo.is_empty() => RunOutcome::Undone { refusal, irreversible },
                (to_undo, irreversible) => RunOutcome::Incomplete { refusal, to_undo, irreversible },
            },
        };
        self.run.finish(outcome);
        Vec::new()
    }

    /// Returns what remains to be done after the promotion: failed and unanswered actions, the actions of
    /// phases that have not started, and the undo actions for rejected candidates.
    fn remaining_actions(&mut self) -> Vec<RunAction> {
        let mut acts = std::mem::take(&mut self.run.remaining);
        acts.extend(self.run.in_flight.values().filter(|act| act.changes_state()).cloned());
        acts.append(&mut self.run.queue);
        let after: Vec<&PhaseRule> = P::PHASES.iter().filter(|rule| rule.is_after_promotion).collect();
        let next = after.iter().position(|rule| rule.phase == self.run.phase).map_or(0, |at| at + 1);
        for rule in after.into_iter().skip(next) {
            acts.extend(self.procedure.actions(&self.run, 0, rule.phase));
        }
        let server = self.procedure.candidate();
        let rejected = |act: &&RunAction| matches!(act, RunAction::DisableSemiSyncSource { server: one } if *one != server);
        acts.extend(self.run.undo.entries().iter().filter(rejected).cloned());
        acts
    }
}

fn rule<P: RunProcedure>(phase: RunPhase) -> Option<&'static PhaseRule> {
    P::PHASES.iter().find(|rule| rule.phase == phase)
}

impl<P: RunProcedure> RunMachine for PhaseMachine<P> {
    fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        Self::begin(self, at_ms)
    }

    fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        Self::answer(self, at_ms, number, answer)
    }

    fn lease_lost(&mut self, at_ms: u64, reason: &str) {
        Self::lease_lost(self, at_ms, reason);
    }

    fn phase(&self) -> RunPhase {
        Self::phase(self)
    }

    fn token(&self) -> Option<LeaseToken> {
        Self::token(self)
    }

    fn audit(&self) -> &Audit {
        Self::audit(self)
    }

    fn must_continue(&self) -> bool {
        Self::must_continue(self)
    }

    fn deadline_ms(&self) -> Option<u64> {
        Self::deadline_ms(self)
    }

    fn skips_audit_store(&self) -> bool {
        Self::skips_audit_store(self)
    }
}
