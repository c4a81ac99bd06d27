//! The task that requests and renews the lease, and the handle with which the lease is checked before each
//! action.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use super::LeaseStore;
use super::lease_validity::{BootTime, LeaseAnswer, LeaseChange, LeaseHolder, LeaseRequest, LeaseTimes};
use crate::ManagerError;
use crate::model::LeaseToken;
use crate::safety_refusals::SafetyRefusal;

/// Returns the time since boot. The clock also counts the time while the machine is suspended, so a lease
/// term can expire during that time.
pub fn now() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    BootTime(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}

/// Whether this manager holds the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStatus {
    /// This manager holds the lease.
    Active(LeaseToken),
    /// Another manager holds the lease.
    HeldByOther {
        /// The name of the manager that holds the lease, as the lease store returns it.
        holder: String,
    },
    /// This manager does not hold the lease, and does not know of another manager that holds it. The text is
    /// the reason.
    Waiting(String),
}

impl LeaseStatus {
    /// Why this manager does not hold the lease; `None` if this manager holds the lease.
    pub fn waits_because(&self) -> Option<String> {
        match self {
            Self::Active(_) => None,
            Self::HeldByOther { holder } => Some(format!("{holder} holds the lease")),
            Self::Waiting(reason) => Some(reason.clone()),
        }
    }
}

#[derive(Debug)]
struct LeaseShared {
    keeper: Mutex<LeaseHolder>,
    standing: watch::Sender<LeaseStatus>,
    /// Notified when this lease term must end and a new lease term must begin.
    restart_requested: Notify,
}

/// A handle to check the lease before each action. Clones and checks are cheap.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    shared: Arc<LeaseShared>,
}

impl LeaseHandle {
    /// Returns the token of the lease term in which this manager may act now.
    ///
    /// # Errors
    /// [`SafetyRefusal::NoLease`] if the manager does not hold the lease, or cannot be sure that it holds the
    /// lease.
    pub fn check(&self) -> Result<LeaseToken, ManagerError> {
        // The clock is read at each check, so that the lease term does not last longer when the renewing task
        // is delayed.
        let held = self.shared.keeper.lock().holds(now());
        held.ok_or_else(|| {
            let reason = self.shared.standing.borrow().waits_because();
            let reason = reason.unwrap_or_else(|| "the lease could not be renewed in time".to_owned());
            ManagerError::Refused(SafetyRefusal::NoLease { reason })
        })
    }

    /// Ends this lease term and requests a new one. Another manager may get the lease instead.
    pub fn restart_term(&self) {
        self.shared.restart_requested.notify_one();
    }

    /// Returns a receiver of the status and its changes. Before an action, use [`LeaseHandle::check`]
    /// instead.
    pub fn standing(&self) -> watch::Receiver<LeaseStatus> {
        self.shared.standing.subscribe()
    }
}

/// The task that requests and renews the lease. [`LeaseTask::release`] returns the lease to the store. If the
/// task is only dropped, the lease expires.
#[derive(Debug)]
pub struct LeaseTask {
    handle: LeaseHandle,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl LeaseTask {
    /// Starts the task, which requests the lease from the store.
    pub fn start<S: LeaseStore + 'static>(store: S, terms: LeaseTimes) -> Self {
        let (standing, _) =
            watch::channel(LeaseStatus::Waiting("the lease has not been requested yet".to_owned()));
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

    /// Returns a handle for lease checks.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// Releases the lease, so that another manager need not wait for its end. This manager must not execute
    /// any action afterwards.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        // Waits for the task to end. If it panicked, the lease was not released and expires.
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
            // The old lease term is released, because this manager gets no new lease term while the store
            // keeps the old one.
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
            reason: format!("the lease store did not answer within {} ms", terms.request_ms_max),
        });
        let waiting = match &answer {
            LeaseAnswer::HeldByOther { holder } => Some(LeaseStatus::HeldByOther { holder: holder.clone() }),
            LeaseAnswer::Failed { reason } | LeaseAnswer::Expired { reason } => {
                Some(LeaseStatus::Waiting(reason.clone()))
            }
            LeaseAnswer::Granted { .. } | LeaseAnswer::Renewed { .. } => None,
        };
        let granted = matches!(answer, LeaseAnswer::Granted { .. });
        let mut answer = Some(answer);
        let change = with(&mut |keeper| keeper.take_answer(now(), sent, of, answer.take()?));
        if !note(&shared, change.as_ref())
            && of.is_none()
            && let Some(new) = waiting
        {
            shared.standing.send_if_modified(|standing| {
                let differs = *standing != new;
                *standing = new;
                differs
            });
        }
        // The lease was granted so late that its term has already ended, so it is released.
        if granted && change.is_none() {
            let _ = tokio::time::timeout(request_max, store.release()).await;
        }
    }
    // From here on, every lease check fails, so this manager executes no action. Only then may another
    // manager get the lease.
    *shared.keeper.lock() = LeaseHolder::new(terms);
    shared.standing.send_replace(LeaseStatus::Waiting("the lease was released".to_owned()));
    let _ = tokio::time::timeout(request_max, store.release()).await;
}

/// Publishes a change of the lease. Returns whether a lease term has ended.
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
