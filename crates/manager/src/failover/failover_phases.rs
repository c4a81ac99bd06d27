//! The phases, actions and rules of a failover.

use std::collections::BTreeMap;

use tailwater_wire::gtid::GtidSet;

use super::expected_duration::expected_duration_ms;
use super::failover_request::FailoverRequest;
use crate::candidates::{CandidateChoice, LogContents, SelectionInput, rank_candidates};
use crate::failover_state_machine::{
    Applied, Decision, NextStep, PhaseMachine, PhaseRule, RunProcedure, RunState, UndoLog,
};
use crate::lossless_rules::{AckerEvidence, AckerStop, LossEvidence, LossVerdict, assess_loss};
use crate::model::{ActionOutcome, Audit, AuditEvent, RunAction, RunKind, RunOutcome, RunPhase};
use crate::safety_refusals::SafetyRefusal;

/// The state machine of a failover.
pub type Failover = PhaseMachine<FailoverProcedure>;

impl Failover {
    /// Creates a failover that has not started.
    pub fn new(order: FailoverRequest) -> Self {
        let audit = Audit {
            dry_run: order.dry_run,
            allow_data_loss: order.allow_data_loss,
            ..Audit::new(&order.id, RunKind::Failover, &order.primary)
        };
        Self::start_with(FailoverProcedure::new(order), RunState::new(audit, UndoLog::default()))
    }
}

/// The part of the state machine that only a failover needs.
#[derive(Debug, Clone)]
pub struct FailoverProcedure {
    order: FailoverRequest,
    /// The ackers that answered, each with the transactions before the beginning of its log.
    ackers: Vec<AckerEvidence>,
    before: BTreeMap<String, GtidSet>,
    fenced_by: Option<String>,
    verdict: Option<LossVerdict>,
    choice: CandidateChoice,
    /// Actions of a dry run that would change something.
    plan: Vec<RunAction>,
}

impl FailoverProcedure {
    fn new(order: FailoverRequest) -> Self {
        Self {
            order,
            ackers: Vec::new(),
            before: BTreeMap::new(),
            fenced_by: None,
            verdict: None,
            choice: CandidateChoice::default(),
            plan: Vec::new(),
        }
    }

    fn loss_verdict(&self) -> LossVerdict {
        let order = &self.order;
        assess_loss(&LossEvidence {
            primary: &order.primary,
            ack_policies: order.ack_policies.as_ref(),
            primary_state_age_ms: order.primary_state_age_ms,
            primary_state_max_age_ms: order.primary_state_max_age_ms,
            ackers: &self.ackers,
            last_known: order.last_known.as_ref(),
            fenced_by: self.fenced_by.as_deref(),
        })
    }

    /// Checks whether the ackers hold every acknowledged transaction and the old primary is fenced.
    fn prove(&mut self, run: &mut RunState, at_ms: u64) -> Decision {
        run.phase = RunPhase::ProveCompleteness;
        let verdict = self.loss_verdict();
        run.audit.holds = verdict.holds.as_ref().map(ToString::to_string);
        if let Some(refusal) = verdict.blocking_refusal(self.order.allow_data_loss).cloned() {
            return Decision::Refuse(refusal);
        }
        for refusal in &verdict.refusals {
            run.record(at_ms, AuditEvent::RuleOverridden { refusal: refusal.clone() });
        }
        run.audit.possible_loss.clone_from(&verdict.possible_loss);
        self.verdict = Some(verdict);
        Decision::Continue
    }

    fn choose_candidate(&mut self, run: &mut RunState) -> Decision {
        self.choice.mark_rejected();
        let log = self.log();
        let order = &self.order;
        let ranking = rank_candidates(&SelectionInput {
            region: order.region.as_deref(),
            version: order.version,
            origin: order.origin,
            log: &log,
            servers: &self.choice.servers,
            across_regions: order.across_regions,
            catch_up_ms_max: order.catch_up_ms_max,
        });
        let chosen = self.choice.choose(&ranking, order.wanted.as_deref());
        run.audit.choice = Some(ranking);
        chosen.map_or_else(Decision::Refuse, |()| Decision::Continue)
    }

    /// Returns the log that the failover continues from. Of the logs of all ackers that hold everything, this
    /// is the log that begins earliest. If there is no such acker, the returned contents are the transactions
    /// of the servers themselves; the operator has then accepted the loss.
    fn log(&self) -> LogContents {
        let verdict = self.verdict.as_ref();
        let holders = verdict.map(|verdict| verdict.holders.as_slice()).unwrap_or_default();
        let begins_first = |one: &&String| {
            holders
                .iter()
                .filter_map(|other| self.before.get(other))
                .all(|other| self.before.get(*one).is_some_and(|before| before.is_subset_of(other)))
        };
        let name = holders.iter().find(begins_first).or(holders.first());
        if let (Some(name), Some(holds)) = (name, verdict.and_then(|verdict| verdict.holds.clone())) {
            let before = self.before.get(name).cloned().unwrap_or_else(|| holds.clone());
            return LogContents { name: name.clone(), holds, before };
        }
        let empty = GtidSet::empty(self.order.origin.flavour());
        let reached = self.choice.servers.iter().filter(|server| server.reached.is_ok());
        let holds = reached
            .filter_map(|server| server.received.as_ref())
            .fold(empty, |all, received| all.union(received).unwrap_or(all));
        LogContents { name: "no log".to_owned(), before: holds.clone(), holds }
    }

    fn backfills(&self, server: &str) -> Vec<RunAction> {
        let backfills = self.choice.chosen().into_iter().flat_map(|chosen| &chosen.backfills);
        backfills
            .map(|backfill| RunAction::Backfill {
                server: server.to_owned(),
                from: backfill.from.clone(),
                what: backfill.what.clone(),
            })
            .collect()
    }
}

impl RunProcedure for FailoverProcedure {
    const PHASES: &'static [PhaseRule] = &[
        PhaseRule::sequential(RunPhase::Confirm),
        PhaseRule::parallel(RunPhase::Fence),
        PhaseRule::sequential(RunPhase::FenceHooks),
        // This phase has no actions. It follows the fence hooks without a lease check.
        PhaseRule::sequential(RunPhase::ProveCompleteness),
        PhaseRule::sequential(RunPhase::ChooseCandidate),
        PhaseRule::sequential(RunPhase::Backfill),
        PhaseRule::sequential(RunPhase::Drain),
        PhaseRule::sequential(RunPhase::EnableSemiSync),
        PhaseRule::sequential(RunPhase::MakeWritable),
        PhaseRule::parallel(RunPhase::RepointAckers).after_promotion(),
        PhaseRule::parallel(RunPhase::RepointReplicas).after_promotion(),
        PhaseRule::sequential(RunPhase::RouteClients).after_promotion(),
    ];

    fn actions(&self, _run: &RunState, _at_ms: u64, phase: RunPhase) -> Vec<RunAction> {
        let order = &self.order;
        let server = self.candidate();
        let ackers = order.ackers.iter().cloned();
        match phase {
            RunPhase::Confirm => vec![RunAction::ConfirmFailure],
            RunPhase::Fence if order.dry_run => ackers.map(|acker| RunAction::ReadAcker { acker }).collect(),
            RunPhase::Fence => ackers.map(|acker| RunAction::StopAcker { acker }).collect(),
            RunPhase::FenceHooks => {
                let hooks = order.fence_hooks.iter();
                hooks.map(|hook| RunAction::RunFenceHook { hook: hook.clone() }).collect()
            }
            RunPhase::ChooseCandidate => vec![RunAction::ProbeCandidates],
            RunPhase::Backfill => self.backfills(&server),
            RunPhase::Drain => vec![RunAction::DrainRelayLog { server }],
            RunPhase::EnableSemiSync => {
                vec![RunAction::EnableSemiSyncSource { server, acks: order.acks_required }]
            }
            RunPhase::MakeWritable => vec![RunAction::MakeWritable { server }],
            RunPhase::RepointAckers => {
                ackers.map(|acker| RunAction::RepointAcker { acker, server: server.clone() }).collect()
            }
            RunPhase::RepointReplicas => {
                let replicas = order.direct_replicas.iter().filter(|replica| **replica != server);
                replicas.map(|replica| RunAction::RepointReplica { replica: replica.clone() }).collect()
            }
            RunPhase::RouteClients => {
                let hooks = order.route_hooks.iter();
                hooks
                    .map(|hook| RunAction::RunRouteHook { hook: hook.clone(), server: server.clone() })
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// In a dry run, adds the actions that change something to the plan, and treats them as done.
    fn keep_for_plan(&mut self, run: &RunState, acts: &mut Vec<RunAction>) {
        if !self.order.dry_run {
            return;
        }
        if run.phase == RunPhase::Fence {
            let stops = self.order.ackers.iter().map(|acker| RunAction::StopAcker { acker: acker.clone() });
            self.plan.extend(stops);
        }
        if run.phase == RunPhase::FenceHooks {
            self.fenced_by = self.order.fence_hooks.first().cloned();
        }
        if acts.iter().any(RunAction::changes_state) {
            self.plan.append(acts);
        }
    }

    fn apply(&mut self, run: &mut RunState, _at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Applied {
        match (act, answer) {
            (RunAction::ConfirmFailure, ActionOutcome::FailureConfirmed(_)) => Applied::Done,
            (RunAction::ConfirmFailure, other) => {
                let (primary, reason) = (self.order.primary.clone(), other.summary().1);
                Applied::Refused(SafetyRefusal::NotConfirmed { primary, reason })
            }
            (
                RunAction::StopAcker { acker: name } | RunAction::ReadAcker { acker: name },
                ActionOutcome::AckerState { mut acker, before },
            ) => {
                acker.name.clone_from(name);
                if let AckerStop::Refused { .. } = acker.stop {
                    // The acker did not stop, so there is nothing to undo.
                    if let Some(undo) = act.undo_action() {
                        run.undo.remove(&undo);
                    }
                } else if self.order.dry_run {
                    // The plan of a dry run assumes that an acker that answers can also be stopped.
                    acker.stop = AckerStop::Persistent;
                }
                self.ackers.push(acker);
                self.before.insert(name.clone(), before);
                Applied::Done
            }
            // An acker that does not answer proves nothing. Whether the other ackers suffice is decided in
            // the phase that proves completeness.
            (RunAction::StopAcker { .. } | RunAction::ReadAcker { .. }, _) => Applied::Tolerated,
            (RunAction::RunFenceHook { hook }, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => {
                self.fenced_by = Some(hook.clone());
                Applied::Done
            }
            // A failed fence hook is tolerated, because the other hooks and the stopped ackers may suffice.
            (RunAction::RunFenceHook { .. }, _) => Applied::Tolerated,
            (RunAction::ProbeCandidates, ActionOutcome::Candidates(servers)) => {
                self.choice.servers = servers;
                Applied::Done
            }
            (RunAction::DisableSemiSyncSource { .. }, answer) if run.phase != RunPhase::Undo => {
                match Applied::of(&answer) {
                    // The failed server takes no writes, and its undo action stays in the undo log. The next
                    // candidate need not wait for the undo.
                    Applied::Failed(_) => Applied::Tolerated,
                    applied => applied,
                }
            }
            (RunAction::MakeWritable { .. }, answer) => {
                let applied = Applied::of(&answer);
                run.promoted |= applied == Applied::Done;
                applied
            }
            (_, answer) => Applied::of(&answer),
        }
    }

    fn follow_up(&mut self, run: &RunState, _at_ms: u64, act: &RunAction) -> Option<NextStep> {
        let is_rejection =
            matches!(act, RunAction::DisableSemiSyncSource { .. }) && run.phase != RunPhase::Undo;
        is_rejection.then_some(NextStep::Phase(RunPhase::ChooseCandidate))
    }

    /// Whether the phase can end before every acker has answered. If the other ackers prove completeness, the
    /// failover does not wait for ackers on dead hosts.
    fn is_phase_decided(&self, run: &RunState) -> bool {
        run.phase == RunPhase::Fence && !self.order.dry_run && self.loss_verdict().is_complete()
    }

    fn conclude(&mut self, run: &mut RunState, at_ms: u64) -> Decision {
        match run.phase {
            RunPhase::FenceHooks | RunPhase::ProveCompleteness => self.prove(run, at_ms),
            RunPhase::ChooseCandidate => self.choose_candidate(run),
            _ => Decision::Continue,
        }
    }

    /// Tries another candidate after the present one has failed.
    fn recover_from(&mut self, run: &mut RunState, act: &RunAction, reason: &str) -> Option<Decision> {
        let is_candidates =
            matches!(run.phase, RunPhase::Backfill | RunPhase::Drain | RunPhase::EnableSemiSync);
        // If the operator accepted a loss, no other candidate is tried: the loss was computed for this
        // candidate, and another server may lose more.
        let is_accepted = run.phase == RunPhase::EnableSemiSync && run.audit.possible_loss.is_some();
        if !is_candidates || is_accepted || self.order.wanted.is_some() {
            return None;
        }
        let server = self.choice.reject(format!("{act}: {reason}"))?;
        Some(Decision::Go(match run.phase {
            // After its drain the server no longer replicates, and it may wait for ACKs. This action undoes
            // both.
            RunPhase::EnableSemiSync => NextStep::Action(RunAction::DisableSemiSyncSource { server }),
            _ => NextStep::Phase(RunPhase::ChooseCandidate),
        }))
    }

    fn candidate(&self) -> String {
        self.choice.name()
    }

    fn planned(&self) -> Option<RunOutcome> {
        let server = self.candidate();
        let drain_ms =
            self.choice.servers.iter().find(|one| one.name == server).and_then(|one| one.catch_up_ms);
        let expected_ms = expected_duration_ms(&self.plan, &self.order.expected, drain_ms);
        self.order.dry_run.then(|| RunOutcome::Planned { server, acts: self.plan.clone(), expected_ms })
    }
}
