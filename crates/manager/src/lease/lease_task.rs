//! The task that keeps the lease, and the handle that is asked before each action.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use super::LeaseStore;
use super::lease_holder::{BootTime, LeaseAnswer, LeaseChange, LeaseHolder, LeaseRequest, LeaseTimes};
use crate::ManagerError;
use crate::model::LeaseToken;
use crate::safety_refusal::SafetyRefusal;

/// Time since boot, by the clock that also counts suspended time: after a suspension the manager must know
/// that time has passed.
pub fn now() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    BootTime(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}

/// Whether a manager holds the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStatus {
    /// This manager holds the lease.
    Active(LeaseToken),
    /// It does not; the holder, or why that is unknown.
    Waiting(String),
}

#[derive(Debug)]
struct LeaseShared {
    keeper: Mutex<LeaseHolder>,
    standing: watch::Sender<LeaseStatus>,
    /// Signals that a new term shall begin.
    restart_requested: Notify,
}

/// Asked before each action; cheap to clone and to ask.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    shared: Arc<LeaseShared>,
}

impl LeaseHandle {
    /// Token of the term in which this manager may act now.
    ///
    /// # Errors
    /// [`SafetyRefusal::NoLease`] if it does not hold the lease, or cannot be sure.
    pub fn check(&self) -> Result<LeaseToken, ManagerError> {
        // The clock is read here, so a delayed task does not extend the term.
        let held = self.shared.keeper.lock().holds(now());
        held.ok_or_else(|| {
            let reason = match &*self.shared.standing.borrow() {
                LeaseStatus::Active(_) => "the lease could not be renewed in time".to_owned(),
                LeaseStatus::Waiting(reason) => reason.clone(),
            };
            ManagerError::Refused(SafetyRefusal::NoLease { reason })
        })
    }

    /// Ends this term and requests a new one, which another manager may get.
    pub fn restart_term(&self) {
        self.shared.restart_requested.notify_one();
    }

    /// The status and its changes. Actions use [`LeaseHandle::check`] instead.
    pub fn standing(&self) -> watch::Receiver<LeaseStatus> {
        self.shared.standing.subscribe()
    }
}

/// The task that keeps the lease. [`LeaseTask::release`] returns the lease; a drop lets it expire.
#[derive(Debug)]
pub struct LeaseTask {
    handle: LeaseHandle,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl LeaseTask {
    /// Starts requesting the lease.
    pub fn start<S: LeaseStore + 'static>(store: S, terms: LeaseTimes) -> Self {
        let (standing, _) = watch::channel(LeaseStatus::Waiting("it has not been requested yet".to_owned()));
        let restart_requested = Notify::new();
        let shared = Arc::new(LeaseShared {
            keeper: Mutex::new(LeaseHolder::new(terms)),
            standing,
            restart_requested,
        });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(store, terms, Arc::clone(&shared), stopped));
        Self { handle: LeaseHandle { shared }, stop: Some(stop), task }
    }

    /// The handle for checks.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// Releases the lease, so that another manager need not wait for its end. No action may follow.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        // The task returned or panicked; then the lease expires.
        let _ = (&mut self.task).await;
    }
}

impl Drop for LeaseTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep<S: LeaseStore>(
    mut store: S,
    terms: LeaseTimes,
    shared: Arc<LeaseShared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let with = |act: &mut dyn FnMut(&mut LeaseHolder) -> Option<LeaseChange>| act(&mut shared.keeper.lock());
    let request_max = Duration::from_millis(terms.request_ms_max);
    loop {
        let lost = with(&mut |keeper| keeper.tick(now()));
        if note(&shared, lost.as_ref()) {
            // Remains of the old term in the store would also block this manager.
            let _ = tokio::time::timeout(request_max, store.release()).await;
        }
        let sent = now();
        let next = shared.keeper.lock().next(sent);
        let (asked, of) = match next {
            LeaseRequest::Wait(until) => {
                let pause = Duration::from_millis(sent.ms_until(until).max(1));
                tokio::select! {
                    () = tokio::time::sleep(pause) => continue,
                    () = shared.restart_requested.notified() => {
                        let lost = with(&mut |keeper| keeper.give_up(now()));
                        if note(&shared, lost.as_ref()) {
                            let _ = tokio::time::timeout(request_max, store.release()).await;
                        }
                        continue;
                    }
                    _ = &mut stopped => break,
                }
            }
            LeaseRequest::Acquire => (tokio::time::timeout(request_max, store.acquire()).await, None),
            LeaseRequest::Renew(token) => {
                (tokio::time::timeout(request_max, store.renew(token)).await, Some(token))
            }
        };
        let answer = asked.unwrap_or_else(|_| LeaseAnswer::Failed {
            reason: format!("no answer within {} ms", terms.request_ms_max),
        });
        let waiting = match &answer {
            LeaseAnswer::HeldByOther { holder } => Some(format!("{holder} holds the lease")),
            LeaseAnswer::Failed { reason } | LeaseAnswer::Expired { reason } => Some(reason.clone()),
            LeaseAnswer::Granted { .. } | LeaseAnswer::Renewed { .. } => None,
        };
        let granted = matches!(answer, LeaseAnswer::Granted { .. });
        let mut answer = Some(answer);
        let change = with(&mut |keeper| keeper.take_answer(now(), sent, of, answer.take()?));
        if !note(&shared, change.as_ref())
            && of.is_none()
            && let Some(reason) = waiting
        {
            shared.standing.send_if_modified(|standing| {
                let new = LeaseStatus::Waiting(reason);
                let differs = *standing != new;
                *standing = new;
                differs
            });
        }
        // Granted too late to be useful.
        if granted && change.is_none() {
            let _ = tokio::time::timeout(request_max, store.release()).await;
        }
    }
    // No action is executed from here on; only then may another manager begin.
    *shared.keeper.lock() = LeaseHolder::new(terms);
    shared.standing.send_replace(LeaseStatus::Waiting("it was released".to_owned()));
    let _ = tokio::time::timeout(request_max, store.release()).await;
}

/// Publishes a change. Returns whether a term has ended.
fn note(shared: &LeaseShared, change: Option<&LeaseChange>) -> bool {
    match change {
        None => false,
        Some(LeaseChange::Active(token)) => {
            tracing::info!(%token, "this manager is active");
            shared.standing.send_replace(LeaseStatus::Active(*token));
            false
        }
        Some(LeaseChange::Lost { token, reason }) => {
            tracing::warn!(%token, reason, "this manager is no longer active");
            shared.standing.send_replace(LeaseStatus::Waiting(reason.clone()));
            true
        }
    }
}
