//! The part of the state machine that only a switchover needs: its phases, the write pause and its limit, and
//! what follows each outcome.

use std::collections::BTreeMap;

use tailwater_wire::gtid::GtidSet;

use super::candidate_catch_up::{CatchUpProgress, CatchUpVerdict};
use super::switchover_request::SwitchoverRequest;
use crate::candidates::CandidateChoice;
use crate::failover_state_machine::{
    Applied, Decision, NextStep, PhaseMachine, PhaseRule, RunProcedure, RunState, UndoLog, UndoRule,
};
use crate::lossless_rules::AckerEvidence;
use crate::model::{ActionOutcome, Audit, PrimaryStatus, RunAction, RunKind, RunOutcome, RunPhase};
use crate::safety_refusals::SafetyRefusal;

/// The state machine of a switchover.
pub type Switchover = PhaseMachine<SwitchoverProcedure>;

impl Switchover {
    /// Creates a switchover that has not started.
    pub fn new(order: SwitchoverRequest) -> Self {
        let audit =
            Audit { dry_run: order.dry_run, ..Audit::new(&order.id, RunKind::Switchover, &order.primary) };
        Self::start_with(SwitchoverProcedure::new(order), RunState::new(audit, UndoLog::default()))
    }
}

/// The part of the state machine that only a switchover needs.
#[derive(Debug, Clone)]
pub struct SwitchoverProcedure {
    pub(super) order: SwitchoverRequest,
    pub(super) primary: Option<PrimaryStatus>,
    /// The ackers that answered, each with the transactions before the beginning of its log.
    pub(super) ackers: BTreeMap<String, (AckerEvidence, GtidSet)>,
    pub(super) choice: CandidateChoice,
    /// Measures the lag of the candidate before the pause.
    pub(super) catch_up: CatchUpProgress,
    /// When writes on the primary were paused.
    paused_at_ms: Option<u64>,
    /// All transactions that the primary had executed, read after its writes stopped.
    pub(super) position: Option<GtidSet>,
}

impl SwitchoverProcedure {
    fn new(order: SwitchoverRequest) -> Self {
        Self {
            order,
            primary: None,
            ackers: BTreeMap::new(),
            choice: CandidateChoice::default(),
            catch_up: CatchUpProgress::default(),
            paused_at_ms: None,
            position: None,
        }
    }

    /// Returns the time at which the write pause must end; `None` before the pause begins.
    pub(super) fn pause_end_ms(&self) -> Option<u64> {
        Some(self.paused_at_ms?.saturating_add(self.order.write_pause_ms_max))
    }

    fn end_pause(&self, run: &mut RunState, at_ms: u64) {
        run.audit.pause_ms = self.paused_at_ms.map(|began| at_ms.saturating_sub(began));
    }

    /// Rejects a candidate that does not catch up. With such a candidate the write pause would last as long
    /// as its lag.
    fn reject_lagging_candidate(&mut self, run: &mut RunState, behind_ms: u64) -> Decision {
        let (server, primary) = (self.candidate(), self.order.primary.clone());
        let reasons = format!(
            "{server} keeps a lag of {behind_ms} ms to {primary}; let it execute more transactions in parallel, or wait for fewer \
             writes"
        );
        if self.order.wanted.is_none() {
            self.choice.reject(reasons);
            return self.choose_candidate(run);
        }
        Decision::Refuse(SafetyRefusal::NotReady { primary, reasons })
    }
}

impl RunProcedure for SwitchoverProcedure {
    const PHASES: &'static [PhaseRule] = &[
        PhaseRule::sequential(RunPhase::Confirm),
        PhaseRule::parallel(RunPhase::Prepare),
        PhaseRule::sequential(RunPhase::CatchUp),
        PhaseRule::parallel(RunPhase::Pause),
        PhaseRule::parallel(RunPhase::Fence),
        PhaseRule::parallel(RunPhase::RepointAckers),
        PhaseRule::parallel(RunPhase::MakeWritable),
        PhaseRule::sequential(RunPhase::RouteClients).after_promotion(),
        PhaseRule::parallel(RunPhase::RepointReplicas).after_promotion(),
    ];

    fn actions(&self, _run: &RunState, at_ms: u64, phase: RunPhase) -> Vec<RunAction> {
        self.phase_actions(at_ms, phase)
    }

    fn begin_phase(&mut self, run: &mut RunState, at_ms: u64) {
        if run.phase == RunPhase::Pause {
            self.paused_at_ms = Some(at_ms);
        }
    }

    fn apply(&mut self, run: &mut RunState, at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Applied {
        match (act, answer) {
            (RunAction::ProbeCandidates, ActionOutcome::Candidates(servers)) => self.choice.servers = servers,
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
            // An acker that does not answer is tolerated here. The rule that needs its state decides later.
            (RunAction::ReadAcker { .. }, _) => return Applied::Tolerated,
            (RunAction::PauseWrites { .. }, ActionOutcome::WritesPaused(position)) => {
                run.audit.holds = Some(position.to_string());
                self.position = Some(position);
            }
            (act, answer) => {
                let applied = Applied::of(&answer);
                if applied != Applied::Done {
                    return applied;
                }
                match act {
                    RunAction::MakeWritable { .. } => {
                        run.promoted = true;
                        self.end_pause(run, at_ms);
                    }
                    RunAction::ResumeWrites { .. } if run.phase == RunPhase::Undo => {
                        self.end_pause(run, at_ms)
                    }
                    _ => {}
                }
            }
        }
        Applied::Done
    }

    fn follow_up(&mut self, run: &RunState, at_ms: u64, act: &RunAction) -> Option<NextStep> {
        self.next_action(run.phase, at_ms, act).map(NextStep::Action)
    }

    fn conclude(&mut self, run: &mut RunState, _at_ms: u64) -> Decision {
        match run.phase {
            RunPhase::Confirm => self.choose_candidate(run),
            RunPhase::Prepare if self.order.dry_run => Decision::Finish,
            RunPhase::CatchUp => match self.catch_up.verdict(self.order.write_pause_ms_max) {
                CatchUpVerdict::Near => Decision::Continue,
                CatchUpVerdict::NextRound => Decision::Go(NextStep::Phase(RunPhase::CatchUp)),
                CatchUpVerdict::TooFarBehind { behind_ms } => self.reject_lagging_candidate(run, behind_ms),
            },
            RunPhase::Fence => self.position_refusal().map_or(Decision::Continue, Decision::Refuse),
            _ => Decision::Continue,
        }
    }

    /// Tries another candidate after the present candidate has failed, as long as nothing was changed for the
    /// failed candidate.
    fn recover_from(&mut self, run: &mut RunState, act: &RunAction, reason: &str) -> Option<Decision> {
        let is_candidates =
            matches!(act, RunAction::WaitForServer { .. } | RunAction::PrepareSemiSyncSource { .. });
        let is_before_pause = matches!(run.phase, RunPhase::Prepare | RunPhase::CatchUp);
        if !is_before_pause || !is_candidates || self.order.wanted.is_some() {
            return None;
        }
        self.choice.reject(format!("{act}: {reason}"));
        Some(self.choose_candidate(run))
    }

    fn undo_rule(&self, run: &mut RunState, act: &RunAction) -> UndoRule {
        match act {
            // The same undo action undoes a drain, the enabling of semi-sync, and the persisting of
            // semi-sync.
            RunAction::DrainRelayLog { server } => {
                UndoRule::By(RunAction::DisableSemiSyncSource { server: server.clone() })
            }
            RunAction::EnableSemiSyncSource { .. } | RunAction::PersistSemiSyncSource { .. } => {
                UndoRule::ByEarlierEntry
            }
            RunAction::PauseWrites { server, .. } => UndoRule::By(RunAction::ResumeWrites {
                server: server.clone(),
                acks: self.order.acks_required,
            }),
            // Repointing an acker to the old primary also starts it, so no separate action has to start it.
            RunAction::RepointAcker { acker, .. } => {
                run.undo.remove(&RunAction::StartAcker { acker: acker.clone() });
                UndoRule::By(RunAction::RepointAcker {
                    acker: acker.clone(),
                    server: self.order.primary.clone(),
                })
            }
            act => UndoRule::of(act),
        }
    }

    fn deadline_ms(&self) -> Option<u64> {
        self.pause_end_ms()
    }

    fn deadline_refusal(&self, unfinished: &NextStep) -> SafetyRefusal {
        let step = match unfinished {
            NextStep::Action(act) => act.to_string(),
            NextStep::Phase(RunPhase::MakeWritable) => "let the candidate take writes".to_owned(),
            NextStep::Phase(_) => "have the candidate and the ackers ready".to_owned(),
        };
        let (primary, bound_ms) = (self.order.primary.clone(), self.order.write_pause_ms_max);
        SafetyRefusal::PauseExceeded { primary, bound_ms, step }
    }

    fn must_continue(&self) -> bool {
        self.paused_at_ms.is_some()
    }

    /// Returns true from the end of the phase that pauses writes until the write pause is over. Storing an
    /// audit record in this time would make the pause longer.
    fn skips_audit_store(&self, run: &RunState) -> bool {
        self.paused_at_ms.is_some() && run.audit.pause_ms.is_none() && run.phase != RunPhase::Pause
    }

    fn candidate(&self) -> String {
        self.choice.name()
    }

    fn planned(&self) -> Option<RunOutcome> {
        self.order.dry_run.then(|| self.plan())
    }
}
