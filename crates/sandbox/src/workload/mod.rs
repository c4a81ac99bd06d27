//! Clients that put load on a server and keep a ledger of the outcome of each transaction.
//!
//! Each worker is one connection that runs transactions one after another. Each transaction inserts a row
//! into `tw_load.tw_ledger` with its id, the number of its row changes and their digest. So from the binlog
//! alone, a reader can identify a transaction and check that it is complete. The [`Ledger`] holds what the
//! server acknowledged to the client.

mod live_counters;
mod seeded_random;
mod transaction_generator;
mod workload_client;
pub(crate) mod workload_tables;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tailwater_session::{ConnectOptions, SessionError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

pub use live_counters::{Counters, Histogram, WorkloadSnapshot};
pub use workload_tables::{ChangeKind, SCHEMA, WorkloadTable, prepare};

use crate::ledger::Ledger;
use workload_client::WorkloadWorker;

/// The statements of each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionMix {
    /// Inserts, updates and deletes in several tables, with a few statements in each transaction.
    Mixed {
        /// Maximum length of a document's text in bytes.
        body_bytes_max: usize,
    },
    /// One autocommitted INSERT, which needs one round trip. It is used for measurements.
    SingleInsert {
        /// Length of the text in the row, 0 to 1024 bytes.
        payload_bytes: usize,
    },
}

/// Specification of a load.
#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    /// Number of connections. Each one is a worker.
    pub connections: u32,
    /// Number of the first worker. A second workload on the same tables needs other numbers.
    pub first_worker: u32,
    /// Random seed. The same seed gives the same transactions of each worker. The order between workers
    /// depends on the server.
    pub seed: u64,
    /// The statements of each transaction.
    pub mix: TransactionMix,
    /// The workload ends after this time.
    pub duration: Option<Duration>,
    /// The workload ends after this many transactions of all workers together, including failed ones.
    pub transactions: Option<u64>,
    /// How long a worker tries to connect again after its connection broke. With zero, the worker ends at
    /// once.
    pub reconnect: Duration,
    /// Pause between two transactions of a worker.
    pub pause: Duration,
    /// A commit that takes longer counts as a stall.
    pub stall: Duration,
}

impl WorkloadSpec {
    /// Specifies a mixed load on `connections` connections. The load runs until it is stopped, and continues
    /// after restarts of the server.
    pub fn new(connections: u32) -> Self {
        Self {
            connections,
            first_worker: 1,
            seed: 1,
            mix: TransactionMix::Mixed { body_bytes_max: 8 * 1024 },
            duration: None,
            transactions: None,
            reconnect: Duration::from_secs(120),
            pause: Duration::ZERO,
            stall: Duration::from_secs(1),
        }
    }
}

/// A command to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerCommand {
    Run,
    /// End after the current transaction.
    Finish,
    /// End at once. A commit that is running has an unknown outcome.
    Abort,
}

/// A running workload. Dropping it ends the workers at once, and their current transactions are not in the
/// ledger. So end it with [`Self::finish`] or [`Self::abort`].
#[derive(Debug)]
pub struct Workload {
    counters: Arc<Counters>,
    ledger: Arc<Ledger>,
    command: watch::Sender<WorkerCommand>,
    target: watch::Sender<ConnectOptions>,
    workers: JoinSet<Result<(), SessionError>>,
    errors: Vec<SessionError>,
}

/// The result of a workload that has ended.
#[derive(Debug)]
pub struct WorkloadReport {
    /// The final statistics.
    pub snapshot: WorkloadSnapshot,
    /// Number of acknowledged commits in each second.
    pub per_second: Vec<u32>,
    /// Errors of workers that ended early: they could not connect again in time, or the tables are missing.
    pub errors: Vec<SessionError>,
}

impl Workload {
    /// Starts the workers on the current runtime. The tables must exist: see [`prepare`].
    pub fn start(target: ConnectOptions, spec: &WorkloadSpec, ledger: Arc<Ledger>) -> Self {
        let counters = Arc::new(Counters::new(spec.stall));
        let (command, commands) = watch::channel(WorkerCommand::Run);
        let (target, targets) = watch::channel(target);
        let left = Arc::new(AtomicU64::new(spec.transactions.unwrap_or(u64::MAX)));
        let mut workers = JoinSet::new();
        for number in 0..spec.connections {
            let worker = WorkloadWorker::new(
                spec,
                spec.first_worker + number,
                Arc::clone(&counters),
                Arc::clone(&ledger),
                commands.clone(),
                targets.clone(),
                Arc::clone(&left),
            );
            workers.spawn(worker.run());
        }
        Self { counters, ledger, command, target, workers, errors: Vec::new() }
    }

    /// Returns the live statistics.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the ledger, which holds the known outcome of each transaction.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Makes workers connect to another server from their next connection on, as after a failover.
    pub fn redirect(&self, target: ConnectOptions) {
        self.target.send_replace(target);
    }

    /// Whether all workers have ended, because of a limit in the specification or because no server was
    /// reachable.
    pub fn is_over(&mut self) -> bool {
        while let Some(result) = self.workers.try_join_next() {
            self.errors.extend(error_of(result));
        }
        self.workers.is_empty()
    }

    /// Waits until a limit in the specification ends the workload.
    pub async fn wait(mut self) -> WorkloadReport {
        while let Some(result) = self.workers.join_next().await {
            self.errors.extend(error_of(result));
        }
        WorkloadReport {
            snapshot: self.counters.snapshot(),
            per_second: self.counters.per_second(),
            errors: self.errors,
        }
    }

    /// Lets each worker finish its transaction, then ends. Under semi-sync this waits for the ACKs.
    pub async fn finish(self) -> WorkloadReport {
        self.command.send_replace(WorkerCommand::Finish);
        self.wait().await
    }

    /// Ends all workers at once. Running commits are recorded with an unknown outcome.
    pub async fn abort(self) -> WorkloadReport {
        self.command.send_replace(WorkerCommand::Abort);
        self.wait().await
    }
}

fn error_of(result: Result<Result<(), SessionError>, JoinError>) -> Option<SessionError> {
    match result {
        Ok(result) => result.err(),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The tasks are cancelled only when the workload is dropped, so this case has no result.
        Err(_) => None,
    }
}
