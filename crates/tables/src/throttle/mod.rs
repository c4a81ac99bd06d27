//! Pauses work while servers are loaded. A value that cannot be measured pauses it too.
//!
//! - [`gauges`]: the core: when to pause, and when to resume.
//! - [`probes`]: its driver: one connection per measured value, queried at a bounded rate.
//!
//! Work calls [`Throttle::pass`] before each piece. All connections share one throttle.

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

/// The limits at which work pauses.
#[derive(Debug, Clone)]
pub struct ThrottleRules {
    /// Replicas whose lag is limited.
    pub replicas: Vec<ConnectOptions>,
    /// Their maximum lag.
    pub replica_lag_max: Duration,
    /// Maximum number of threads of the server that run a statement, including Tailwater's own.
    pub threads_running_max: Option<u64>,
    /// The user's own query.
    pub query: Option<ThrottleQuery>,
    /// How often each server is queried.
    pub every: Duration,
}

/// A statement that returns one number, run on the server that the work loads.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleQuery {
    /// The statement.
    pub sql: String,
    /// The maximum; with 0, any other value pauses work.
    pub max: f64,
}

impl Default for ThrottleRules {
    /// No limits. Once a limit is set: 10 s of lag, and one query per second.
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
    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty() && self.threads_running_max.is_none() && self.query.is_none()
    }
}

/// Lets work proceed or pauses it. Shared by all connections that work.
#[derive(Debug)]
pub struct Throttle {
    decision: watch::Receiver<ThrottleDecision>,
    probes: Option<JoinHandle<()>>,
}

impl Throttle {
    /// A throttle without limits.
    pub fn open() -> Self {
        let (_, decision) = watch::channel(ThrottleDecision::Proceed);
        Self { decision, probes: None }
    }

    /// Starts to measure. Work waits until the first measurements are there. `server` is the server that the
    /// work loads: its threads are counted, and the user's own query runs there.
    ///
    /// Must be called on a tokio runtime.
    pub fn start(rules: ThrottleRules, server: ConnectOptions) -> Self {
        if rules.is_empty() {
            return Self::open();
        }
        let (sender, decision) =
            watch::channel(ThrottleDecision::Wait("the throttle has no answer yet".into()));
        let probes = tokio::spawn(probes::run_probes(rules, server, sender));
        Self { decision, probes: Some(probes) }
    }

    /// Returns as soon as work may proceed. While it waits, the progress shows the reason. May be dropped at
    /// any time.
    pub async fn pass(&self, progress: &BulkProgress) {
        let Some(reason) = self.reason() else { return };
        info!(%reason, "held back");
        let waiter = progress.begin_wait(reason);
        let mut decision = self.decision.clone();
        loop {
            match &*decision.borrow_and_update() {
                ThrottleDecision::Proceed => return,
                ThrottleDecision::Wait(reason) => waiter.set_reason(Arc::clone(reason)),
            }
            if decision.changed().await.is_err() {
                // The probes have stopped, so no measurement will arrive.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Why work must wait now, if it must.
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
