//! Transactions that are too large to be held: read event by event, as fast as the target takes them.

use bytes::Bytes;
use tailwater_log::{LogEntry, LogReader};
use tailwater_wire::event::EventHeader;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{ChannelReader, entries};
use crate::channel::statement_filter::filter_step;
use crate::decode::{TransactionRead, TransactionReader, XaPartReader};
use crate::error::ApplyError;
use crate::transaction::{ApplyStep, TransactionContent};

/// StepReceiver of a streamed transaction that wait to be written. Each holds one event.
const STREAMED_STEPS_MAX: usize = 256;

/// What the steps that wait, and the one that is written, hold in memory, in bytes. Behind a step that holds as much by
/// itself nothing is read before it is written, so that there is one such at a time.
pub(super) const STREAMED_BYTES_MAX: usize = 4 << 20;

/// StepReceiver of a transaction that is too large to be held.
pub(in crate::channel) type StepReceiver = mpsc::Receiver<StreamedStep>;

/// A part of a transaction that is streamed.
#[derive(Debug)]
pub(in crate::channel) enum StreamedStep {
    /// The next step; `done` is told when it has run. `memory` goes with it.
    ApplyStep { step: Box<ApplyStep>, done: Option<oneshot::Sender<()>>, memory: OwnedSemaphorePermit },
    /// That was the last. Without this, the rest could not be read.
    End,
}

/// Where the steps of one transaction go through.
pub(super) fn steps() -> (mpsc::Sender<StreamedStep>, StepReceiver) {
    mpsc::channel(STREAMED_STEPS_MAX)
}

impl ChannelReader {
    /// Reads a transaction, which is durable, once more and gives its steps to `out`.
    pub(super) async fn stream(
        &mut self,
        entry: &LogEntry,
        out: mpsc::Sender<StreamedStep>,
    ) -> Result<(), ApplyError> {
        let mut log = entries::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let mut transaction = TransactionReader::new(entry);
        while let Some(header) = log.next_event()? {
            transaction.event(whole_event(&mut log, &header)?);
            if !self.stream_event(entry, &mut transaction, &out).await? {
                // The target refused something: whoever takes the steps says what.
                return Ok(());
            }
        }
        // Who does not take it any more has failed, and says so.
        let _ = out.send(StreamedStep::End).await;
        Ok(())
    }

    /// False if nobody takes the steps any more.
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
        // The rows behind it are of a table that it makes, which must be there before they are decoded.
        if defines {
            if ran.await.is_err() {
                return Ok(false);
            }
            // One of that name may have been there before, and known.
            self.target.forget();
            self.decoder.forget();
        }
        if bytes >= STREAMED_BYTES_MAX {
            drop(self.streamed.reserve(STREAMED_BYTES_MAX).await?);
        }
        Ok(true)
    }

    /// What part of an XA transaction it is that is too large to be held, if it is one. It has to be durable.
    pub(super) fn xa_content(&self, entry: &LogEntry) -> Result<Option<TransactionContent>, ApplyError> {
        let mut log = entries::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let mut opening = XaPartReader::new(entry);
        while let Some(header) = log.next_event()?.filter(|_| !opening.is_over()) {
            if opening.wants(&header) {
                opening.event(whole_event(&mut log, &header)?, &self.decoder)?;
            }
        }
        opening.finish()
    }
}

/// The event that `log` just went to, in memory of its own.
fn whole_event(log: &mut LogReader, header: &EventHeader) -> Result<Bytes, ApplyError> {
    // It lies within its transaction, which is on disk.
    let mut event = Vec::with_capacity(header.event_length as usize);
    log.read_event(&mut event)?;
    Ok(event.into())
}
