//! The phases, actions and rules of a recovery. It probes the servers, decides, and then undoes or finishes
//! the interrupted failover or switchover.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit_history::InterruptedRun;
use crate::failover_state_machine::{
    Applied, Decision, PhaseMachine, PhaseRule, RunProcedure, RunState, UndoLog,
};
use crate::model::{ActionOutcome, Audit, PrimaryStatus, RunAction, RunKind, RunPhase};
use crate::safety_refusals::SafetyRefusal;

/// A recovery request.
#[derive(Debug, Clone)]
pub struct RecoveryRequest {
    /// Id of the recovery.
    pub id: String,
    /// The interrupted failover or switchover.
    pub traces: InterruptedRun,
    /// Names of the route hooks, in order. Hooks that have completed are not repeated.
    pub route_hooks: Vec<String>,
    /// Replicas that read from the old primary itself.
    pub direct_replicas: Vec<String>,
}

/// The state machine of a recovery.
pub type RunRecovery = PhaseMachine<RecoveryProcedure>;

impl RunRecovery {
    /// Creates a recovery that has not started.
    pub fn new(order: RecoveryRequest) -> Self {
        let traces = &order.traces;
        let audit = Audit {
            resumes: Some(traces.run.clone()),
            possible_loss: traces.possible_loss.clone(),
            ..Audit::new(&order.id, traces.kind, &traces.primary)
        };
        let undo = UndoLog::of_earlier_run(traces.irreversible.clone());
        Self::start_with(RecoveryProcedure::new(order), RunState::new(audit, undo))
    }
}

/// The part of the state machine that only a recovery needs.
#[derive(Debug, Clone)]
pub struct RecoveryProcedure {
    order: RecoveryRequest,
    /// State of the probed servers, or why the state is unknown.
    probed: BTreeMap<String, Result<PrimaryStatus, String>>,
    /// Ackers that another manager has repointed in a later lease term.
    repointed: Vec<String>,
    /// Ackers that another manager has stopped in a later lease term.
    stopped: Vec<String>,
    /// Ackers that have no order in a later lease term. Ackers that did not answer are not in the set, and
    /// the recovery does not repoint them.
    without_order: BTreeSet<String>,
}

impl RecoveryProcedure {
    fn new(order: RecoveryRequest) -> Self {
        Self {
            order,
            probed: BTreeMap::new(),
            repointed: Vec::new(),
            stopped: Vec::new(),
            without_order: BTreeSet::new(),
        }
    }

    /// Decides from the state of the servers whether to finish or to undo the failover or switchover. Returns
    /// the refusal if neither is possible.
    fn decide(&self, run: &mut RunState) -> Result<Decision, SafetyRefusal> {
        let id = self.order.traces.run.clone();
        if !self.stopped.is_empty() {
            let reason = format!("another manager has acted since: {}", self.stopped.join(", "));
            return Err(SafetyRefusal::Interrupted { run: id, reason });
        }
        if !self.repointed.is_empty() {
            return Err(SafetyRefusal::Superseded { run: id, by: self.repointed.join(", ") });
        }
        match self.may_finish() {
            Ok(true) => {
                run.promoted = true;
                Ok(Decision::Continue)
            }
            Ok(false) => {
                run.undo.set_entries(self.undo_entries());
                let reason = "the manager stopped before the failover or switchover ended".to_owned();
                Ok(Decision::Undo(SafetyRefusal::Interrupted { run: id, reason }))
            }
            Err(reason) => Err(SafetyRefusal::Interrupted { run: id, reason }),
        }
    }

    /// Returns whether the failover or switchover must be finished (`true`) or undone (`false`). Returns an
    /// error if neither is safe.
    fn may_finish(&self) -> Result<bool, String> {
        let traces = &self.order.traces;
        if self.without_order.is_empty() && !traces.ackers.is_empty() {
            return Err(format!("none of the ackers {} answers", traces.ackers.join(", ")));
        }
        let Some(server) = traces.candidate.clone().filter(|_| traces.may_be_writable) else {
            return Ok(false);
        };
        let state = |server: &String| match self.probed.get(server) {
            Some(Ok(state)) => Ok(state),
            Some(Err(reason)) => Err(format!("{server} cannot be probed: {reason}")),
            None => Err(format!("{server} was not probed")),
        };
        let (candidate, primary) = (state(&server)?, state(&traces.primary));
        let is_switchover = traces.kind == RunKind::Switchover;
        if candidate.writable {
            if is_switchover && primary.as_ref().is_ok_and(|primary| primary.writable) {
                let other = &traces.primary;
                return Err(format!("both {server} and {other} take writes: make the wrong one read-only"));
            }
            return Ok(true);
        }
        // An undo is not safe: the candidate may have been primary before it was made read-only or restarted.
        // So it may have transactions that no other server has.
        if traces.was_promoted {
            return Err(format!(
                "{server} was made primary and takes no writes: make it writable, or promote another server"
            ));
        }
        if is_switchover {
            let primary = primary?;
            if !candidate.executed.is_subset_of(&primary.executed) {
                let more = candidate.executed.subtract(&primary.executed);
                let more = more.map(|more| more.to_string()).unwrap_or_default();
                return Err(format!(
                    "{server} has executed {more}, which {} has not executed",
                    traces.primary
                ));
            }
        }
        Ok(false)
    }

    /// Returns the undo actions for everything that the failover or switchover may have done.
    fn undo_entries(&self) -> Vec<RunAction> {
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
        undo
    }
}

impl RunProcedure for RecoveryProcedure {
    /// The phases that finish a failover or switchover. The phases that undo it belong to the state machine.
    const PHASES: &'static [PhaseRule] = &[
        PhaseRule::parallel(RunPhase::Confirm),
        PhaseRule::parallel(RunPhase::RepointAckers).after_promotion(),
        PhaseRule::sequential(RunPhase::RouteClients).after_promotion(),
        PhaseRule::parallel(RunPhase::RepointReplicas).after_promotion(),
    ];

    fn actions(&self, _run: &RunState, _at_ms: u64, phase: RunPhase) -> Vec<RunAction> {
        let traces = &self.order.traces;
        let server = self.candidate();
        let ackers = traces.ackers.iter().cloned();
        match phase {
            RunPhase::Confirm => {
                // Probes only the servers whose state decides. A dead primary, for example, would only delay
                // the recovery.
                let candidate = traces.candidate.iter().filter(|_| traces.may_be_writable);
                let primary = (traces.kind == RunKind::Switchover).then_some(&traces.primary);
                let probes =
                    candidate.chain(primary).map(|server| RunAction::ProbeServer { server: server.clone() });
                let checks = ackers.map(|acker| RunAction::CheckAckerTerm { acker, term: traces.term });
                probes.chain(checks).collect()
            }
            RunPhase::RepointAckers => ackers
                .filter(|acker| self.without_order.contains(acker))
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
                if let (RunKind::Switchover, Some(Ok(state))) = (traces.kind, self.probed.get(&server)) {
                    // The old primary may have what the candidate has executed: when the candidate became
                    // writable, it had executed everything that the old primary had.
                    let (server, has) = (traces.primary.clone(), state.executed.to_string());
                    acts.push(RunAction::Demote { server, has });
                }
                acts
            }
            _ => Vec::new(),
        }
    }

    fn begin_phase(&mut self, run: &mut RunState, _at_ms: u64) {
        if run.phase > RunPhase::Confirm {
            run.undo.set_changed();
        }
    }

    fn apply(&mut self, _run: &mut RunState, _at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Applied {
        match (act, answer) {
            (RunAction::ProbeServer { server }, ActionOutcome::ServerStatus(state)) => {
                self.probed.insert(server.clone(), Ok(state));
            }
            (RunAction::ProbeServer { server }, other) => {
                self.probed.insert(server.clone(), Err(other.summary().1));
            }
            (RunAction::CheckAckerTerm { acker, .. }, later @ ActionOutcome::LaterTerm { stopped, .. }) => {
                let ackers = if stopped { &mut self.stopped } else { &mut self.repointed };
                ackers.push(format!("{acker} {}", later.summary().1));
            }
            (RunAction::CheckAckerTerm { acker, .. }, ActionOutcome::Done) => {
                self.without_order.insert(acker.clone());
            }
            // A missing answer is tolerated, because another acker may answer.
            (RunAction::CheckAckerTerm { .. }, _) => {}
            (_, answer) => return Applied::of(&answer),
        }
        Applied::Done
    }

    fn conclude(&mut self, run: &mut RunState, _at_ms: u64) -> Decision {
        match run.phase {
            RunPhase::Confirm => self.decide(run).unwrap_or_else(Decision::Refuse),
            _ => Decision::Continue,
        }
    }

    /// Whether this recovery may execute the undo action. Other undo actions stay in the undo log, for the
    /// next recovery.
    fn may_undo(&self, act: &RunAction) -> bool {
        match act {
            RunAction::RepointAcker { acker, .. } | RunAction::StartAcker { acker } => {
                self.without_order.contains(acker)
            }
            _ => true,
        }
    }

    /// Returns true: the actions of a recovery are executed even if its audit record cannot be stored. The
    /// audit record of the interrupted failover or switchover already contains everything that the recovery
    /// does.
    fn must_continue(&self) -> bool {
        true
    }

    fn candidate(&self) -> String {
        self.order.traces.candidate.clone().unwrap_or_default()
    }
}
