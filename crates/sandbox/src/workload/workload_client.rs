//! One worker of a workload: a connection that runs transactions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tailwater_session::{Backoff, ConnectOptions, Connection, SessionError, SessionRetry};
use tokio::sync::watch;

use super::live_counters::Counters;
use super::transaction_generator::{PlannedStatement, TransactionPlan, TransactionPlanner};
use super::{TransactionMix, WorkerCommand, WorkloadSpec};
use crate::ledger::{CommitOutcome, Ledger, LedgerEntry, TransactionId};

/// A worker gives up after this many consecutive statement errors, because the tables are then probably not
/// as the worker expects. Failures of the connection do not count.
const REFUSALS_MAX: u32 = 100;

/// How an attempt of a transaction failed.
enum TransactionEnd {
    Acknowledged,
    /// The transaction is certainly not committed. The connection can still be used.
    Refused(SessionError),
    /// The transaction is certainly not committed. The connection cannot be used any more.
    Broken,
    /// The transaction may be committed. The connection cannot be used any more.
    Unknown,
}

#[derive(Debug)]
pub(super) struct WorkloadWorker {
    number: u32,
    mix: TransactionMix,
    deadline: Option<Instant>,
    reconnect: Duration,
    pause: Duration,
    planner: TransactionPlanner,
    sequence: u64,
    seed: u64,
    counters: Arc<Counters>,
    ledger: Arc<Ledger>,
    commands: watch::Receiver<WorkerCommand>,
    targets: watch::Receiver<ConnectOptions>,
    /// Number of transactions that all workers together may still start.
    left: Arc<AtomicU64>,
}

impl WorkloadWorker {
    pub(super) fn new(
        spec: &WorkloadSpec,
        number: u32,
        counters: Arc<Counters>,
        ledger: Arc<Ledger>,
        commands: watch::Receiver<WorkerCommand>,
        targets: watch::Receiver<ConnectOptions>,
        left: Arc<AtomicU64>,
    ) -> Self {
        let body_bytes_max = match spec.mix {
            TransactionMix::Mixed { body_bytes_max } => body_bytes_max,
            TransactionMix::SingleInsert { .. } => 0,
        };
        Self {
            number,
            mix: spec.mix,
            deadline: spec.duration.map(|duration| Instant::now() + duration),
            reconnect: spec.reconnect,
            pause: spec.pause,
            planner: TransactionPlanner::new(spec.seed, number, body_bytes_max),
            sequence: ledger.last_sequence(number),
            seed: spec.seed,
            counters,
            ledger,
            commands,
            targets,
            left,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), SessionError> {
        let mut again = false;
        while self.should_continue() {
            let Some(mut connection) = self.connect().await? else { return Ok(()) };
            self.counters.connected(again);
            let result = self.use_connection(&mut connection).await;
            self.counters.disconnected();
            result?;
            // The interrupted transaction may or may not be in the tables, so the worker starts with new
            // rows.
            self.planner.forget();
            again = true;
        }
        Ok(())
    }

    fn should_continue(&self) -> bool {
        *self.commands.borrow() == WorkerCommand::Run
            && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            && self.left.load(Relaxed) > 0
    }

    /// Takes one transaction from the remaining number that all workers share. Returns false if none remains.
    fn take_transaction(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Connects, and retries for as long as the specification allows. Returns `None` if the workload is
    /// stopped in the meantime.
    async fn connect(&mut self) -> Result<Option<Connection>, SessionError> {
        let give_up = Instant::now() + self.reconnect;
        let (first, longest) = (Duration::from_millis(20), Duration::from_secs(1));
        let mut backoff = Backoff::new(first, longest, self.seed ^ u64::from(self.number));
        loop {
            let target = self.targets.borrow_and_update().clone();
            let mut commands = self.commands.clone();
            let result = tokio::select! {
                biased;
                _ = commands.wait_for(|command| *command != WorkerCommand::Run) => return Ok(None),
                result = self.log_in(&target) => result,
            };
            let error = match result {
                Ok(connection) => return Ok(Some(connection)),
                Err(error) => error,
            };
            if error.retry() != SessionRetry::Later || Instant::now() >= give_up {
                return Err(error);
            }
            tokio::select! {
                _ = tokio::time::sleep(backoff.next_delay()) => {}
                _ = commands.wait_for(|command| *command != WorkerCommand::Run) => return Ok(None),
            }
        }
    }

    async fn log_in(&self, target: &ConnectOptions) -> Result<Connection, SessionError> {
        let mut connection = Connection::connect(target).await?;
        // With autocommit, a transaction without BEGIN needs one round trip less.
        let autocommit = u8::from(matches!(self.mix, TransactionMix::SingleInsert { .. }));
        connection.execute(&format!("SET SESSION autocommit={autocommit}")).await?;
        connection.execute("SET NAMES utf8mb4").await?;
        Ok(connection)
    }

    /// Runs transactions until the workload ends or the connection breaks.
    async fn use_connection(&mut self, connection: &mut Connection) -> Result<(), SessionError> {
        let mut refusals = 0;
        while self.should_continue() && self.take_transaction() {
            self.sequence += 1;
            let plan = match self.mix {
                TransactionMix::Mixed { .. } => self.planner.mixed(self.sequence),
                TransactionMix::SingleInsert { payload_bytes } => {
                    self.planner.single(self.sequence, payload_bytes)
                }
            };
            match self.transaction(connection, &plan).await {
                TransactionEnd::Acknowledged => {
                    self.record(&plan, CommitOutcome::Acknowledged);
                    self.planner.committed(plan);
                    refusals = 0;
                }
                TransactionEnd::Refused(error) => {
                    self.record(&plan, CommitOutcome::Failed);
                    self.counters.failed();
                    // The error may mean that the server has lost some of the worker's rows, so the worker
                    // starts with new rows.
                    self.planner.forget();
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        return Err(error);
                    }
                }
                TransactionEnd::Broken => {
                    self.record(&plan, CommitOutcome::Failed);
                    self.counters.failed();
                    return Ok(());
                }
                TransactionEnd::Unknown => {
                    self.record(&plan, CommitOutcome::Unknown);
                    self.counters.unknown();
                    return Ok(());
                }
            }
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        Ok(())
    }

    fn record(&self, plan: &TransactionPlan, outcome: CommitOutcome) {
        let id = TransactionId { worker: self.number, sequence: self.sequence };
        self.ledger.record(id, LedgerEntry { outcome, changes: plan.changes, digest: plan.digest });
    }

    async fn transaction(&mut self, connection: &mut Connection, plan: &TransactionPlan) -> TransactionEnd {
        let mut commands = self.commands.clone();
        let autocommit = matches!(self.mix, TransactionMix::SingleInsert { .. });
        let mut committing = autocommit;
        let work = async {
            let mut began = Instant::now();
            for statement in &plan.statements {
                if let Err(end) = run(connection, statement, autocommit).await {
                    return end;
                }
            }
            if !autocommit {
                committing = true;
                began = Instant::now();
                // After any error of COMMIT it is unknown whether the transaction was committed.
                if connection.execute("COMMIT").await.is_err() {
                    return TransactionEnd::Unknown;
                }
            }
            self.counters.acknowledged(began.elapsed());
            TransactionEnd::Acknowledged
        };
        tokio::select! {
            biased;
            end = work => end,
            // A connection that was interrupted during a request is not used again.
            _ = commands.wait_for(|command| *command == WorkerCommand::Abort) => {
                if committing { TransactionEnd::Unknown } else { TransactionEnd::Broken }
            }
        }
    }
}

/// Runs one statement of a transaction. It must change as many rows as planned.
async fn run(
    connection: &mut Connection,
    statement: &PlannedStatement,
    autocommit: bool,
) -> Result<(), TransactionEnd> {
    let error = match connection.execute(&statement.sql).await {
        Ok(done) if done.affected_rows == statement.rows => return Ok(()),
        Ok(done) => SessionError::UnexpectedResult {
            doing: "running the workload",
            reason: format!("{} rows changed by: {}", done.affected_rows, shortened(&statement.sql)),
        },
        Err(error) => error,
    };
    match &error {
        // An autocommitted statement may have committed if the connection failed, or if the server reported
        // an error that can occur after the write to the binlog.
        SessionError::Server { error: server, .. } if autocommit && !refused_before_commit(server.number) => {
            return Err(TransactionEnd::Unknown);
        }
        SessionError::Server { .. } | SessionError::UnexpectedResult { .. } => {}
        _ if autocommit => return Err(TransactionEnd::Unknown),
        _ => return Err(TransactionEnd::Broken),
    }
    // Not every error rolls the transaction back, so the worker does it explicitly.
    match connection.execute("ROLLBACK").await {
        Ok(_) => Err(TransactionEnd::Refused(error)),
        Err(_) => Err(TransactionEnd::Broken),
    }
}

/// Whether the error number of an INSERT means that nothing was written to the binlog.
fn refused_before_commit(number: u16) -> bool {
    const DUPLICATE_KEY: u16 = 1062;
    const NO_SUCH_TABLE: u16 = 1146;
    const UNKNOWN_DATABASE: u16 = 1049;
    const LOCK_WAIT_TIMEOUT: u16 = 1205;
    const DEADLOCK: u16 = 1213;
    const READ_ONLY: u16 = 1290;
    matches!(
        number,
        DUPLICATE_KEY | NO_SUCH_TABLE | UNKNOWN_DATABASE | LOCK_WAIT_TIMEOUT | DEADLOCK | READ_ONLY
    )
}

/// Returns the beginning of a statement, for messages.
fn shortened(sql: &str) -> String {
    sql.chars().take(80).collect()
}
