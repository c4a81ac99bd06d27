//! Holds work back while servers have enough to do. What cannot be known holds it back too.
//!
//! - [`decide`]: the core: when to hold, and when to go on again.
//! - [`probes`]: its driver: one connection for each server, asked at a bounded rate.
//!
//! Work calls [`Throttle::pass`] before each piece, however many connections it has: they share one throttle.

pub mod gauges;
mod probes;

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use crate::progress::BulkProgress;
use gauges::ThrottleDecision;

/// What holds work back.
#[derive(Debug, Clone)]
pub struct ThrottleRules {
    /// Replicas that must not fall behind.
    pub replicas: Vec<ConnectOptions>,
    /// How far they may be behind.
    pub replica_lag_max: Duration,
    /// How many threads of the server may be running a statement, ours included.
    pub threads_running_max: Option<u64>,
    /// A question of the user's own.
    pub query: Option<ThrottleQuery>,
    /// How often each server is asked.
    pub every: Duration,
}

/// A statement that gives one number, run on the server that the work is done on.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleQuery {
    /// The statement.
    pub sql: String,
    /// The most that it may give; with 0, anything but zero holds.
    pub max: f64,
}

impl Default for ThrottleRules {
    /// Nothing is held back; 10 s of lag and one question each second, once there is something to ask.
    fn default() -> Self {
        Self {
            replicas: Vec::new(),
            replica_lag_max: Duration::from_secs(10),
            threads_running_max: None,
            query: None,
            every: Duration::from_secs(1),
        }
    }
}

impl ThrottleRules {
    /// Whether nothing is ever held back.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty() && self.threads_running_max.is_none() && self.query.is_none()
    }
}

/// Lets work pass, or holds it. Shared by all who do the work.
#[derive(Debug)]
pub struct Throttle {
    decision: watch::Receiver<ThrottleDecision>,
    probes: Option<JoinHandle<()>>,
}

impl Throttle {
    /// One that never holds.
    pub fn open() -> Self {
        let (_, decision) = watch::channel(ThrottleDecision::Proceed);
        Self { decision, probes: None }
    }

    /// Begins to ask; work is held until the first answers are there. `server` is where the work is done: its threads are
    /// counted, and it is asked the user's own question.
    ///
    /// Must be called on a tokio runtime.
    pub fn start(rules: ThrottleRules, server: ConnectOptions) -> Self {
        if rules.is_empty() {
            return Self::open();
        }
        let (tell, decision) =
            watch::channel(ThrottleDecision::Wait("the throttle has no answer yet".into()));
        let probes = tokio::spawn(probes::run_probes(rules, server, tell));
        Self { decision, probes: Some(probes) }
    }

    /// Returns as soon as work may go on. What it waits for stands in the progress meanwhile. May be dropped at any time.
    pub async fn pass(&self, progress: &BulkProgress) {
        let Some(reason) = self.reason() else { return };
        info!(%reason, "held back");
        let waiter = progress.waits(reason);
        let mut decision = self.decision.clone();
        loop {
            match &*decision.borrow_and_update() {
                ThrottleDecision::Proceed => return,
                ThrottleDecision::Wait(reason) => waiter.because(Arc::clone(reason)),
            }
            if decision.changed().await.is_err() {
                // Nobody asks any more: nothing can be known.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why work is held now, if it is.
    pub fn reason(&self) -> Option<Arc<str>> {
        match &*self.decision.borrow() {
            ThrottleDecision::Proceed => None,
            ThrottleDecision::Wait(reason) => Some(Arc::clone(reason)),
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        if let Some(probes) = &self.probes {
            probes.abort();
        }
    }
}
