//! The task that keeps the lease, and the handle that is asked before each act.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;

use super::keeper::{Change, Heard, Keeper, Moment, Next, Terms};
use super::{LeaseStore, Token};
use crate::ManagerError;
use crate::refusal::Refusal;

/// Now, by the clock that runs on while the machine sleeps: a manager that was suspended must not believe that no time has
/// passed.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}

/// How a manager stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lease.
    Active(Token),
    /// It does not; who does, or why nobody knows.
    Waiting(String),
}

#[derive(Debug)]
struct Shared {
    keeper: Mutex<Keeper>,
    standing: watch::Sender<Standing>,
    /// Told when another term is to begin.
    anew: Notify,
}

/// Asked before each act. Cheap to clone and to ask.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    shared: Arc<Shared>,
}

impl LeaseHandle {
    /// The term in which this manager may act now.
    ///
    /// # Errors
    /// [`Refusal::NoLease`] if it does not hold the lease, or cannot be sure.
    pub fn check(&self) -> Result<Token, ManagerError> {
        // The clock is read here: whatever keeps the task from running does not lengthen the term.
        let held = self.shared.keeper.lock().unwrap_or_else(PoisonError::into_inner).holds(now());
        held.ok_or_else(|| {
            let reason = match &*self.shared.standing.borrow() {
                Standing::Active(_) => "the lease could not be renewed in time".to_owned(),
                Standing::Waiting(reason) => reason.clone(),
            };
            ManagerError::Refused(Refusal::NoLease { reason })
        })
    }

    /// Has this term end, and asks for another; it may be another manager's.
    pub fn begin_anew(&self) {
        self.shared.anew.notify_one();
    }

    /// How the manager stands, and changes of it. Acts ask [`LeaseHandle::check`] instead.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.standing.subscribe()
    }
}

/// The task that keeps the lease; it gives the lease back when told to, and lets it end when dropped.
#[derive(Debug)]
pub struct LeaseTask {
    handle: LeaseHandle,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl LeaseTask {
    /// Begins to ask for the lease.
    pub fn start<S: LeaseStore + 'static>(store: S, terms: Terms) -> Self {
        let (standing, _) = watch::channel(Standing::Waiting("it has not been asked for yet".to_owned()));
        let anew = Notify::new();
        let shared = Arc::new(Shared { keeper: Mutex::new(Keeper::new(terms)), standing, anew });
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(store, terms, Arc::clone(&shared), stopped));
        Self { handle: LeaseHandle { shared }, stop: Some(stop), task }
    }

    /// What is asked before each act.
    pub fn handle(&self) -> LeaseHandle {
        self.handle.clone()
    }

    /// Gives the lease back, so that another manager need not wait for its end. Nothing may be acted on any more.
    pub async fn release(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        // It ends by itself, or has panicked, in which case the lease ends by itself.
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
    terms: Terms,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let with = |act: &mut dyn FnMut(&mut Keeper) -> Option<Change>| {
        act(&mut shared.keeper.lock().unwrap_or_else(PoisonError::into_inner))
    };
    let request_max = Duration::from_millis(terms.request_ms_max);
    loop {
        let lost = with(&mut |keeper| keeper.tick(now()));
        if note(&shared, lost.as_ref()) {
            // What the store still has of the old term would keep this manager from a new one, too.
            let _ = tokio::time::timeout(request_max, store.release()).await;
        }
        let sent = now();
        let next = shared.keeper.lock().unwrap_or_else(PoisonError::into_inner).next(sent);
        let (asked, of) = match next {
            Next::Wait(until) => {
                let pause = Duration::from_millis(sent.ms_until(until).max(1));
                tokio::select! {
                    () = tokio::time::sleep(pause) => continue,
                    () = shared.anew.notified() => {
                        let lost = with(&mut |keeper| keeper.give_up(now()));
                        if note(&shared, lost.as_ref()) {
                            let _ = tokio::time::timeout(request_max, store.release()).await;
                        }
                        continue;
                    }
                    _ = &mut stopped => break,
                }
            }
            Next::Acquire => (tokio::time::timeout(request_max, store.acquire()).await, None),
            Next::Renew(token) => (tokio::time::timeout(request_max, store.renew(token)).await, Some(token)),
        };
        let heard = asked.unwrap_or_else(|_| Heard::Failed {
            reason: format!("no answer within {} ms", terms.request_ms_max),
        });
        let waiting = match &heard {
            Heard::Taken { holder } => Some(format!("{holder} holds the lease")),
            Heard::Failed { reason } | Heard::Gone { reason } => Some(reason.clone()),
            Heard::Granted { .. } | Heard::Renewed { .. } => None,
        };
        let granted = matches!(heard, Heard::Granted { .. });
        let mut heard = Some(heard);
        let change = with(&mut |keeper| keeper.heard(now(), sent, of, heard.take()?));
        if !note(&shared, change.as_ref())
            && of.is_none()
            && let Some(reason) = waiting
        {
            shared.standing.send_if_modified(|standing| {
                let new = Standing::Waiting(reason);
                let differs = *standing != new;
                *standing = new;
                differs
            });
        }
        // Granted too late to be of use.
        if granted && change.is_none() {
            let _ = tokio::time::timeout(request_max, store.release()).await;
        }
    }
    // From here on nothing is acted on; only then may another begin.
    *shared.keeper.lock().unwrap_or_else(PoisonError::into_inner) = Keeper::new(terms);
    shared.standing.send_replace(Standing::Waiting("it was given back".to_owned()));
    let _ = tokio::time::timeout(request_max, store.release()).await;
}

/// Tells those who watch; whether a term has ended.
fn note(shared: &Shared, change: Option<&Change>) -> bool {
    match change {
        None => false,
        Some(Change::Active(token)) => {
            tracing::info!(%token, "this manager is active");
            shared.standing.send_replace(Standing::Active(*token));
            false
        }
        Some(Change::Lost { token, reason }) => {
            tracing::warn!(%token, reason, "this manager is not active any more");
            shared.standing.send_replace(Standing::Waiting(reason.clone()));
            true
        }
    }
}
