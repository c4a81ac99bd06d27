//! Streams transactions that are too large for memory: reads each transaction event by event, as fast as the
//! target applies the events.

use bytes::Bytes;
use tailwater_log::{LogEntry, LogReader};
use tailwater_wire::binlog_event::EventHeader;
use tokio::sync::{mpsc, oneshot};

use super::streamed_transaction_queue::{STREAMED_BYTES_MAX, StreamedStep};
use super::{ChannelReader, earlier_log_entry_lookup};
use crate::channel::statement_filter::filter_step;
use crate::error::ApplyError;
use crate::source_transaction::{ApplyStep, TransactionContent};
use crate::transaction_decoder::{TransactionRead, TransactionReader, XaPartReader};

impl ChannelReader {
    /// Reads a durable transaction again, and sends its steps to `out`.
    pub(super) async fn stream(
        &mut self,
        entry: &LogEntry,
        out: mpsc::Sender<StreamedStep>,
    ) -> Result<(), ApplyError> {
        let mut log =
            earlier_log_entry_lookup::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let mut transaction = TransactionReader::new(entry);
        while let Some(header) = log.next_event()? {
            transaction.event(whole_event(&mut log, &header)?);
            if !self.stream_event(entry, &mut transaction, &out).await? {
                // The worker has stopped receiving because the target rejected a step. The worker reports
                // that error.
                return Ok(());
            }
        }
        // Ignore an error: if the receiver was dropped, the worker has failed and reports its own error.
        let _ = out.send(StreamedStep::End).await;
        Ok(())
    }

    /// Sends the steps of one event. Returns false if the receiver was dropped.
    async fn stream_event(
        &mut self,
        entry: &LogEntry,
        transaction: &mut TransactionReader,
        out: &mpsc::Sender<StreamedStep>,
    ) -> Result<bool, ApplyError> {
        loop {
            match transaction.read(&mut self.decoder, &mut self.target)? {
                TransactionRead::Step(step) => {
                    if matches!(&step, ApplyStep::Statement(statement) if !statement.dml)
                        && self.target.forget_sources(|_, _| true)
                    {
                        self.decoder.forget();
                    }
                    if !self.stream_step(entry, step, out).await? {
                        return Ok(false);
                    }
                }
                TransactionRead::NeedsTable { schema, table } => {
                    self.target.load(entry, &schema, &table).await?
                }
                TransactionRead::NeedsSource { schema, table } => {
                    self.load_source(entry, &schema, &table).await?
                }
                TransactionRead::NeedsEvent => return Ok(true),
            }
        }
    }

    async fn stream_step(
        &mut self,
        entry: &LogEntry,
        step: ApplyStep,
        out: &mpsc::Sender<StreamedStep>,
    ) -> Result<bool, ApplyError> {
        let gtid = entry.gtid.as_ref().map_or_else(String::new, ToString::to_string);
        let Some(step) = filter_step(self.target.filters(), step, &gtid)? else { return Ok(true) };
        let defines = matches!(&step, ApplyStep::Statement(statement) if !statement.dml);
        let bytes = match &step {
            ApplyStep::Rows(changes) => changes.images.len(),
            ApplyStep::Statement(statement) => statement.text.len(),
        };
        let memory = self.streamed.reserve(bytes).await?;
        let (done, ran) = oneshot::channel();
        let done = defines.then_some(done);
        if out.send(StreamedStep::ApplyStep { step: Box::new(step), done, memory }).await.is_err() {
            return Ok(false);
        }
        // The next rows may belong to a table that this statement creates. Decoding the rows needs the table,
        // so wait until the statement has run.
        if defines {
            if ran.await.is_err() {
                return Ok(false);
            }
            // The cache may contain the definition of an earlier table with the same name.
            self.target.forget();
            self.decoder.forget();
        }
        if bytes >= STREAMED_BYTES_MAX {
            drop(self.streamed.reserve(STREAMED_BYTES_MAX).await?);
        }
        Ok(true)
    }

    /// Returns the part of an XA transaction that the log entry contains; `None` if the entry contains a
    /// normal transaction. The entry must be durable.
    pub(super) fn xa_content(&self, entry: &LogEntry) -> Result<Option<TransactionContent>, ApplyError> {
        let mut log =
            earlier_log_entry_lookup::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let mut opening = XaPartReader::new(entry);
        while let Some(header) = log.next_event()?.filter(|_| !opening.is_over()) {
            if opening.wants(&header) {
                opening.event(whole_event(&mut log, &header)?, &self.decoder)?;
            }
        }
        opening.finish()
    }
}

/// Returns the current event of `log`, copied into its own memory.
fn whole_event(log: &mut LogReader, header: &EventHeader) -> Result<Bytes, ApplyError> {
    // The event lies within a transaction that is on disk, so its length is valid.
    let mut event = Vec::with_capacity(header.event_length as usize);
    log.read_event(&mut event)?;
    Ok(event.into())
}
