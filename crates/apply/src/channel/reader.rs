//! Reads the log ahead of the workers and decodes it, and waits while as much is held in memory as may be.

mod digit_effect;
mod entries;
mod memory_budget;
mod preflight;
mod source_digits;
mod stream;
mod target_tables;
mod xa;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tailwater_log::{EntryFlags, LogEntry, LogHandle, LogPosition, LogReader};
use tailwater_wire::WireError;
use tailwater_wire::event::EventType;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub(super) use self::memory_budget::BudgetedTransaction;
use self::memory_budget::MemoryBudget;
use self::source_digits::DefinitionScan;
pub(super) use self::stream::StreamedStep;
use self::target_tables::TargetTables;
use self::xa::{PreparedXas, RowSource};
use super::options::{GtidMode, UntilCondition};
use super::row_writer::connect;
use super::statement_filter::filter_transaction;
use super::worker::ChannelShared;
use crate::decode::{DecodeLimits, Decoded, Decoder};
use crate::error::ApplyError;
use crate::filter::VersionedFilters;
use crate::transaction::{ApplyStep, LogSpan, Transaction, TransactionContent};

/// As many transactions are handed on at once, at most.
const OUTPUT_ITEMS_MAX: usize = 256;

/// What was read waits in this many hands-over, at most.
const OUTPUT_BATCHES_MAX: usize = 4;

/// So many entries are read one behind the other without waiting for one, before a thread of its own goes on with it.
const INLINE_ENTRIES_MAX: usize = 64;
/// An entry of more bytes is read by that thread too: others run where the task does.
const INLINE_ENTRY_BYTES_MAX: u64 = 256 << 10;

/// How often it is looked at what time it is while a transaction waits for its time.
const DELAY_POLL: Duration = Duration::from_secs(1);

/// Seeds the hashes of keys.
const KEY_SEED: u64 = 0x5457;

/// What the reader finds.
#[derive(Debug)]
pub(super) enum ReaderItem {
    /// To be applied.
    Transaction(BudgetedTransaction),
    /// Not to be applied, and durable: the target has it already, or an operator leaves it out. The GTID is that of what does
    /// not count as applied yet.
    Skipped { span: LogSpan, gtid: Option<Gtid> },
    /// An XA transaction that is held until it is completed, and is applied with what completes it.
    XaPrepared { span: LogSpan, gtid: Option<Gtid> },
    /// Here the channel is to stop.
    UntilReached,
    /// Nothing more will come: the log is closed.
    LogClosed,
}

/// What the reader is given.
#[derive(Debug)]
pub(super) struct ReaderSetup {
    pub(super) log: LogHandle,
    pub(super) shared: Arc<ChannelShared>,
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

/// What the reader says: what it found, or, as the last, why it cannot go on.
pub(super) type ReaderOutput = mpsc::Receiver<Result<Vec<ReaderItem>, ApplyError>>;

type ReaderSender = mpsc::Sender<Result<Vec<ReaderItem>, ApplyError>>;

/// Starts to read, until it is told to stop, the log ends, or there is an error.
///
/// What comes while it waits at the end of the log is read and decoded by the task that waits: to wake another thread takes longer.
/// As long as it is behind it has a thread of its own, which may wait for the disk.
///
/// # Errors
/// [`ApplyError::Start`] if the system has no room for a thread.
pub(super) fn start(setup: ReaderSetup) -> Result<ReaderOutput, ApplyError> {
    let (out, output) = mpsc::channel(OUTPUT_BATCHES_MAX);
    let (stop, errors) = (setup.stop.clone(), out.clone());
    let opened = on_thread(&setup.shared.options.name.clone(), async move {
        let mut reader = ChannelReader::open(setup, out).await?;
        reader.preflight().await?;
        let position = reader.catch_up().await;
        Ok((reader, position))
    })?;
    tokio::spawn(async move {
        let error = tokio::select! {
            () = stop.cancelled() => None,
            error = follow(opened) => error,
        };
        if let Some(error) = error {
            let _ = errors.send(Err(error)).await;
        }
    });
    Ok(output)
}

/// What a thread gives back when it has ended.
type ReaderThread =
    oneshot::Receiver<Result<(ChannelReader, Result<ReaderPosition, ApplyError>), ApplyError>>;

/// Where a reader has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderPosition {
    /// The log has no more for now.
    EndOfLog,
    /// Somewhere before that.
    BeforeEnd,
    /// There is nothing more to do.
    Finished,
}

/// Follows the log's end, on threads of its own wherever it is behind; the error that ends it, if one does.
async fn follow(mut opened: ReaderThread) -> Option<ApplyError> {
    loop {
        // A thread that was told to stop says nothing more.
        let (mut reader, mut position) = match opened.await.ok()? {
            Ok(opened) => opened,
            Err(error) => return Some(error),
        };
        if let Ok(ReaderPosition::EndOfLog) = position {
            position = reader.wait_and_read().await;
        }
        match position {
            Ok(ReaderPosition::Finished) => return None,
            Ok(ReaderPosition::EndOfLog | ReaderPosition::BeforeEnd) => {}
            Err(error) => {
                // What was read before it is good.
                reader.flush().await;
                return Some(error);
            }
        }
        let name = reader.setup.shared.options.name.clone();
        let caught_up = on_thread(&name, async move {
            let position = reader.catch_up().await;
            Ok((reader, position))
        });
        match caught_up {
            Ok(caught_up) => opened = caught_up,
            Err(error) => return Some(error),
        }
    }
}

/// Has a thread of its own do what may wait for the disk, until nobody is interested any more.
fn on_thread(
    channel: &str,
    work: impl Future<Output = Result<(ChannelReader, Result<ReaderPosition, ApplyError>), ApplyError>>
    + Send
    + 'static,
) -> Result<ReaderThread, ApplyError> {
    let runtime = Handle::current();
    let (mut done, opened) = oneshot::channel();
    let thread = std::thread::Builder::new().name(format!("apply {channel}"));
    spawn(thread, move || {
        runtime.block_on(async {
            // A runtime that is shut down drops who waits first, and what the work would ask of it then panics.
            let work = tokio::select! {
                biased;
                () = done.closed() => return,
                work = work => work,
            };
            let _ = done.send(work);
        });
    })?;
    Ok(opened)
}

fn spawn(thread: std::thread::Builder, work: impl FnOnce() + Send + 'static) -> Result<(), ApplyError> {
    let refused = |error: std::io::Error| format!("its reader cannot be started: {error}");
    thread.spawn(work).map(drop).map_err(|error| ApplyError::Start { reason: refused(error) })
}

struct ChannelReader {
    setup: ReaderSetup,
    /// Where the next transaction's span begins.
    start: LogPosition,
    log: LogReader,
    /// What the log gave last, if it is left to the thread.
    deferred: Option<LogEntry>,
    decoder: Decoder,
    target: TargetTables,
    /// Definitions further on in the log, if they were needed.
    definitions: Option<DefinitionScan>,
    memory: MemoryBudget,
    prepared: PreparedXas,
    /// For what is streamed.
    streamed: MemoryBudget,
    ready: Vec<ReaderItem>,
    out: ReaderSender,
}

impl ChannelReader {
    async fn open(setup: ReaderSetup, out: ReaderSender) -> Result<Self, ApplyError> {
        let low = setup.shared.applied().low();
        // Followers of a log at its end prepare what is being made durable, and commit it then.
        let log = setup.log.reader_up_to_written(low)?;
        let options = &setup.shared.options;
        let connection = connect(options).await?;
        let flavour = setup.log.source().map_or(connection.server().flavour, |source| source.flavour);
        let memory = MemoryBudget::new(options.memory_bytes_max);
        let limits = DecodeLimits {
            transaction_bytes_max: usize::try_from(options.transaction_bytes_max).unwrap_or(usize::MAX),
            ..DecodeLimits::default()
        };
        let mut decoder = Decoder::new(flavour, limits, KEY_SEED);
        if let Some(event) = entries::format_description(&setup.log, low)? {
            decoder.format_description(&event).map_err(|error| at(low, error))?;
        }
        let target = TargetTables::new(connection, setup.filters.clone(), low, Arc::clone(&setup.shared))?;
        let streamed = MemoryBudget::new(stream::STREAMED_BYTES_MAX);
        Ok(Self {
            start: low,
            deferred: None,
            decoder,
            memory,
            streamed,
            prepared: PreparedXas::new(),
            ready: Vec::new(),
            setup,
            log,
            target,
            definitions: None,
            out,
        })
    }

    /// Reads until the log has no more for now.
    async fn catch_up(&mut self) -> Result<ReaderPosition, ApplyError> {
        if let Some(entry) = self.deferred.take()
            && !self.read(entry).await?
        {
            return Ok(ReaderPosition::Finished);
        }
        while let Some(entry) = self.log.try_next()? {
            if !self.read(entry).await? {
                return Ok(ReaderPosition::Finished);
            }
        }
        Ok(if self.flush().await { ReaderPosition::EndOfLog } else { ReaderPosition::Finished })
    }

    /// Reads what comes, until it comes faster than it is waited for, or is large.
    async fn wait_and_read(&mut self) -> Result<ReaderPosition, ApplyError> {
        let mut unwaited = 0;
        while unwaited < INLINE_ENTRIES_MAX {
            unwaited += 1;
            let entry = match self.log.try_next()? {
                Some(entry) => entry,
                None => {
                    if !self.flush().await {
                        return Ok(ReaderPosition::Finished);
                    }
                    unwaited = 0;
                    match self.log.next().await? {
                        Some(entry) => entry,
                        // The writer has closed the log: so does the channel, when all is applied.
                        None => return self.finish_at_close().await.map(|()| ReaderPosition::Finished),
                    }
                }
            };
            if entry.length > INLINE_ENTRY_BYTES_MAX {
                self.deferred = Some(entry);
                break;
            }
            if !self.read(entry).await? {
                return Ok(ReaderPosition::Finished);
            }
        }
        Ok(if self.flush().await { ReaderPosition::BeforeEnd } else { ReaderPosition::Finished })
    }

    /// Reads an entry; false when there is nothing more to do.
    async fn read(&mut self, entry: LogEntry) -> Result<bool, ApplyError> {
        if !entry.is_transaction() {
            self.read_format(&entry)?;
            return Ok(true);
        }
        let span = LogSpan { start: self.start, end: entry.end() };
        self.start = span.end;
        self.forget_defined(&entry)?;
        Ok(self.read_transaction(entry, span).await? && !self.out.is_closed())
    }

    /// An event between transactions.
    fn read_format(&mut self, entry: &LogEntry) -> Result<(), ApplyError> {
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
    async fn read_transaction(&mut self, entry: LogEntry, span: LogSpan) -> Result<bool, ApplyError> {
        match &self.setup.shared.options.until {
            Some(UntilCondition::TimeUs(time)) if entry.commit_time_us >= *time => {
                return self.finish_at_until().await;
            }
            _ => {}
        }
        if self.setup.shared.applied().contains(&span) {
            self.mark_skipped(span, entry.gtid).await?;
            return Ok(true);
        }
        let last = matches!(&self.setup.shared.options.until, Some(UntilCondition::Gtid(gtid)) if entry.gtid.as_ref() == Some(gtid));
        if self.is_of_origin(&entry) {
            // It counts as applied from the beginning on.
            self.mark_skipped(span, None).await?;
        } else if self.is_skipped(&entry) {
            self.skip(entry, span).await?;
        } else {
            self.wait_for_delay(&entry).await;
            if self.target.select_filters(span.start)? {
                self.decoder.forget();
            }
            let transaction = self.decode(&entry, span).await?;
            if !self.wait_until_durable(self.rereads_until(&transaction)).await? {
                return Ok(true);
            }
            match self.track_xa(&entry, transaction).await? {
                Some((mut transaction, mut source)) => {
                    filter_transaction(self.target.filters(), &mut transaction)?;
                    if self.is_on_target(&transaction)? {
                        self.mark_skipped(span, entry.gtid).await?;
                    } else {
                        self.deliver(&mut source, transaction).await?;
                    }
                }
                None => self.push(ReaderItem::XaPrepared { span, gtid: entry.gtid }).await?,
            }
        }
        if last { self.finish_at_until().await } else { Ok(true) }
    }

    /// Passes over what an operator leaves out. Of an XA transaction that it completes, nothing is held any more either.
    async fn skip(&mut self, entry: LogEntry, span: LogSpan) -> Result<(), ApplyError> {
        if !self.wait_until_durable(span.end).await? {
            return Ok(());
        }
        let prepared = self.forget_prepared(&entry);
        if prepared.is_none() && !self.needs_gtid(&entry) {
            return self.mark_skipped(span, entry.gtid).await;
        }
        let empty = Transaction::empty(span, entry.gtid.clone(), entry.commit_time_us);
        self.deliver(&mut RowSource { entry, format: None }, Transaction { prepared, ..empty }).await
    }

    /// Rows stand in the target's binlog under their GTID exactly if their progress stands beside them; unless the target
    /// has lost them in a crash, and not its binlog. But progress comes after rows of tables without transactions:
    /// these are there.
    fn is_on_target(&self, transaction: &Transaction) -> Result<bool, ApplyError> {
        let (Some(logged), Some(gtid)) = (&self.setup.target_logged, &transaction.gtid) else {
            return Ok(false);
        };
        let has_rows =
            matches!(transaction.content, TransactionContent::Rows(_) | TransactionContent::Streamed { .. });
        if !has_rows || !logged.contains(gtid) {
            return Ok(false);
        }
        if let TransactionContent::Rows(changes) = &transaction.content
            && changes.iter().any(|changes| !changes.table.target.transactional)
        {
            return Ok(true);
        }
        Err(ApplyError::ProgressRecord {
            channel: self.setup.shared.options.name.clone(),
            reason: format!(
                "the target has logged {gtid} and does not have it; gtid = preserve needs \
                 innodb_flush_log_at_trx_commit=1 and sync_binlog=1 there, or gtid_executed holds what was applied \
                 otherwise; RESET BINARY LOGS AND GTIDS on the target lets it be applied again"
            ),
        })
    }

    async fn deliver(&mut self, source: &mut RowSource, transaction: Transaction) -> Result<(), ApplyError> {
        let span = transaction.span;
        let streamed = matches!(transaction.content, TransactionContent::Streamed { .. });
        let defines = match &transaction.content {
            TransactionContent::Steps(steps) => {
                steps.iter().any(|step| matches!(step, ApplyStep::Statement(statement) if !statement.dml))
            }
            _ => false,
        };
        // One with the flag was seen when it was read.
        if defines && !source.entry.flags.contains(EntryFlags::DDL) {
            self.target.forget_sources(|_, _| true);
        }
        let memory = self.reserve(transaction.memory_bytes).await?;
        let (sender, steps) = streamed.then(stream::steps).unzip();
        self.push(ReaderItem::Transaction(BudgetedTransaction::new(transaction, steps, memory))).await?;
        if let Some(sender) = sender {
            self.flush().await;
            self.swap_format(source);
            let streamed = self.stream(&source.entry, sender).await;
            self.swap_format(source);
            streamed?;
        }
        if defines || streamed {
            self.wait_for_definition(span).await?;
        }
        Ok(())
    }

    async fn finish_at_until(&mut self) -> Result<bool, ApplyError> {
        self.ready.push(ReaderItem::UntilReached);
        self.flush().await;
        Ok(false)
    }

    async fn finish_at_close(&mut self) -> Result<(), ApplyError> {
        self.ready.push(ReaderItem::LogClosed);
        self.flush().await;
        Ok(())
    }

    /// Whether the target had it before the channel began.
    fn is_of_origin(&self, entry: &LogEntry) -> bool {
        entry.gtid.as_ref().is_some_and(|gtid| self.setup.origin.contains(gtid))
    }

    /// Whether an operator leaves it out.
    fn is_skipped(&self, entry: &LogEntry) -> bool {
        let skipped = &self.setup.skipped;
        let gtid = entry.gtid.as_ref().filter(|_| !skipped.is_empty());
        gtid.is_some_and(|gtid| skipped.contains(&gtid.to_string()))
    }

    /// Whether a transaction that is left out has to stand in the target's binlog all the same, as an empty one: servers
    /// behind the target look for its GTID there.
    fn needs_gtid(&self, entry: &LogEntry) -> bool {
        let logged = self.setup.target_logged.as_ref();
        let is_logged = |gtid| logged.is_some_and(|logged| logged.contains(gtid));
        let preserves = self.setup.shared.options.gtid == GtidMode::Preserve;
        preserves && entry.gtid.as_ref().is_some_and(|gtid| !is_logged(gtid))
    }

    async fn decode(&mut self, entry: &LogEntry, span: LogSpan) -> Result<Transaction, ApplyError> {
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = match large {
            true => Bytes::new(),
            // In the worst case small ones keep as much again as they may have themselves.
            false => self.log.read_entry(self.setup.shared.options.memory_bytes_max)?,
        };
        loop {
            match self.decoder.transaction(entry, span, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(transaction) => return Ok(*transaction),
                Decoded::NeedsTable { schema, table } => self.target.load(entry, &schema, &table).await?,
                Decoded::NeedsSource { schema, table } => self.load_source(entry, &schema, &table).await?,
            }
        }
    }

    /// Definitions change what the tables look like: nothing behind them is decoded before they have run.
    async fn wait_for_definition(&mut self, span: LogSpan) -> Result<(), ApplyError> {
        self.flush().await;
        let shared = Arc::clone(&self.setup.shared);
        // The sender goes with the channel, and then this thread is told to stop.
        let _ = self.setup.done.wait_for(|_| shared.applied().contains(&span)).await;
        self.target.forget();
        self.decoder.forget();
        Ok(())
    }

    async fn wait_for_delay(&mut self, entry: &LogEntry) {
        let (delay, source_time) = {
            let shared = &self.setup.shared;
            (shared.options.delay, shared.source_time.clone())
        };
        if delay.is_zero() || entry.commit_time_us == 0 {
            return;
        }
        let delay_us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        let due_us = entry.commit_time_us.saturating_add(delay_us);
        loop {
            let wait = source_time.until(due_us);
            if wait.is_zero() {
                return;
            }
            self.flush().await;
            // Meanwhile the source may be asked what time it is, and say another.
            tokio::time::sleep(wait.min(DELAY_POLL)).await;
        }
    }

    async fn reserve(&mut self, bytes: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
        if let Some(reserved) = self.memory.try_reserve(bytes) {
            return Ok(reserved);
        }
        // What is held here must be with the workers before it can become free.
        self.flush().await;
        self.memory.reserve(bytes).await
    }

    /// Passes over what counts as applied from then on: it has to be durable.
    async fn mark_skipped(&mut self, span: LogSpan, gtid: Option<Gtid>) -> Result<(), ApplyError> {
        if self.wait_until_durable(span.end).await? {
            self.push(ReaderItem::Skipped { span, gtid }).await?;
        }
        Ok(())
    }

    /// Waits until the log holds everything before `end` for good; false if it was closed before, as will be found next.
    async fn wait_until_durable(&mut self, end: LogPosition) -> Result<bool, ApplyError> {
        if self.setup.log.durable().position < end {
            // What was read before need not wait for it.
            self.flush().await;
        }
        Ok(self.setup.log.wait_until_durable(end).await?)
    }

    async fn push(&mut self, read: ReaderItem) -> Result<(), ApplyError> {
        self.ready.push(read);
        if self.ready.len() >= OUTPUT_ITEMS_MAX {
            self.flush().await;
        }
        Ok(())
    }

    /// Hands on what is ready; false if nobody takes it any more.
    async fn flush(&mut self) -> bool {
        if self.ready.is_empty() {
            return !self.out.is_closed();
        }
        let ready = std::mem::take(&mut self.ready);
        self.out.send(Ok(ready)).await.is_ok()
    }
}

/// An event between transactions that is malformed.
fn at(position: LogPosition, error: WireError) -> ApplyError {
    ApplyError::Event { gtid: String::new(), position, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_the_system_refuses_is_told() {
        let huge = std::thread::Builder::new().stack_size(usize::MAX / 4);
        let error = spawn(huge, || unreachable!("there is no such stack")).expect_err("no such stack");
        assert!(matches!(error, ApplyError::Start { .. }), "{error:?}");
        assert!(error.to_string().contains("its reader cannot be started: "), "{error}");
    }
}
