//! What a kind of run supplies to the machine.

use std::fmt;

use super::run_state::RunState;
use crate::model::{ActionOutcome, RunAction, RunOutcome, RunPhase};
use crate::safety_refusal::SafetyRefusal;

/// A row of a phase table.
#[derive(Debug, Clone, Copy)]
pub struct PhaseRule {
    /// The phase.
    pub(crate) phase: RunPhase,
    /// Its actions run in parallel, otherwise one after the other.
    pub(crate) is_parallel: bool,
    /// It follows the promotion: its actions are listed in the record if the run ends before.
    pub(crate) is_after_promotion: bool,
}

impl PhaseRule {
    /// A phase whose actions run one after the other.
    pub(crate) const fn sequential(phase: RunPhase) -> Self {
        Self { phase, is_parallel: false, is_after_promotion: false }
    }

    /// A phase whose actions run in parallel.
    pub(crate) const fn parallel(phase: RunPhase) -> Self {
        Self { phase, is_parallel: true, is_after_promotion: false }
    }

    /// The same phase, after the promotion.
    pub(crate) const fn after_promotion(self) -> Self {
        Self { is_after_promotion: true, ..self }
    }
}

/// What the outcome of an action means for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It took effect.
    Done,
    /// The run does not need it, or a rule that needs it decides at the end of the phase.
    Tolerated,
    /// It failed, or may not have taken effect.
    Failed(String),
    /// A rule refuses to continue.
    Refused(SafetyRefusal),
}

impl Applied {
    /// The meaning of an outcome without data for an action that has none.
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
    /// An action of the present phase.
    Action(RunAction),
}

/// What follows a phase, or the failure of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The next phase of the table; after the last one the run is finished.
    Continue,
    /// This step.
    Go(NextStep),
    /// A rule refuses to continue: the actions so far are undone.
    Refuse(SafetyRefusal),
    /// The entries of the undo log are executed. The reason is that of an earlier run, and not recorded as an
    /// event of this one.
    Undo(SafetyRefusal),
    /// The run is finished.
    Finish,
}

/// How an action is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoRule {
    /// By this action.
    By(RunAction),
    /// By the entry of an earlier action.
    ByEarlierEntry,
    /// Not at all.
    Irreversible,
}

impl UndoRule {
    /// How an action is undone that needs no data of the run.
    pub(crate) fn of(act: &RunAction) -> Self {
        act.undo_action().map_or(Self::Irreversible, Self::By)
    }
}

/// What is special to failover, switchover and recovery. Pure.
///
/// Times count in milliseconds from the start of the run.
pub trait RunProcedure: fmt::Debug + Clone + Send + Sync {
    /// The phases in order.
    const PHASES: &'static [PhaseRule];

    /// The actions of a phase.
    fn actions(&self, run: &RunState, at_ms: u64, phase: RunPhase) -> Vec<RunAction>;

    /// A phase begins; called before its actions are read.
    fn begin_phase(&mut self, _run: &mut RunState, _at_ms: u64) {}

    /// Takes out the actions that a dry run lists in its plan instead of executing them.
    fn keep_for_plan(&mut self, _run: &RunState, _acts: &mut Vec<RunAction>) {}

    /// Takes what an outcome says.
    fn apply(&mut self, run: &mut RunState, at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Applied;

    /// What follows an action that did not fail while others of its phase may be in flight. `None`: what the
    /// phase says.
    fn follow_up(&mut self, _run: &RunState, _at_ms: u64, _act: &RunAction) -> Option<NextStep> {
        None
    }

    /// Whether the phase ends although actions are in flight.
    fn is_phase_decided(&self, _run: &RunState) -> bool {
        false
    }

    /// All actions of the phase are answered.
    fn conclude(&mut self, _run: &mut RunState, _at_ms: u64) -> Decision {
        Decision::Continue
    }

    /// An action failed before a server may have become primary. `None`: the run is refused.
    fn recover_from(&mut self, _run: &mut RunState, _act: &RunAction, _reason: &str) -> Option<Decision> {
        None
    }

    /// How an action is undone.
    fn undo_rule(&self, _run: &mut RunState, act: &RunAction) -> UndoRule {
        UndoRule::of(act)
    }

    /// Whether an entry of the undo log may be executed. The others stay on the log.
    fn may_undo(&self, _act: &RunAction) -> bool {
        true
    }

    /// Until when all actions in flight must be answered.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// The refusal after the deadline, if this step was not finished.
    fn deadline_refusal(&self, unfinished: &NextStep) -> SafetyRefusal {
        let step = match unfinished {
            NextStep::Action(act) => act.to_string(),
            NextStep::Phase(phase) => phase.to_string(),
        };
        SafetyRefusal::StepFailed { step, reason: "it was not finished at the deadline".to_owned() }
    }

    /// Whether actions are executed even if their record cannot be stored. Undo actions always are, and those
    /// after the promotion.
    fn must_continue(&self) -> bool {
        false
    }

    /// Whether clients wait for each action, so that records are not stored in between.
    fn skips_audit_store(&self, _run: &RunState) -> bool {
        false
    }

    /// The server to promote; empty if there is none.
    fn candidate(&self) -> String;

    /// The result of a dry run; `None` if it is none.
    fn planned(&self) -> Option<RunOutcome> {
        None
    }
}
