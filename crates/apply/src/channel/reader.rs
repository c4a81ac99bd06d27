//! Reads the log ahead of the workers and decodes it: a thread of its own for each channel, which waits while as much is
//! held in memory as may be. What is too large for that is in `streaming`.

mod streaming;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use tailwater_log::{Entry, LogHandle, LogPosition, LogReader};
use tailwater_session::Connection;
use tailwater_wire::WireError;
use tailwater_wire::event::{EventType, RowsKind};
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::streaming::{STREAMED_PERMITS, STREAMED_STEPS_MAX};
pub(super) use self::streaming::{Steps, Streamed};
use super::options::Until;
use super::statement_filter::{OWN_SCHEMA, filter_transaction};
use super::worker::Shared;
use super::writer::connect;
use crate::catalogue::Catalogue;
use crate::decode::{DecodeLimits, Decoded, Decoder, Route, Tables};
use crate::error::ApplyError;
use crate::filter::{self, Filters, Operation, VersionedFilters};
use crate::target::TargetTable;
use crate::transaction::{Content, Span, Step, Transaction};
use crate::writeset::Writeset;

/// Memory is counted in pieces of this many bytes.
const PERMIT_BYTES: usize = 1024;

/// As many transactions are handed on at once, at most.
const HANDED_MAX: usize = 256;

/// Seeds the hashes of keys.
const KEY_SEED: u64 = 0x5457;

/// Where a segment's first event stands.
const SEGMENT_START: u64 = 4;

/// What the reader finds.
#[derive(Debug)]
pub(super) enum Read {
    /// To be applied.
    Transaction(Held),
    /// Not to be applied: the target has it already, or an operator leaves it out. The GTID is that of what does not count
    /// as applied yet.
    Passed { span: Span, gtid: Option<Gtid> },
    /// An XA transaction that is held until it is completed, and is applied with what completes it.
    Prepared { span: Span, gtid: Option<Gtid> },
    /// Here the channel is to stop.
    Reached,
}

/// A transaction and the memory it holds.
#[derive(Debug)]
pub(super) struct Held {
    transaction: Arc<Transaction>,
    /// Of one that is streamed, its steps as they are read.
    steps: Option<Mutex<Steps>>,
    _memory: OwnedSemaphorePermit,
}

impl Held {
    /// Its steps, if it is streamed. They come only once.
    pub(super) fn steps(&self) -> Option<&Mutex<Steps>> {
        self.steps.as_ref()
    }
}

impl Deref for Held {
    type Target = Arc<Transaction>;

    fn deref(&self) -> &Arc<Transaction> {
        &self.transaction
    }
}

/// What the reader is given.
#[derive(Debug)]
pub(super) struct ReaderSetup {
    pub(super) log: LogHandle,
    pub(super) shared: Arc<Shared>,
    pub(super) filters: VersionedFilters,
    /// What the target had when the channel began.
    pub(super) origin: GtidSet,
    /// What MySQL has logged under the source's GTIDs: it does nothing, and says so to nobody, when it gets one again.
    pub(super) target_logged: Option<GtidSet>,
    /// Transactions that an operator leaves out.
    pub(super) skipped: Vec<String>,
    /// Changes with each batch that is done.
    pub(super) done: watch::Receiver<u64>,
    pub(super) stop: CancellationToken,
}

/// Reads until it is told to stop, the log ends, or there is an error, which is sent as the last.
pub(super) fn read(setup: ReaderSetup, out: mpsc::Sender<Result<Vec<Read>, ApplyError>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => {
            let error = ApplyError::Start { reason: format!("its reader cannot be started: {source}") };
            // Nobody there to hear it: the channel has gone.
            let _ = out.blocking_send(Err(error));
            return;
        }
    };
    runtime.block_on(async move {
        let stop = setup.stop.clone();
        let work = async {
            let mut reader = match Reader::open(setup, out.clone()).await {
                Ok(reader) => reader,
                Err(error) => return Some(error),
            };
            reader.run().await.err()
        };
        let error = tokio::select! {
            () = stop.cancelled() => None,
            error = work => error,
        };
        if let Some(error) = error {
            let _ = out.send(Err(error)).await;
        }
    });
}

struct Reader {
    setup: ReaderSetup,
    log: LogReader,
    decoder: Decoder,
    target: TargetTables,
    memory: Arc<Semaphore>,
    permits_max: usize,
    /// What steps of a streamed transaction may hold.
    streamed: Arc<Semaphore>,
    /// XA transactions that were prepared and not completed yet.
    prepared: HashMap<Vec<u8>, (Entry, Span)>,
    ready: Vec<Read>,
    out: mpsc::Sender<Result<Vec<Read>, ApplyError>>,
}

/// The target's tables, and what goes where.
struct TargetTables {
    catalogue: Catalogue,
    connection: Connection,
    versions: VersionedFilters,
    filters: Filters,
    /// From here on others count.
    next_filters: Option<LogPosition>,
}

impl TargetTables {
    /// Has the filters that count for a transaction whose span starts at `position`; whether they are others now.
    fn turn_to(&mut self, position: LogPosition) -> Result<bool, ApplyError> {
        if self.next_filters.is_some_and(|next| next <= position) {
            self.filters = self.versions.at(position).filters.compile()?;
            self.next_filters = self.versions.next_change(position);
            return Ok(true);
        }
        Ok(false)
    }
}

impl Tables for TargetTables {
    fn route(&self, schema: &str, table: &str, kind: RowsKind) -> Route {
        // What channels to the source keep there is about the source.
        if schema.eq_ignore_ascii_case(OWN_SCHEMA) {
            return Route::Drop;
        }
        let operation = match kind {
            RowsKind::Write => Operation::Insert,
            RowsKind::Update | RowsKind::PartialUpdate => Operation::Update,
            RowsKind::Delete => Operation::Delete,
        };
        match self.filters.route(schema, table, operation) {
            filter::Route::Keep => Route::Keep,
            filter::Route::Drop => Route::Drop,
            filter::Route::Rename { schema, table } => {
                Route::Rename { schema: schema.to_string(), table: table.to_string() }
            }
        }
    }

    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>> {
        self.catalogue.get(schema, table)
    }
}

impl Reader {
    async fn open(
        setup: ReaderSetup,
        out: mpsc::Sender<Result<Vec<Read>, ApplyError>>,
    ) -> Result<Self, ApplyError> {
        let low = setup.shared.applied().low();
        let log = setup.log.reader(low)?;
        let options = &setup.shared.options;
        let connection = connect(options).await?;
        let flavour = setup.log.source().map_or(connection.server().flavour, |source| source.flavour);
        let permits_max = (options.memory_bytes_max / PERMIT_BYTES).max(1);
        let limits = DecodeLimits {
            transaction_bytes_max: usize::try_from(options.transaction_bytes_max).unwrap_or(usize::MAX),
            ..DecodeLimits::default()
        };
        let mut decoder = Decoder::new(flavour, limits, KEY_SEED);
        if let Some(event) = format_description(&setup.log, low)? {
            decoder.format_description(&event).map_err(|error| at(low, error))?;
        }
        let filters = setup.filters.at(low).filters.compile()?;
        let next_filters = setup.filters.next_change(low);
        let target = TargetTables {
            catalogue: Catalogue::new(connection.server().flavour),
            connection,
            versions: setup.filters.clone(),
            filters,
            next_filters,
        };
        Ok(Self {
            decoder,
            memory: Arc::new(Semaphore::new(permits_max)),
            permits_max,
            streamed: Arc::new(Semaphore::new(STREAMED_PERMITS)),
            prepared: HashMap::new(),
            ready: Vec::new(),
            setup,
            log,
            target,
            out,
        })
    }

    async fn run(&mut self) -> Result<(), ApplyError> {
        let mut start = self.setup.shared.applied().low();
        loop {
            let entry = match self.log.try_next()? {
                Some(entry) => entry,
                None => {
                    if !self.hand_on().await {
                        return Ok(());
                    }
                    match self.log.next().await? {
                        Some(entry) => entry,
                        // The writer has closed the log: so does the channel, when all is applied.
                        None => return Ok(()),
                    }
                }
            };
            if !entry.is_transaction() {
                self.between(&entry)?;
                continue;
            }
            let span = Span { start, end: entry.end() };
            start = span.end;
            if !self.transaction(entry, span).await? {
                return Ok(());
            }
        }
    }

    /// An event between transactions.
    fn between(&mut self, entry: &Entry) -> Result<(), ApplyError> {
        let mut event = Vec::new();
        while let Some(header) = self.log.next_event()? {
            if header.event_type == EventType::FORMAT_DESCRIPTION {
                self.log.read_event(&mut event)?;
                self.decoder.format_description(&event).map_err(|error| at(entry.position, error))?;
            }
        }
        Ok(())
    }

    /// False when there is nothing more to do.
    async fn transaction(&mut self, entry: Entry, span: Span) -> Result<bool, ApplyError> {
        match &self.setup.shared.options.until {
            Some(Until::TimeUs(time)) if entry.commit_time_us >= *time => return self.reached().await,
            _ => {}
        }
        if self.setup.shared.applied().contains(&span) {
            self.push(Read::Passed { span, gtid: entry.gtid }).await?;
            return Ok(true);
        }
        let last = matches!(&self.setup.shared.options.until, Some(Until::Gtid(gtid)) if entry.gtid.as_ref() == Some(gtid));
        if self.is_of_origin(&entry) {
            // It counts as applied from the beginning on.
            self.push(Read::Passed { span, gtid: None }).await?;
        } else if self.is_skipped(&entry) {
            self.push(Read::Passed { span, gtid: entry.gtid }).await?;
        } else {
            self.delay(&entry).await?;
            if self.target.turn_to(span.start)? {
                self.decoder.forget();
            }
            match self.decode(&entry, span).await? {
                Some((transaction, source)) => {
                    self.refuse_lost(&transaction)?;
                    self.hand_over(&source, transaction).await?;
                }
                None => self.push(Read::Prepared { span, gtid: entry.gtid }).await?,
            }
        }
        if last { self.reached().await } else { Ok(true) }
    }

    /// Rows stand in the target's binlog under their GTID exactly if their progress stands beside them; unless the target
    /// has lost them in a crash, and not its binlog.
    fn refuse_lost(&self, transaction: &Transaction) -> Result<(), ApplyError> {
        let (Some(logged), Some(gtid)) = (&self.setup.target_logged, &transaction.gtid) else {
            return Ok(());
        };
        let has_rows = matches!(transaction.content, Content::Rows(_) | Content::Streamed { .. });
        if !has_rows || !logged.contains(gtid) {
            return Ok(());
        }
        Err(ApplyError::Record {
            channel: self.setup.shared.options.name.clone(),
            reason: format!(
                "the target has logged {gtid} and does not have it; gtid = preserve needs \
                 innodb_flush_log_at_trx_commit=1 and sync_binlog=1 there, or gtid_executed holds what was applied \
                 otherwise; RESET BINARY LOGS AND GTIDS on the target lets it be applied again"
            ),
        })
    }

    async fn hand_over(&mut self, entry: &Entry, transaction: Transaction) -> Result<(), ApplyError> {
        let span = transaction.span;
        let streamed = matches!(transaction.content, Content::Streamed { .. });
        let defines = match &transaction.content {
            Content::Steps(steps) => {
                steps.iter().any(|step| matches!(step, Step::Statement(statement) if !statement.dml))
            }
            _ => false,
        };
        let memory = self.reserve(transaction.memory_bytes).await?;
        let (sender, steps) = mpsc::channel(STREAMED_STEPS_MAX);
        let steps = streamed.then(|| Mutex::new(steps));
        self.push(Read::Transaction(Held { transaction: Arc::new(transaction), steps, _memory: memory }))
            .await?;
        if streamed {
            self.hand_on().await;
            self.stream(entry, &sender).await?;
            drop(sender);
        }
        if defines || streamed {
            self.wait_for_definition(span).await?;
        }
        Ok(())
    }

    async fn reached(&mut self) -> Result<bool, ApplyError> {
        self.ready.push(Read::Reached);
        self.hand_on().await;
        Ok(false)
    }

    /// Whether the target had it before the channel began.
    fn is_of_origin(&self, entry: &Entry) -> bool {
        entry.gtid.as_ref().is_some_and(|gtid| self.setup.origin.contains(gtid))
    }

    /// Whether an operator leaves it out.
    fn is_skipped(&self, entry: &Entry) -> bool {
        let skipped = &self.setup.skipped;
        let gtid = entry.gtid.as_ref().filter(|_| !skipped.is_empty());
        gtid.is_some_and(|gtid| skipped.contains(&gtid.to_string()))
    }

    /// Decodes it; `None` for what is held until another completes it. Of one that is streamed, with the entry that its steps
    /// are in.
    async fn decode(
        &mut self,
        entry: &Entry,
        span: Span,
    ) -> Result<Option<(Transaction, Entry)>, ApplyError> {
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = if large { Bytes::new() } else { read_entry(&mut self.log, entry)? };
        let mut transaction = self.decode_bytes(entry, span, bytes).await?;
        filter_transaction(&self.target.filters, &mut transaction)?;
        if matches!(transaction.content, Content::Streamed { .. })
            && let Some(content) = self.xa_content(entry)?
        {
            (transaction.content, transaction.writeset) = (content, Writeset::default());
        }
        let mut source = entry.clone();
        match &transaction.content {
            Content::XaPrepare { xid } => {
                debug!(gtid = transaction.gtid_text(), "an XA transaction is held until it is completed");
                self.prepared.insert(xid.clone(), (source, span));
                return Ok(None);
            }
            Content::XaRollback { xid } => {
                transaction.prepared = self.prepared.remove(xid).map(|(_, span)| span);
                transaction.content = Content::Rows(Vec::new());
                transaction.writeset.barrier = false;
            }
            Content::XaCommit { xid } => {
                let Some((entry, prepared)) = self.prepared.remove(xid) else {
                    return Err(ApplyError::Unsupported {
                        gtid: transaction.gtid_text(),
                        what: format!("XA COMMIT {}", String::from_utf8_lossy(xid)),
                        reason: "it was prepared before the channel began; complete it on the target by hand, and skip \
                                 this transaction"
                            .to_owned(),
                    });
                };
                self.complete(&entry, prepared, &mut transaction).await?;
                source = entry;
            }
            Content::Rows(_) | Content::Steps(_) | Content::Streamed { .. } => {}
        }
        Ok(Some((transaction, source)))
    }

    /// Gives `transaction`, which commits it, what an XA transaction did when it was prepared.
    async fn complete(
        &mut self,
        entry: &Entry,
        prepared: Span,
        transaction: &mut Transaction,
    ) -> Result<(), ApplyError> {
        let mut log = self.reader_of(entry)?;
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = if large { Bytes::new() } else { read_entry(&mut log, entry)? };
        loop {
            match self.decoder.xa_rows(entry, prepared, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(rows) => {
                    transaction.prepared = Some(prepared);
                    transaction.content = rows.content;
                    transaction.writeset = rows.writeset;
                    transaction.memory_bytes += rows.memory_bytes;
                    return Ok(());
                }
                Decoded::NeedsTable { schema, table } => self.load(entry, &schema, &table).await?,
            }
        }
    }

    async fn decode_bytes(
        &mut self,
        entry: &Entry,
        span: Span,
        bytes: Bytes,
    ) -> Result<Transaction, ApplyError> {
        loop {
            match self.decoder.transaction(entry, span, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(transaction) => return Ok(*transaction),
                Decoded::NeedsTable { schema, table } => self.load(entry, &schema, &table).await?,
            }
        }
    }

    async fn load(&mut self, entry: &Entry, schema: &str, table: &str) -> Result<(), ApplyError> {
        match self.target.catalogue.load(&mut self.target.connection, schema, table).await? {
            Some(_) => Ok(()),
            None => Err(ApplyError::NoTable {
                gtid: entry.gtid.as_ref().map_or_else(String::new, ToString::to_string),
                table: format!("{schema}.{table}"),
            }),
        }
    }

    /// Definitions change what the tables look like: nothing behind them is decoded before they have run.
    async fn wait_for_definition(&mut self, span: Span) -> Result<(), ApplyError> {
        self.hand_on().await;
        let shared = Arc::clone(&self.setup.shared);
        // The sender goes with the channel, and then this thread is told to stop.
        let _ = self.setup.done.wait_for(|_| shared.applied().contains(&span)).await;
        self.target.catalogue.forget_all();
        self.decoder.forget();
        Ok(())
    }

    async fn delay(&mut self, entry: &Entry) -> Result<(), ApplyError> {
        let delay = self.setup.shared.options.delay;
        if delay.is_zero() || entry.commit_time_us == 0 {
            return Ok(());
        }
        let due = UNIX_EPOCH + Duration::from_micros(entry.commit_time_us) + delay;
        if let Ok(wait) = due.duration_since(SystemTime::now()) {
            self.hand_on().await;
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    async fn reserve(&mut self, bytes: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, self.permits_max);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&self.memory).try_acquire_many_owned(permits) {
            return Ok(permit);
        }
        // What is held here must be with the workers before it can become free.
        self.hand_on().await;
        acquire(&self.memory, permits as usize).await
    }

    async fn push(&mut self, read: Read) -> Result<(), ApplyError> {
        self.ready.push(read);
        if self.ready.len() >= HANDED_MAX {
            self.hand_on().await;
        }
        Ok(())
    }

    /// Hands on what is ready; false if nobody takes it any more.
    async fn hand_on(&mut self) -> bool {
        if self.ready.is_empty() {
            return !self.out.is_closed();
        }
        let ready = std::mem::take(&mut self.ready);
        self.out.send(Ok(ready)).await.is_ok()
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, permits: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
    let permits = u32::try_from(permits).unwrap_or(u32::MAX);
    let acquired = Arc::clone(semaphore).acquire_many_owned(permits).await;
    // A semaphore of a reader is never closed.
    acquired.map_err(|_| ApplyError::Start { reason: "its reader was stopped".to_owned() })
}

/// An event between transactions that is malformed.
fn at(position: LogPosition, error: WireError) -> ApplyError {
    ApplyError::Event { gtid: String::new(), position, error }
}

/// The format description that is in force at `low`: that of its segment.
fn format_description(log: &LogHandle, low: LogPosition) -> Result<Option<Vec<u8>>, ApplyError> {
    if low.offset <= SEGMENT_START {
        return Ok(None);
    }
    let mut head = log.reader(LogPosition { offset: SEGMENT_START, ..low })?;
    while let Some(entry) = head.try_next()?.filter(|entry| entry.position < low) {
        if entry.is_transaction() {
            return Ok(None);
        }
        let mut event = Vec::new();
        while let Some(header) = head.next_event()? {
            if header.event_type == EventType::FORMAT_DESCRIPTION {
                head.read_event(&mut event)?;
                return Ok(Some(event));
            }
        }
    }
    Ok(None)
}

/// The bytes of the entry that `log` just gave.
fn read_entry(log: &mut LogReader, entry: &Entry) -> Result<Bytes, ApplyError> {
    let length = usize::try_from(entry.length).unwrap_or(usize::MAX);
    let mut bytes = BytesMut::with_capacity(length);
    loop {
        let chunk = log.read_chunk(usize::MAX)?;
        if chunk.is_empty() {
            return Ok(bytes.freeze());
        }
        bytes.extend_from_slice(chunk);
    }
}
