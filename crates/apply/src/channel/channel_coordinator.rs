//! One run of a channel, from the takeover to its end. Connects the reader, the scheduler and the workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_log::{LogHandle, LogPosition, RetentionPin};
use tailwater_session::{AccountPurpose, check_privileges};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::applied_gtid_tracker::GtidProgress;
use super::applied_log_retention::LowWatermarkHistory;
use super::channel_options::{ChannelOptions, GtidMode, UntilCondition, log_reader_name};
use super::channel_status::{ChannelState, ChannelStatus};
use super::log_durability_wait;
use super::log_reader::{self, BudgetedTransaction, ReaderItem, ReaderOutput, ReaderSetup};
use super::progress_store::{ChannelRecord, ChannelStore, Claim};
use super::shared_channel_state::ChannelShared;
use super::source_clock::SourceTime;
use super::start_position::{self, StartPosition};
use super::target_gtid_publisher::GtidPublisher;
use super::target_gtid_queries::{self, TargetGtids};
use super::transaction_rate::TransactionRate;
use super::worker::BatchOutcome;
use super::worker_pool::{self, BatchResult, WorkerPool};
use crate::error::ApplyError;
use crate::log_position_range::{LogSpan, joined};
use crate::scheduler::{
    BatchId, CommitOrder, Scheduled, Scheduler, SchedulerOptions, TransactionBatch, TransactionWeight,
};
use crate::source_transaction::{Transaction, TransactionContent};
use crate::writeset::Writeset;

/// How often the applied GTIDs are set on the target. At the same interval, the position up to which the log
/// may be purged advances.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// A GTID set whose text is longer than this is published only once per [`PUBLISH_INTERVAL`]. With a slow
/// source, the long text would otherwise be built for each transaction.
const GTIDS_IMMEDIATE_BYTES_MAX: usize = 4 << 10;

/// How a run ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// An operator stopped the channel.
    StopRequested,
    /// The channel has reached its until condition.
    UntilReached,
    /// The log is closed, and everything in it is applied.
    LogClosed,
    /// Everything up to the end of the rejected batch is applied. Each of its transactions was applied alone.
    SingleStepDone,
    /// Everything is applied up to the last transaction in which the channel tolerates differences.
    ToleranceDone,
}

/// What a run needs to start.
pub(super) struct RunSetup {
    pub(super) options: ChannelOptions,
    pub(super) log: LogHandle,
    pub(super) source_time: SourceTime,
    pub(super) stop: CancellationToken,
    /// Up to this position each transaction is applied alone and committed alone, because the target rejected
    /// one of these transactions.
    pub(super) single_step_until: Option<LogPosition>,
    pub(super) status: watch::Sender<ChannelStatus>,
}

/// Why a run failed, and at which transactions.
pub(super) struct RunFailure {
    pub(super) error: ApplyError,
    /// The log span of the batch that the target rejected, if it rejected one.
    pub(super) batch: Option<LogSpan>,
    /// Number of transactions in that batch.
    pub(super) transactions: usize,
    /// The rejected transaction, if the batch had only one.
    pub(super) transaction: Option<Arc<Transaction>>,
}

impl From<ApplyError> for Box<RunFailure> {
    fn from(error: ApplyError) -> Self {
        Self::new(RunFailure { error, batch: None, transactions: 0, transaction: None })
    }
}

struct ChannelRun {
    shared: Arc<ChannelShared>,
    publisher: GtidPublisher,
    status: watch::Sender<ChannelStatus>,
    scheduler: Scheduler<BudgetedTransaction>,
    pool: WorkerPool,
    reader: ReaderOutput,
    done: watch::Sender<u64>,
    progress: GtidProgress,
    watermark: RetentionPin,
    low_watermarks: LowWatermarkHistory,
    rate: TransactionRate,
    single_step_until: Option<LogPosition>,
    /// Whether transactions were skipped since the applied spans were last saved on the target.
    has_unsaved_skips: bool,
    /// Stops the reader when this value is dropped at the end of the channel's run, whatever ends the run.
    stop_reader: Option<DropGuard>,
}

/// Takes the channel over, and applies the log until the channel is stopped or fails.
///
/// # Errors
/// The error that stops the channel. Committed transactions stay committed and recorded.
pub(super) async fn run(setup: RunSetup) -> Result<RunEnd, Box<RunFailure>> {
    let stop = setup.stop.clone();
    // Set the reason for the unpublished GTIDs first, because the channel may be stopped before it applies
    // anything.
    let unpublished_reason = "the GTIDs were not set on the target since the channel was last started";
    setup.status.send_modify(|status| status.gtids_unpublished_reason = Some(unpublished_reason.to_owned()));
    let mut run = tokio::select! {
        run = ChannelRun::start(setup) => run?,
        () = stop.cancelled() => return Ok(RunEnd::StopRequested),
    };
    let gtids = target_gtid_queries::text(run.progress.gtids());
    run.status.send_modify(|status| {
        (status.state, status.fault, status.gtids) = (ChannelState::Running, None, gtids);
    });
    let end = run.coordinate(stop).await;
    run.stop_reader = None;
    if end.is_ok() {
        // All batches have committed. Publish the final position.
        run.tick().await?;
    }
    end
}

/// A channel that this process has taken over, and the position where it starts.
struct ChannelTakeover {
    store: ChannelStore,
    claim: Claim,
    record: ChannelRecord,
    flavour: Flavour,
    /// The target's GTIDs before the takeover. The channel's progress is read after the takeover, so it also
    /// contains the transactions that committed after these GTIDs were read.
    target: TargetGtids,
    start: StartPosition,
}

impl ChannelTakeover {
    async fn run(
        options: &ChannelOptions,
        log: &LogHandle,
        status: &watch::Sender<ChannelStatus>,
    ) -> Result<Self, ApplyError> {
        let unlogged = ChannelOptions { gtid: GtidMode::Log, ..options.clone() };
        let mut connection = super::row_writer::connect(&unlogged).await?;
        let flavour = connection.server().flavour;
        check_privileges(&mut connection, AccountPurpose::Apply).await?;
        start_position::refuse_strict_order(options, flavour, &mut connection).await?;
        let target = target_gtid_queries::read_target_gtids(&mut connection).await?;
        let (mut store, claim, record) =
            ChannelStore::take_over(connection, &options.name, options.gtid).await?;
        if log_durability_wait::wait_until_durable(&options.name, log, &record, status).await? {
            drop(store);
            return Box::pin(Self::run(options, log, status)).await;
        }
        let start =
            start_position::resolve(options, log, &mut store, &claim, &record, flavour, &target).await?;
        if options.records_progress_by_event() {
            store.create_worker_rows(&claim, &start.applied, options.workers).await?;
        }
        Ok(Self { store, claim, record, flavour, target, start })
    }
}

/// Returns the options for one run of the channel. A batch has only one transaction while the channel
/// searches for a rejected transaction, or while it tolerates differences.
fn effective_options(options: ChannelOptions, single_step: bool) -> ChannelOptions {
    let mut options = options;
    if single_step || options.tolerate_until.is_some() {
        (options.workers, options.batch_transactions_max) = (1, 1);
    }
    if options.gtid == GtidMode::Preserve {
        options.batch_transactions_max = 1;
    }
    options
}

fn scheduler(options: &ChannelOptions) -> Scheduler<BudgetedTransaction> {
    Scheduler::new(SchedulerOptions {
        commit_order: options.commit_order,
        workers: options.workers,
        batch_transactions_max: options.batch_transactions_max,
        batch_bytes_max: options.batch_bytes_max,
        window_transactions_max: 1 << 20,
        window_bytes_max: usize::MAX,
    })
}

impl ChannelRun {
    async fn start(setup: RunSetup) -> Result<Self, ApplyError> {
        let RunSetup { options, log, source_time, stop, single_step_until, status } = setup;
        let options = effective_options(options, single_step_until.is_some());
        let ChannelTakeover { store, claim, record, flavour, target, start } =
            ChannelTakeover::run(&options, &log, &status).await?;
        let preserves = flavour == Flavour::MySql && options.gtid == GtidMode::Preserve;
        let target_logged = preserves.then(|| GtidSet::parse(flavour, &target.has).ok()).flatten();
        let filters = start_position::filters(&options, &record)?;
        let newest = filters.newest();
        let is_whole =
            newest.version == 1 && newest.filters.compile()?.is_empty() && record.skipped.is_empty();
        status.send_modify(|status| {
            (status.filter_version, status.is_complete) = (newest.version, is_whole);
            status.filters = Some(newest.filters.clone());
        });
        let low = start.applied.low();
        info!(
            channel = options.name,
            %low,
            target = options.target.endpoint.to_string(),
            "the channel starts to apply the log"
        );
        let scheduler = scheduler(&options);
        let watermark = log.register_persistent_reader(&log_reader_name(&options.name), low);
        let shared = Arc::new(ChannelShared {
            flavour,
            claim,
            applied: parking_lot::Mutex::new(start.applied),
            turn: watch::channel(BatchId(0)).0,
            yield_to: watch::channel(None).0,
            nontransactional: parking_lot::Mutex::default(),
            stop,
            batch_returned: CancellationToken::new(),
            log: log.clone(),
            source_time,
            options,
        });
        let (done, done_receiver) = watch::channel(0);
        let reader_stop = CancellationToken::new();
        let stop_reader = reader_stop.clone().drop_guard();
        let reader = log_reader::start(ReaderSetup {
            log,
            shared: Arc::clone(&shared),
            filters,
            origin: start.origin,
            target_logged,
            skipped: record.skipped,
            done: done_receiver,
            stop: reader_stop,
        })?;
        // The reader already reads while the workers connect.
        let pool = WorkerPool::connect(&shared).await?;
        Ok(Self {
            shared,
            publisher: GtidPublisher::new(store),
            status,
            scheduler,
            pool,
            reader,
            done,
            progress: GtidProgress::new(start.gtids),
            watermark,
            low_watermarks: LowWatermarkHistory::new(Instant::now(), low),
            rate: TransactionRate::default(),
            single_step_until,
            has_unsaved_skips: false,
            stop_reader: Some(stop_reader),
        })
    }

    async fn coordinate(&mut self, stop: CancellationToken) -> Result<RunEnd, Box<RunFailure>> {
        let mut tick = interval(PUBLISH_INTERVAL);
        let mut stall_check = interval(worker_pool::CHECK_INTERVAL);
        let several = self.pool.len() > 1;
        let mut end = None;
        if let Some(UntilCondition::Gtid(gtid)) = &self.shared.options.until
            && self.progress.gtids().contains(gtid)
        {
            return Ok(RunEnd::UntilReached);
        }
        loop {
            if end.is_none() && self.is_tolerance_done() {
                end = Some(RunEnd::ToleranceDone);
            }
            let stops = self.stops_at_once(end);
            if let Some(end) = end.filter(|_| self.pool.is_idle() && (stops || self.scheduler.is_idle())) {
                return Ok(end);
            }
            if !stops {
                self.dispatch().await;
            }
            tokio::select! {
                biased;
                outcome = self.pool.next_result() => {
                    let outcome = outcome.map_err(|dead| self.fault(&dead.to_string()))?;
                    if let Err(failure) = self.finish(outcome) {
                        return Err(self.interruption_cause(failure).await);
                    }
                    if self.has_returned_batch() {
                        // Some transactions that were read are not applied. So the channel's run counts as
                        // stopped, even if it ended for another reason.
                        end = Some(RunEnd::StopRequested);
                    }
                    if end.is_none() && self.is_single_step_done() {
                        end = Some(RunEnd::SingleStepDone);
                    }
                }
                () = stop.cancelled(), if end.is_none() => end = Some(RunEnd::StopRequested),
                read = self.reader.recv(), if end.is_none() && self.scheduler.has_room() => match read {
                    Some(Ok(items)) => end = self.accept(items),
                    Some(Err(error)) => return Err(self.drain(error).await),
                    // The reader always reports why it ends. An end without a reason is a bug.
                    None => return Err(self.drain(self.fault("the channel's reader ended without an error")).await),
                },
                _ = tick.tick() => self.tick().await?,
                _ = stall_check.tick(), if several => self.check_oldest_batch(stops),
            }
        }
    }

    /// Returns whether the run stops dispatching batches at once, even if more transactions were read.
    fn stops_at_once(&self, end: Option<RunEnd>) -> bool {
        match end {
            Some(RunEnd::SingleStepDone | RunEnd::ToleranceDone) => true,
            // Stop only when the applied transactions have no gaps, because native replication cannot
            // continue after gaps.
            Some(RunEnd::StopRequested) => {
                self.has_returned_batch() || self.shared.applied().gaps().next().is_none()
            }
            Some(RunEnd::UntilReached | RunEnd::LogClosed) | None => false,
        }
    }

    /// Returns whether a worker has returned a batch without committing it. A worker returns a batch if the
    /// channel stops, or if the log will not become durable up to the end of the batch.
    fn has_returned_batch(&self) -> bool {
        self.shared.batch_returned.is_cancelled()
    }

    fn is_single_step_done(&self) -> bool {
        self.single_step_until.is_some_and(|until| self.shared.applied().low() >= until)
    }

    fn is_tolerance_done(&self) -> bool {
        let until = self.shared.options.tolerate_until.as_ref();
        until.is_some_and(|gtid| self.progress.gtids().contains(gtid))
    }

    /// Gives a batch to each idle worker, as long as the scheduler has batches.
    async fn dispatch(&mut self) {
        while self.pool.has_idle() {
            let Some(batch) = self.scheduler.next() else { return };
            self.pool.submit(batch).await;
        }
    }

    /// Accepts items from the reader. If the last item ends the channel's run, returns the reason.
    fn accept(&mut self, items: Vec<ReaderItem>) -> Option<RunEnd> {
        let mut skipped = Vec::new();
        let mut end = None;
        for item in items {
            match item {
                ReaderItem::Transaction(transaction) => {
                    self.progress.read(
                        transaction.span.end,
                        transaction.gtid.clone(),
                        transaction.commit_time_us,
                    );
                    self.scheduler.offer(transaction);
                }
                ReaderItem::Skipped { span, gtid } => {
                    self.progress.read(span.end, gtid, 0);
                    skipped.push(span);
                }
                // The time between prepare and commit on the source does not count as lag.
                ReaderItem::XaPrepared { span, gtid } => self.progress.read(span.end, gtid, 0),
                ReaderItem::UntilReached => end = Some(RunEnd::UntilReached),
                ReaderItem::LogClosed => end = Some(RunEnd::LogClosed),
            }
        }
        if !skipped.is_empty() {
            self.has_unsaved_skips = true;
            self.record_applied(skipped.into_iter());
        }
        end
    }

    fn finish(&mut self, (batch, result): BatchResult) -> Result<(), Box<RunFailure>> {
        let transactions = batch.first.len() + batch.rest.len();
        let committed = result.map_err(|error| {
            let first = batch.first.iter().chain(&batch.rest).next().filter(|_| transactions == 1);
            let transaction = first.map(|transaction| Arc::clone(transaction));
            Box::new(RunFailure { error, batch: Some(span_of(&batch)), transactions, transaction })
        })?;
        let TransactionBatch { id, first, rest, .. } = batch;
        match committed {
            BatchOutcome::Returned => {}
            BatchOutcome::Committed(timing) => {
                self.scheduler.done(id, timing);
                self.record_committed(&[&first, &rest]);
            }
            BatchOutcome::FirstCommitted(timing) => {
                self.scheduler.give_back(id, timing, rest);
                if !first.is_empty() {
                    self.record_committed(&[&first]);
                }
                self.status.send_modify(|status| status.yields_total += 1);
            }
        }
        // Now set again whether batches that wait for their turn must commit only in part. Otherwise the next
        // batch that is dispatched would get the old setting.
        self.update_yielding();
        Ok(())
    }

    /// Records the transactions that have committed in one target transaction.
    fn record_committed(&mut self, committed: &[&[BudgetedTransaction]]) {
        let all = || committed.iter().copied().flatten();
        let (transactions, rows) =
            (all().count(), all().map(|transaction| rows_of(transaction)).sum::<usize>());
        let newest = all().max_by_key(|transaction| transaction.span.end);
        let gtid = newest.map(|transaction| transaction.gtid_text()).unwrap_or_default();
        self.record_applied(all().flat_map(|transaction| transaction.spans()));
        self.rate.count(transactions as u64);
        self.status.send_modify(|status| {
            status.transactions_total += transactions as u64;
            status.rows_total += rows as u64;
            status.commits_total += 1;
            status.newest_gtid = gtid;
        });
    }

    /// Records that these spans are applied.
    fn record_applied(&mut self, spans: impl Iterator<Item = LogSpan>) {
        let mut ends = Vec::new();
        let spans = spans.inspect(|span| ends.push(span.end));
        let low = {
            let mut applied = self.shared.applied();
            joined(spans).for_each(|span| applied.add(span));
            applied.low()
        };
        self.progress.apply(&ends, low);
        self.done.send_modify(|count| *count += 1);
        self.publish_when_idle(low);
    }

    /// If no transaction waits, publishes the applied position now instead of at the next interval. A caller
    /// that waits for a transaction then sees that transaction without delay.
    fn publish_when_idle(&self, low: LogPosition) {
        self.status.send_if_modified(|status| {
            let publishes = self.scheduler.is_idle() && status.gtids.len() <= GTIDS_IMMEDIATE_BYTES_MAX;
            if publishes {
                status.low_watermark = low.to_string();
                status.gtids = target_gtid_queries::text(self.progress.gtids());
            }
            publishes
        });
    }

    /// Returns the error for a task that has ended unexpectedly, which is always a bug.
    fn fault(&self, what: &str) -> ApplyError {
        ApplyError::InternalFault { channel: self.shared.options.name.clone(), what: what.to_owned() }
    }

    /// Finishes the batches that were read before the reader's error, because these batches are valid. Then
    /// ends the channel's run with the reader's error.
    async fn drain(&mut self, error: ApplyError) -> Box<RunFailure> {
        let mut stall_check = interval(worker_pool::CHECK_INTERVAL);
        while !(self.has_returned_batch() || self.scheduler.is_idle() && self.pool.is_idle()) {
            self.dispatch().await;
            let outcome = tokio::select! {
                outcome = self.pool.next_result() => outcome,
                _ = stall_check.tick() => {
                    self.check_oldest_batch(false);
                    continue;
                }
            };
            // If a worker panicked, its batch has no result. The channel stops with the reader's error.
            let Ok(outcome) = outcome else { break };
            match self.finish(outcome) {
                // The worker's error is only a consequence of the reader's error.
                Err(failure) if matches!(failure.error, ApplyError::ReadInterrupted { .. }) => break,
                Err(failure) => return failure,
                Ok(()) => {}
            }
        }
        error.into()
    }

    /// Replaces the failure of a worker by the reader's error, if a transaction was interrupted while it was
    /// streamed. The reader reports the cause later than the worker.
    async fn interruption_cause(&mut self, failure: Box<RunFailure>) -> Box<RunFailure> {
        if !matches!(failure.error, ApplyError::ReadInterrupted { .. }) {
            return failure;
        }
        while let Some(read) = self.reader.recv().await {
            if let Err(error) = read {
                return error.into();
            }
        }
        failure
    }

    /// Checks whether the oldest batch has stalled. In source order, newer batches then release their locks.
    /// In independent order, batches then stop waiting for their turn. They roll back if the channel stops.
    fn check_oldest_batch(&mut self, stops: bool) {
        match self.shared.options.commit_order {
            CommitOrder::Source => self.set_yield_to(self.pool.stalled_batch()),
            CommitOrder::Independent if stops => {
                // A waiting batch may hold the lock that the stalled batch needs, so roll it back. The
                // channel applies it again after its next start.
                if self.pool.stalled_batch().is_some() {
                    self.shared.batch_returned.cancel();
                }
            }
            CommitOrder::Independent => {
                self.scheduler.set_held_up(self.pool.has_stalled());
                self.update_yielding();
            }
        }
    }

    /// In independent order, sets whether batches that wait for their turn must stop waiting and commit only
    /// the part that they have executed.
    fn update_yielding(&self) {
        if self.shared.options.commit_order == CommitOrder::Independent {
            self.set_yield_to(self.scheduler.can_yield().then_some(BatchId(0)));
        }
    }

    fn set_yield_to(&self, head: Option<BatchId>) {
        if *self.shared.yield_to.borrow() != head {
            self.shared.yield_to.send_replace(head);
        }
    }

    async fn tick(&mut self) -> Result<(), ApplyError> {
        let low = {
            let applied = self.shared.applied();
            self.progress.compact(&applied);
            applied.low()
        };
        let now = Instant::now();
        self.watermark.advance(self.low_watermarks.record(now, low));
        let rate = self.rate.per_second(now);
        let oldest_us = self.progress.oldest_commit_us();
        let lag = oldest_us.map_or(Duration::ZERO, |oldest_us| self.shared.source_time.since(oldest_us));
        let gtids = target_gtid_queries::text(self.progress.gtids());
        let buffered_bytes = self.scheduler.outstanding().weight.bytes as u64;
        let waiting = self.scheduler.outstanding().transactions.saturating_sub(self.pool.transactions());
        let worker_states = self.pool.states(now);
        let nontransactional = self.shared.nontransactional().iter().cloned().collect();
        self.status.send_modify(|status| {
            status.nontransactional_tables = nontransactional;
            status.low_watermark = low.to_string();
            status.gtids = gtids;
            status.lag_seconds = Some(lag.as_secs_f64());
            status.transactions_per_second = rate;
            status.buffered_bytes = buffered_bytes;
            status.waiting_transactions = waiting as u64;
            status.worker_states = worker_states;
        });
        self.publish().await
    }

    /// Saves skipped transactions on the target. Workers save them only with their next commit, and the GTIDs
    /// are published earlier. After a restart the target must not have more GTIDs than the recorded progress.
    async fn save_skipped(&mut self) -> Result<(), ApplyError> {
        if std::mem::take(&mut self.has_unsaved_skips) {
            let applied = self.shared.applied().encode();
            self.publisher.save_skipped(&self.shared.claim, &applied).await?;
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), ApplyError> {
        self.save_skipped().await?;
        self.publisher.publish(&self.shared.options, self.progress.gtids()).await?;
        self.status.send_if_modified(|status| {
            let unpublished_reason = self.publisher.unpublished_reason();
            let changed = status.gtids_unpublished_reason.as_deref() != unpublished_reason;
            if changed {
                status.gtids_unpublished_reason = unpublished_reason.map(str::to_owned);
            }
            changed
        });
        Ok(())
    }
}

/// Returns an interval timer that does not catch up on missed ticks.
fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

impl Scheduled for BudgetedTransaction {
    fn writeset(&self) -> &Writeset {
        &self.writeset
    }

    fn weight(&self) -> TransactionWeight {
        TransactionWeight { bytes: self.memory_bytes, rows: rows_of(self) }
    }
}

fn rows_of(transaction: &Transaction) -> usize {
    match &transaction.content {
        TransactionContent::Rows(changes) => changes.iter().map(|changes| changes.rows.len()).sum(),
        _ => 1,
    }
}

/// Returns the log span from the first to the last transaction of a batch.
fn span_of(batch: &TransactionBatch<BudgetedTransaction>) -> LogSpan {
    let spans = || batch.first.iter().chain(&batch.rest).map(|transaction| transaction.span);
    LogSpan {
        start: spans().map(|span| span.start).min().unwrap_or(LogPosition::ZERO),
        end: spans().map(|span| span.end).max().unwrap_or(LogPosition::ZERO),
    }
}
