//! One run of a channel, from taking it over to its end: reader, scheduler and workers, joined.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tailwater_log::{LogHandle, LogPosition, Watermark};
use tailwater_session::{Purpose, check_grants};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::gtids;
use super::options::{ChannelOptions, GtidMode, Until};
use super::reader::{Held, Read, ReaderSetup, read};
use super::statements::Statements;
use super::status::ChannelStatus;
use super::store::Store;
use super::worker::{Shared, Worker};
use crate::error::ApplyError;
use crate::scheduler::{Batch, BatchId, CommitOrder, Options, Scheduler, Timing, Weight};
use crate::transaction::{Content, Span, Transaction};

/// How often the target is told what was applied, and the log what is still needed of it.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// A target that does not sync its commits comes back older from a crash, by no more than this: so much more of the log is
/// kept.
pub(super) const TARGET_LOSS_MAX: Duration = Duration::from_secs(60);

/// So many transactions behind the low watermark are looked through for what need not be kept.
const ABOVE_COMPACTED: usize = 100_000;

/// A batch whose turn it is may be held up by one behind it, which holds a lock that it needs and waits for it: from here
/// on those behind let go.
const HELD_UP: Duration = Duration::from_millis(250);

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

type Outcome = (usize, Batch<Held>, Result<Option<Timing>, ApplyError>);

struct Run {
    shared: Arc<Shared>,
    store: Store,
    status: watch::Sender<ChannelStatus>,
    scheduler: Scheduler<Held>,
    workers: Vec<mpsc::Sender<Batch<Held>>>,
    idle: Vec<usize>,
    running: BTreeMap<BatchId, (Instant, Span)>,
    outcomes: mpsc::Receiver<Outcome>,
    reads: mpsc::Receiver<Result<Vec<Read>, ApplyError>>,
    done: watch::Sender<u64>,
    /// Transactions that were read and lie behind `low`: by where they end, GTID and commit time.
    above: BTreeMap<LogPosition, (Option<Gtid>, u64)>,
    gtids: GtidSet,
    published: Option<GtidSet>,
    watermark: Watermark,
    /// Where `low` was, and when.
    lows: std::collections::VecDeque<(Instant, LogPosition)>,
    rate: Rate,
    careful_until: Option<LogPosition>,
    /// A worker has given a batch back, because it was told to stop.
    given_back: bool,
    _tasks: JoinSet<()>,
    stop_reader: CancellationToken,
}

/// Takes the channel over and applies until it is told to stop or cannot go on.
///
/// # Errors
/// Whatever keeps the channel from going on. What was committed is kept.
pub(super) async fn run(setup: RunSetup) -> Result<End, Box<Failure>> {
    let stop = setup.stop.clone();
    let mut run = tokio::select! {
        run = Run::begin(setup) => run?,
        () = stop.cancelled() => return Ok(End::Told),
    };
    let end = run.coordinate(stop).await;
    run.stop_reader.cancel();
    if end.is_ok() {
        // Everything handed out has committed: the target may be told.
        run.publish().await?;
    }
    end
}

impl Run {
    async fn begin(setup: RunSetup) -> Result<Self, Box<Failure>> {
        let RunSetup { mut options, log, stop, careful_until, status } = setup;
        if careful_until.is_some() || options.tolerate_until.is_some() {
            (options.workers, options.batch_transactions_max) = (1, 1);
        }
        if options.gtid == GtidMode::Preserve {
            options.batch_transactions_max = 1;
        }
        let unlogged = ChannelOptions { gtid: GtidMode::Log, ..options.clone() };
        let mut connection = super::writer::connect(&unlogged).await?;
        let flavour = connection.server().flavour;
        check_grants(&mut connection, Purpose::Apply).await.map_err(ApplyError::from)?;
        let target = gtids::target_gtids(&mut connection).await.map_err(ApplyError::from)?;
        let (mut store, claim, kept) = Store::take_over(connection, &options.name, options.gtid).await?;
        let begun = super::begin::begin(&options, &log, &mut store, &claim, &kept, flavour, &target).await?;
        // From before the takeover: what was committed since is in the progress that was read after it.
        let preserves = flavour == Flavour::MySql && options.gtid == GtidMode::Preserve;
        let target_logged = preserves.then(|| GtidSet::parse(flavour, &target.has).ok()).flatten();
        let filters = super::begin::filters(&options, &kept)?;
        let filter_version = filters.newest().version;
        status.send_modify(|status| status.filter_version = filter_version);
        let low = begun.applied.low();
        let gtids = begun.gtids;
        info!(channel = options.name, %low, target = options.target.endpoint.to_string(), "applying");
        let (turn, _) = watch::channel(BatchId(0));
        let (give_way, _) = watch::channel(None);
        let shared = Arc::new(Shared {
            flavour,
            claim,
            applied: std::sync::Mutex::new(begun.applied),
            turn,
            give_way,
            statements: Statements::default(),
            stop,
            options: options.clone(),
        });
        let scheduler = Scheduler::new(Options {
            commit_order: options.commit_order,
            workers: options.workers,
            batch_transactions_max: options.batch_transactions_max,
            batch_bytes_max: options.batch_bytes_max,
            window_transactions_max: 1 << 20,
            window_bytes_max: usize::MAX,
        });
        let (outcome_sender, outcomes) = mpsc::channel(options.workers.max(1));
        let mut tasks = JoinSet::new();
        let mut workers = Vec::new();
        for number in 0..options.workers.max(1) {
            let worker = Worker::connect(number, Arc::clone(&shared)).await?;
            let (batches, received) = mpsc::channel(1);
            tasks.spawn(work(number, worker, received, outcome_sender.clone()));
            workers.push(batches);
        }
        let (done, done_receiver) = watch::channel(0);
        let (read_sender, reads) = mpsc::channel(4);
        let stop_reader = CancellationToken::new();
        let setup = ReaderSetup {
            log: log.clone(),
            shared: Arc::clone(&shared),
            filters,
            origin: begun.origin,
            target_logged,
            skipped: kept.skipped,
            done: done_receiver,
            stop: stop_reader.clone(),
        };
        let thread = std::thread::Builder::new().name(format!("apply {}", options.name));
        let spawned = thread.spawn(move || read(setup, read_sender));
        spawned.map_err(|source| ApplyError::Start {
            reason: format!("its reader cannot be started: {source}"),
        })?;
        let watermark = log.register_remembered_reader(&format!("channel {}", options.name), low);
        Ok(Self {
            idle: (0..workers.len()).collect(),
            shared,
            store,
            status,
            scheduler,
            workers,
            running: BTreeMap::new(),
            outcomes,
            reads,
            done,
            above: BTreeMap::new(),
            gtids,
            published: None,
            watermark,
            lows: [(Instant::now(), low)].into(),
            rate: Rate::default(),
            careful_until,
            given_back: false,
            _tasks: tasks,
            stop_reader,
        })
    }

    async fn coordinate(&mut self, stop: CancellationToken) -> Result<End, Box<Failure>> {
        let mut tick = tokio::time::interval(PUBLISH_INTERVAL);
        let mut watch_turn = tokio::time::interval(HELD_UP / 4);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        watch_turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ordered = self.shared.options.commit_order == CommitOrder::Source && self.workers.len() > 1;
        let mut end = None;
        if let Some(Until::Gtid(gtid)) = &self.shared.options.until
            && self.gtids.contains(gtid)
        {
            return Ok(End::Reached);
        }
        loop {
            if end.is_some() && self.scheduler.is_idle() && self.running.is_empty() {
                return Ok(end.unwrap_or(End::Told));
            }
            if end.is_none() && self.is_tolerant_enough() {
                end = Some(End::TolerantEnough);
            }
            let stops = match end {
                Some(End::CarefulEnough | End::TolerantEnough) => true,
                // Native replication can go on behind what has no gaps only.
                Some(End::Told) => self.given_back || self.shared.applied().gaps().next().is_none(),
                _ => false,
            };
            if stops && self.running.is_empty() {
                return Ok(end.unwrap_or(End::Told));
            }
            if !stops {
                self.dispatch().await;
            }
            tokio::select! {
                biased;
                Some(outcome) = self.outcomes.recv() => {
                    if let Err(failure) = self.finish(outcome) {
                        return Err(self.explain(failure).await);
                    }
                    if end.is_none() && self.careful_until.is_some_and(|until| self.shared.applied().low() >= until) {
                        end = Some(End::CarefulEnough);
                    }
                }
                () = stop.cancelled(), if end.is_none() => end = Some(End::Told),
                read = self.reads.recv(), if end.is_none() && self.scheduler.has_room() => match read {
                    Some(Ok(reads)) => {
                        if self.take(reads) {
                            end = Some(End::Reached);
                        }
                    }
                    Some(Err(error)) => return Err(self.settle(error).await),
                    None => end = Some(End::LogClosed),
                },
                _ = tick.tick() => self.tick().await?,
                _ = watch_turn.tick(), if ordered => self.watch_turn(),
            }
        }
    }

    fn is_tolerant_enough(&self) -> bool {
        self.shared.options.tolerate_until.as_ref().is_some_and(|gtid| self.gtids.contains(gtid))
    }

    /// Gives each idle worker a batch, if there is one.
    async fn dispatch(&mut self) {
        while let Some(worker) = self.idle.last().copied() {
            let Some(batch) = self.scheduler.next() else { return };
            let span = span_of(&batch);
            self.running.insert(batch.id, (Instant::now(), span));
            self.idle.pop();
            // A worker that is idle has room for one, and lives as long as this.
            let _ = self.workers[worker].send(batch).await;
        }
    }

    /// Takes what was read; whether it is the end of it.
    fn take(&mut self, reads: Vec<Read>) -> bool {
        let mut passed = Vec::new();
        let mut reached = false;
        for read in reads {
            match read {
                Read::Transaction(held) => {
                    self.above.insert(held.span.end, (held.gtid.clone(), held.commit_time_us));
                    let weight = Weight { bytes: held.memory_bytes, rows: rows_of(&held) };
                    let transaction = Arc::clone(&held);
                    self.scheduler.offer(&transaction.writeset, weight, held);
                }
                Read::Passed { span, gtid } => {
                    self.above.insert(span.end, (gtid, 0));
                    passed.push(span);
                }
                Read::Prepared { span, gtid } => {
                    // How long somebody leaves it open is no lag.
                    self.above.insert(span.end, (gtid, 0));
                }
                Read::Reached => reached = true,
            }
        }
        if !passed.is_empty() {
            self.note(passed.into_iter());
        }
        reached
    }

    fn finish(&mut self, (worker, batch, result): Outcome) -> Result<(), Box<Failure>> {
        self.idle.push(worker);
        self.running.remove(&batch.id);
        let timing = match result {
            Ok(Some(timing)) => timing,
            Ok(None) => {
                self.given_back = true;
                return Ok(());
            }
            Err(error) => {
                let transactions = batch.first.len() + batch.rest.len();
                let first = batch.first.iter().chain(&batch.rest).next();
                let transaction = first.filter(|_| transactions == 1).map(|held| Arc::clone(held));
                return Err(Box::new(Failure {
                    error,
                    batch: Some(span_of(&batch)),
                    transactions,
                    transaction,
                }));
            }
        };
        self.scheduler.done(batch.id, timing);
        if self.shared.options.commit_order == CommitOrder::Source {
            self.shared.turn.send_replace(batch.id);
        }
        let mut rows = 0;
        let mut newest: Option<&Held> = None;
        for held in batch.first.iter().chain(&batch.rest) {
            rows += rows_of(held);
            newest = match newest {
                Some(known) if known.span.end > held.span.end => Some(known),
                _ => Some(held),
            };
        }
        let transactions = batch.first.len() + batch.rest.len();
        let gtid = newest.map(|held| held.gtid_text()).unwrap_or_default();
        self.note(batch.first.iter().chain(&batch.rest).flat_map(|held| held.spans().collect::<Vec<_>>()));
        self.rate.count(transactions as u64);
        self.status.send_modify(|status| {
            status.transactions_total += transactions as u64;
            status.rows_total += rows as u64;
            status.commits_total += 1;
            status.newest_gtid = gtid;
        });
        Ok(())
    }

    /// Notes what is applied.
    fn note(&mut self, spans: impl Iterator<Item = Span>) {
        let mut exact = Vec::new();
        let low = {
            let mut applied = self.shared.applied();
            for span in spans {
                applied.add(span);
                if matches!(self.gtids, GtidSet::MySql(_)) {
                    exact.push(span.end);
                }
            }
            applied.low()
        };
        // A set of MySQL has holes where transactions are missing; a position of MariaDB cannot have any.
        let done: Vec<_> = exact.iter().filter_map(|end| self.above.remove(end)).collect();
        done.into_iter().for_each(|(gtid, _)| self.add_gtid(gtid));
        while let Some(entry) = self.above.first_entry().filter(|entry| *entry.key() <= low) {
            let (gtid, _) = entry.remove();
            self.add_gtid(gtid);
        }
        self.done.send_modify(|count| *count += 1);
    }

    fn add_gtid(&mut self, gtid: Option<Gtid>) {
        if let Some(gtid) = gtid {
            // A log holds one family's GTIDs.
            let _ = self.gtids.insert(&gtid);
        }
    }

    /// Drops what says nothing beyond its successor: while an XA transaction is open, everything behind it stays above the
    /// low watermark. Of neighbours that are both applied, MariaDB's position needs the later one in each domain.
    fn compact(&mut self) {
        if self.above.len() < ABOVE_COMPACTED {
            return;
        }
        let applied = self.shared.applied();
        let same_domain = |one: &Option<Gtid>, other: &Option<Gtid>| match (one, other) {
            (Some(Gtid::MariaDb(one)), Some(Gtid::MariaDb(other))) => one.domain == other.domain,
            _ => false,
        };
        let mut kept = BTreeMap::new();
        let mut start = applied.low();
        let mut previous: Option<(LogPosition, (Option<Gtid>, u64), bool)> = None;
        for (end, entry) in std::mem::take(&mut self.above) {
            let is_applied = applied.contains(&Span { start, end });
            if let Some((end, before, was_applied)) = previous.take()
                && !(was_applied && is_applied && same_domain(&before.0, &entry.0))
            {
                kept.insert(end, before);
            }
            previous = Some((end, entry, is_applied));
            start = end;
        }
        kept.extend(previous.map(|(end, entry, _)| (end, entry)));
        drop(applied);
        self.above = kept;
    }

    /// Lets what runs finish before an error of the reader ends the run: what was read before it is good.
    async fn settle(&mut self, error: ApplyError) -> Box<Failure> {
        while !(self.given_back || self.scheduler.is_idle() && self.running.is_empty()) {
            self.dispatch().await;
            let Some(outcome) = self.outcomes.recv().await else { break };
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

    /// Has batches let go of their locks that stand behind one whose turn it is and which does not get on.
    fn watch_turn(&mut self) {
        let head = self.running.first_key_value().map(|(id, (begun, _))| (*id, begun.elapsed()));
        let held_up =
            head.filter(|(_, elapsed)| *elapsed > HELD_UP && self.running.len() > 1).map(|(id, _)| id);
        if *self.shared.give_way.borrow() != held_up {
            self.shared.give_way.send_replace(held_up);
        }
    }

    async fn tick(&mut self) -> Result<(), ApplyError> {
        self.compact();
        let low = self.shared.applied().low();
        let now = Instant::now();
        self.lows.push_back((now, low));
        while self.lows.len() > 1 && self.lows[1].0 + TARGET_LOSS_MAX <= now {
            self.lows.pop_front();
        }
        if let Some((_, needed)) = self.lows.front() {
            self.watermark.advance(*needed);
        }
        let rate = self.rate.per_second(now);
        let lag = self.lag_seconds();
        let gtids = gtids::text(&self.gtids);
        let held = self.scheduler.outstanding().weight.bytes as u64;
        self.status.send_modify(|status| {
            status.low = low.to_string();
            status.gtids = gtids;
            status.lag_seconds = lag;
            status.transactions_per_second = rate;
            status.held_bytes = held;
        });
        self.publish().await
    }

    fn lag_seconds(&self) -> f64 {
        let oldest = self.above.values().map(|(_, time)| *time).find(|time| *time > 0);
        let Some(oldest) = oldest else { return 0.0 };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_micros(oldest)).as_secs_f64()
    }

    /// Tells the target what was applied. Under the source's GTIDs it knows that already, but for what was left out.
    async fn publish(&mut self) -> Result<(), ApplyError> {
        if self.shared.options.gtid == GtidMode::Own || self.published.as_ref() == Some(&self.gtids) {
            return Ok(());
        }
        if let Some(other) = self.store.shared_with().await? {
            if self.published.is_none() {
                warn!(
                    channel = self.shared.options.name,
                    "the target is not told the applied GTIDs, because channel {other} applies the same source to it; if \
                     that is no more, delete its row in tailwater.apply_channel"
                );
            }
            self.published = Some(self.gtids.clone());
            return Ok(());
        }
        match gtids::publish(self.store.connection(), &self.gtids).await {
            Ok(()) => {}
            // The data is not in danger, and applying goes on.
            Err(tailwater_session::SessionError::Server { error, .. }) => {
                if self.published.is_none() {
                    warn!(
                        channel = self.shared.options.name,
                        "the target does not take the applied GTIDs: {error}"
                    );
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.published = Some(self.gtids.clone());
        Ok(())
    }
}

/// Counts, and says how many there were per second.
#[derive(Debug, Default)]
struct Rate {
    counted: u64,
    since: Option<Instant>,
}

impl Rate {
    fn count(&mut self, more: u64) {
        self.counted += more;
    }

    fn per_second(&mut self, now: Instant) -> f64 {
        let since = self.since.replace(now);
        let counted = std::mem::take(&mut self.counted);
        let seconds = since.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
        if seconds > 0.0 { counted as f64 / seconds } else { 0.0 }
    }
}

async fn work(
    number: usize,
    mut worker: Worker,
    mut batches: mpsc::Receiver<Batch<Held>>,
    outcomes: mpsc::Sender<Outcome>,
) {
    while let Some(batch) = batches.recv().await {
        let result = worker.apply(&batch).await;
        if outcomes.send((number, batch, result)).await.is_err() {
            return;
        }
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
