//! A worker: one connection to the target, one batch at a time, data and progress in the same transaction.

mod untransactional;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tailwater_log::{LogError, LogHandle, LogPosition};
use tailwater_session::SessionError;
use tailwater_wire::Flavour;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::gtid_session::GtidSession;
use super::options::{ChannelOptions, GtidMode};
use super::packets::Packets;
use super::progress_row::ProgressRow;
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

/// `ER_KEY_NOT_FOUND`
const NO_SUCH_ROW: u16 = 1032;

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
    /// Of batches that commit one behind the other: the newest that has committed.
    pub(super) turn: watch::Sender<BatchId>,
    /// Batches behind this one let go of their locks: until it is their turn, or, in independent order, by committing what waits for
    /// none and giving back the rest.
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

/// What became of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Committed {
    /// It has committed.
    All(Timing),
    /// `first` has, and the rest is given back.
    First(Timing),
    /// None of it, because the worker was told to stop before it could begin to, or because the log will not hold it.
    Nothing,
}

/// How a wait for one's turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Come,
    /// Others must not wait for the locks that are held.
    GivesWay,
    /// It will not come.
    Never,
}

/// What of a batch is to be committed.
#[derive(Debug, Clone, Copy)]
struct Part<'b> {
    committed: &'b [&'b [Held]],
    /// What of it the target has not been sent yet.
    unsent: &'b [&'b [Held]],
}

/// A worker.
#[derive(Debug)]
pub(super) struct Worker {
    number: usize,
    writer: Writer,
    /// Where it notes its progress by an event among those of the data; otherwise a statement does.
    progress_row: Option<ProgressRow>,
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
        let mut writer = Writer::open(&shared.options).await?.else_ascii();
        let progress_row = match shared.options.notes_by_event() && writer.is_strict().await? {
            true => Some(shared.claim.progress_row(shared.flavour, number)?),
            false => None,
        };
        // No BEGIN then: each statement takes both sides some microseconds, and a small transaction has two or three.
        writer.connection.execute("SET SESSION autocommit=0").await?;
        let (turn, give_way) = (shared.turn.subscribe(), shared.give_way.subscribe());
        Ok(Self { number, writer, progress_row, shared, turn, give_way })
    }

    /// Applies a batch and commits it.
    ///
    /// # Errors
    /// Whatever the target refuses; then nothing of the batch is committed, unless the connection broke.
    pub(super) async fn apply(&mut self, batch: &Batch<Held>) -> Result<Committed, ApplyError> {
        let committed = self.commit(batch).await?;
        match committed {
            // From here, and not by way of the coordinator: the next one waits.
            Committed::All(_) if batch.in_turn => drop(self.shared.turn.send_replace(batch.id)),
            Committed::All(_) | Committed::First(_) => {}
            Committed::Nothing => self.shared.given_back.cancel(),
        }
        Ok(committed)
    }

    async fn commit(&mut self, batch: &Batch<Held>) -> Result<Committed, ApplyError> {
        if let Some(held) = by_itself(batch) {
            let begun = Instant::now();
            if !self.may_begin(batch).await
                || !self.wait_until_durable(end_of(&[&batch.first, &batch.rest])).await?
                || !self.log_prepared(batch).await?
            {
                return Ok(Committed::Nothing);
            }
            let progress = self.progress(&[&batch.first, &batch.rest], STATEMENTS_ROW);
            let applied = self.shared.statements.apply(&self.shared, held, progress).await?;
            let took = begun.elapsed();
            return Ok(if applied {
                Committed::All(timing(took, guessed(took)))
            } else {
                Committed::Nothing
            });
        }
        if !is_undoable(batch) {
            return self.apply_untransactional(batch).await;
        }
        let mut conflicts = 0;
        loop {
            let error = match self.attempt(batch).await {
                Ok(Committed::Nothing) => {
                    self.roll_back().await?;
                    return Ok(Committed::Nothing);
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
                    // The row that is missed may be the one for progress.
                    self.shared.claim.check(&mut self.writer.connection).await?;
                    self.roll_back().await?;
                }
                return Err(error);
            }
            debug!(worker = self.number, number, "run again: another transaction was in the way");
            // Whoever is in the way of a batch in the source's order is gone when its turn comes.
            if !self.may_begin(batch).await {
                return Ok(Committed::Nothing);
            }
            tokio::time::sleep(Duration::from_millis(u64::from(conflicts.min(10)))).await;
        }
    }

    /// Waits for a batch's turn to do anything at all; in independent order no longer than nothing is held up. False if it will not come.
    async fn may_begin(&mut self, batch: &Batch<Held>) -> bool {
        match self.shared.options.commit_order {
            CommitOrder::Source => self.wait_turn(batch).await,
            CommitOrder::Independent => self.wait_turn_holding(batch).await != Turn::Never,
        }
    }

    async fn roll_back(&mut self) -> Result<(), ApplyError> {
        self.writer.row_count().lose();
        self.writer.connection.execute("ROLLBACK").await?;
        if self.shared.options.gtid == GtidMode::Preserve {
            self.writer.connection.execute(GtidSession::reset(self.shared.flavour)).await?;
        }
        // Of what was to be set, nobody knows what was.
        self.writer.settle_sql().await
    }

    /// Nothing is committed if the log will not hold it.
    async fn attempt(&mut self, batch: &Batch<Held>) -> Result<Committed, ApplyError> {
        let begun = Instant::now();
        let mut waited = Duration::ZERO;
        let all: [&[Held]; 2] = [&batch.first, &batch.rest];
        let mut part = Part { committed: &all, unsent: &all };
        if !self.log_prepared(batch).await? {
            return Ok(Committed::Nothing);
        }
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
        let Part { committed, unsent } = part;
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
                return Ok(Committed::Nothing);
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
        let commit = commit_begun.map_or_else(|| guessed(sent.elapsed()), |commit| commit.elapsed());
        let timing = timing(begun.elapsed().saturating_sub(waited), commit);
        Ok(if committed.len() == all.len() { Committed::All(timing) } else { Committed::First(timing) })
    }

    /// Waits for the turn of a batch whose first part has run; what is to be committed then, or else how it ended.
    async fn await_turn<'b>(
        &mut self,
        batch: &Batch<Held>,
        all: &'b [&'b [Held]; 2],
    ) -> Result<ControlFlow<Committed, Part<'b>>, ApplyError> {
        use ControlFlow::{Break, Continue};
        let turn = self.wait_turn_holding(batch).await;
        Ok(match (turn, self.shared.options.commit_order) {
            (Turn::Come, _) => Continue(Part { committed: all, unsent: &all[1..] }),
            (Turn::Never, _) => Break(Committed::Nothing),
            (Turn::GivesWay, CommitOrder::Independent) if batch.first.is_empty() => {
                self.roll_back().await?;
                Break(Committed::First(Timing::default()))
            }
            (Turn::GivesWay, CommitOrder::Independent) => {
                Continue(Part { committed: &all[..1], unsent: &[] })
            }
            (Turn::GivesWay, CommitOrder::Source) => {
                // Everything again, alone.
                self.roll_back().await?;
                match self.wait_turn(batch).await {
                    true => Continue(Part { committed: all, unsent: all }),
                    false => Break(Committed::Nothing),
                }
            }
        })
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
        if !self.wait_until_durable(end_of(&[&batch.first, &batch.rest])).await? {
            return Ok(false);
        }
        let applied = self.shared.applied().encode();
        let mut packets = Packets::default();
        packets.push(GtidSession::statement(gtid));
        packets.push("START TRANSACTION");
        // Names it: who goes on behind a crash knows by that whose it is.
        packets.push(self.shared.claim.progress_statement(self.number, &applied, &gtid.to_string(), 0));
        packets.push("COMMIT");
        packets.push(GtidSession::reset(self.shared.flavour));
        packets.run(&mut self.writer.connection).await?;
        Ok(true)
    }

    /// Waits until the log holds all up to `end` as surely as its ACKs promise: what a crash could take from the log must not be on
    /// the target, unless an operator has the log acknowledge what it has only received. False if that will not be, or the run is to
    /// end before.
    async fn wait_until_acknowledged(&self, end: LogPosition) -> Result<bool, ApplyError> {
        self.unless_stopped(self.shared.log.wait_until_acknowledged(end)).await
    }

    /// The same, whatever happens: for what cannot be undone.
    async fn wait_until_durable(&self, end: LogPosition) -> Result<bool, ApplyError> {
        self.unless_stopped(self.shared.log.wait_until_durable(end)).await
    }

    async fn unless_stopped(
        &self,
        held: impl Future<Output = Result<bool, LogError>>,
    ) -> Result<bool, ApplyError> {
        // What is under way is finished first, unless the disk hangs.
        let stopped = async {
            self.shared.stop.cancelled().await;
            tokio::time::sleep(SYNC_PATIENCE).await;
        };
        tokio::select! {
            biased;
            held = held => Ok(held?),
            () = stopped => Ok(false),
        }
    }

    /// Adds the rows of `unsent`, and the note that `committed` is applied once it commits, with all that is known to be, if that
    /// is a row among them.
    fn push_rows(
        &mut self,
        unsent: &[&[Held]],
        committed: &[&[Held]],
        packets: &mut Packets,
    ) -> Result<(), ApplyError> {
        if let Some(row) = &self.progress_row {
            let (applied, gtid, time_us) = self.noted(committed);
            let noted = ProgressRow::noted(&applied, &gtid, time_us);
            return self.writer.push_rows_noted(changes(unsent), row, &noted, packets);
        }
        self.writer.push_rows(changes(unsent), packets)
    }

    /// Holds the target to the rows that it was sent, of which `committed` has run and has not committed.
    async fn check_rows(&mut self, committed: &[&[Held]]) -> Result<(), ApplyError> {
        let checked = self.writer.check_rows().await;
        checked.map_err(|error| error.of_transaction(&newest_gtid(committed)))
    }

    /// Adds the note where it is a statement.
    fn push_statements(&mut self, committed: &[&[Held]], packets: &mut Packets) {
        if self.progress_row.is_some() {
            return;
        }
        // What they count depends on what is there.
        self.writer.row_count().lose();
        if self.shared.options.tolerate_until.is_some() {
            for transaction in committed.iter().copied().flatten() {
                packets.push(self.shared.claim.tolerated_statement(&transaction.gtid_text()));
            }
        }
        packets.push(self.progress(committed, self.number));
    }

    /// The statement that notes what is to be committed in a row of its own, and all that is known to be.
    fn progress(&self, committed: &[&[Held]], row: usize) -> Vec<u8> {
        let (applied, gtid, time_us) = self.noted(committed);
        self.shared.claim.progress_statement(row, &applied, &gtid, time_us)
    }

    /// What is applied once `committed` is; its newest transaction, and when the source has committed that.
    fn noted(&self, committed: &[&[Held]]) -> (Vec<u8>, String, u64) {
        let mut applied = self.shared.applied().clone();
        let held = || committed.iter().copied().flatten();
        joined(held().flat_map(|held| held.spans())).for_each(|span| applied.add(span));
        let newest = held().max_by_key(|held| held.span);
        let (gtid, time_us) = match newest {
            Some(transaction) => (transaction.gtid_text(), transaction.commit_time_us),
            None => (String::new(), 0),
        };
        (applied.encode(), gtid, time_us)
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

    /// Waits, maybe with locks held.
    async fn wait_turn_holding(&mut self, batch: &Batch<Held>) -> Turn {
        let Some(before) = batch.commit_after else { return Turn::Come };
        let id = batch.id;
        tokio::select! {
            biased;
            _ = self.turn.wait_for(|turn| *turn >= before) => Turn::Come,
            () = self.shared.given_back.cancelled() => Turn::Never,
            _ = self.give_way.wait_for(|head| head.is_some_and(|head| head < id)) => Turn::GivesWay,
        }
    }
}

/// The row changes of transactions that hold nothing else.
fn changes<'t>(parts: &[&'t [Held]]) -> impl Iterator<Item = &'t RowChanges> {
    parts.iter().copied().flatten().flat_map(|held| row_changes(held))
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

/// Up to where the log holds transactions.
fn end_of(held: &[&[Held]]) -> LogPosition {
    let ends = held.iter().copied().flatten().map(|held| held.span.end);
    ends.max().unwrap_or(LogPosition::ZERO)
}

/// The newest transaction.
fn newest_gtid(held: &[&[Held]]) -> String {
    let newest = held.iter().copied().flatten().max_by_key(|held| held.span);
    newest.map(|held| held.gtid_text()).unwrap_or_default()
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

/// How long a commit took that was sent in one packet with other statements, or by whoever runs statements: most of the time, as such
/// packets are small.
fn guessed(packet: Duration) -> Duration {
    packet * 3 / 4
}

/// How long a batch took, of which the commit took `commit`.
fn timing(all: Duration, commit: Duration) -> Timing {
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    Timing { execute_us: us(all.saturating_sub(commit)), commit_us: us(commit) }
}

/// Whether running it again may help: a deadlock, a lock that was not let go in time.
fn is_conflict(number: u16) -> bool {
    matches!(number, 1205 | 1213 | 1614 | 3101 | 1020)
}
