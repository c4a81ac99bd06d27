//! Pauses bulk work while servers are busy. A value that cannot be measured also pauses the work.
//!
//! - [`pause_decision`]: the core, without I/O: when to pause, and when to resume.
//! - [`load_probes`]: measures the values: one connection for each value, queried at a limited rate.
//!
//! Bulk work calls [`Throttle::pass`] before each chunk or file. All connections of the work share one
//! throttle.

mod load_probes;
pub mod pause_decision;

use std::sync::Arc;
use std::time::Duration;

use tailwater_session::ConnectOptions;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use crate::progress_counters::BulkProgress;
use pause_decision::ThrottleDecision;

/// The limits at which work pauses.
#[derive(Debug, Clone)]
pub struct ThrottleRules {
    /// Replicas whose replication lag is limited.
    pub replicas: Vec<ConnectOptions>,
    /// Maximum lag of the replicas in `replicas`.
    pub replica_lag_max: Duration,
    /// Maximum number of threads of the server that run a statement. Tailwater's own threads count, too.
    pub threads_running_max: Option<u64>,
    /// A query of the user whose value is limited.
    pub query: Option<ThrottleQuery>,
    /// Interval between two queries to each server.
    pub every: Duration,
}

/// A statement that returns one number. It runs on the server that the bulk work puts load on.
#[derive(Debug, Clone, PartialEq)]
pub struct ThrottleQuery {
    /// The SQL statement.
    pub sql: String,
    /// The maximum value. With 0, any other value pauses the work.
    pub max: f64,
}

impl Default for ThrottleRules {
    /// Returns rules without limits. If the caller adds a limit, the other defaults are a maximum lag of 10 s
    /// and one query per second.
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
    /// Returns whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty() && self.threads_running_max.is_none() && self.query.is_none()
    }
}

/// Lets bulk work proceed, or pauses the work. All connections of the work share one throttle.
#[derive(Debug)]
pub struct Throttle {
    decision: watch::Receiver<ThrottleDecision>,
    probes: Option<JoinHandle<()>>,
}

impl Throttle {
    /// Creates a throttle without limits.
    pub fn open() -> Self {
        let (_, decision) = watch::channel(ThrottleDecision::Proceed);
        Self { decision, probes: None }
    }

    /// Starts to measure. Work waits until the first measurements have arrived. `server` is the server that
    /// the work puts load on: its threads are counted, and the user's query runs there.
    ///
    /// It must be called on a tokio runtime.
    pub fn start(rules: ThrottleRules, server: ConnectOptions) -> Self {
        if rules.is_empty() {
            return Self::open();
        }
        let (sender, decision) =
            watch::channel(ThrottleDecision::Wait("the throttle has no measurements yet".into()));
        let probes = tokio::spawn(load_probes::run_probes(rules, server, sender));
        Self { decision, probes: Some(probes) }
    }

    /// Waits until work may proceed. While it waits, the progress shows the reason. The future may be dropped
    /// at any time.
    pub async fn pass(&self, progress: &BulkProgress) {
        let Some(reason) = self.reason() else { return };
        info!(%reason, "the throttle pauses the bulk work");
        let waiter = progress.begin_wait(reason);
        let mut decision = self.decision.clone();
        loop {
            match &*decision.borrow_and_update() {
                ThrottleDecision::Proceed => return,
                ThrottleDecision::Wait(reason) => waiter.set_reason(Arc::clone(reason)),
            }
            if decision.changed().await.is_err() {
                // The probes have stopped, so no more measurements will arrive.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns why work must wait now; `None` if it need not wait.
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
