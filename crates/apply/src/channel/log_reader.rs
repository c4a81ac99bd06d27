//! Reads and decodes the log ahead of the workers, within a memory budget.

mod column_preflight;
mod ddl_effect_on_fractional_seconds;
mod ddl_scan;
mod earlier_log_entry_lookup;
mod large_transaction_reader;
mod prepared_xa_transactions;
mod source_fractional_seconds;
mod streamed_transaction_queue;
mod target_table_lookup;
mod transaction_memory_budget;
mod xa_commit_matcher;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tailwater_log::{EntryFlags, LogEntry, LogHandle, LogPosition, LogReader};
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::EventType;
use tailwater_wire::gtid::{Gtid, GtidSet};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::ddl_scan::DefinitionScan;
use self::prepared_xa_transactions::{PreparedXas, RowSource};
pub(super) use self::streamed_transaction_queue::StreamedStep;
use self::target_table_lookup::TargetTables;
pub(super) use self::transaction_memory_budget::BudgetedTransaction;
use self::transaction_memory_budget::MemoryBudget;
use super::channel_options::{GtidMode, UntilCondition};
use super::row_writer::connect;
use super::shared_channel_state::ChannelShared;
use super::statement_filter::filter_transaction;
use crate::error::ApplyError;
use crate::log_position_range::LogSpan;
use crate::replication_filter::VersionedFilters;
use crate::source_transaction::{ApplyStep, Transaction, TransactionContent};
use crate::transaction_decoder::{DecodeLimits, Decoded, Decoder};

/// The maximum number of items in one message to the coordinator.
const OUTPUT_ITEMS_MAX: usize = 256;

/// The maximum number of messages that wait for the coordinator.
const OUTPUT_BATCHES_MAX: usize = 4;

/// The maximum number of log entries that the async task reads in succession. If more entries are available,
/// a separate thread reads them.
const INLINE_ENTRIES_MAX: usize = 64;
/// The separate thread reads log entries longer than this, because decoding such an entry would block other
/// async tasks.
const INLINE_ENTRY_BYTES_MAX: u64 = 256 << 10;

/// How often the reader reads the clock while a transaction waits for the channel's delay.
const DELAY_POLL: Duration = Duration::from_secs(1);

/// The seed of the hashes of writeset keys.
const KEY_SEED: u64 = 0x5457;

/// What the reader reports to the coordinator.
#[derive(Debug)]
pub(super) enum ReaderItem {
    /// A transaction that is to be applied.
    Transaction(BudgetedTransaction),
    /// A transaction that is durable in the log and is not applied: the target already has it, or an operator
    /// skips it. `gtid` is `None` if the transaction already counts as applied.
    Skipped { span: LogSpan, gtid: Option<Gtid> },
    /// A prepared XA transaction. It is applied together with the log entry that commits it.
    XaPrepared { span: LogSpan, gtid: Option<Gtid> },
    /// The channel's until condition is reached.
    UntilReached,
    /// The log is closed and has no more entries.
    LogClosed,
}

/// What the reader needs to start.
#[derive(Debug)]
pub(super) struct ReaderSetup {
    pub(super) log: LogHandle,
    pub(super) shared: Arc<ChannelShared>,
    pub(super) filters: VersionedFilters,
    /// The target's GTIDs from the time when the channel was created.
    pub(super) origin: GtidSet,
    /// The GTIDs of the source that a MySQL target has in its own binlog. The target silently ignores a
    /// transaction that has one of these GTIDs.
    pub(super) target_logged: Option<GtidSet>,
    /// The GTIDs of the transactions that an operator skips.
    pub(super) skipped: Vec<String>,
    /// A counter that changes each time a batch has committed.
    pub(super) done: watch::Receiver<u64>,
    pub(super) stop: CancellationToken,
}

/// The messages of the reader: items, or, as the last message, the error that stopped it.
pub(super) type ReaderOutput = mpsc::Receiver<Result<Vec<ReaderItem>, ApplyError>>;

type ReaderSender = mpsc::Sender<Result<Vec<ReaderItem>, ApplyError>>;

/// Starts the reader. It ends when it is stopped, when the log closes, or at an error.
///
/// At the end of the log, the waiting task itself reads and decodes new entries, because waking another
/// thread takes longer. While the reader lags, a separate thread reads, because reads may wait for the disk.
///
/// # Errors
/// [`ApplyError::Start`] if the system cannot start a thread.
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

/// What a reader thread returns when it ends.
type ReaderThread =
    oneshot::Receiver<Result<(ChannelReader, Result<ReaderPosition, ApplyError>), ApplyError>>;

/// The reader's position relative to the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderPosition {
    /// The reader is at the end of the log.
    EndOfLog,
    /// The reader is before the end of the log.
    BeforeEnd,
    /// The reader has nothing more to read.
    Finished,
}

/// Reads the log as it grows. While the reader lags, a thread does this work. Returns the error that stops
/// the reader.
async fn follow(mut opened: ReaderThread) -> Option<ApplyError> {
    loop {
        // If the thread was stopped, there is nothing to send.
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
                // Send the transactions that were read before the error, because these transactions are
                // valid.
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

/// Runs `work` on a separate thread, because the work may wait for the disk. The work runs until the receiver
/// is dropped.
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
            // When a runtime shuts down, it first drops the receiver. The work is then cancelled, because it
            // would panic if it used the runtime.
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
    let refused = |error: std::io::Error| format!("the channel's reader thread cannot be started: {error}");
    thread.spawn(work).map(drop).map_err(|error| ApplyError::Start { reason: refused(error) })
}

struct ChannelReader {
    setup: ReaderSetup,
    /// The start of the next transaction's log span.
    start: LogPosition,
    log: LogReader,
    /// A log entry that the async task has read and that the thread must decode.
    deferred: Option<LogEntry>,
    decoder: Decoder,
    target: TargetTables,
    /// The DDL statements that a scan of later log entries has found; `None` before the first scan.
    definitions: Option<DefinitionScan>,
    memory: MemoryBudget,
    prepared: PreparedXas,
    /// The memory budget for streamed transactions.
    streamed: MemoryBudget,
    ready: Vec<ReaderItem>,
    out: ReaderSender,
}

impl ChannelReader {
    async fn open(setup: ReaderSetup, out: ReaderSender) -> Result<Self, ApplyError> {
        let low = setup.shared.applied().low();
        // At the end of the log, the reader also returns transactions that the log is still syncing. Such
        // transactions commit on the target only after the sync.
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
        if let Some(event) = earlier_log_entry_lookup::format_description(&setup.log, low)? {
            decoder.format_description(&event).map_err(|error| at(low, error))?;
        }
        let target = TargetTables::new(connection, setup.filters.clone(), low, Arc::clone(&setup.shared))?;
        let streamed = MemoryBudget::new(streamed_transaction_queue::STREAMED_BYTES_MAX);
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

    /// Reads up to the current end of the log.
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

    /// Waits for new log entries and reads them. Returns when many entries are available without a wait, or
    /// when an entry is large. The separate thread then reads the entries.
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
                        // The writer has closed the log. The channel stops once everything is applied.
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

    /// Reads a log entry. Returns whether the reader may read further entries.
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

    /// Reads the event format from a log entry that is not a transaction.
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

    /// Reads a transaction. Returns whether the reader may read further entries.
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
            // The transaction counts as applied from the start.
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

    /// Skips a transaction that an operator has named. If this transaction commits a prepared XA transaction,
    /// drops the prepared transaction too.
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

    /// Returns whether the target has logged and applied a transaction that its progress does not contain.
    /// This can be the case for rows of nontransactional tables, because their progress is written after the
    /// rows. For other rows it is an error, because the target logs these rows and their progress under one
    /// GTID. In that case, the target has lost the commit from its tables in a crash, but its binlog still
    /// contains the commit.
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
                "the target has logged {gtid}, but its progress does not contain that transaction. A crash may have \
                 lost the rows: gtid = preserve needs innodb_flush_log_at_trx_commit=1 and sync_binlog=1 on the \
                 target. Or the transaction was applied in another way, and is in gtid_executed. After RESET BINARY \
                 LOGS AND GTIDS on the target, the channel applies it again"
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
        // If the log entry has the DDL flag, `forget_defined` already removed the cached definitions when the
        // entry was read.
        if defines && !source.entry.flags.contains(EntryFlags::DDL) {
            self.target.forget_sources(|_, _| true);
        }
        let memory = self.reserve(transaction.memory_bytes).await?;
        let (sender, steps) = streamed.then(streamed_transaction_queue::steps).unzip();
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

    /// Returns whether the target had the transaction before the channel was created.
    fn is_of_origin(&self, entry: &LogEntry) -> bool {
        entry.gtid.as_ref().is_some_and(|gtid| self.setup.origin.contains(gtid))
    }

    /// Returns whether an operator skips the transaction.
    fn is_skipped(&self, entry: &LogEntry) -> bool {
        let skipped = &self.setup.skipped;
        let gtid = entry.gtid.as_ref().filter(|_| !skipped.is_empty());
        gtid.is_some_and(|gtid| skipped.contains(&gtid.to_string()))
    }

    /// Returns whether the target must log a skipped transaction as an empty transaction, because replicas of
    /// the target need its GTID.
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
            // The result refers to the log reader's buffer. Only if the buffers take more than the memory
            // limit, the transaction is copied. In the worst case, memory use is twice the limit.
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

    /// Waits until a DDL statement has run. The statement changes table layouts, so no later transaction may
    /// be decoded before it has run.
    async fn wait_for_definition(&mut self, span: LogSpan) -> Result<(), ApplyError> {
        self.flush().await;
        let shared = Arc::clone(&self.setup.shared);
        // Ignore an error: the sender is dropped only when the channel ends, which also stops this reader.
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
            // Sleep only for a short time, because the source's clock may be corrected during the sleep.
            tokio::time::sleep(wait.min(DELAY_POLL)).await;
        }
    }

    async fn reserve(&mut self, bytes: usize) -> Result<OwnedSemaphorePermit, ApplyError> {
        if let Some(reserved) = self.memory.try_reserve(bytes) {
            return Ok(reserved);
        }
        // Send the transactions that the reader still holds: memory is freed only after the workers have
        // received them.
        self.flush().await;
        self.memory.reserve(bytes).await
    }

    /// Reports that a transaction counts as applied from now on. Waits first until the transaction is durable
    /// in the log.
    async fn mark_skipped(&mut self, span: LogSpan, gtid: Option<Gtid>) -> Result<(), ApplyError> {
        if self.wait_until_durable(span.end).await? {
            self.push(ReaderItem::Skipped { span, gtid }).await?;
        }
        Ok(())
    }

    /// Waits until everything before `end` is durable in the log. Returns false if the log is closed first;
    /// the next read then reports the close.
    async fn wait_until_durable(&mut self, end: LogPosition) -> Result<bool, ApplyError> {
        if self.setup.log.durable().position < end {
            // Send the transactions that were read earlier: they need not wait until `end` is durable.
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

    /// Sends the items that are ready. Returns false if the receiver was dropped.
    async fn flush(&mut self) -> bool {
        if self.ready.is_empty() {
            return !self.out.is_closed();
        }
        let ready = std::mem::take(&mut self.ready);
        self.out.send(Ok(ready)).await.is_ok()
    }
}

/// Returns the error for a malformed event between two transactions of the log.
fn at(position: LogPosition, error: WireError) -> ApplyError {
    ApplyError::Event { gtid: String::new(), position, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_start_is_an_error() {
        let huge = std::thread::Builder::new().stack_size(usize::MAX / 4);
        let error = spawn(huge, || unreachable!("the thread must not start"))
            .expect_err("a thread with a stack of a quarter of the address space must not start");
        assert!(matches!(error, ApplyError::Start { .. }), "the error must be ApplyError::Start: {error:?}");
        assert!(
            error.to_string().contains("the channel's reader thread cannot be started: "),
            "the error does not say that the thread cannot be started: {error}"
        );
    }
}
