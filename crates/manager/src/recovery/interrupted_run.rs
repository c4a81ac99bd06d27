//! What the record of a run that was cut off says may have been done.

use crate::failover::{Audit, AuditEvent, RunAction, RunKind};
use crate::lossless::PossibleLoss;

/// What a run may have left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedRun {
    /// Its name.
    pub run: String,
    /// What it was.
    pub kind: RunKind,
    /// The old primary.
    pub primary: String,
    /// The term of the lease in which it acted.
    pub term: u64,
    /// The server that may be on its way to become primary.
    pub candidate: Option<String>,
    /// How many ACKs a commit was to wait for; 0 if it does not say.
    pub acks: u32,
    /// Clients may have been let write to it.
    pub may_be_writable: bool,
    /// It was made primary for certain: ackers were led to it.
    pub was_promoted: bool,
    /// The old primary may have been told to take no more writes.
    pub may_be_held: bool,
    /// Ackers that may have been stopped, or led elsewhere.
    pub ackers: Vec<String>,
    /// Hooks that lead clients, and were heard to have done so.
    pub route_hooks_done: Vec<String>,
    /// What was done and cannot be undone.
    pub irreversible: Vec<RunAction>,
    /// What was accepted to be missing.
    pub possible_loss: Option<PossibleLoss>,
}

impl InterruptedRun {
    /// Reads a record. Nothing if the run was not cut off, or changed nothing that has to be undone.
    pub fn of(audit: &Audit) -> Option<Self> {
        if !audit.is_interrupted() || audit.dry_run || audit.resumes.is_some() {
            return None;
        }
        let mut traces = Self {
            run: audit.id.clone(),
            kind: audit.kind,
            primary: audit.primary.clone(),
            term: audit.token?,
            candidate: None,
            acks: 0,
            may_be_writable: false,
            was_promoted: false,
            may_be_held: false,
            ackers: Vec::new(),
            route_hooks_done: Vec::new(),
            irreversible: Vec::new(),
            possible_loss: audit.possible_loss.clone(),
        };
        for (number, act) in ordered(audit) {
            traces.take(act, is_done(audit, number));
        }
        if traces.kind == RunKind::Switchover {
            // What came behind this was not stored before it was done.
            traces.may_be_writable |= traces.may_be_held;
            if !traces.may_be_held {
                return None;
            }
        }
        let is_changed = traces.may_be_held || !traces.ackers.is_empty() || traces.candidate.is_some();
        is_changed.then_some(traces)
    }

    fn take(&mut self, act: &RunAction, is_done: bool) {
        match act {
            RunAction::ReadAcker { acker } | RunAction::StopAcker { acker } => {
                // Of a switchover all are read before, and which were stopped is not stored.
                let may_be_stopped = act.changes_state() || self.kind == RunKind::Switchover;
                if may_be_stopped && !self.ackers.contains(acker) {
                    self.ackers.push(acker.clone());
                }
            }
            RunAction::PrepareSemiSyncSource { server, acks }
            | RunAction::EnableSemiSyncSource { server, acks } => {
                self.candidate = Some(server.clone());
                self.acks = *acks;
            }
            RunAction::DrainRelayLog { server } => self.candidate = Some(server.clone()),
            RunAction::MakeWritable { server } => {
                self.candidate = Some(server.clone());
                self.may_be_writable = true;
            }
            RunAction::PauseWrites { .. } => self.may_be_held = true,
            // Also what leads them back, of an undoing: then it is the old primary that they follow.
            RunAction::RepointAcker { server, .. } if Some(server) == self.candidate.as_ref() => {
                self.was_promoted |= self.kind == RunKind::Failover;
            }
            RunAction::RunRouteHook { hook, .. } if is_done => self.route_hooks_done.push(hook.clone()),
            RunAction::RunFenceHook { .. } | RunAction::Backfill { .. } => {
                self.irreversible.push(act.clone())
            }
            _ => {}
        }
    }
}

fn ordered(audit: &Audit) -> impl Iterator<Item = (u32, &RunAction)> {
    audit.steps.iter().filter_map(|step| match &step.note {
        AuditEvent::ActionOrdered { number, what } => Some((*number, what)),
        _ => None,
    })
}

fn is_done(audit: &Audit, wanted: u32) -> bool {
    audit.steps.iter().any(|step| {
        matches!(&step.note, AuditEvent::ActionAnswered { number, outcome, .. } if *number == wanted && outcome == "done")
    })
}
