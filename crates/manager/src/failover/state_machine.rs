//! The state machine: which actions follow which outcomes.

use std::collections::{BTreeMap, BTreeSet};

use tailwater_wire::gtid::GtidSet;

use super::action::{ActionOutcome, RunAction, RunPhase};
use super::audit::{Audit, AuditEvent, RunKind, RunOutcome};
use super::request::FailoverRequest;
use super::run_state::RunState;
use crate::candidates::{CandidateAssessment, CandidateServer, LogContents, SelectionInput, rank_candidates};
use crate::lease::LeaseToken;
use crate::lossless::{AckerEvidence, AckerStop, LossEvidence, LossVerdict, assess_loss};
use crate::safety_refusal::SafetyRefusal;

/// An action with its number.
pub type NumberedAction = (u32, RunAction);

/// What follows a successful lease check.
#[derive(Debug, Clone)]
enum FailoverContinuation {
    Phase(RunPhase),
    Action(RunAction),
}

/// A failover.
#[derive(Debug, Clone)]
pub struct Failover {
    order: FailoverRequest,
    /// What follows the pending lease check.
    then: FailoverContinuation,
    /// Actions that undo everything so far, the last one first.
    undo: Vec<RunAction>,
    /// An undo action failed in this round.
    undo_failed: bool,
    /// Failed undo actions are being repeated.
    tried_again: bool,
    /// An action changed something, reversible or not.
    changed: bool,
    ackers: Vec<AckerEvidence>,
    before: BTreeMap<String, GtidSet>,
    fenced_by: Option<String>,
    verdict: Option<LossVerdict>,
    servers: Vec<CandidateServer>,
    /// Servers that failed as candidates in this run, with the reason.
    rejected: BTreeMap<String, String>,
    chosen: Option<CandidateAssessment>,
    /// Actions that cannot be undone, and may have taken effect.
    irreversible: Vec<RunAction>,
    /// The new primary takes writes, so the run only continues.
    promoted: bool,
    left: Vec<RunAction>,
    refusal: Option<SafetyRefusal>,
    plan: Vec<RunAction>,
    run: RunState,
}

impl Failover {
    /// A failover that has not started.
    pub fn new(order: FailoverRequest) -> Self {
        let audit = Audit {
            dry_run: order.dry_run,
            allow_data_loss: order.allow_data_loss,
            ..Audit::new(&order.id, RunKind::Failover, &order.primary)
        };
        Self {
            order,
            then: FailoverContinuation::Phase(RunPhase::Confirm),
            undo: Vec::new(),
            undo_failed: false,
            tried_again: false,
            changed: false,
            ackers: Vec::new(),
            before: BTreeMap::new(),
            fenced_by: None,
            verdict: None,
            servers: Vec::new(),
            rejected: BTreeMap::new(),
            chosen: None,
            irreversible: Vec::new(),
            promoted: false,
            left: Vec::new(),
            refusal: None,
            plan: Vec::new(),
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
            return self.lease_answered(at_ms, answer);
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

    /// Enters a phase, beginning with a lease check.
    fn enter(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        self.after_the_lease(at_ms, FailoverContinuation::Phase(phase))
    }

    fn after_the_lease(&mut self, at_ms: u64, then: FailoverContinuation) -> Vec<NumberedAction> {
        self.then = then;
        vec![self.issue_action(at_ms, RunAction::CheckLease)]
    }

    fn lease_answered(&mut self, at_ms: u64, answer: ActionOutcome) -> Vec<NumberedAction> {
        if let Err(reason) = self.run.hold(answer) {
            self.lease_lost(at_ms, &reason);
            return Vec::new();
        }
        match self.then.clone() {
            FailoverContinuation::Action(act) => vec![self.issue_action(at_ms, act)],
            FailoverContinuation::Phase(phase) => {
                self.run.phase = phase;
                self.start(at_ms, phase)
            }
        }
    }

    /// Orders the actions of a phase, after the lease check.
    fn start(&mut self, at_ms: u64, phase: RunPhase) -> Vec<NumberedAction> {
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let ackers = self.order.ackers.clone().into_iter();
        let mut acts: Vec<RunAction> = match phase {
            RunPhase::Confirm => vec![RunAction::ConfirmFailure],
            RunPhase::Fence if self.order.dry_run => {
                ackers.map(|acker| RunAction::ReadAcker { acker }).collect()
            }
            RunPhase::Fence => ackers.map(|acker| RunAction::StopAcker { acker }).collect(),
            RunPhase::FenceHooks => self
                .order
                .fence_hooks
                .iter()
                .map(|hook| RunAction::RunFenceHook { hook: hook.clone() })
                .collect(),
            RunPhase::ChooseCandidate => vec![RunAction::ProbeCandidates],
            RunPhase::Backfill => self.backfills(&server),
            RunPhase::Drain => vec![RunAction::DrainRelayLog { server }],
            RunPhase::EnableSemiSync => {
                vec![RunAction::EnableSemiSyncSource { server, acks: self.order.acks_required }]
            }
            RunPhase::MakeWritable => vec![RunAction::MakeWritable { server }],
            RunPhase::RepointAckers => {
                ackers.map(|acker| RunAction::RepointAcker { acker, server: server.clone() }).collect()
            }
            RunPhase::RepointReplicas => {
                let replicas = self.order.direct_replicas.iter().filter(|replica| **replica != server);
                replicas.map(|replica| RunAction::RepointReplica { replica: replica.clone() }).collect()
            }
            RunPhase::RouteClients => {
                let hooks = self.order.route_hooks.iter();
                hooks
                    .map(|hook| RunAction::RunRouteHook { hook: hook.clone(), server: server.clone() })
                    .collect()
            }
            RunPhase::Undo => self.undo_now(),
            RunPhase::Lease
            | RunPhase::ProveCompleteness
            | RunPhase::Prepare
            | RunPhase::CatchUp
            | RunPhase::Pause
            | RunPhase::Finished => Vec::new(),
        };
        if self.order.dry_run {
            self.plan(phase, &mut acts);
        }
        // These run in parallel; all others one after the other.
        let together = matches!(
            phase,
            RunPhase::Fence | RunPhase::RepointAckers | RunPhase::RepointReplicas | RunPhase::Undo
        );
        if !together && acts.len() > 1 {
            self.run.queue = acts.split_off(1);
        }
        let ordered: Vec<NumberedAction> =
            acts.into_iter().map(|act| self.issue_action(at_ms, act)).collect();
        if ordered.is_empty() { self.conclude(at_ms) } else { ordered }
    }

    /// A candidate that may be writable is made read-only first, alone, while the old primary stays fenced.
    /// The rest runs in parallel: an acker that does not answer must not delay the others.
    fn undo_now(&self) -> Vec<RunAction> {
        let first = self.undo.iter().find(|act| matches!(act, RunAction::MakeReadOnly { .. }));
        first.map_or_else(|| self.undo.clone(), |act| vec![act.clone()])
    }

    /// In a dry run, actions that change something go into the plan and count as done.
    fn plan(&mut self, phase: RunPhase, acts: &mut Vec<RunAction>) {
        if phase == RunPhase::Fence {
            let stops = self.order.ackers.iter().map(|acker| RunAction::StopAcker { acker: acker.clone() });
            self.plan.extend(stops);
        }
        if phase == RunPhase::FenceHooks {
            self.fenced_by = self.order.fence_hooks.first().cloned();
        }
        if acts.iter().any(RunAction::changes_state) {
            self.plan.append(acts);
        }
    }

    fn issue_action(&mut self, at_ms: u64, act: RunAction) -> NumberedAction {
        // Recorded before the action is executed, because its effect is unknown until it is answered.
        let undoes = self.run.phase == RunPhase::Undo || self.undo.contains(&act);
        if !undoes && act.changes_state() {
            self.changed = true;
            match act.undo_action() {
                Some(undo) => self.undo.insert(0, undo),
                None => self.irreversible.push(act.clone()),
            }
        }
        self.run.order(at_ms, act)
    }

    /// Applies the outcome of an action.
    fn take(&mut self, at_ms: u64, act: &RunAction, answer: ActionOutcome) -> Vec<NumberedAction> {
        let failure = match (act, answer) {
            (RunAction::ConfirmFailure, ActionOutcome::FailureConfirmed(_)) => None,
            (RunAction::ConfirmFailure, other) => {
                let reason = other.summary().1;
                let primary = self.order.primary.clone();
                return self.refuse(at_ms, SafetyRefusal::NotConfirmed { primary, reason });
            }
            (
                RunAction::StopAcker { acker: name } | RunAction::ReadAcker { acker: name },
                ActionOutcome::AckerState { mut acker, before },
            ) => {
                acker.name.clone_from(name);
                if let AckerStop::Refused { .. } = acker.stop {
                    // The acker did not stop.
                    self.undo.retain(|undo| Some(undo) != act.undo_action().as_ref());
                } else if self.order.dry_run {
                    // It answers, so it can be stopped; the plan assumes that.
                    acker.stop = AckerStop::Persistent;
                }
                self.ackers.push(acker);
                self.before.insert(name.clone(), before);
                None
            }
            // An acker that does not answer does not count; the proof decides whether the others suffice.
            (RunAction::StopAcker { .. } | RunAction::ReadAcker { .. }, _) => None,
            (RunAction::RunFenceHook { hook }, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => {
                self.fenced_by = Some(hook.clone());
                None
            }
            // The other hooks, and the ackers, may suffice.
            (RunAction::RunFenceHook { .. }, _) => None,
            (RunAction::ProbeCandidates, ActionOutcome::Candidates(servers)) => {
                self.servers = servers;
                None
            }
            (RunAction::MakeWritable { .. }, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => {
                self.promoted = true;
                None
            }
            (_, ActionOutcome::Done | ActionOutcome::DoneWithNote(_)) => None,
            (_, other) => Some(other.summary().1),
        };
        match failure {
            Some(reason) => self.failed(at_ms, act, reason),
            None => self.go_on(at_ms, act),
        }
    }

    /// After a successful action, or one whose failure is tolerated.
    fn go_on(&mut self, at_ms: u64, act: &RunAction) -> Vec<NumberedAction> {
        if self.run.phase == RunPhase::Undo {
            self.undo.retain(|undo| undo != act);
        } else if matches!(act, RunAction::DisableSemiSyncSource { .. }) {
            self.undo.retain(|undo| undo != act);
            return self.enter(at_ms, RunPhase::ChooseCandidate);
        }
        self.go_on_behind(at_ms)
    }

    fn go_on_behind(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        if let Some(next) = self.run.next() {
            return self.after_the_lease(at_ms, FailoverContinuation::Action(next));
        }
        // Ackers on dead hosts are not waited for if the others prove completeness.
        let proven =
            self.run.phase == RunPhase::Fence && !self.order.dry_run && self.verdict_now().is_complete();
        if self.run.waiting.is_empty() || proven {
            self.run.waiting.clear();
            return self.conclude(at_ms);
        }
        Vec::new()
    }

    /// After an action that failed or whose outcome is unknown.
    fn failed(&mut self, at_ms: u64, act: &RunAction, reason: String) -> Vec<NumberedAction> {
        if self.run.phase == RunPhase::Undo {
            self.undo_failed = true;
            return self.go_on_behind(at_ms);
        }
        if self.run.phase > RunPhase::MakeWritable {
            self.left.push(act.clone());
            return self.go_on(at_ms, act);
        }
        if matches!(act, RunAction::DisableSemiSyncSource { .. }) {
            // The server takes no writes and stays on the undo list; the next candidate need not wait.
            return self.enter(at_ms, RunPhase::ChooseCandidate);
        }
        let may_give_way =
            matches!(self.run.phase, RunPhase::Backfill | RunPhase::Drain | RunPhase::EnableSemiSync);
        // The accepted loss was computed for this choice; another server may lose more.
        if may_give_way
            && self.order.wanted.is_none()
            && (self.run.phase != RunPhase::EnableSemiSync || self.run.audit.possible_loss.is_none())
            && let Some(CandidateAssessment { server, .. }) = self.chosen.take()
        {
            self.rejected.insert(server.clone(), format!("{act}: {reason}"));
            self.run.queue.clear();
            // Try another server. After its drain this one no longer replicates, and may wait for ACKs.
            if self.run.phase == RunPhase::EnableSemiSync {
                return self.after_the_lease(
                    at_ms,
                    FailoverContinuation::Action(RunAction::DisableSemiSyncSource { server }),
                );
            }
            return self.enter(at_ms, RunPhase::ChooseCandidate);
        }
        self.refuse(at_ms, SafetyRefusal::StepFailed { step: act.to_string(), reason })
    }

    /// All actions of the phase are answered.
    fn conclude(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        match self.run.phase {
            RunPhase::Confirm => self.enter(at_ms, RunPhase::Fence),
            RunPhase::Fence => self.enter(at_ms, RunPhase::FenceHooks),
            RunPhase::FenceHooks | RunPhase::ProveCompleteness => self.prove(at_ms),
            RunPhase::ChooseCandidate => self.choose_candidate(at_ms),
            RunPhase::Backfill => self.enter(at_ms, RunPhase::Drain),
            RunPhase::Drain => self.enter(at_ms, RunPhase::EnableSemiSync),
            RunPhase::EnableSemiSync => self.enter(at_ms, RunPhase::MakeWritable),
            RunPhase::MakeWritable => self.enter(at_ms, RunPhase::RepointAckers),
            RunPhase::RepointAckers => self.enter(at_ms, RunPhase::RepointReplicas),
            RunPhase::RepointReplicas => self.enter(at_ms, RunPhase::RouteClients),
            RunPhase::Undo if self.undo.is_empty() || (self.undo_failed && self.tried_again) => {
                let refusal = self.refusal.take();
                self.over(refusal);
                Vec::new()
            }
            RunPhase::Undo => {
                self.tried_again |= std::mem::take(&mut self.undo_failed);
                self.enter(at_ms, RunPhase::Undo)
            }
            RunPhase::RouteClients
            | RunPhase::Lease
            | RunPhase::Prepare
            | RunPhase::CatchUp
            | RunPhase::Pause
            | RunPhase::Finished => {
                self.over(None);
                Vec::new()
            }
        }
    }

    fn verdict_now(&self) -> LossVerdict {
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

    fn prove(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        self.run.phase = RunPhase::ProveCompleteness;
        let verdict = self.verdict_now();
        self.run.audit.holds = verdict.holds.as_ref().map(ToString::to_string);
        if let Some(refusal) = verdict.blocking_refusal(self.order.allow_data_loss).cloned() {
            return self.refuse(at_ms, refusal);
        }
        for refusal in &verdict.refusals {
            self.run.note(at_ms, AuditEvent::RuleOverridden { refusal: refusal.clone() });
        }
        self.run.audit.possible_loss.clone_from(&verdict.possible_loss);
        self.verdict = Some(verdict);
        self.enter(at_ms, RunPhase::ChooseCandidate)
    }

    fn choose_candidate(&mut self, at_ms: u64) -> Vec<NumberedAction> {
        for server in &mut self.servers {
            if let Some(reason) = self.rejected.get(&server.name) {
                server.fail(reason);
            }
        }
        let order = &self.order;
        let log = self.log();
        let choice = rank_candidates(&SelectionInput {
            region: order.region.as_deref(),
            version: order.version,
            origin: order.origin,
            log: &log,
            servers: &self.servers,
            across_regions: order.across_regions,
            catch_up_ms_max: order.catch_up_ms_max,
        });
        let best = choice.best(order.wanted.as_deref()).cloned();
        self.run.audit.choice = Some(choice);
        match best {
            Ok(best) => {
                self.chosen = Some(best);
                self.enter(at_ms, RunPhase::Backfill)
            }
            Err(refusal) => self.refuse(at_ms, refusal),
        }
    }

    /// The log to continue from: of the ackers with everything, the one whose log begins earliest. Without
    /// any, the transactions of the servers themselves, which the operator has accepted.
    fn log(&self) -> LogContents {
        let verdict = self.verdict.as_ref();
        let holders = verdict.map(|verdict| verdict.holders.as_slice()).unwrap_or_default();
        let reaches = |one: &&String| {
            holders
                .iter()
                .filter_map(|other| self.before.get(other))
                .all(|other| self.before.get(*one).is_some_and(|before| before.is_subset_of(other)))
        };
        let name = holders.iter().find(reaches).or(holders.first());
        if let (Some(name), Some(holds)) = (name, verdict.and_then(|verdict| verdict.holds.clone())) {
            let before = self.before.get(name).cloned().unwrap_or_else(|| holds.clone());
            return LogContents { name: name.clone(), holds, before };
        }
        let empty = GtidSet::empty(self.order.origin.flavour());
        let reached = self.servers.iter().filter(|server| server.reached.is_ok());
        let holds = reached
            .filter_map(|server| server.received.as_ref())
            .fold(empty, |all, received| all.union(received).unwrap_or(all));
        LogContents { name: "no log".to_owned(), before: holds.clone(), holds }
    }

    fn backfills(&self, server: &str) -> Vec<RunAction> {
        let backfills = self.chosen.iter().flat_map(|chosen| &chosen.backfills);
        backfills
            .map(|supply| RunAction::Backfill {
                server: server.to_owned(),
                from: supply.from.clone(),
                what: supply.what.clone(),
            })
            .collect()
    }

    /// Refuses to continue, and undoes the actions so far.
    fn refuse(&mut self, at_ms: u64, refusal: SafetyRefusal) -> Vec<NumberedAction> {
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
        if self.promoted {
            // Of rejected candidates.
            let unmade = |act: &&RunAction| matches!(act, RunAction::DisableSemiSyncSource { server: one } if *one != server);
            self.left.extend(self.undo.iter().filter(unmade).cloned());
        }
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

    /// After the promotion: unanswered actions, and those of phases not started.
    fn remaining_actions(&mut self) -> Vec<RunAction> {
        let mut acts: BTreeSet<RunAction> = std::mem::take(&mut self.left).into_iter().collect();
        acts.extend(self.run.waiting.values().filter(|act| act.changes_state()).cloned());
        acts.extend(std::mem::take(&mut self.run.queue));
        let server = self.chosen.as_ref().map(|chosen| chosen.server.clone()).unwrap_or_default();
        let begun = |phase: RunPhase| self.run.phase >= phase;
        if !begun(RunPhase::RepointAckers) {
            acts.extend(
                self.order
                    .ackers
                    .iter()
                    .map(|acker| RunAction::RepointAcker { acker: acker.clone(), server: server.clone() }),
            );
        }
        if !begun(RunPhase::RepointReplicas) {
            acts.extend(
                self.order
                    .direct_replicas
                    .iter()
                    .map(|replica| RunAction::RepointReplica { replica: replica.clone() }),
            );
        }
        if !begun(RunPhase::RouteClients) {
            acts.extend(
                self.order
                    .route_hooks
                    .iter()
                    .map(|hook| RunAction::RunRouteHook { hook: hook.clone(), server: server.clone() }),
            );
        }
        acts.into_iter().collect()
    }

    fn planned(&mut self, server: String) -> RunOutcome {
        let acts = std::mem::take(&mut self.plan);
        let mut expected_ms = 0u64;
        let mut at = 0;
        while let Some(act) = acts.get(at) {
            // Parallel actions of one kind take as long as one of them.
            let together = matches!(
                act,
                RunAction::StopAcker { .. }
                    | RunAction::RepointAcker { .. }
                    | RunAction::RepointReplica { .. }
            );
            let alike = |other: &&RunAction| std::mem::discriminant(*other) == std::mem::discriminant(act);
            let count = if together { acts[at..].iter().take_while(alike).count() } else { 1 };
            let drains = matches!(act, RunAction::DrainRelayLog { .. });
            let drain_ms =
                self.servers.iter().find(|one| drains && one.name == server).and_then(|one| one.catch_up_ms);
            expected_ms = expected_ms.saturating_add(drain_ms.unwrap_or_else(|| self.order.expected.of(act)));
            at += count;
        }
        RunOutcome::Planned { server, acts, expected_ms }
    }
}
