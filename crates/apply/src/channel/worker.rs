//! A worker: one connection to the target, one batch at a time, data and progress in the same transaction.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tailwater_log::{LogHandle, LogPosition};
use tailwater_session::SessionError;
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::gtid_session::GtidSession;
use super::options::{ChannelOptions, GtidMode};
use super::packets::Packets;
use super::reader::Held;
use super::source_time::SourceTime;
use super::statements::Statements;
use super::store::{Claim, STATEMENTS_ROW};
use super::writer::Writer;
use crate::error::ApplyError;
use crate::progress::Applied;
use crate::scheduler::{Batch, BatchId, CommitOrder, Timing};
use crate::transaction::{Content, RowChanges, Transaction, joined};

/// A batch that meets a deadlock or a lock that is not let go is run again this many times before it is an error.
const CONFLICTS_MAX: u32 = 20;

/// From this size on the commit is sent behind all else, so that its time is known.
const TIMED_BYTES_MIN: usize = 64 << 10;

/// So long is waited for the log's disk when the run is to end.
const SYNC_PATIENCE: Duration = Duration::from_secs(2);

/// What a channel's workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ChannelOptions,
    pub(super) flavour: Flavour,
    pub(super) claim: Claim,
    /// What is known to be committed.
    pub(super) applied: Mutex<Applied>,
    /// In the source's order: the newest batch that has committed.
    pub(super) turn: watch::Sender<BatchId>,
    /// Batches behind this one let go of their locks until it is their turn.
    pub(super) give_way: watch::Sender<Option<BatchId>>,
    /// Tables on the target whose engine has no transactions, as far as rows of them came.
    pub(super) untransactional: Mutex<BTreeSet<String>>,
    /// Runs what is no rows.
    pub(super) statements: Statements,
    /// The run is to end: nothing that may take days is to be waited for.
    pub(super) stop: CancellationToken,
    /// A batch was given back: what stands behind it is not waited for, and its turn will not come.
    pub(super) given_back: CancellationToken,
    /// The log that it is from, which says what is durable.
    pub(super) log: LogHandle,
    /// By which it is told how late the channel is.
    pub(super) source_time: SourceTime,
}

impl Shared {
    /// Locks what is applied; a thread that died while it held it leaves a whole value.
    pub(super) fn applied(&self) -> std::sync::MutexGuard<'_, Applied> {
        self.applied.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Locks the names of tables without transactions.
    pub(super) fn untransactional(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.untransactional.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A worker.
#[derive(Debug)]
pub(super) struct Worker {
    number: usize,
    writer: Writer,
    shared: Arc<Shared>,
    turn: watch::Receiver<BatchId>,
    give_way: watch::Receiver<Option<BatchId>>,
}

impl Worker {
    /// Connects worker `number`.
    ///
    /// # Errors
    /// [`ApplyError::Session`].
    pub(super) async fn connect(number: usize, shared: Arc<Shared>) -> Result<Self, ApplyError> {
        let writer = Writer::open(&shared.options).await?.else_ascii();
        let (turn, give_way) = (shared.turn.subscribe(), shared.give_way.subscribe());
        Ok(Self { number, writer, shared, turn, give_way })
    }

    /// Applies a batch and commits it; `None` if it was told to stop before it could begin to, or the log will not hold it.
    ///
    /// # Errors
    /// Whatever the target refuses; then nothing of the batch is committed, unless the connection broke.
    pub(super) async fn apply(&mut self, batch: &Batch<Held>) -> Result<Option<Timing>, ApplyError> {
        let timing = self.commit(batch).await?;
        if timing.is_none() {
            self.shared.given_back.cancel();
        } else if self.shared.options.commit_order == CommitOrder::Source {
            // From here, and not by way of the coordinator: the next one waits.
            self.shared.turn.send_replace(batch.id);
        }
        Ok(timing)
    }

    async fn commit(&mut self, batch: &Batch<Held>) -> Result<Option<Timing>, ApplyError> {
        if let Some(held) = by_itself(batch) {
            let begun = Instant::now();
            let may_begin = self.wait_turn(batch).await && self.until_durable(batch).await?;
            if !may_begin || !self.log_prepared(batch).await? {
                return Ok(None);
            }
            let progress = self.progress(batch, STATEMENTS_ROW);
            let applied = self.shared.statements.apply(&self.shared, held, progress).await?;
            return Ok(applied.then(|| timing(begun.elapsed(), None)));
        }
        let mut conflicts = 0;
        loop {
            let error = match self.attempt(batch).await {
                Ok(Some(timing)) => return Ok(Some(timing)),
                Ok(None) => {
                    self.roll_back().await?;
                    return Ok(None);
                }
                Err(error) => error,
            };
            let ApplyError::Session(SessionError::Server { error: server, .. }) = &error else {
                return Err(error);
            };
            let number = server.number;
            self.roll_back().await?;
            conflicts += 1;
            if !is_conflict(number) || conflicts > CONFLICTS_MAX {
                return Err(error);
            }
            debug!(worker = self.number, number, "run again: another transaction was in the way");
            // Whoever is in the way of a batch in the source's order is gone when its turn comes.
            if !self.wait_turn(batch).await {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(u64::from(conflicts.min(10)))).await;
        }
    }

    async fn roll_back(&mut self) -> Result<(), ApplyError> {
        self.writer.connection.execute("ROLLBACK").await?;
        if self.shared.options.gtid == GtidMode::Preserve {
            self.writer.connection.execute(GtidSession::reset(self.shared.flavour)).await?;
        }
        // Of what was to be set, nobody knows what was.
        self.writer.settle_sql().await
    }

    /// `None` if the log will not hold it; then it is not committed.
    async fn attempt(&mut self, batch: &Batch<Held>) -> Result<Option<Timing>, ApplyError> {
        let begun = Instant::now();
        let mut waited = Duration::ZERO;
        if !is_undoable(batch) && !self.until_durable(batch).await? || !self.log_prepared(batch).await? {
            return Ok(None);
        }
        let mut packets = Packets::default();
        let gtid = match self.shared.options.gtid {
            GtidMode::Preserve => oldest(batch).and_then(|transaction| transaction.gtid.clone()),
            _ => None,
        };
        if let Some(gtid) = &gtid {
            packets.push(GtidSession::statement(gtid));
        }
        packets.push("BEGIN");
        if self.is_turn(batch) {
            self.push_rows(batch.first.iter().chain(&batch.rest), &mut packets)?;
        } else {
            self.push_rows(batch.first.iter(), &mut packets)?;
            std::mem::take(&mut packets).run(&mut self.writer.connection).await?;
            let wait = Instant::now();
            let holds = self.wait_turn_holding(batch).await;
            waited = wait.elapsed();
            if !holds {
                // Everything again, alone.
                self.roll_back().await?;
                if !self.wait_turn(batch).await {
                    return Ok(None);
                }
                waited = wait.elapsed();
                if let Some(gtid) = &gtid {
                    packets.push(GtidSession::statement(gtid));
                }
                packets.push("BEGIN");
                self.push_rows(batch.first.iter(), &mut packets)?;
            }
            self.push_rows(batch.rest.iter(), &mut packets)?;
        }
        if self.shared.options.tolerate_until.is_some() {
            for transaction in batch.first.iter().chain(&batch.rest) {
                packets.push(self.shared.claim.tolerated_statement(&transaction.gtid_text()));
            }
        }
        let has_run = packets.is_empty();
        packets.push(self.progress(batch, self.number));
        let is_durable = self.shared.log.durable().position >= end_of(batch);
        let mut commit_begun = has_run.then(Instant::now);
        if !is_durable || packets.bytes() >= TIMED_BYTES_MIN {
            std::mem::take(&mut packets).run(&mut self.writer.connection).await?;
            let wait = Instant::now();
            if !self.until_durable(batch).await? {
                return Ok(None);
            }
            waited += wait.elapsed();
            commit_begun = Some(Instant::now());
        }
        packets.push("COMMIT");
        if gtid.is_some() {
            packets.push(GtidSession::reset(self.shared.flavour));
        }
        packets.run(&mut self.writer.connection).await?;
        let commit = commit_begun.map(|commit| commit.elapsed());
        Ok(Some(timing(begun.elapsed().saturating_sub(waited), commit)))
    }

    /// MySQL prepares an XA transaction under a GTID of its own, and what it does is applied under that of its commit. Under
    /// `gtid = preserve` the former stands on the target as a transaction that only notes progress: without it, servers
    /// behind the target would look for it in vain. It stands before the commit's, so that a crash in between leaves no
    /// gap: it then comes again, and the server passes over what it has.
    ///
    /// False if the log will not hold it.
    async fn log_prepared(&mut self, batch: &Batch<Held>) -> Result<bool, ApplyError> {
        if self.shared.options.gtid != GtidMode::Preserve || self.shared.flavour != Flavour::MySql {
            return Ok(true);
        }
        let prepared = oldest(batch).and_then(|transaction| transaction.prepared.as_ref());
        let Some(gtid) = prepared.and_then(|prepared| prepared.gtid.as_ref()) else { return Ok(true) };
        if !self.until_durable(batch).await? {
            return Ok(false);
        }
        let applied = self.shared.applied().encode();
        let mut packets = Packets::default();
        packets.push(GtidSession::statement(gtid));
        packets.push("BEGIN");
        // Names it: who goes on behind a crash knows by that whose it is.
        packets.push(self.shared.claim.progress_statement(self.number, &applied, &gtid.to_string(), 0));
        packets.push("COMMIT");
        packets.push(GtidSession::reset(self.shared.flavour));
        packets.run(&mut self.writer.connection).await?;
        Ok(true)
    }

    /// Waits until the log holds a batch whatever happens: what a crash could take from the log must not be on the target. False
    /// if that will not be, or the run is to end before.
    async fn until_durable(&self, batch: &Batch<Held>) -> Result<bool, ApplyError> {
        // What is under way is finished first, unless the disk hangs.
        let stopped = async {
            self.shared.stop.cancelled().await;
            tokio::time::sleep(SYNC_PATIENCE).await;
        };
        tokio::select! {
            biased;
            durable = self.shared.log.until_durable(end_of(batch)) => Ok(durable?),
            () = stopped => Ok(false),
        }
    }

    fn push_rows<'t>(
        &mut self,
        transactions: impl Iterator<Item = &'t Held>,
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        self.writer.push_rows(transactions.flat_map(|transaction| row_changes(transaction)), packets)
    }

    /// The statement that notes `batch` in a row of its own, and all that is known to be committed.
    fn progress(&self, batch: &Batch<Held>, row: usize) -> Vec<u8> {
        let mut applied = self.shared.applied().clone();
        let held = || batch.first.iter().chain(&batch.rest);
        joined(held().flat_map(|held| held.spans())).for_each(|span| applied.add(span));
        let newest = held().max_by_key(|held| held.span);
        let (gtid, time_us) = match newest {
            Some(transaction) => (transaction.gtid_text(), transaction.commit_time_us),
            None => (String::new(), 0),
        };
        self.shared.claim.progress_statement(row, &applied.encode(), &gtid, time_us)
    }

    fn is_turn(&self, batch: &Batch<Held>) -> bool {
        batch.commit_after.is_none_or(|before| *self.turn.borrow() >= before)
    }

    /// False if it will not come.
    async fn wait_turn(&mut self, batch: &Batch<Held>) -> bool {
        let Some(before) = batch.commit_after else { return true };
        tokio::select! {
            biased;
            // The sender lives as long as `shared`.
            _ = self.turn.wait_for(|turn| *turn >= before) => true,
            () = self.shared.given_back.cancelled() => false,
        }
    }

    /// Waits with locks held; false if they must be let go first.
    async fn wait_turn_holding(&mut self, batch: &Batch<Held>) -> bool {
        let Some(before) = batch.commit_after else { return true };
        let id = batch.id;
        tokio::select! {
            biased;
            _ = self.turn.wait_for(|turn| *turn >= before) => true,
            _ = self.give_way.wait_for(|head| head.is_some_and(|head| head < id)) => false,
            () = self.shared.given_back.cancelled() => false,
        }
    }
}

/// The row changes of a transaction that holds nothing else.
fn row_changes(transaction: &Transaction) -> &[RowChanges] {
    match &transaction.content {
        Content::Rows(changes) => changes,
        _ => &[],
    }
}

/// The oldest transaction of a batch, which is the only one where each stands under its own GTID. It may have to wait for its
/// turn.
fn oldest(batch: &Batch<Held>) -> Option<&Held> {
    batch.first.iter().chain(&batch.rest).next()
}

/// Up to where the log holds what a batch is of.
fn end_of(batch: &Batch<Held>) -> LogPosition {
    let ends = batch.first.iter().chain(&batch.rest).map(|held| held.span.end);
    ends.max().unwrap_or(LogPosition::ZERO)
}

/// Whether a ROLLBACK undoes all of it: tables without transactions take rows for good at once.
fn is_undoable(batch: &Batch<Held>) -> bool {
    let mut changes = batch.first.iter().chain(&batch.rest).flat_map(|held| row_changes(held));
    changes.all(|changes| changes.table.target.transactional)
}

/// The transaction of a batch that is more than rows in memory.
fn by_itself(batch: &Batch<Held>) -> Option<&Held> {
    let only = oldest(batch)?;
    matches!(only.content, Content::Steps(_) | Content::Streamed { .. }).then_some(only)
}

/// How long a batch took, of which the commit took `commit`. Where that is not known, because it was sent in one packet with all
/// else or by whoever runs statements, it is taken for most of it: such batches are small.
fn timing(all: Duration, commit: Option<Duration>) -> Timing {
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let commit = commit.unwrap_or(all * 3 / 4);
    Timing { execute_us: us(all.saturating_sub(commit)), commit_us: us(commit) }
}

/// Whether running it again may help: a deadlock, a lock that was not let go in time.
fn is_conflict(number: u16) -> bool {
    matches!(number, 1205 | 1213 | 1614 | 3101 | 1020)
}
