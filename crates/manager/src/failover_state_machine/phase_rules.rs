//! What a failover, a switchover and a recovery supply to the state machine.

use std::fmt;

use super::failover_state::RunState;
use crate::model::{ActionOutcome, RunAction, RunOutcome, RunPhase};
use crate::safety_refusals::SafetyRefusal;

/// A row of a phase table.
#[derive(Debug, Clone, Copy)]
pub struct PhaseRule {
    /// The phase that this row describes.
    pub(crate) phase: RunPhase,
    /// Whether the actions of the phase run in parallel. Otherwise they run one after the other.
    pub(crate) is_parallel: bool,
    /// Whether the phase follows the promotion. If the failover or switchover ends before this phase, the
    /// audit record lists its actions as remaining.
    pub(crate) is_after_promotion: bool,
}

impl PhaseRule {
    /// Returns a phase whose actions run one after the other.
    pub(crate) const fn sequential(phase: RunPhase) -> Self {
        Self { phase, is_parallel: false, is_after_promotion: false }
    }

    /// Returns a phase whose actions run in parallel.
    pub(crate) const fn parallel(phase: RunPhase) -> Self {
        Self { phase, is_parallel: true, is_after_promotion: false }
    }

    /// Returns the same phase, marked as following the promotion.
    pub(crate) const fn after_promotion(self) -> Self {
        Self { is_after_promotion: true, ..self }
    }
}

/// What the outcome of an action means for the failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// The action took effect.
    Done,
    /// The failover or switchover can continue without the action. If a safety rule needs the action, that
    /// rule decides at the end of the phase.
    Tolerated,
    /// The action failed, or may not have taken effect.
    Failed(String),
    /// A safety rule refuses to continue.
    Refused(SafetyRefusal),
}

impl Applied {
    /// Returns the meaning of an outcome that carries no data.
    pub(crate) fn of(answer: &ActionOutcome) -> Self {
        match answer {
            ActionOutcome::Done | ActionOutcome::DoneWithNote(_) => Self::Done,
            other => Self::Failed(other.summary().1),
        }
    }
}

/// What follows a successful lease check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
    /// A phase begins.
    Phase(RunPhase),
    /// An action of the present phase is executed.
    Action(RunAction),
}

/// What follows a phase, or the failure of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The failover or switchover continues with the next phase. After the last phase it is finished.
    Continue,
    /// The failover or switchover continues with this step.
    Go(NextStep),
    /// A safety rule refuses to continue, and the actions so far are undone.
    Refuse(SafetyRefusal),
    /// The entries of the undo log are executed. The reason comes from an earlier failover or switchover, so
    /// it is not recorded as an event in this audit record.
    Undo(SafetyRefusal),
    /// The failover or switchover is finished.
    Finish,
}

/// How an action is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoRule {
    /// Another action, which is given here, undoes the action.
    By(RunAction),
    /// The undo action of an earlier action also undoes this action.
    ByEarlierEntry,
    /// The action cannot be undone.
    Irreversible,
}

impl UndoRule {
    /// Returns how an action is undone, if that depends on the action alone.
    pub(crate) fn of(act: &RunAction) -> Self {
        act.undo_action().map_or(Self::Irreversible, Self::By)
    }
}

/// The part that differs between failover, switchover and recovery. Pure.
///
/// Times are in milliseconds since the start of the failover or switchover.
pub trait RunProcedure: fmt::Debug + Clone + Send + Sync {
    /// The phases of the failover or switchover, in order.
    const PHASES: &'static [PhaseRule];

    /// Returns the actions of a phase.
    fn actions(&self, run: &RunState, at_ms: u64, phase: RunPhase) -> Vec<RunAction>;

    /// Called when a phase begins, before its actions are read.
    fn begin_phase(&mut self, _run: &mut RunState, _at_ms: u64) {}

    /// In a dry run, removes the actions that belong in the plan and must not be executed.
    fn keep_for_plan(&mut self, _run: &RunState, _acts: &mut Vec<RunAction>) {}

    /// Stores the data of an outcome, and returns what the outcome means for the failover or switchover.
    fn apply(&mut self, run: &mut RunState, at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Applied;

    /// Returns the next step after an action that did not fail, while other actions of its phase may be in
    /// flight. If this returns `None`, the phase continues with its remaining actions.
    fn follow_up(&mut self, _run: &RunState, _at_ms: u64, _act: &RunAction) -> Option<NextStep> {
        None
    }

    /// Whether the phase can end although actions are still in flight.
    fn is_phase_decided(&self, _run: &RunState) -> bool {
        false
    }

    /// Called when all actions of the phase are answered. Returns what follows.
    fn conclude(&mut self, _run: &mut RunState, _at_ms: u64) -> Decision {
        Decision::Continue
    }

    /// Called when an action failed before a server may have become primary. If this returns `None`, the
    /// failover or switchover is refused.
    fn recover_from(&mut self, _run: &mut RunState, _act: &RunAction, _reason: &str) -> Option<Decision> {
        None
    }

    /// Returns how an action is undone.
    fn undo_rule(&self, _run: &mut RunState, act: &RunAction) -> UndoRule {
        UndoRule::of(act)
    }

    /// Whether an entry of the undo log may be executed now. Other entries stay in the log.
    fn may_undo(&self, _act: &RunAction) -> bool {
        true
    }

    /// Returns the time until which all actions in flight must be answered.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Returns the refusal if the deadline passes before this step is finished.
    fn deadline_refusal(&self, unfinished: &NextStep) -> SafetyRefusal {
        let step = match unfinished {
            NextStep::Action(act) => act.to_string(),
            NextStep::Phase(phase) => phase.to_string(),
        };
        SafetyRefusal::StepFailed { step, reason: "the step was not finished at the deadline".to_owned() }
    }

    /// Whether actions are executed even if their record cannot be stored. Undo actions, and actions after
    /// the promotion, are always executed.
    fn must_continue(&self) -> bool {
        false
    }

    /// Whether clients wait for the actions of this phase, so that no audit record is stored between them.
    fn skips_audit_store(&self, _run: &RunState) -> bool {
        false
    }

    /// Returns the name of the server to promote; empty if there is none.
    fn candidate(&self) -> String;

    /// Returns the result of a dry run; `None` if the failover or switchover is not a dry run.
    fn planned(&self) -> Option<RunOutcome> {
        None
    }
}
