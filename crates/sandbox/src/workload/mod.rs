//! Load on a server by clients that keep a ledger of the outcome of each transaction.
//!
//! Each worker is one connection that runs transactions one after another. Every transaction inserts a row
//! into `tw_load.tw_ledger` with its id, the number of its row changes and their digest. So a reader of the
//! binlog can identify a transaction and check that it is complete from the log alone; the [`Ledger`] tells
//! what the server acknowledged to the client.

mod counters;
mod plan;
mod random;
pub(crate) mod schema;
mod worker;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tailwater_session::{ConnectOptions, SessionError};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

pub use counters::{Counters, Histogram, WorkloadSnapshot};
pub use schema::{ChangeKind, SCHEMA, WorkloadTable, prepare};

use crate::ledger::Ledger;
use worker::WorkloadWorker;

/// What each transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionMix {
    /// Inserts, updates and deletes over several tables, a few statements each.
    Mixed {
        /// The longest document body, in bytes.
        body_bytes_max: usize,
    },
    /// One autocommitted insert: one round trip, for measurements.
    SingleInsert {
        /// Text in the row, 0..=1024 bytes.
        payload_bytes: usize,
    },
}

/// What load to make.
#[derive(Debug, Clone)]
pub struct WorkloadSpec {
    /// Connections, each a worker.
    pub connections: u32,
    /// The number of the first worker. A second workload on the same tables needs other numbers.
    pub first_worker: u32,
    /// Replays the same transactions, worker by worker (how workers interleave is up to the server).
    pub seed: u64,
    /// What each transaction does.
    pub mix: TransactionMix,
    /// Ends after this time.
    pub duration: Option<Duration>,
    /// Ends after this many transactions of all workers together, failed ones included.
    pub transactions: Option<u64>,
    /// How long a worker tries to connect again when its connection breaks; zero ends it at once.
    pub reconnect: Duration,
    /// Waits between two transactions of a worker.
    pub pause: Duration,
    /// A commit that takes longer counts as a stall.
    pub stall: Duration,
}

impl WorkloadSpec {
    /// A mixed load on so many connections that runs until it is stopped and survives restarts of the server.
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

/// Command to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerCommand {
    Run,
    /// End after the transaction under way.
    Finish,
    /// End at once: a running commit has an unknown outcome.
    Abort,
}

/// A running workload. Dropping it ends its workers at once, and their running transactions are in no ledger:
/// end with [`Self::finish`] or [`Self::abort`].
#[derive(Debug)]
pub struct Workload {
    counters: Arc<Counters>,
    ledger: Arc<Ledger>,
    command: watch::Sender<WorkerCommand>,
    target: watch::Sender<ConnectOptions>,
    workers: JoinSet<Result<(), SessionError>>,
    errors: Vec<SessionError>,
}

/// How a workload ended.
#[derive(Debug)]
pub struct WorkloadReport {
    /// The final figures.
    pub snapshot: WorkloadSnapshot,
    /// Acknowledged commits in each second.
    pub per_second: Vec<u32>,
    /// Workers that ended early, with the reason: they could not connect again in time, or the tables are
    /// missing.
    pub errors: Vec<SessionError>,
}

impl Workload {
    /// Starts the workers on the current runtime. The tables must be there: see [`prepare`].
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

    /// Live figures.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What is known about each transaction.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Sends workers to another server when they connect next: after a failover.
    pub fn redirect(&self, target: ConnectOptions) {
        self.target.send_replace(target);
    }

    /// Whether every worker has ended, because of its limits or without a server.
    pub fn is_over(&mut self) -> bool {
        while let Some(result) = self.workers.try_join_next() {
            self.errors.extend(error_of(result));
        }
        self.workers.is_empty()
    }

    /// Waits until the bounds of the spec end the workload.
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

    /// Lets every worker finish its transaction, then ends. Under semi-sync this waits for the
    /// acknowledgements.
    pub async fn finish(self) -> WorkloadReport {
        self.command.send_replace(WorkerCommand::Finish);
        self.wait().await
    }

    /// Ends every worker at once; commits under way are entered as of unknown outcome.
    pub async fn abort(self) -> WorkloadReport {
        self.command.send_replace(WorkerCommand::Abort);
        self.wait().await
    }
}

fn error_of(result: Result<Result<(), SessionError>, JoinError>) -> Option<SessionError> {
    match result {
        Ok(result) => result.err(),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only dropping the workload cancels its tasks.
        Err(_) => None,
    }
}
