//! Transactions that are too large to be held: read event by event, as fast as the target takes them.

use bytes::Bytes;
use tailwater_log::Entry;
use tokio::sync::{mpsc, oneshot};

use super::{Reader, entries};
use crate::channel::statement_filter::filtered;
use crate::decode::{Read, TransactionReader};
use crate::error::ApplyError;
use crate::transaction::Step;

/// Steps of a streamed transaction that wait to be written. Each holds one event.
const STREAMED_STEPS_MAX: usize = 4;

/// Steps of a transaction that is too large to be held.
pub(in crate::channel) type Steps = mpsc::Receiver<Streamed>;

/// A part of a transaction that is streamed.
#[derive(Debug)]
pub(in crate::channel) enum Streamed {
    /// The next step; `done` is told when it has run.
    Step { step: Step, done: Option<oneshot::Sender<()>> },
    /// That was the last. Without this, the rest could not be read.
    End,
}

/// Where the steps of one transaction go through.
pub(super) fn steps() -> (mpsc::Sender<Streamed>, Steps) {
    mpsc::channel(STREAMED_STEPS_MAX)
}

impl Reader {
    /// Reads a transaction once more and gives its steps to `out`.
    pub(super) async fn stream(
        &mut self,
        entry: &Entry,
        out: mpsc::Sender<Streamed>,
    ) -> Result<(), ApplyError> {
        let mut log = entries::again(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let mut transaction = TransactionReader::new(entry);
        let mut event = Vec::new();
        while log.next_event()?.is_some() {
            log.read_event(&mut event)?;
            transaction.event(Bytes::copy_from_slice(&event));
            if !self.stream_event(entry, &mut transaction, &out).await? {
                // The target refused something: whoever takes the steps says what.
                return Ok(());
            }
        }
        // Who does not take it any more has failed, and says so.
        let _ = out.send(Streamed::End).await;
        Ok(())
    }

    /// False if nobody takes the steps any more.
    async fn stream_event(
        &mut self,
        entry: &Entry,
        transaction: &mut TransactionReader,
        out: &mpsc::Sender<Streamed>,
    ) -> Result<bool, ApplyError> {
        loop {
            match transaction.read(&mut self.decoder, &mut self.target)? {
                Read::Step(step) => {
                    if !self.stream_step(entry, step, out).await? {
                        return Ok(false);
                    }
                }
                Read::NeedsTable { schema, table } => self.target.load(entry, &schema, &table).await?,
                Read::NeedsEvent => return Ok(true),
            }
        }
    }

    async fn stream_step(
        &self,
        entry: &Entry,
        step: Step,
        out: &mpsc::Sender<Streamed>,
    ) -> Result<bool, ApplyError> {
        let gtid = entry.gtid.as_ref().map_or_else(String::new, ToString::to_string);
        let Some(step) = filtered(self.target.filters(), step, &gtid)? else { return Ok(true) };
        let defines = matches!(&step, Step::Statement(statement) if !statement.dml);
        let (done, ran) = oneshot::channel();
        let done = defines.then_some(done);
        if out.send(Streamed::Step { step, done }).await.is_err() {
            return Ok(false);
        }
        // The rows behind it are of a table that it makes, which must be there before they are decoded.
        Ok(!defines || ran.await.is_ok())
    }
}
