//! Joins the parts of the prefetch: the binlog, the window, the planner, the connections, the feedback.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tailwater_log::LogHandle;
use tailwater_session::{Backoff, ConnectOptions, Connection};
use tailwater_wire::WireError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::binlog_stream::{self, FeedEvent, FeedReceiver};
use crate::change_decoder::{ChangeDecoder, DecodedChange, LoggedRows};
use crate::error::PrefetchError;
use crate::gain_feedback::{FeedbackChange, FeedbackLimits, GainFeedback, TurnSample};
use crate::index_reader;
use crate::log_stream::{self, PlaceNotation};
use crate::pending_keys::PendingKeys;
use crate::prefetch_figures::PrefetchFigures;
use crate::read_connections::{self, ReadOptions, ReadOutcome, ReadQuery};
use crate::read_window::{
    AppliedPosition, FilePlace, ReadWindow, WindowLimits, WindowState, WindowTransaction,
};
use crate::replica_progress::{self, AppliedPositionReader, ServerCounters};
use crate::row_reads::{EntryRead, count_rows, entry_query, plan_rows};
use crate::slow_query_cache::{QueryShape, SlowQueryCache, SlowQueryLimits};
use crate::statement_reads::{may_change_definitions, select_for, shape_of};
use crate::table_indexes::TableIndexes;

/// How long a definition is used, and for how long a missing table is not looked up again.
const DEFINITION_SECONDS: u64 = 60;

/// How often the replication status is read, to see whether the replica runs.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// After so long asleep, the stream of the binlog is closed, so that the source can purge the file that it
/// reads.
const ASLEEP_MAX: Duration = Duration::from_secs(60);

/// How often a channel that has not started is asked for its position.
const CHANNEL_INTERVAL: Duration = Duration::from_millis(200);

/// The number of keys that can always be ahead, however small the buffer pool is.
const KEYS_AHEAD_MIN: u64 = 64;

/// The number of definitions that are kept.
const DEFINITIONS_MAX: usize = 4096;

/// Queries that wait for a connection.
const QUEUED_QUERIES: usize = 64;

/// Where the events come from.
#[derive(Debug, Clone)]
pub enum PrefetchSource {
    /// From the binlog of the replica's source, or of a binlog server.
    Server(Box<ConnectOptions>),
    /// From Tailwater's log of the source.
    Log(LogHandle),
}

/// How the position that a channel of Tailwater has applied is read: see [`crate::segment_place`]. `None`
/// while it is unknown.
pub type AppliedByChannel = Arc<dyn Fn() -> Option<FilePlace> + Send + Sync>;

/// Who applies the transactions, and shows what is applied.
#[derive(Clone)]
pub enum PrefetchProgress {
    /// The replica's own replication: the channel of this name (MariaDB: the connection's name). `None` if
    /// the replica has only one.
    Replication(Option<String>),
    /// A channel of Tailwater. The events must come from the log that it reads.
    Channel(AppliedByChannel),
}

impl std::fmt::Debug for PrefetchProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Replication(name) => f.debug_tuple("Replication").field(name).finish(),
            Self::Channel(_) => f.write_str("Channel"),
        }
    }
}

impl PrefetchProgress {
    /// Whether the position of the channel is not known yet.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Channel(position) if position().is_none())
    }
}

/// The options of a prefetch.
#[derive(Debug, Clone)]
pub struct PrefetchOptions {
    /// The replica.
    pub replica: ConnectOptions,
    /// Where the events come from.
    pub source: PrefetchSource,
    /// Who applies the transactions.
    pub progress: PrefetchProgress,
    /// The number of connections that read.
    pub connections: usize,
    /// How far ahead to read.
    pub window: WindowLimits,
    /// Which queries are not repeated.
    pub slow: SlowQueryLimits,
    /// How to measure whether the prefetch pays; `None`: it is always on.
    pub feedback: Option<FeedbackLimits>,
    /// How many entries of transactions that are not applied are remembered.
    pub pending_keys_max: usize,
    /// How many index entries one query reads at most.
    pub keys_per_query: usize,
    /// The server ends a query after this time.
    pub query_time_max: Duration,
    /// How often the applied position is read.
    pub poll: Duration,
    /// The resource group of the sessions (MySQL).
    pub resource_group: Option<String>,
}

impl PrefetchOptions {
    /// Options with defaults: 16 connections, 8 keys a query, the applied position read every 100 ms.
    pub fn new(replica: ConnectOptions, source: PrefetchSource) -> Self {
        Self {
            replica,
            source,
            progress: PrefetchProgress::Replication(None),
            connections: 16,
            window: WindowLimits::default(),
            slow: SlowQueryLimits::default(),
            feedback: Some(FeedbackLimits::default()),
            pending_keys_max: 200_000,
            keys_per_query: 8,
            query_time_max: Duration::from_secs(5),
            poll: Duration::from_millis(100),
            resource_group: None,
        }
    }

    fn read_options(&self) -> ReadOptions {
        ReadOptions {
            replica: self.replica.clone(),
            connections: self.connections,
            query_time_max: self.query_time_max,
            resource_group: self.resource_group.clone(),
        }
    }
}

/// Checks that the replica and the source can be reached and used, without reading pages.
///
/// # Errors
/// [`PrefetchError`]: what does not work.
pub async fn check(options: &PrefetchOptions) -> Result<(), PrefetchError> {
    PrefetchSession::connect(options).await.map(drop)
}

/// Returns the host and port of the source that the replica's replication status shows.
///
/// # Errors
/// [`PrefetchError::Session`] and [`PrefetchError::NotAReplica`].
pub async fn source_of(
    replica: &ConnectOptions,
    channel: Option<&str>,
) -> Result<(String, u16), PrefetchError> {
    let mut connection = Connection::connect(replica).await.map_err(PrefetchError::replica)?;
    let found = replica_progress::read_channel(&mut connection, channel).await?;
    connection.close().await;
    Ok(found.source)
}

/// Runs the prefetch until `stop` is cancelled. Errors of the replica and the source are shown in the
/// figures, and the prefetch connects again.
pub async fn run(options: PrefetchOptions, figures: Arc<PrefetchFigures>, stop: CancellationToken) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15), rand::random());
    let mut shown = None;
    while !stop.is_cancelled() {
        figures.update(|state| state.state = "connecting");
        if options.progress.is_unknown() {
            figures.update(|state| state.reason = Some(PrefetchError::ChannelNotStarted.coded()));
            stop.run_until_cancelled(tokio::time::sleep(CHANNEL_INTERVAL)).await;
            continue;
        }
        let began = Instant::now();
        let ended = stop.run_until_cancelled(prefetch_once(&options, &figures)).await;
        let Some(Err(error)) = ended else { continue };
        let reason = error.coded();
        // The same failure is logged once: a channel may be stopped for days.
        if shown.replace(reason.clone()) != Some(reason.clone()) {
            tracing::warn!(code = error.code(), "the prefetch has failed and tries again: {error}");
        }
        figures.update(|state| {
            state.state = "failed";
            state.reason = Some(reason);
        });
        if began.elapsed() > Duration::from_secs(60) {
            backoff.reset();
            shown = None;
        }
        stop.run_until_cancelled(tokio::time::sleep(backoff.next_delay())).await;
    }
}

/// Reads ahead until an error, or until it must connect again, from the position that is applied then.
async fn prefetch_once(
    options: &PrefetchOptions,
    figures: &Arc<PrefetchFigures>,
) -> Result<(), PrefetchError> {
    let (mut control, progress, applied) = PrefetchSession::connect(options).await?;
    let pages = replica_progress::pages_read_once(&mut control).await.map_err(PrefetchError::replica)?;
    // Each key needs about one page, and other queries need pages, too.
    let keys_ahead_max = (pages * 3 / 4).max(KEYS_AHEAD_MIN);
    let notation = match &options.progress {
        PrefetchProgress::Replication(_) => PlaceNotation::SourceFile,
        PrefetchProgress::Channel(_) => PlaceNotation::Segment,
    };
    let events = match &options.source {
        PrefetchSource::Server(source) => binlog_stream::read_source(source, &applied).await?,
        PrefetchSource::Log(log) => log_stream::read_log(log, &applied, notation)?,
    };
    let (queries, waiting) = mpsc::channel(QUEUED_QUERIES);
    let (outcomes_in, outcomes) = mpsc::unbounded_channel();
    figures.applied_bytes.store(0, Ordering::Relaxed);
    // Dropping the set when this function ends aborts the connections' tasks.
    let _connections = read_connections::start(&options.read_options(), waiting, &outcomes_in, figures);
    let session = PrefetchSession {
        options,
        figures,
        control,
        progress,
        applied,
        began: Instant::now(),
        decoder: ChangeDecoder::default(),
        window: ReadWindow::new(options.window),
        pending: PendingKeys::new(options.pending_keys_max),
        keys_ahead_max: usize::try_from(keys_ahead_max).unwrap_or(usize::MAX).min(options.pending_keys_max),
        asleep_since: None,
        slow: SlowQueryCache::new(options.slow),
        definitions: FxHashMap::default(),
        batches: FxHashMap::default(),
        changes: VecDeque::new(),
        backlog: VecDeque::new(),
        open: None,
        stream_bytes: 0,
        read_place: FilePlace::default(),
        turn: None,
        status_read: None,
    };
    session.run(events, queries, outcomes).await
}

/// A cached definition; `None` if there is no such table.
struct CachedDefinition {
    table: Option<Arc<TableIndexes>>,
    read: Instant,
}

/// The transaction whose end was not read yet.
struct UnfinishedTransaction {
    gtid: Option<tailwater_wire::gtid::Gtid>,
    commit_seconds: u64,
    rows: u64,
}

/// The feedback with the counters at the start of its turn.
struct FeedbackTurn {
    feedback: GainFeedback,
    began: Instant,
    rows: u64,
    counters: ServerCounters,
    is_lagging: bool,
}

struct PrefetchSession<'a> {
    options: &'a PrefetchOptions,
    figures: &'a Arc<PrefetchFigures>,
    control: Connection,
    progress: AppliedPositionReader,
    applied: AppliedPosition,
    began: Instant,
    decoder: ChangeDecoder,
    window: ReadWindow,
    pending: PendingKeys,
    /// How many keys may be ahead, so that their pages stay in the buffer pool.
    keys_ahead_max: usize,
    asleep_since: Option<Instant>,
    slow: SlowQueryCache,
    definitions: FxHashMap<(String, String), CachedDefinition>,
    /// Entries that wait for others of the same index, to share a query.
    batches: FxHashMap<(String, String, usize), Vec<EntryRead>>,
    /// Changes of the event that was read last. Each is planned when the queries before it are sent, so that
    /// a large event does not become many queries at once.
    changes: VecDeque<DecodedChange>,
    /// Queries that wait for room in the channel.
    backlog: VecDeque<ReadQuery>,
    open: Option<UnfinishedTransaction>,
    stream_bytes: u64,
    /// The end of the last event that was read.
    read_place: FilePlace,
    turn: Option<FeedbackTurn>,
    status_read: Option<Instant>,
}

impl PrefetchSession<'_> {
    async fn connect(
        options: &PrefetchOptions,
    ) -> Result<(Connection, AppliedPositionReader, AppliedPosition), PrefetchError> {
        let mut control = read_connections::connect_read_only(&options.read_options())
            .await
            .map_err(PrefetchError::replica)?;
        index_reader::prepare(&mut control).await.map_err(PrefetchError::replica)?;
        let progress = match &options.progress {
            PrefetchProgress::Replication(name) => {
                AppliedPositionReader::of_replication(&mut control, name.as_deref()).await?
            }
            PrefetchProgress::Channel(position) => AppliedPositionReader::Channel(Arc::clone(position)),
        };
        let (applied, _) = progress.read(&mut control).await?;
        if let PrefetchSource::Server(source) = &options.source {
            let connection = Connection::connect(source).await.map_err(PrefetchError::source)?;
            connection.close().await;
        }
        Ok((control, progress, applied))
    }

    async fn run(
        mut self,
        events: FeedReceiver,
        queries: mpsc::Sender<ReadQuery>,
        mut outcomes: mpsc::UnboundedReceiver<ReadOutcome>,
    ) -> Result<(), PrefetchError> {
        let mut events = Some(events);
        let mut poll = tokio::time::interval(self.options.poll);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let may_read = self.backlog.is_empty() && !self.is_too_far();
            tokio::select! {
                biased;
                _ = poll.tick() => {
                    self.poll().await?;
                    if self.needs_no_events() {
                        events = None;
                    } else if events.is_none() {
                        return Ok(());
                    }
                }
                Some(outcome) = outcomes.recv() => self.finish(outcome),
                Ok(permit) = queries.reserve(), if !self.backlog.is_empty() => {
                    if let Some(query) = self.backlog.pop_front() {
                        permit.send(query);
                    }
                }
                () = std::future::ready(()), if may_read && !self.changes.is_empty() => {
                    self.next_change().await?;
                    if self.changes.is_empty() && events.as_ref().is_none_or(FeedReceiver::is_empty) {
                        self.flush();
                    }
                }
                event = next_event(&mut events), if may_read && self.changes.is_empty() => match event {
                    Some(event) => self.take(&event?)?,
                    None => return Err(self.ended()),
                },
            }
        }
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// Whether so much was read that is not applied, that reading pauses.
    fn is_too_far(&self) -> bool {
        self.window.state() == WindowState::TooFar || self.pending.len() >= self.keys_ahead_max
    }

    fn is_stopped(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.feedback.stopped().is_some())
    }

    /// Whether the stream of the binlog is closed: the prefetch has stopped itself, or sleeps for long. Both
    /// end with a new connection.
    fn needs_no_events(&mut self) -> bool {
        self.asleep_since = self.is_too_far().then(|| self.asleep_since.unwrap_or_else(Instant::now));
        self.is_stopped() || self.asleep_since.is_some_and(|since| since.elapsed() > ASLEEP_MAX)
    }

    fn ended(&self) -> PrefetchError {
        let FilePlace { file, offset } = self.read_place.clone();
        PrefetchError::StreamEnded { file, position: offset }
    }

    fn malformed(&self, error: WireError) -> PrefetchError {
        let FilePlace { file, offset } = self.read_place.clone();
        PrefetchError::Event { file, position: offset, error }
    }

    /// Decodes an event of the binlog.
    fn take(&mut self, event: &FeedEvent) -> Result<(), PrefetchError> {
        use tailwater_wire::binlog_event::EventType;
        if event.is_artificial && event.header.event_type != EventType::FORMAT_DESCRIPTION {
            return Ok(());
        }
        if !event.is_artificial {
            self.stream_bytes += u64::from(event.header.event_length);
            self.read_place = event.place();
            self.window.read_to(self.stream_bytes);
            PrefetchFigures::add(&self.figures.events, 1);
        }
        let mut changes = Vec::new();
        let decoded = self.decoder.decode(&event.header, &event.bytes, &mut changes);
        decoded.map_err(|error| self.malformed(error))?;
        self.changes = changes.into();
        Ok(())
    }

    async fn next_change(&mut self) -> Result<(), PrefetchError> {
        let Some(change) = self.changes.pop_front() else { return Ok(()) };
        match change {
            DecodedChange::Begin { gtid, commit_seconds } => {
                self.window.begin(commit_seconds, self.stream_bytes);
                self.open = Some(UnfinishedTransaction { gtid, commit_seconds, rows: 0 });
            }
            DecodedChange::Rows(logged) => {
                let rows = count_rows(&logged).map_err(|error| self.malformed(error))?;
                if let Some(open) = &mut self.open {
                    open.rows += rows;
                }
                if self.wants(rows) {
                    self.read_rows(&logged).await?;
                }
            }
            DecodedChange::Statement { text, database, sql_mode } => {
                if may_change_definitions(text.as_deref()) {
                    self.definitions.clear();
                }
                if let Some(open) = &mut self.open {
                    open.rows += 1;
                }
                if self.wants(1) {
                    self.read_statement(text.as_deref(), database, sql_mode);
                }
            }
            DecodedChange::TooLarge => self.figures.skip("event_too_large", 1),
            DecodedChange::Abandoned => self.open = None,
            DecodedChange::End => {
                let Some(open) = self.open.take() else { return Ok(()) };
                PrefetchFigures::add(&self.figures.transactions, 1);
                self.window.push(WindowTransaction {
                    gtid: open.gtid,
                    end: self.read_place.clone(),
                    end_bytes: self.stream_bytes,
                    commit_seconds: open.commit_seconds,
                    rows: open.rows,
                });
            }
        }
        Ok(())
    }

    /// Whether changes at this position are read ahead. If not, counts the reason.
    fn wants(&self, rows: u64) -> bool {
        if let Some(turn) = &self.turn
            && !turn.feedback.is_on()
        {
            self.figures.skip("measuring", rows);
            return false;
        }
        if self.window.state() == WindowState::TooNear {
            self.figures.skip("too_near", rows);
            return false;
        }
        let is_applied = self.open.as_ref().is_some_and(|open| self.applied.has_gtid(open.gtid.as_ref()));
        if is_applied {
            self.figures.skip("applied", rows);
        }
        !is_applied
    }

    async fn read_rows(&mut self, logged: &LoggedRows) -> Result<(), PrefetchError> {
        let map = &logged.map;
        let Some(table) = self.definition(&map.schema, &map.table).await? else {
            self.figures.skip("no_table", 1);
            return Ok(());
        };
        if !table.fits(map) {
            self.figures.skip("table_differs", 1);
            return Ok(());
        }
        if table.indexes.is_empty() {
            self.figures.skip("no_index", 1);
            return Ok(());
        }
        let planned = plan_rows(logged, &table).map_err(|error| self.malformed(error))?;
        self.figures.skip("null_key", planned.null_keys);
        self.figures.skip("unknown_key", planned.unknown_keys);
        let now = self.seconds();
        for entry in planned.entries {
            if self.slow.is_slow(&entry_shape(&entry), now) {
                self.figures.skip("slow", 1);
                continue;
            }
            if !self.pending.insert(entry.hash, self.stream_bytes) {
                self.figures.skip("pending", 1);
                continue;
            }
            let key = (entry.table.schema.clone(), entry.table.table.clone(), entry.index);
            let batch = self.batches.entry(key).or_default();
            batch.push(entry);
            if batch.len() >= self.options.keys_per_query.max(1) {
                let batch = std::mem::take(batch);
                self.queue(&batch);
            }
        }
        Ok(())
    }

    /// Queues the query for entries of one index.
    fn queue(&mut self, entries: &[EntryRead]) {
        let (Some(first), Some(sql)) = (entries.first(), entry_query(entries)) else { return };
        self.backlog.push_back(ReadQuery {
            sql,
            database: String::new(),
            shape: entry_shape(first),
            keys: entries.len() as u64,
            table_rows: first.table.rows_estimate,
            is_count: true,
            stream_bytes: self.stream_bytes,
        });
    }

    /// Queues what waits for more entries.
    fn flush(&mut self) {
        for (_, batch) in std::mem::take(&mut self.batches) {
            self.queue(&batch);
        }
    }

    fn read_statement(&mut self, text: Option<&str>, database: String, sql_mode: u64) {
        let Some(text) = text else {
            self.figures.skip("statement_syntax", 1);
            return;
        };
        let select = match select_for(text, sql_mode, self.options.slow.rows_max + 1) {
            Ok(select) => select,
            Err(reason) => {
                self.figures.skip(reason.name(), 1);
                return;
            }
        };
        let shape = QueryShape::of_statement(&shape_of(&select));
        if self.slow.is_slow(&shape, self.seconds()) {
            self.figures.skip("slow", 1);
            return;
        }
        self.backlog.push_back(ReadQuery {
            sql: select,
            database,
            shape,
            keys: 1,
            table_rows: 0,
            is_count: false,
            stream_bytes: self.stream_bytes,
        });
    }

    async fn definition(
        &mut self,
        schema: &str,
        table: &str,
    ) -> Result<Option<Arc<TableIndexes>>, PrefetchError> {
        let name = (schema.to_owned(), table.to_owned());
        if let Some(known) = self.definitions.get(&name)
            && known.read.elapsed().as_secs() < DEFINITION_SECONDS
        {
            return Ok(known.table.clone());
        }
        let read = index_reader::read_table(&mut self.control, schema, table).await;
        let table = read.map_err(PrefetchError::replica)?.map(Arc::new);
        if self.definitions.len() >= DEFINITIONS_MAX {
            self.definitions.clear();
        }
        let cached = CachedDefinition { table: table.clone(), read: Instant::now() };
        self.definitions.insert(name, cached);
        Ok(table)
    }

    fn finish(&mut self, outcome: ReadOutcome) {
        match outcome {
            ReadOutcome::Finished { shape, keys, rows, table_rows, is_too_long } => {
                let now = self.seconds();
                if self.slow.finished(shape, keys, rows, table_rows, is_too_long, now) {
                    PrefetchFigures::add(&self.figures.slow, 1);
                }
            }
            ReadOutcome::DefinitionChanged => self.definitions.clear(),
        }
    }

    /// Reads the applied position, drops what is applied, and continues the feedback.
    async fn poll(&mut self) -> Result<(), PrefetchError> {
        self.flush();
        let (applied, text) = self.progress.read(&mut self.control).await?;
        let gone = self.window.applied(&applied);
        let open_is_applied = self.open.as_ref().is_some_and(|open| match &applied {
            // The position is never inside a transaction.
            AppliedPosition::File(place) => place.has_reached(&self.read_place),
            applied => applied.has_gtid(open.gtid.as_ref()),
        });
        if open_is_applied {
            self.window.open_transaction_applied();
        }
        self.applied = applied;
        self.pending.applied(self.window.applied_bytes());
        self.figures.applied_bytes.store(self.window.applied_bytes(), Ordering::Relaxed);
        PrefetchFigures::add(&self.figures.rows_applied, gone.rows);
        self.poll_feedback(gone.rows).await?;
        let stopped = self.poll_status().await?;
        let state = self.state();
        let (seconds, bytes) = (self.window.seconds_ahead(), self.window.bytes_ahead());
        let feedback = self.turn.as_ref().map(|turn| &turn.feedback);
        let (gain, reads) =
            (feedback.and_then(GainFeedback::gain), feedback.and_then(GainFeedback::reads_per_row));
        let reason = feedback.and_then(GainFeedback::stopped).map(|reason| reason.text().to_owned());
        self.figures.update(|figures| {
            figures.state = state;
            figures.applied = text;
            (figures.seconds_ahead, figures.bytes_ahead) = (seconds, bytes);
            (figures.gain, figures.reads_per_row) = (gain, reads);
            if let Some(stopped) = stopped {
                figures.reason = stopped;
            }
            if reason.is_some() {
                figures.reason = reason;
            }
        });
        Ok(())
    }

    fn state(&self) -> &'static str {
        match &self.turn {
            _ if self.is_stopped() => "stopped",
            Some(turn) if !turn.feedback.is_on() => "measuring",
            _ if self.is_too_far() => "asleep",
            _ if self.window.state() == WindowState::TooNear => "too_near",
            _ => "reading",
        }
    }

    /// Reads every few seconds whether the replica runs. Returns the new reason, if it was read.
    async fn poll_status(&mut self) -> Result<Option<Option<String>>, PrefetchError> {
        if self.status_read.is_some_and(|read| read.elapsed() < STATUS_INTERVAL) {
            return Ok(None);
        }
        self.status_read = Some(Instant::now());
        Ok(Some(self.progress.stopped(&mut self.control).await?))
    }

    async fn poll_feedback(&mut self, rows: u64) -> Result<(), PrefetchError> {
        let Some(limits) = self.options.feedback else { return Ok(()) };
        let now = self.began.elapsed().as_secs_f64();
        let is_lagging = !self.window.is_empty();
        let is_over = match &mut self.turn {
            None => true,
            Some(turn) => {
                turn.rows += rows;
                turn.is_lagging &= is_lagging;
                turn.feedback.is_turn_over(now)
            }
        };
        if !is_over {
            return Ok(());
        }
        let counters =
            replica_progress::server_counters(&mut self.control).await.map_err(PrefetchError::replica)?;
        let mut feedback = GainFeedback::new(limits, now);
        if let Some(turn) = self.turn.take() {
            // While it is stopped, no events are read, so that the applied rows are not known.
            let rows = match turn.feedback.stopped() {
                Some(_) => counters.changed_rows.saturating_sub(turn.counters.changed_rows),
                None => turn.rows,
            };
            let sample = TurnSample {
                rows,
                pool_reads: counters.pool_reads.saturating_sub(turn.counters.pool_reads),
                seconds: turn.began.elapsed().as_secs_f64(),
                is_lagging: turn.is_lagging,
            };
            feedback = turn.feedback;
            report(feedback.end_turn(sample, now));
        }
        self.turn = Some(FeedbackTurn { feedback, began: Instant::now(), rows: 0, counters, is_lagging });
        Ok(())
    }
}

/// The next event; never while there is no stream.
async fn next_event(events: &mut Option<FeedReceiver>) -> Option<Result<FeedEvent, PrefetchError>> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}

fn report(change: Option<FeedbackChange>) {
    match change {
        None => {}
        Some(FeedbackChange::Stopped(reason)) => {
            tracing::info!("the prefetch stops, because {}", reason.text());
        }
        Some(FeedbackChange::WorkingSetChanged(from, to)) => tracing::info!(
            "the prefetch begins again: reads from disk per applied row have changed from {from:.3} to {to:.3}"
        ),
        Some(FeedbackChange::Retry) => tracing::info!("the prefetch begins again, for a trial"),
    }
}

fn entry_shape(entry: &EntryRead) -> QueryShape {
    let index = entry.table.indexes.get(entry.index).map_or("", |index| index.name.as_str());
    QueryShape(format!("{}.{}.{index}", entry.table.schema, entry.table.table))
}
