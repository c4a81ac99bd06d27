//! Transactions that are too large to be held: read event by event, while the target takes them.

use bytes::Bytes;
use tailwater_log::{Entry, LogReader};
use tailwater_wire::event::EventHeader;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{PERMIT_BYTES, Reader, acquire};
use crate::channel::statement_filter::filtered;
use crate::decode::{OpeningReader, Read, TransactionReader};
use crate::error::ApplyError;
use crate::transaction::{Content, Step};

/// Steps of a streamed transaction that wait to be written. Each holds one event.
pub(super) const STREAMED_STEPS_MAX: usize = 256;

/// What the steps that wait, and the one that is written, hold in memory, in bytes. Behind a step that holds as much by
/// itself nothing is read before it is written, so that there is one such at a time.
const STREAMED_BYTES_MAX: usize = 4 << 20;

pub(super) const STREAMED_PERMITS: usize = STREAMED_BYTES_MAX / PERMIT_BYTES;

/// Steps of a transaction that is too large to be held.
pub(in crate::channel) type Steps = mpsc::Receiver<Streamed>;

/// A part of a transaction that is streamed.
#[derive(Debug)]
pub(in crate::channel) enum Streamed {
    /// The next step; `done` is told when it has run. `memory` goes with it.
    Step { step: Step, done: Option<oneshot::Sender<()>>, memory: OwnedSemaphorePermit },
    /// That was the last. Without this, the rest could not be read.
    End,
}

impl Reader {
    /// Reads a transaction event by event, as fast as the target takes them.
    pub(super) async fn stream(
        &mut self,
        entry: &Entry,
        out: &mpsc::Sender<Streamed>,
    ) -> Result<(), ApplyError> {
        let mut log = self.reader_of(entry)?;
        let mut transaction = TransactionReader::new(entry);
        while let Some(header) = log.next_event()? {
            transaction.event(whole_event(&mut log, &header)?);
            loop {
                match transaction.read(&mut self.decoder, &mut self.target)? {
                    Read::Step(step) => {
                        if !self.stream_step(entry, step, out).await? {
                            return Ok(());
                        }
                    }
                    Read::NeedsTable { schema, table } => self.load(entry, &schema, &table).await?,
                    Read::NeedsEvent => break,
                }
            }
        }
        // Who does not take it any more has failed, and says so.
        let _ = out.send(Streamed::End).await;
        Ok(())
    }

    /// Hands on a step; false if nobody takes it any more, because the target refused something: who took it says what.
    async fn stream_step(
        &mut self,
        entry: &Entry,
        step: Step,
        out: &mpsc::Sender<Streamed>,
    ) -> Result<bool, ApplyError> {
        let gtid = entry.gtid.as_ref().map_or_else(String::new, ToString::to_string);
        let Some(step) = filtered(&self.target.filters, step, &gtid)? else { return Ok(true) };
        let defines = matches!(&step, Step::Statement(statement) if !statement.dml);
        let bytes = match &step {
            Step::Rows(changes) => changes.images.len(),
            Step::Statement(statement) => statement.text.len(),
        };
        let is_long = bytes >= STREAMED_BYTES_MAX;
        let memory = acquire(&self.streamed, bytes.div_ceil(PERMIT_BYTES).clamp(1, STREAMED_PERMITS)).await?;
        let (done, ran) = oneshot::channel();
        let done = defines.then_some(done);
        if out.send(Streamed::Step { step, done, memory }).await.is_err() {
            return Ok(false);
        }
        // The rows behind it are of a table that it makes, which must be there before they are decoded.
        if defines && ran.await.is_err() {
            return Ok(false);
        }
        if is_long {
            drop(acquire(&self.streamed, STREAMED_PERMITS).await?);
        }
        Ok(true)
    }

    /// A reader of the log that has just given `entry`.
    pub(super) fn reader_of(&self, entry: &Entry) -> Result<LogReader, ApplyError> {
        let mut log = self.setup.log.reader(entry.position)?;
        if log.try_next()?.as_ref() != Some(entry) {
            let reason = format!("the log has changed at {}", entry.position);
            return Err(ApplyError::Record { channel: self.setup.shared.options.name.clone(), reason });
        }
        Ok(log)
    }

    /// What part of an XA transaction it is that is too large to be held, if it is one.
    pub(super) fn xa_content(&self, entry: &Entry) -> Result<Option<Content>, ApplyError> {
        let mut log = self.reader_of(entry)?;
        let mut opening = OpeningReader::new(entry);
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
