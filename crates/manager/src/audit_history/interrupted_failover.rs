//! Reads from an audit record what an interrupted failover or switchover may have done, and determines which
//! failover or switchover must be recovered.

use std::collections::{BTreeMap, BTreeSet};

use super::failover_effect::RunEffect;
use crate::lossless_rules::PossibleLoss;
use crate::model::{Audit, AuditEvent, RunAction, RunKind};

/// An interrupted failover or switchover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptedRun {
    /// Id of the failover or switchover.
    pub run: String,
    /// Whether a failover or a switchover was interrupted.
    pub kind: RunKind,
    /// The old primary.
    pub primary: String,
    /// The lease term of the failover or switchover.
    pub term: u64,
    /// The server that the failover or switchover may have been promoting.
    pub candidate: Option<String>,
    /// Number of ACKs that commits were configured to wait for; 0 if the audit record does not contain it.
    pub acks: u32,
    /// Whether the candidate may be writable.
    pub may_be_writable: bool,
    /// Whether the candidate certainly became primary: the failover or switchover repointed ackers to it.
    pub was_promoted: bool,
    /// Whether writes on the old primary may be paused.
    pub may_be_held: bool,
    /// Ackers that may have been stopped or repointed.
    pub ackers: Vec<String>,
    /// Route hooks that completed.
    pub route_hooks_done: Vec<String>,
    /// Actions of the failover or switchover that cannot be undone.
    pub irreversible: Vec<RunAction>,
    /// The data loss that the operator accepted.
    pub possible_loss: Option<PossibleLoss>,
}

impl InterruptedRun {
    /// Reads an audit record. Returns `None` if the failover or switchover was not interrupted, or if it left
    /// nothing to undo.
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
            // During the write pause, actions are executed before the audit record is stored. So the
            // candidate may be writable even though the record does not contain the action that makes it
            // writable.
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
                // A switchover reads all ackers at its start. Its audit record does not show which of these
                // ackers it stopped.
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
            // Repointing an acker to the old primary belongs to an undo, so it does not show that the
            // candidate became primary.
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

/// Returns the failover or switchover that must be recovered, from records with the newest first. This is the
/// last failover or switchover that changed anything, if its manager died or lost the lease during it and no
/// recovery has completed. The result contains its highest lease term, which may be that of a failed
/// recovery.
pub fn run_to_recover(newest_first: impl IntoIterator<Item = Audit>) -> Option<InterruptedRun> {
    let mut recovered = BTreeSet::new();
    let mut terms = BTreeMap::<String, u64>::new();
    for audit in newest_first {
        match RunEffect::of(&audit) {
            RunEffect::None => {}
            RunEffect::Promoted { .. } | RunEffect::Undone | RunEffect::Incomplete => return None,
            RunEffect::Recovered { run } => {
                recovered.insert(run);
            }
            RunEffect::RecoveryFailed { run, term } => {
                let highest = terms.entry(run).or_default();
                *highest = term.max(*highest);
            }
            RunEffect::Interrupted(run) if recovered.contains(&run.run) => return None,
            RunEffect::Interrupted(mut run) => {
                run.term = run.term.max(terms.get(&run.run).copied().unwrap_or_default());
                return Some(*run);
            }
        }
    }
    None
}
