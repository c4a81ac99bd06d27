//! The state machine of a recovery: probes, decides, and undoes or finishes the run.

use std::collections::{BTreeMap, BTreeSet};

use super::interrupted_run::InterruptedRun;
use crate::failover::{
    ActionOutcome, Audit, AuditEvent, NumberedAction, RunAction, RunKind, RunOutcome, RunPhase, RunState,
};
use crate::lease::LeaseToken;
use crate::safety_refusal::SafetyRefusal;
use crate::switchover::PrimaryStatus;

/// A recovery request.
#[derive(Debug, Clone)]
pub struct RecoveryRequest {
    /// Id of the recovery.
    pub id: String,
    /// The interrupted run.
    pub traces: InterruptedRun,
    /// Route hooks, in order; completed ones are not repeated.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
}

/// A recovery.
#[derive(Debug, Clone)]
pub struct RunRecovery {
    order: RecoveryRequest,
    /// What follows the pending lease check.
    then: RecoveryContinuation,
    /// State of the probed servers, or why it is unknown.
    seen: BTreeMap<String, Result<PrimaryStatus, String>>,
    /// Ackers that accepted an order in a later term, and those stopped by such an order. Either ends the
    /// recovery.
    led: Vec<String>,
    stopped: Vec<String>,
    /// Ackers without an order in a later term. Those that did not answer are not repointed.
    unled: BTreeSet<String>,
    /// Actions still to undo, the most urgent first.
    undo: Vec<RunAction>,
    /// The undo actions in flight are the last ones.
    is_final_undo: bool,
    /// The candidate takes writes.
    promoted: bool,
    left: Vec<RunAction>,
    refusal: Option<SafetyRefusal>,
    run: RunState,
}

#[derive(Debug, Clone)]
enum RecoveryContinuation {
    Phase(RunPhase),
    Action(RunAction),
}

impl RunRecovery {
    /// A recovery that has not started.
    pub fn new(order: RecoveryRequest) -> Self {
        let traces = &order.traces;
        let audit = Audit {
            resumes: Some(traces.run.clone()),
            possible_loss: traces.possible_loss.clone(),
            ..Audit::new(&order.id, traces.kind, &traces.primary)
        };
        Self {
            order,
            then: RecoveryContinuation::Phase(RunPhase::Confirm),
            seen: BTreeMap::new(),
            led: Vec::new(),
            stopped: Vec::new(),
            unled: BTreeSet::new(),
            undo: Vec::new(),
            is_final_undo: false,
            promoted: false,
            left: Vec::new(),
            refusal: None,
            run: RunState::new(audit),
        }
    }

    /// Returns the first actions. `at_ms` here and below counts from the start of the recovery.
    pub fn begin(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        self.after_the_lease(at_ms, RecoveryContinuation::Phase(RunPhase::Confirm))
    }

    /// Takes the outcome of an action, and returns the next actions. An outcome that is not waited for is
    /// only recorded.
    pub fn answer(&mut self, at_ms: u64, number: u32, answer: ActionOutcome) -> Vec<NumberedAction> {
        let Some(act) = self.run.answered(at_ms, number, &answer) else { return Vec::new() };
        if act == RunAction::CheckLease {
            return self.lease_answered(at_ms, answer);
        }
        self.take(&act, answer);
        if let Some(next) = self.run.next() {
            return self.after_the_lease(at_ms, RecoveryContinuation::Action(next));
        }
        if self.run.waiting.is_empty() { self.conclude(at_ms) } else { Vec::new() }
    }

    /// Ends the recovery because the lease is lost.
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

    /// The audit record so far.
    pub fn audit(&self) -> &Audit {
        &self.run.audit
    }

    fn after_the_lease(&mut self, at_ms: u64, then: RecoveryContinuation) -> Vec<NumberedAction> {
        self.then = then;
        vec![self.run.order(at_ms, RunAction::CheckLease)]
    }

    fn lease_answered(&mut self, at_ms: u64, answer: ActionOutcome) -> Vec<NumberedAction> {
        if let Err(reason) = self.run.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        match self.then.clone() {
            RecoveryContinuation::Action(act) => vec![self.run.order(at_ms, act)],
            RecoveryContinuation::Phase(phase) => {
                self.run.phase = phase;
                self.start(at_ms)
            }
        }
    }

    /// Orders the actions of the phase, after the lease check.
    fn start(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        self.is_final_undo = self.run.phase == RunPhase::Undo && !self.may_be_writable();
        let mut acts = self.acts(self.run.phase);
        if self.run.phase == RunPhase::RouteClients && acts.len() > 1 {
            self.run.queue = acts.split_off(1);
        }
        let ordered: Vec<NumberedAction> = acts.into_iter().map(|act| self.run.order(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    fn acts(&self, phase: RunPhase) -> Vec<RunAction> {
        let traces = &self.order.traces;
        let server = traces.candidate.clone().unwrap_or_default();
        let ackers = traces.ackers.iter().cloned();
        match phase {
            RunPhase::Confirm => {
                // Only servers whose state decides: a dead primary is not waited for.
                let candidate = traces.candidate.iter().filter(|_| traces.may_be_writable);
                let primary = (traces.kind == RunKind::Switchover).then_some(&traces.primary);
                let looks =
                    candidate.chain(primary).map(|server| RunAction::ProbeServer { server: server.clone() });
                let checks = ackers.map(|acker| RunAction::CheckAckerTerm { acker, term: traces.term });
                looks.chain(checks).collect()
            }
            // A candidate that may be writable is made read-only first, alone.
            RunPhase::Undo => {
                // What is not ordered stays on the list for the next recovery.
                let undo = self.undo.iter().filter(|act| match act {
                    RunAction::RepointAcker { acker, .. } | RunAction::StartAcker { acker } => {
                        self.unled.contains(acker)
                    }
                    _ => true,
                });
                undo.take(if self.may_be_writable() { 1 } else { usize::MAX }).cloned().collect()
            }
            RunPhase::RepointAckers => ackers
                .filter(|acker| self.unled.contains(acker))
                .map(|acker| RunAction::RepointAcker { acker, server: server.clone() })
                .collect(),
            RunPhase::RouteClients => {
                let hooks = self.order.route_hooks.iter();
                let hooks = hooks.filter(|hook| !traces.route_hooks_done.contains(hook));
                hooks
                    .map(|hook| RunAction::RunRouteHook { hook: hook.clone(), server: server.clone() })
                    .collect()
            }
            RunPhase::RepointReplicas => {
                let replicas = self.order.direct_replicas.iter();
                let replicas = replicas.filter(|replica| **replica != server && **replica != traces.primary);
                let mut acts: Vec<RunAction> =
                    replicas.map(|replica| RunAction::RepointReplica { replica: replica.clone() }).collect();
                if let (RunKind::Switchover, Some(Ok(seen))) = (traces.kind, self.seen.get(&server)) {
                    // The candidate had executed everything of the old primary when it became writable.
                    let (server, has) = (traces.primary.clone(), seen.executed.to_string());
                    acts.push(RunAction::Demote { server, has });
                }
                acts
            }
            _ => Vec::new(),
        }
    }

    /// Applies the outcome of an action.
    fn take(&mut self, act: &RunAction, answer: ActionOutcome) {
        let is_done = matches!(answer, ActionOutcome::Done | ActionOutcome::DoneWithNote(_));
        match (act, answer) {
            (RunAction::ProbeServer { server }, ActionOutcome::ServerStatus(seen)) => {
                self.seen.insert(server.clone(), Ok(seen));
            }
            (RunAction::ProbeServer { server }, other) => {
                self.seen.insert(server.clone(), Err(other.summary().1));
            }
            (RunAction::CheckAckerTerm { acker, .. }, led @ ActionOutcome::LaterTerm { stopped, .. }) => {
                let who = if stopped { &mut self.stopped } else { &mut self.led };
                who.push(format!("{acker} {}", led.summary().1));
            }
            (RunAction::CheckAckerTerm { acker, .. }, ActionOutcome::Done) => {
                self.unled.insert(acker.clone());
            }
            // Another acker may answer.
            (RunAction::CheckAckerTerm { .. }, _) => {}
            (act, _) if is_done => self.undo.retain(|undo| undo != act),
            (act, _) if self.promoted => self.left.push(act.clone()),
            _ => {}
        }
    }

    /// All actions of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        let next = match self.run.phase {
            RunPhase::Confirm => match self.decide() {
                Ok(phase) => Some(phase),
                Err(refusal) => {
                    self.run.note(at_ms, AuditEvent::RuleRefused { refusal: refusal.clone() });
                    self.over(Some(refusal));
                    return Vec::new();
                }
            },
            // Once the candidate is certainly read-only, the rest follows.
            RunPhase::Undo if !self.is_final_undo && !self.may_be_writable() => Some(RunPhase::Undo),
            RunPhase::RepointAckers => Some(RunPhase::RouteClients),
            RunPhase::RouteClients => Some(RunPhase::RepointReplicas),
            _ => None,
        };
        match next {
            Some(phase) => self.after_the_lease(at_ms, RecoveryContinuation::Phase(phase)),
            None => {
                let refusal = self.refusal.take();
                self.over(refusal);
                Vec::new()
            }
        }
    }

    /// Whether the candidate is still to be made read-only.
    fn may_be_writable(&self) -> bool {
        matches!(self.undo.first(), Some(RunAction::MakeReadOnly { .. }))
    }

    /// Decides by the state of the servers whether to finish or to undo, or why neither is possible.
    fn decide(&mut self) -> Result<RunPhase, SafetyRefusal> {
        let run = self.order.traces.run.clone();
        if !self.stopped.is_empty() {
            let reason = format!("another manager has acted since: {}", self.stopped.join(", "));
            return Err(SafetyRefusal::Interrupted { run, reason });
        }
        if !self.led.is_empty() {
            return Err(SafetyRefusal::Superseded { run, by: self.led.join(", ") });
        }
        self.decide_direction().map_err(|reason| SafetyRefusal::Interrupted { run, reason })
    }

    fn decide_direction(&mut self) -> Result<RunPhase, String> {
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
        let is_switchover = traces.kind == RunKind::Switchover;
        if candidate.writable {
            if is_switchover && primary.as_ref().is_ok_and(|primary| primary.writable) {
                let other = &traces.primary;
                return Err(format!("both {server} and {other} take writes: make the wrong one read-only"));
            }
            self.promoted = true;
            return Ok(RunPhase::RepointAckers);
        }
        // It may have been primary and then made read-only or restarted, so it may have transactions that no
        // other server has.
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

    /// Lists everything that may have been done for the undo.
    fn back(&mut self) -> RunPhase {
        let traces = &self.order.traces;
        let mut undo = Vec::new();
        if let Some(server) = &traces.candidate {
            if traces.may_be_writable {
                undo.push(RunAction::MakeReadOnly { server: server.clone() });
            }
            undo.push(RunAction::DisableSemiSyncSource { server: server.clone() });
        }
        undo.extend(traces.ackers.iter().cloned().map(|acker| match traces.kind {
            RunKind::Switchover => RunAction::RepointAcker { acker, server: traces.primary.clone() },
            RunKind::Failover => RunAction::StartAcker { acker },
        }));
        if traces.may_be_held {
            undo.push(RunAction::ResumeWrites { server: traces.primary.clone(), acks: traces.acks });
        }
        let reason = "its manager ended during the run".to_owned();
        self.refusal = Some(SafetyRefusal::Interrupted { run: traces.run.clone(), reason });
        self.undo = undo;
        RunPhase::Undo
    }

    fn over(&mut self, refusal: Option<SafetyRefusal>) {
        let refusal = self.refusal.take().or(refusal);
        let server = self.order.traces.candidate.clone().unwrap_or_default();
        let irreversible = self.order.traces.irreversible.clone();
        let is_begun = self.run.phase > RunPhase::Confirm;
        let outcome = match refusal {
            _ if self.promoted => RunOutcome::Promoted { server, left: self.remaining_actions() },
            Some(refusal) if !is_begun => RunOutcome::Unchanged { refusal },
            Some(refusal) if self.undo.is_empty() => RunOutcome::Undone { refusal, irreversible },
            Some(refusal) => {
                RunOutcome::Incomplete { refusal, to_undo: std::mem::take(&mut self.undo), irreversible }
            }
            None => RunOutcome::Promoted { server, left: Vec::new() },
        };
        self.run.end(outcome);
    }

    /// Failed and unanswered actions, and those of phases not started.
    fn remaining_actions(&mut self) -> Vec<RunAction> {
        let mut acts = std::mem::take(&mut self.left);
        acts.extend(self.run.waiting.values().filter(|act| act.changes_state()).cloned());
        acts.append(&mut self.run.queue);
        let phases = [RunPhase::RepointAckers, RunPhase::RouteClients, RunPhase::RepointReplicas];
        let begun = phases.into_iter().position(|phase| phase == self.run.phase).map_or(0, |at| at + 1);
        for phase in phases.into_iter().skip(begun) {
            acts.extend(self.acts(phase));
        }
        acts
    }
}
