//! The loop that executes the actions of a failover or switchover.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::audit_store::AuditStore;
use super::lease_check::LeaseCheck;
use super::state_machine_interface::RunMachine;
use crate::action_executor::ActionExecutor;
use crate::model::{ActionOutcome, Audit, LeaseToken, NumberedAction, RunAction};

/// The result of a confirmation, as a future: the evidence that the primary has failed, or the reason why the
/// failure is not confirmed.
pub type ConfirmationFuture<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// Queries all observers of the primary once more.
pub trait ConfirmFailure: Send + Sync {
    /// Queries the observers in bounded time.
    fn confirm(&self) -> ConfirmationFuture<'_>;
}

/// Time limits of actions, in milliseconds. An [`ActionExecutor`] has its own, shorter limits. The limits
/// here apply only if the executor exceeds its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverTimeouts {
    /// Limit for most actions.
    pub act_ms_max: u64,
    /// Limit for actions that send or execute transactions.
    pub catch_up_ms_max: u64,
}

impl Default for DriverTimeouts {
    fn default() -> Self {
        Self { act_ms_max: 60_000, catch_up_ms_max: 660_000 }
    }
}

impl DriverTimeouts {
    fn of(self, act: &RunAction) -> Duration {
        let catches_up = matches!(
            act,
            RunAction::Backfill { .. }
                | RunAction::DrainRelayLog { .. }
                | RunAction::WaitForServer { .. }
                | RunAction::WaitForAcker { .. }
        );
        Duration::from_millis(if catches_up { self.catch_up_ms_max } else { self.act_ms_max })
    }
}

/// The parts that drive a state machine.
pub struct RunDriver<H, T> {
    /// Executes the actions.
    pub executor: Arc<H>,
    /// Checks the lease before each action.
    pub term: T,
    /// Confirms that the primary has failed.
    pub confirm: Arc<dyn ConfirmFailure>,
    /// Stores the audit record.
    pub records: Arc<dyn AuditStore>,
    /// Time limits of actions.
    pub limits: DriverTimeouts,
}

type ActionTasks = JoinSet<(u32, ActionOutcome)>;

/// The result of a task that executes one action.
type ActionTaskResult = Result<(Id, (u32, ActionOutcome)), JoinError>;

impl<H: ActionExecutor + 'static, T: LeaseCheck> RunDriver<H, T> {
    /// Drives a state machine until its failover or switchover is finished, in bounded time. Returns the
    /// audit record. `progress` receives each new version of the record.
    ///
    /// Does not wait for actions that are still in flight when the failover or switchover is finished or the
    /// lease is lost.
    pub async fn drive<M: RunMachine>(
        &self,
        machine: &mut M,
        progress: &watch::Sender<Option<Audit>>,
    ) -> Audit {
        let began = Instant::now();
        let at_ms = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut under_way = ActionTasks::new();
        let mut numbers = HashMap::new();
        let mut orders = machine.begin(at_ms());
        while machine.audit().outcome.is_none() {
            progress.send_replace(Some(machine.audit().clone()));
            if let Some((number, answer)) = self.answer_lease_check(&mut orders).await {
                orders.extend(machine.answer(at_ms(), number, answer));
                continue;
            }
            let refused = self.store_before(machine, &orders).await;
            // Storing the audit record may have taken so long that the lease has ended. So the lease is
            // checked again.
            if let Some(token) = machine.token() {
                match self.term.check() {
                    Ok(held) if held == token => {}
                    Ok(_) => {
                        machine.lease_lost(at_ms(), "this manager holds the lease, but in a new lease term")
                    }
                    Err(reason) => machine.lease_lost(at_ms(), &reason),
                }
                if machine.audit().outcome.is_some() {
                    break;
                }
            }
            for (number, act) in std::mem::take(&mut orders) {
                let id = match refused.as_ref().filter(|_| act.changes_state()) {
                    Some(reason) => {
                        let reason = reason.clone();
                        under_way.spawn(async move { (number, ActionOutcome::Failed(reason)) }).id()
                    }
                    None => self.begin(&mut under_way, number, act, machine.token()),
                };
                numbers.insert(id, number);
            }
            let deadline = machine.deadline_ms().map(|at_ms| began + Duration::from_millis(at_ms));
            tokio::select! {
                // The lease is checked first: an outcome is accepted only if the lease is still held.
                biased;
                reason = self.term.ended(), if machine.token().is_some() => machine.lease_lost(at_ms(), &reason),
                done = under_way.join_next_with_id() => match answered(done, &mut numbers) {
                    Some((number, answer)) => orders = machine.answer(at_ms(), number, answer),
                    None => machine.lease_lost(at_ms(), "the failover or switchover is not finished, but no action is in flight"),
                },
                () = until(deadline) => {
                    // The late actions continue in the background. An undo action takes effect after the
                    // action that it undoes.
                    let mut late: Vec<u32> = numbers.drain().map(|(_, number)| number).collect();
                    late.sort_unstable();
                    for number in late {
                        let answer = ActionOutcome::Unknown("the action was not finished at the deadline".to_owned());
                        orders.extend(machine.answer(at_ms(), number, answer));
                    }
                }
            }
        }
        under_way.abort_all();
        let audit = machine.audit().clone();
        if let Err(reason) = self.store(&audit).await {
            tracing::error!(
                id = audit.id,
                "the audit record of a finished failover or switchover cannot be stored: {reason}"
            );
        }
        progress.send_replace(Some(audit.clone()));
        audit
    }

    /// Answers the pending lease check, if there is one, before any other action starts.
    async fn answer_lease_check(&self, orders: &mut Vec<NumberedAction>) -> Option<(u32, ActionOutcome)> {
        let at = orders.iter().position(|(_, act)| *act == RunAction::CheckLease)?;
        let (number, _) = orders.remove(at);
        Some((number, self.term.check().map_or_else(ActionOutcome::Failed, ActionOutcome::LeaseHeld)))
    }

    /// Stores the audit record if an action is about to change something. Returns the reason if the action
    /// must not be executed, because the record could not be stored.
    async fn store_before<M: RunMachine>(&self, machine: &M, orders: &[NumberedAction]) -> Option<String> {
        if machine.skips_audit_store() || !orders.iter().any(|(_, act)| act.changes_state()) {
            return None;
        }
        let reason = self.store(machine.audit()).await.err()?;
        if machine.must_continue() {
            tracing::error!(
                id = machine.audit().id,
                "the failover or switchover continues, although its audit record cannot be stored: {reason}"
            );
            return None;
        }
        Some(format!("the audit record with this action cannot be stored: {reason}"))
    }

    async fn store(&self, audit: &Audit) -> Result<(), String> {
        let (records, audit) = (Arc::clone(&self.records), audit.clone());
        let stored = tokio::task::spawn_blocking(move || records.save(&audit)).await;
        stored.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    fn begin(
        &self,
        under_way: &mut ActionTasks,
        number: u32,
        act: RunAction,
        token: Option<LeaseToken>,
    ) -> Id {
        let limit = self.limits.of(&act);
        let (executor, confirm) = (Arc::clone(&self.executor), Arc::clone(&self.confirm));
        let work = async move {
            match (&act, token) {
                (RunAction::ConfirmFailure, _) => confirm
                    .confirm()
                    .await
                    .map_or_else(ActionOutcome::Failed, ActionOutcome::FailureConfirmed),
                (act, Some(token)) => executor.execute(act, token).await,
                (_, None) => ActionOutcome::Failed("the lease term is not known".to_owned()),
            }
        };
        let bounded = async move {
            let answer = tokio::time::timeout(limit, work).await;
            let late = || {
                ActionOutcome::Unknown(format!("the action had no answer within {} ms", limit.as_millis()))
            };
            (number, answer.unwrap_or_else(|_| late()))
        };
        under_way.spawn(bounded).id()
    }
}

/// Waits until the deadline, or for ever if there is none.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns the outcome of a finished action; `None` if no action is in flight.
fn answered(done: Option<ActionTaskResult>, numbers: &mut HashMap<Id, u32>) -> Option<(u32, ActionOutcome)> {
    match done? {
        Ok((id, answer)) => {
            numbers.remove(&id);
            Some(answer)
        }
        Err(error) => {
            let number = numbers.remove(&error.id())?;
            Some((number, ActionOutcome::Unknown(format!("the task of the action stopped: {error}"))))
        }
    }
}
