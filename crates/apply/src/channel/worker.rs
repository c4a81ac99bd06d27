//! A worker has one connection to the target and applies one batch at a time. Data and progress commit in one
//! transaction.

mod nontransactional_batch;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_log::{LogError, LogPosition};
use tailwater_session::SessionError;
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tracing::debug;

use super::channel_options::GtidMode;
use super::gtid_next_session::GtidSession;
use super::log_reader::BudgetedTransaction;
use super::multi_statement_packets::Packets;
use super::progress_store::STATEMENTS_ROW;
use super::row_writer::RowWriter;
use super::shared_channel_state::ChannelShared;
use super::slow_batch_trace_span;
use super::statement_runner::StatementRunner;
use super::worker_activity::{BatchWait, WorkerActivity};
use super::worker_progress_row::ProgressRow;
use crate::error::ApplyError;
use crate::log_position_range::joined;
use crate::scheduler::{BatchId, BatchTiming, CommitOrder, TransactionBatch};
use crate::source_transaction::{RowChanges, Transaction, TransactionContent};

/// The maximum number of retries of a batch after a deadlock or a lock wait timeout.
const CONFLICTS_MAX: u32 = 20;

/// If a batch has at least this many bytes, its commit is sent separately, so that the time of the commit is
/// measured.
const TIMED_BYTES_MIN: usize = 64 << 10;

/// The error `ER_KEY_NOT_FOUND`.
const NO_SUCH_ROW: u16 = 1032;

/// How long a channel that stops waits for the log's sync.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(2);

/// How much of a batch has committed.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchOutcome {
    /// The whole batch has committed.
    Committed(BatchTiming),
    /// The part `first` of the batch has committed, and the rest is returned to the scheduler.
    FirstCommitted(BatchTiming),
    /// Nothing of the batch has committed: the channel stopped before the batch started, or the log will not
    /// become durable up to the end of the batch.
    Returned,
}

/// How the wait of a batch for its turn to commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnWait {
    Arrived,
    /// The batch must release its locks before its turn comes.
    Yield,
    /// The turn of the batch will not come.
    Cancelled,
}

/// The part of a batch that is being committed.
#[derive(Debug, Clone, Copy)]
struct CommitPart<'b> {
    committed: &'b [&'b [BudgetedTransaction]],
    /// The transactions of `committed` that were not sent to the target yet.
    unsent: &'b [&'b [BudgetedTransaction]],
}

/// Applies batches, one at a time, on one connection to the target.
#[derive(Debug)]
pub(super) struct ApplyWorker {
    number: usize,
    writer: RowWriter,
    /// The row that a row event, sent together with the data, changes to record progress. `None` if an SQL
    /// statement records the progress.
    progress_row: Option<ProgressRow>,
    shared: Arc<ChannelShared>,
    /// Runs transactions with statements. All workers share it.
    statements: Arc<StatementRunner>,
    turn: watch::Receiver<BatchId>,
    yield_to: watch::Receiver<Option<BatchId>>,
    activity: Arc<WorkerActivity>,
}

impl ApplyWorker {
    /// Connects worker `number` to the target.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn connect(
        number: usize,
        shared: Arc<ChannelShared>,
        statements: Arc<StatementRunner>,
    ) -> Result<Self, ApplyError> {
        let mut writer = RowWriter::open(&shared.options).await?.ascii_only();
        let progress_row = match shared.options.records_progress_by_event() && writer.is_strict().await? {
            true => Some(shared.claim.progress_row(shared.flavour, number)?),
            false => None,
        };
        // With autocommit off, no BEGIN is needed. Each statement costs the target and Tailwater some
        // microseconds, which matters because a small transaction has only two or three statements.
        writer.connection.execute("SET SESSION autocommit=0").await?;
        let (turn, yield_to) = (shared.turn.subscribe(), shared.yield_to.subscribe());
        let activity = Arc::default();
        Ok(Self { number, writer, progress_row, shared, statements, turn, yield_to, activity })
    }

    /// Returns what this worker does.
    pub(super) fn activity(&self) -> &Arc<WorkerActivity> {
        &self.activity
    }

    /// Applies a batch and commits it.
    ///
    /// # Errors
    /// The error of the target. After such an error, nothing of the batch is committed. If the connection
    /// broke, it is unknown whether the batch is committed.
    pub(super) async fn apply(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
    ) -> Result<BatchOutcome, ApplyError> {
        let committed = self.commit(batch).await?;
        if let BatchOutcome::Committed(timing) | BatchOutcome::FirstCommitted(timing) = committed {
            slow_batch_trace_span::export(&self.shared.options.name, self.number, batch, timing);
        }
        match committed {
            // The worker itself announces the commit, because the next batch waits for this commit. An
            // announcement by the coordinator would take longer.
            BatchOutcome::Committed(_) if batch.in_turn => drop(self.shared.turn.send_replace(batch.id)),
            BatchOutcome::Committed(_) | BatchOutcome::FirstCommitted(_) => {}
            BatchOutcome::Returned => self.shared.batch_returned.cancel(),
        }
        Ok(committed)
    }

    async fn commit(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
    ) -> Result<BatchOutcome, ApplyError> {
        if let Some(transaction) = statement_transaction(batch) {
            let started = Instant::now();
            if !self.wait_to_start(batch).await
                || !self.wait_until_durable(end_of(&[&batch.first, &batch.rest])).await?
                || !self.log_xa_prepare(batch).await?
            {
                return Ok(BatchOutcome::Returned);
            }
            let progress = self.progress_statement(&[&batch.first, &batch.rest], STATEMENTS_ROW);
            let applied = self.statements.apply(&self.shared, transaction, progress).await?;
            let took = started.elapsed();
            return Ok(if applied {
                BatchOutcome::Committed(timing(took, estimated_commit(took)))
            } else {
                BatchOutcome::Returned
            });
        }
        if !is_transactional(batch) {
            return self.apply_nontransactional(batch).await;
        }
        let mut conflicts = 0;
        loop {
            let error = match self.attempt(batch).await {
                Ok(BatchOutcome::Returned) => {
                    self.roll_back().await?;
                    return Ok(BatchOutcome::Returned);
                }
                Ok(committed) => return Ok(committed),
                Err(error) => error,
            };
            let ApplyError::Session(SessionError::Server { error: server, .. }) = &error else {
                return Err(error);
            };
            let number = server.number;
            self.roll_back().await?;
            conflicts += 1;
            if !is_conflict(number) || conflicts > CONFLICTS_MAX {
                if number == NO_SUCH_ROW && self.progress_row.is_some() {
                    // The missing row may be the worker's progress row: check for a takeover.
                    self.shared.claim.check(&mut self.writer.connection).await?;
                    self.roll_back().await?;
                }
                return Err(error);
            }
            self.activity.count_conflict();
            debug!(
                worker = self.number,
                number,
                "the batch conflicted with another transaction on the target; the worker runs it again"
            );
            // In source order, wait for this batch's turn: the conflicting transaction has then finished.
            if !self.wait_to_start(batch).await {
                return Ok(BatchOutcome::Returned);
            }
            tokio::time::sleep(Duration::from_millis(u64::from(conflicts.min(10)))).await;
        }
    }

    /// Waits until a batch may start again after a conflict. In independent order, the wait also ends if
    /// another batch has stalled. Returns false if the turn of the batch will never come.
    async fn wait_to_start(&mut self, batch: &TransactionBatch<BudgetedTransaction>) -> bool {
        match self.shared.options.commit_order {
            CommitOrder::Source => self.wait_turn(batch).await,
            CommitOrder::Independent => self.wait_turn_or_yield(batch).await != TurnWait::Cancelled,
        }
    }

    async fn roll_back(&mut self) -> Result<(), ApplyError> {
        self.writer.row_count().reset();
        self.writer.connection.execute("ROLLBACK").await?;
        if self.shared.options.gtid == GtidMode::Preserve {
            self.writer.connection.execute(GtidSession::reset(self.shared.flavour)).await?;
        }
        // After the rollback it is unknown which session settings took effect.
        self.writer.restore_sql_settings().await
    }

    /// Tries once to apply the batch. Commits nothing if the log will not become durable up to the end of the
    /// batch.
    async fn attempt(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
    ) -> Result<BatchOutcome, ApplyError> {
        let started = Instant::now();
        let mut waited = Duration::ZERO;
        let all: [&[BudgetedTransaction]; 2] = [&batch.first, &batch.rest];
        let mut part = CommitPart { committed: &all, unsent: &all };
        if !self.log_xa_prepare(batch).await? {
            return Ok(BatchOutcome::Returned);
        }
        self.writer.start_transaction();
        let mut packets = Packets::default();
        let gtid = match self.shared.options.gtid {
            GtidMode::Preserve => oldest(batch).and_then(|transaction| transaction.gtid.clone()),
            _ => None,
        };
        let identity = gtid.as_ref().map(GtidSession::statement);
        identity.iter().for_each(|identity| packets.push(identity.as_str()));
        if !self.is_turn(batch) {
            self.writer.push_rows(changes(&all[..1]), &mut packets)?;
            self.writer.run_counted(std::mem::take(&mut packets)).await?;
            let wait = Instant::now();
            part = match self.await_turn(batch, &all).await? {
                ControlFlow::Continue(part) => part,
                ControlFlow::Break(committed) => return Ok(committed),
            };
            waited = wait.elapsed();
            if part.unsent.len() == all.len() {
                identity.iter().for_each(|identity| packets.push(identity.as_str()));
            }
        }
        let CommitPart { committed, unsent } = part;
        let has_run = unsent.iter().all(|part| part.is_empty());
        self.push_rows(unsent, committed, &mut packets)?;
        let end = end_of(committed);
        let mut commit_begun = has_run.then(Instant::now);
        let is_counted = self.writer.row_count().is_due();
        if is_counted || !self.shared.log.is_acknowledged(end) || packets.bytes() >= TIMED_BYTES_MIN {
            self.writer.run_counted(std::mem::take(&mut packets)).await?;
            if is_counted {
                let checked = self.writer.count_rows().await;
                checked.map_err(|error| error.of_transaction(&newest_gtid(committed)))?;
            }
            let wait = Instant::now();
            if !self.wait_until_acknowledged(end).await? {
                return Ok(BatchOutcome::Returned);
            }
            waited += wait.elapsed();
            commit_begun = Some(Instant::now());
        }
        self.push_statements(committed, &mut packets);
        packets.push("COMMIT");
        if gtid.is_some() {
            packets.push(GtidSession::reset(self.shared.flavour));
        }
        let sent = Instant::now();
        self.writer.run_counted(packets).await?;
        self.writer.row_count().commit();
        let commit = commit_begun.map_or_else(|| estimated_commit(sent.elapsed()), |commit| commit.elapsed());
        let timing = timing(started.elapsed().saturating_sub(waited), commit);
        Ok(if committed.len() == all.len() {
            BatchOutcome::Committed(timing)
        } else {
            BatchOutcome::FirstCommitted(timing)
        })
    }

    /// Waits until a batch whose first part has run may commit. Returns the part to commit, or the batch's
    /// result.
    async fn await_turn<'b>(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
        all: &'b [&'b [BudgetedTransaction]; 2],
    ) -> Result<ControlFlow<BatchOutcome, CommitPart<'b>>, ApplyError> {
        use ControlFlow::{Break, Continue};
        let turn = self.wait_turn_or_yield(batch).await;
        Ok(match (turn, self.shared.options.commit_order) {
            (TurnWait::Arrived, _) => Continue(CommitPart { committed: all, unsent: &all[1..] }),
            (TurnWait::Cancelled, _) => Break(BatchOutcome::Returned),
            (TurnWait::Yield, CommitOrder::Independent) if batch.first.is_empty() => {
                self.roll_back().await?;
                Break(BatchOutcome::FirstCommitted(BatchTiming::default()))
            }
            (TurnWait::Yield, CommitOrder::Independent) => {
                Continue(CommitPart { committed: &all[..1], unsent: &[] })
            }
            (TurnWait::Yield, CommitOrder::Source) => {
                // The whole batch runs again when its turn comes.
                self.roll_back().await?;
                match self.wait_turn(batch).await {
                    true => Continue(CommitPart { committed: all, unsent: all }),
                    false => Break(BatchOutcome::Returned),
                }
            }
        })
    }

    /// Logs the `XA PREPARE` of a transaction under its own GTID on the target. MySQL gives `XA PREPARE` a
    /// GTID of its own, and the rows are applied under the GTID of the `XA COMMIT`. Under `gtid = preserve`
    /// the target logs the GTID of the `XA PREPARE` as a transaction that only writes progress. Otherwise
    /// replicas of the target would miss that GTID. This transaction commits before the rows, so that a crash
    /// in between leaves no gap: after a restart, the channel sends this transaction again, and the server
    /// ignores a GTID that it already has.
    ///
    /// Returns false if the log will not become durable up to the end of the transaction.
    async fn log_xa_prepare(
        &mut self,
        batch: &TransactionBatch<BudgetedTransaction>,
    ) -> Result<bool, ApplyError> {
        if self.shared.options.gtid != GtidMode::Preserve || self.shared.flavour != Flavour::MySql {
            return Ok(true);
        }
        let prepared = oldest(batch).and_then(|transaction| transaction.prepared.as_ref());
        let Some(gtid) = prepared.and_then(|prepared| prepared.gtid.as_ref()) else { return Ok(true) };
        if !self.wait_until_durable(end_of(&[&batch.first, &batch.rest])).await? {
            return Ok(false);
        }
        let applied = self.shared.applied().encode();
        let mut packets = Packets::default();
        packets.push(GtidSession::statement(gtid));
        packets.push("START TRANSACTION");
        // Store this GTID in the progress row. After a crash, the next start then knows that the channel
        // wrote the GTID.
        packets.push(self.shared.claim.progress_statement(self.number, &applied, &gtid.to_string(), 0));
        packets.push("COMMIT");
        packets.push(GtidSession::reset(self.shared.flavour));
        packets.run(&mut self.writer.connection).await?;
        Ok(true)
    }

    /// Waits until everything up to `end` in the log is as durable as the relay's ACKs promise. Normally this
    /// means durable on disk, because the target must not have transactions that the log could lose in a
    /// crash. An operator can set the relay to acknowledge transactions that it has only received; in that
    /// case this function does not wait for the disk. Returns false if the log will not become durable, or if
    /// the run stops first.
    async fn wait_until_acknowledged(&self, end: LogPosition) -> Result<bool, ApplyError> {
        self.unless_stopped(self.shared.log.wait_until_acknowledged(end)).await
    }

    /// Waits until the log is durable on disk up to `end`, even if the relay's ACKs promise less. The worker
    /// calls this before changes that cannot be undone.
    async fn wait_until_durable(&self, end: LogPosition) -> Result<bool, ApplyError> {
        self.unless_stopped(self.shared.log.wait_until_durable(end)).await
    }

    async fn unless_stopped(
        &self,
        wait: impl Future<Output = Result<bool, LogError>>,
    ) -> Result<bool, ApplyError> {
        let _waits = self.activity.wait(BatchWait::Log);
        // When the channel stops, a running batch still finishes, unless the disk hangs.
        let stopped = async {
            self.shared.stop.cancelled().await;
            tokio::time::sleep(SYNC_WAIT_MAX).await;
        };
        tokio::select! {
            biased;
            done = wait => Ok(done?),
            () = stopped => Ok(false),
        }
    }

    /// Adds the rows of `unsent`, and the change of the progress row if there is one. The progress contains
    /// `committed` and all transactions that are known to be applied.
    fn push_rows(
        &mut self,
        unsent: &[&[BudgetedTransaction]],
        committed: &[&[BudgetedTransaction]],
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        if let Some(row) = &self.progress_row {
            let (applied, gtid, time_us) = self.progress_after(committed);
            let image = ProgressRow::image(&applied, &gtid, time_us);
            return self.writer.push_rows_with_progress(changes(unsent), row, &image, packets);
        }
        self.writer.push_rows(changes(unsent), packets)
    }

    /// Checks that the target changed as many rows as it received. The transactions in `committed` have run,
    /// but their commit comes after this check.
    async fn check_rows(&mut self, committed: &[&[BudgetedTransaction]]) -> Result<(), ApplyError> {
        let checked = self.writer.check_rows().await;
        checked.map_err(|error| error.of_transaction(&newest_gtid(committed)))
    }

    /// Adds the progress statement if there is no progress row.
    fn push_statements(&mut self, committed: &[&[BudgetedTransaction]], packets: &mut Packets) {
        if self.progress_row.is_some() {
            return;
        }
        // The number of rows that the progress statement changes is not known in advance, so the row count
        // must start again.
        self.writer.row_count().reset();
        if self.shared.options.tolerate_until.is_some() {
            for transaction in committed.iter().copied().flatten() {
                packets.push(self.shared.claim.tolerated_statement(&transaction.gtid_text()));
            }
        }
        packets.push(self.progress_statement(committed, self.number));
    }

    /// Returns the statement that writes the progress of `committed`, and all known progress, into worker row
    /// `row`.
    fn progress_statement(&self, committed: &[&[BudgetedTransaction]], row: usize) -> Vec<u8> {
        let (applied, gtid, time_us) = self.progress_after(committed);
        self.shared.claim.progress_statement(row, &applied, &gtid, time_us)
    }

    /// Returns the encoded log spans that are applied after `committed` has committed. Also returns the GTID
    /// of the newest transaction in `committed`, and the commit time of this transaction on the source.
    fn progress_after(&self, committed: &[&[BudgetedTransaction]]) -> (Vec<u8>, String, u64) {
        let mut applied = self.shared.applied().clone();
        let transactions = || committed.iter().copied().flatten();
        joined(transactions().flat_map(|transaction| transaction.spans())).for_each(|span| applied.add(span));
        let newest = transactions().max_by_key(|transaction| transaction.span);
        let (gtid, time_us) = match newest {
            Some(transaction) => (transaction.gtid_text(), transaction.commit_time_us),
            None => (String::new(), 0),
        };
        (applied.encode(), gtid, time_us)
    }

    fn is_turn(&self, batch: &TransactionBatch<BudgetedTransaction>) -> bool {
        batch.commit_after.is_none_or(|before| *self.turn.borrow() >= before)
    }

    /// Waits for the batch's turn to commit. Returns false if the turn will never come.
    async fn wait_turn(&mut self, batch: &TransactionBatch<BudgetedTransaction>) -> bool {
        let Some(before) = batch.commit_after else { return true };
        let _waits = self.activity.wait(BatchWait::Batch);
        tokio::select! {
            biased;
            // The wait cannot fail, because the sender lives as long as `shared`.
            _ = self.turn.wait_for(|turn| *turn >= before) => true,
            () = self.shared.batch_returned.cancelled() => false,
        }
    }

    /// Waits for the batch's turn to commit. The batch may hold locks during the wait.
    async fn wait_turn_or_yield(&mut self, batch: &TransactionBatch<BudgetedTransaction>) -> TurnWait {
        let Some(before) = batch.commit_after else { return TurnWait::Arrived };
        let _waits = self.activity.wait(BatchWait::Batch);
        let id = batch.id;
        tokio::select! {
            biased;
            _ = self.turn.wait_for(|turn| *turn >= before) => TurnWait::Arrived,
            () = self.shared.batch_returned.cancelled() => TurnWait::Cancelled,
            _ = self.yield_to.wait_for(|head| head.is_some_and(|head| head < id)) => TurnWait::Yield,
        }
    }
}

/// Returns the row changes of transactions that consist only of rows.
fn changes<'t>(parts: &[&'t [BudgetedTransaction]]) -> impl Iterator<Item = &'t RowChanges> {
    parts.iter().copied().flatten().flat_map(|transaction| row_changes(transaction))
}

/// Returns the row changes of a transaction that consists only of rows.
fn row_changes(transaction: &Transaction) -> &[RowChanges] {
    match &transaction.content {
        TransactionContent::Rows(changes) => changes,
        _ => &[],
    }
}

/// Returns the oldest transaction of a batch. If the target logs each transaction under its own GTID, the
/// batch has only this transaction. The transaction may be in the second part of the batch, which waits for
/// its turn.
fn oldest(batch: &TransactionBatch<BudgetedTransaction>) -> Option<&BudgetedTransaction> {
    batch.first.iter().chain(&batch.rest).next()
}

/// Returns the end of the transactions in the log.
fn end_of(transactions: &[&[BudgetedTransaction]]) -> LogPosition {
    let ends = transactions.iter().copied().flatten().map(|transaction| transaction.span.end);
    ends.max().unwrap_or(LogPosition::ZERO)
}

/// Returns the GTID of the newest transaction.
fn newest_gtid(transactions: &[&[BudgetedTransaction]]) -> String {
    let newest = transactions.iter().copied().flatten().max_by_key(|transaction| transaction.span);
    newest.map(|transaction| transaction.gtid_text()).unwrap_or_default()
}

/// Returns whether ROLLBACK undoes the whole batch. ROLLBACK does not undo rows of nontransactional tables.
fn is_transactional(batch: &TransactionBatch<BudgetedTransaction>) -> bool {
    let mut changes = batch.first.iter().chain(&batch.rest).flat_map(|transaction| row_changes(transaction));
    changes.all(|changes| changes.table.target.transactional)
}

/// Returns the transaction with statements, or the streamed transaction. Such a transaction is always alone
/// in its batch.
fn statement_transaction(batch: &TransactionBatch<BudgetedTransaction>) -> Option<&BudgetedTransaction> {
    let only = oldest(batch)?;
    matches!(only.content, TransactionContent::Steps(_) | TransactionContent::Streamed { .. }).then_some(only)
}

/// Estimates the time of a commit that was sent in one packet with other statements, or by the statement
/// runner. Such packets are small, so most of their time is the commit.
fn estimated_commit(packet: Duration) -> Duration {
    packet * 3 / 4
}

/// Returns the timing of a batch. `all` is its total time, of which the commit took `commit`.
fn timing(all: Duration, commit: Duration) -> BatchTiming {
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    BatchTiming { execute_us: us(all.saturating_sub(commit)), commit_us: us(commit) }
}

/// Returns whether a retry may help: after a deadlock or a lock wait timeout.
fn is_conflict(number: u16) -> bool {
    matches!(number, 1205 | 1213 | 1614 | 3101 | 1020)
}
