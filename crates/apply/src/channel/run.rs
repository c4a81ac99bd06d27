//! One run of a channel, from taking it over to its end: reader, scheduler and workers, joined.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tailwater_log::{LogHandle, LogPosition, RetentionPin};
use tailwater_session::{Purpose, check_grants};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::begin::{self, Begun};
use super::behind;
use super::crew::{self, Crew, Outcome};
use super::gtid_progress::GtidProgress;
use super::gtids::{self, TargetGtids};
use super::options::{ChannelOptions, GtidMode, UntilCondition};
use super::publish::Publisher;
use super::rate::Rate;
use super::reader::{self, Held, Read, ReaderSetup, Reads};
use super::retention::Lows;
use super::source_time::SourceTime;
use super::statements::Statements;
use super::status::{ChannelState, ChannelStatus};
use super::store::{Claim, Kept, Store};
use super::worker::{Committed, Shared};
use crate::error::ApplyError;
use crate::scheduler::{Batch, BatchId, CommitOrder, Options, Scheduled, Scheduler, Weight};
use crate::transaction::{Content, Span, Transaction, joined};
use crate::writeset::Writeset;

/// How often the target is told what was applied, and the log what is still needed of it.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// A GTID set that is longer as text is published with the tick only: each transaction of a slow source would make it
/// again.
const GTIDS_TOLD_AT_ONCE_BYTES_MAX: usize = 4 << 10;

/// How a run ended, if not by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to.
    Told,
    /// It has reached where it was to stop.
    Reached,
    /// Nothing more will come: the log is closed.
    LogClosed,
    /// Everything up to where care was needed is applied.
    CarefulEnough,
    /// Everything up to where it was to tolerate what the target has is applied.
    TolerantEnough,
}

/// What a run is given.
pub(super) struct RunSetup {
    pub(super) options: ChannelOptions,
    pub(super) log: LogHandle,
    pub(super) source_time: SourceTime,
    pub(super) stop: CancellationToken,
    /// Transactions one by one, each in its own commit, up to here: somewhere before it one is refused.
    pub(super) careful_until: Option<LogPosition>,
    pub(super) status: watch::Sender<ChannelStatus>,
}

/// Why a run failed, and where.
pub(super) struct Failure {
    pub(super) error: ApplyError,
    /// The transactions that were at hand then, if it was the target that refused one of them.
    pub(super) batch: Option<Span>,
    /// How many they were.
    pub(super) transactions: usize,
    /// The only one of them.
    pub(super) transaction: Option<Arc<Transaction>>,
}

impl From<ApplyError> for Box<Failure> {
    fn from(error: ApplyError) -> Self {
        Self::new(Failure { error, batch: None, transactions: 0, transaction: None })
    }
}

struct Run {
    shared: Arc<Shared>,
    publisher: Publisher,
    status: watch::Sender<ChannelStatus>,
    scheduler: Scheduler<Held>,
    crew: Crew,
    reads: Reads,
    done: watch::Sender<u64>,
    progress: GtidProgress,
    watermark: RetentionPin,
    lows: Lows,
    rate: Rate,
    careful_until: Option<LogPosition>,
    /// Transactions were passed over since what is applied was last kept on the target.
    has_passed: bool,
    /// Ends the reader, however the run ends.
    stop_reader: Option<DropGuard>,
}

/// Takes the channel over and applies until it is told to stop or cannot go on.
///
/// # Errors
/// Whatever keeps the channel from going on. What was committed is kept.
pub(super) async fn run(setup: RunSetup) -> Result<End, Box<Failure>> {
    let stop = setup.stop.clone();
    // Also for whoever stops it before it has begun.
    let untold = "it was not told since the channel was last started";
    setup.status.send_modify(|status| status.gtids_unpublished_reason = Some(untold.to_owned()));
    let mut run = tokio::select! {
        run = Run::begin(setup) => run?,
        () = stop.cancelled() => return Ok(End::Told),
    };
    let gtids = gtids::text(run.progress.gtids());
    run.status.send_modify(|status| {
        (status.state, status.fault, status.gtids) = (ChannelState::Running, None, gtids);
    });
    let end = run.coordinate(stop).await;
    run.stop_reader = None;
    if end.is_ok() {
        // Everything handed out has committed: the target may be told, and whoever asks.
        run.tick().await?;
    }
    end
}

/// A channel that was taken over, and where it goes on.
struct TakenOver {
    store: Store,
    claim: Claim,
    kept: Kept,
    flavour: Flavour,
    /// What the target had, before the takeover: what was committed since is in the progress that was read after it.
    target: TargetGtids,
    begun: Begun,
}

impl TakenOver {
    async fn take(
        options: &ChannelOptions,
        log: &LogHandle,
        status: &watch::Sender<ChannelStatus>,
    ) -> Result<Self, ApplyError> {
        let unlogged = ChannelOptions { gtid: GtidMode::Log, ..options.clone() };
        let mut connection = super::writer::connect(&unlogged).await?;
        let flavour = connection.server().flavour;
        check_grants(&mut connection, Purpose::Apply).await?;
        begin::refuse_strict_order(options, flavour, &mut connection).await?;
        let target = gtids::target_gtids(&mut connection).await?;
        let (mut store, claim, kept) = Store::take_over(connection, &options.name, options.gtid).await?;
        if behind::wait_until_durable(&options.name, log, &kept, status).await? {
            drop(store);
            return Box::pin(Self::take(options, log, status)).await;
        }
        let begun = begin::begin(options, log, &mut store, &claim, &kept, flavour, &target).await?;
        if options.notes_by_event() {
            store.open_rows(&claim, &begun.applied, options.workers).await?;
        }
        Ok(Self { store, claim, kept, flavour, target, begun })
    }
}

/// The options of a run that is to find out which transaction it is, or to tolerate only one.
fn one_by_one(options: ChannelOptions, careful: bool) -> ChannelOptions {
    let mut options = options;
    if careful || options.tolerate_until.is_some() {
        (options.workers, options.batch_transactions_max) = (1, 1);
    }
    if options.gtid == GtidMode::Preserve {
        options.batch_transactions_max = 1;
    }
    options
}

fn scheduler(options: &ChannelOptions) -> Scheduler<Held> {
    Scheduler::new(Options {
        commit_order: options.commit_order,
        workers: options.workers,
        batch_transactions_max: options.batch_transactions_max,
        batch_bytes_max: options.batch_bytes_max,
        window_transactions_max: 1 << 20,
        window_bytes_max: usize::MAX,
    })
}

impl Run {
    async fn begin(setup: RunSetup) -> Result<Self, ApplyError> {
        let RunSetup { options, log, source_time, stop, careful_until, status } = setup;
        let options = one_by_one(options, careful_until.is_some());
        let TakenOver { store, claim, kept, flavour, target, begun } =
            TakenOver::take(&options, &log, &status).await?;
        let preserves = flavour == Flavour::MySql && options.gtid == GtidMode::Preserve;
        let target_logged = preserves.then(|| GtidSet::parse(flavour, &target.has).ok()).flatten();
        let filters = begin::filters(&options, &kept)?;
        let newest = filters.newest();
        let is_whole = newest.version == 1 && newest.filters.compile()?.is_empty() && kept.skipped.is_empty();
        let filter_version = newest.version;
        status.send_modify(|status| (status.filter_version, status.is_complete) = (filter_version, is_whole));
        let low = begun.applied.low();
        info!(channel = options.name, %low, target = options.target.endpoint.to_string(), "applying");
        let scheduler = scheduler(&options);
        let watermark = log.register_persistent_reader(&super::log_reader_name(&options.name), low);
        let shared = Arc::new(Shared {
            flavour,
            claim,
            applied: std::sync::Mutex::new(begun.applied),
            turn: watch::channel(BatchId(0)).0,
            give_way: watch::channel(None).0,
            untransactional: std::sync::Mutex::default(),
            statements: Statements::default(),
            stop,
            given_back: CancellationToken::new(),
            log: log.clone(),
            source_time,
            options,
        });
        let (done, done_receiver) = watch::channel(0);
        let reader_stop = CancellationToken::new();
        let stop_reader = reader_stop.clone().drop_guard();
        let reads = reader::start(ReaderSetup {
            log,
            shared: Arc::clone(&shared),
            filters,
            origin: begun.origin,
            target_logged,
            skipped: kept.skipped,
            done: done_receiver,
            stop: reader_stop,
        })?;
        // It reads while they connect.
        let crew = Crew::connect(&shared).await?;
        Ok(Self {
            shared,
            publisher: Publisher::new(store),
            status,
            scheduler,
            crew,
            reads,
            done,
            progress: GtidProgress::new(begun.gtids),
            watermark,
            lows: Lows::new(Instant::now(), low),
            rate: Rate::default(),
            careful_until,
            has_passed: false,
            stop_reader: Some(stop_reader),
        })
    }

    async fn coordinate(&mut self, stop: CancellationToken) -> Result<End, Box<Failure>> {
        let mut tick = interval(PUBLISH_INTERVAL);
        let mut watch_turn = interval(crew::LOOK);
        let several = self.crew.len() > 1;
        let mut end = None;
        if let Some(UntilCondition::Gtid(gtid)) = &self.shared.options.until
            && self.progress.gtids().contains(gtid)
        {
            return Ok(End::Reached);
        }
        loop {
            if end.is_none() && self.is_tolerant_enough() {
                end = Some(End::TolerantEnough);
            }
            let stops = self.stops_at_once(end);
            if let Some(end) = end.filter(|_| self.crew.is_idle() && (stops || self.scheduler.is_idle())) {
                return Ok(end);
            }
            if !stops {
                self.dispatch().await;
            }
            tokio::select! {
                biased;
                outcome = self.crew.outcome() => {
                    let outcome = outcome.map_err(|dead| self.fault(&dead.to_string()))?;
                    if let Err(failure) = self.finish(outcome) {
                        return Err(self.explain(failure).await);
                    }
                    if self.has_given_back() {
                        // Whatever it was to end with before: not all of it is applied.
                        end = Some(End::Told);
                    }
                    if end.is_none() && self.is_careful_enough() {
                        end = Some(End::CarefulEnough);
                    }
                }
                () = stop.cancelled(), if end.is_none() => end = Some(End::Told),
                read = self.reads.recv(), if end.is_none() && self.scheduler.has_room() => match read {
                    Some(Ok(reads)) => end = self.take(reads),
                    Some(Err(error)) => return Err(self.settle(error).await),
                    // It says why it ends, whatever comes.
                    None => return Err(self.settle(self.fault("its reader has ended without a word")).await),
                },
                _ = tick.tick() => self.tick().await?,
                _ = watch_turn.tick(), if several => self.watch_turn(stops),
            }
        }
    }

    /// Whether nothing more is handed out, although more was read.
    fn stops_at_once(&self, end: Option<End>) -> bool {
        match end {
            Some(End::CarefulEnough | End::TolerantEnough) => true,
            // Native replication can go on behind what has no gaps only.
            Some(End::Told) => self.has_given_back() || self.shared.applied().gaps().next().is_none(),
            Some(End::Reached | End::LogClosed) | None => false,
        }
    }

    /// A worker has given a batch back, because it was told to stop, or because the log will not hold it.
    fn has_given_back(&self) -> bool {
        self.shared.given_back.is_cancelled()
    }

    fn is_careful_enough(&self) -> bool {
        self.careful_until.is_some_and(|until| self.shared.applied().low() >= until)
    }

    fn is_tolerant_enough(&self) -> bool {
        let until = self.shared.options.tolerate_until.as_ref();
        until.is_some_and(|gtid| self.progress.gtids().contains(gtid))
    }

    /// Gives each idle worker a batch, if there is one.
    async fn dispatch(&mut self) {
        while self.crew.has_idle() {
            let Some(batch) = self.scheduler.next() else { return };
            self.crew.give(batch).await;
        }
    }

    /// Takes what was read, and why it is the end of it, if it is.
    fn take(&mut self, reads: Vec<Read>) -> Option<End> {
        let mut passed = Vec::new();
        let mut end = None;
        for read in reads {
            match read {
                Read::Transaction(held) => {
                    self.progress.read(held.span.end, held.gtid.clone(), held.commit_time_us);
                    self.scheduler.offer(held);
                }
                Read::Passed { span, gtid } => {
                    self.progress.read(span.end, gtid, 0);
                    passed.push(span);
                }
                // How long somebody leaves it open is no lag.
                Read::Prepared { span, gtid } => self.progress.read(span.end, gtid, 0),
                Read::Reached => end = Some(End::Reached),
                Read::Closed => end = Some(End::LogClosed),
            }
        }
        if !passed.is_empty() {
            self.has_passed = true;
            self.note(passed.into_iter());
        }
        end
    }

    fn finish(&mut self, (batch, result): Outcome) -> Result<(), Box<Failure>> {
        let transactions = batch.first.len() + batch.rest.len();
        let committed = result.map_err(|error| {
            let first = batch.first.iter().chain(&batch.rest).next().filter(|_| transactions == 1);
            let transaction = first.map(|held| Arc::clone(held));
            Box::new(Failure { error, batch: Some(span_of(&batch)), transactions, transaction })
        })?;
        let Batch { id, first, rest, .. } = batch;
        match committed {
            Committed::Nothing => {}
            Committed::All(timing) => {
                self.scheduler.done(id, timing);
                self.count(&[&first, &rest]);
            }
            Committed::First(timing) => {
                self.scheduler.give_back(id, timing, rest);
                if !first.is_empty() {
                    self.count(&[&first]);
                }
                self.status.send_modify(|status| status.yields_total += 1);
            }
        }
        // Before another batch is handed out, which it is not meant for.
        self.tell_who_waits();
        Ok(())
    }

    /// Notes what has committed together.
    fn count(&mut self, committed: &[&[Held]]) {
        let held = || committed.iter().copied().flatten();
        let (transactions, rows) = (held().count(), held().map(|held| rows_of(held)).sum::<usize>());
        let newest = held().max_by_key(|held| held.span.end);
        let gtid = newest.map(|held| held.gtid_text()).unwrap_or_default();
        self.note(held().flat_map(|held| held.spans()));
        self.rate.count(transactions as u64);
        self.status.send_modify(|status| {
            status.transactions_total += transactions as u64;
            status.rows_total += rows as u64;
            status.commits_total += 1;
            status.newest_gtid = gtid;
        });
    }

    /// Notes what is applied.
    fn note(&mut self, spans: impl Iterator<Item = Span>) {
        let mut ends = Vec::new();
        let spans = spans.inspect(|span| ends.push(span.end));
        let low = {
            let mut applied = self.shared.applied();
            joined(spans).for_each(|span| applied.add(span));
            applied.low()
        };
        self.progress.apply(&ends, low);
        self.done.send_modify(|count| *count += 1);
        self.tell_caught_up(low);
    }

    /// Says at once what is applied when nothing more waits, rather than with the next tick: a caller that waits for a
    /// transaction sees it then.
    fn tell_caught_up(&self, low: LogPosition) {
        self.status.send_if_modified(|status| {
            let tells = self.scheduler.is_idle() && status.gtids.len() <= GTIDS_TOLD_AT_ONCE_BYTES_MAX;
            if tells {
                status.low_watermark = low.to_string();
                status.gtids = gtids::text(self.progress.gtids());
            }
            tells
        });
    }

    /// The error that a part of the channel has died, which none should whatever comes.
    fn fault(&self, what: &str) -> ApplyError {
        ApplyError::Fault { channel: self.shared.options.name.clone(), what: what.to_owned() }
    }

    /// Lets what runs finish before an error of the reader ends the run: what was read before it is good.
    async fn settle(&mut self, error: ApplyError) -> Box<Failure> {
        let mut watch_turn = interval(crew::LOOK);
        while !(self.has_given_back() || self.scheduler.is_idle() && self.crew.is_idle()) {
            self.dispatch().await;
            let outcome = tokio::select! {
                outcome = self.crew.outcome() => outcome,
                _ = watch_turn.tick() => {
                    self.watch_turn(false);
                    continue;
                }
            };
            // Of what a worker has died with nothing will be heard; the first error says why the run ends.
            let Ok(outcome) = outcome else { break };
            match self.finish(outcome) {
                // By this error.
                Err(failure) if matches!(failure.error, ApplyError::Interrupted { .. }) => break,
                Err(failure) => return failure,
                Ok(()) => {}
            }
        }
        error.into()
    }

    /// What interrupted a transaction that is read while it is written: the reader says it after the worker does.
    async fn explain(&mut self, failure: Box<Failure>) -> Box<Failure> {
        if !matches!(failure.error, ApplyError::Interrupted { .. }) {
            return failure;
        }
        while let Some(read) = self.reads.recv().await {
            if let Err(error) = read {
                return error.into();
            }
        }
        failure
    }

    /// Has batches let go of their locks that stand behind one whose turn it is and which does not get on; in independent order, has
    /// nothing wait for its sake, or, if all stops anyway, has them roll back.
    fn watch_turn(&mut self, stops: bool) {
        match self.shared.options.commit_order {
            CommitOrder::Source => self.tell_give_way(self.crew.held_up()),
            CommitOrder::Independent if stops => {
                // One of those who wait may hold the lock that is waited for. What they have done is done again another time.
                if self.crew.held_up().is_some() {
                    self.shared.given_back.cancel();
                }
            }
            CommitOrder::Independent => {
                self.scheduler.set_held_up(self.crew.is_held_up());
                self.tell_who_waits();
            }
        }
    }

    /// In independent order, tells all that wait for their turn whether they are to give way.
    fn tell_who_waits(&self) {
        if self.shared.options.commit_order == CommitOrder::Independent {
            self.tell_give_way(self.scheduler.gives_way().then_some(BatchId(0)));
        }
    }

    fn tell_give_way(&self, head: Option<BatchId>) {
        if *self.shared.give_way.borrow() != head {
            self.shared.give_way.send_replace(head);
        }
    }

    async fn tick(&mut self) -> Result<(), ApplyError> {
        let low = {
            let applied = self.shared.applied();
            self.progress.compact(&applied);
            applied.low()
        };
        let now = Instant::now();
        self.watermark.advance(self.lows.note(now, low));
        let rate = self.rate.per_second(now);
        let oldest_us = self.progress.oldest_commit_us();
        let lag = oldest_us.map_or(Duration::ZERO, |oldest_us| self.shared.source_time.since(oldest_us));
        let gtids = gtids::text(self.progress.gtids());
        let held = self.scheduler.outstanding().weight.bytes as u64;
        let untransactional = self.shared.untransactional().iter().cloned().collect();
        self.status.send_modify(|status| {
            status.nontransactional_tables = untransactional;
            status.low_watermark = low.to_string();
            status.gtids = gtids;
            status.lag_seconds = Some(lag.as_secs_f64());
            status.transactions_per_second = rate;
            status.buffered_bytes = held;
        });
        self.publish().await
    }

    /// No worker keeps what is passed over until one has something else to commit, and the channel tells the target
    /// that it has it: a channel that starts again must not find that the target has more than was applied.
    async fn keep_passed(&mut self) -> Result<(), ApplyError> {
        if std::mem::take(&mut self.has_passed) {
            let applied = self.shared.applied().encode();
            self.publisher.keep(&self.shared.claim, &applied).await?;
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), ApplyError> {
        self.keep_passed().await?;
        self.publisher.publish(&self.shared.options, self.progress.gtids()).await?;
        self.status.send_if_modified(|status| {
            let untold = self.publisher.untold();
            let changed = status.gtids_unpublished_reason.as_deref() != untold;
            if changed {
                status.gtids_unpublished_reason = untold.map(str::to_owned);
            }
            changed
        });
        Ok(())
    }
}

/// Ticks that were missed are not made up for.
fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

impl Scheduled for Held {
    fn writeset(&self) -> &Writeset {
        &self.writeset
    }

    fn weight(&self) -> Weight {
        Weight { bytes: self.memory_bytes, rows: rows_of(self) }
    }
}

fn rows_of(transaction: &Transaction) -> usize {
    match &transaction.content {
        Content::Rows(changes) => changes.iter().map(|changes| changes.rows.len()).sum(),
        _ => 1,
    }
}

/// From the first to the last of a batch.
fn span_of(batch: &Batch<Held>) -> Span {
    let spans = || batch.first.iter().chain(&batch.rest).map(|held| held.span);
    Span {
        start: spans().map(|span| span.start).min().unwrap_or(LogPosition::ZERO),
        end: spans().map(|span| span.end).max().unwrap_or(LogPosition::ZERO),
    }
}
