//! XA transactions, which are prepared in one entry of the log and completed in another: they are applied with the latter.

use std::collections::HashMap;

use bytes::Bytes;
use tailwater_log::{LogEntry, LogPosition};
use tailwater_wire::event::FormatDescription;
use tracing::debug;

use super::{Reader, entries};
use crate::decode::Decoded;
use crate::error::ApplyError;
use crate::transaction::{Content, Prepared, Span, Transaction};
use crate::writeset::Writeset;

/// XA transactions that were prepared and not completed yet, by their XIDs.
pub(super) type Open = HashMap<Vec<u8>, Waiting>;

/// A prepared XA transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    span: Span,
    source: Source,
}

/// Where the rows of a transaction stand.
#[derive(Debug)]
pub(super) struct Source {
    /// The entry that they are in.
    pub(super) entry: LogEntry,
    /// By what they are to be read, if it is not what is in force now: the source may have changed the format of its events,
    /// as with `binlog_checksum`, after it had prepared them.
    pub(super) format: Option<FormatDescription>,
}

impl Reader {
    /// Up to where the log has to be durable before [`Self::hold_xa`] and what comes behind it: what they read once more may be
    /// other bytes if it is not.
    pub(super) fn read_again_until(&self, transaction: &Transaction) -> LogPosition {
        match &transaction.content {
            Content::Streamed { .. } => transaction.span.end,
            Content::XaCommit { xid } => {
                self.prepared.get(xid).map_or(LogPosition::ZERO, |held| held.span.end)
            }
            _ => LogPosition::ZERO,
        }
    }

    /// Holds what is prepared, and gives what completes it all that it completes; `None` for what is held. With where its rows
    /// stand.
    pub(super) async fn hold_xa(
        &mut self,
        entry: &LogEntry,
        mut transaction: Transaction,
    ) -> Result<Option<(Transaction, Source)>, ApplyError> {
        if matches!(transaction.content, Content::Streamed { .. })
            && let Some(content) = self.xa_content(entry)?
        {
            (transaction.content, transaction.writeset) = (content, Writeset::default());
        }
        let mut source = Source { entry: entry.clone(), format: None };
        match &transaction.content {
            Content::XaPrepare { xid } => {
                debug!(gtid = transaction.gtid_text(), "an XA transaction is held until it is completed");
                source.format = Some(self.decoder.format().clone());
                self.prepared.insert(xid.clone(), Waiting { span: transaction.span, source });
                return Ok(None);
            }
            Content::XaRollback { xid } => {
                transaction.prepared = self.prepared.remove(xid).map(|held| prepared(&held));
                transaction.content = Content::Rows(Vec::new());
                transaction.writeset.barrier = false;
            }
            Content::XaCommit { xid } => {
                let Some(mut held) = self.prepared.remove(xid) else {
                    return Err(ApplyError::Unsupported {
                        gtid: transaction.gtid_text(),
                        what: format!("XA COMMIT {}", String::from_utf8_lossy(xid)),
                        reason: "it was prepared before the channel began; complete it on the target by hand, and skip \
                                 this transaction"
                            .to_owned(),
                    });
                };
                self.swap_format(&mut held.source);
                let completed = self.complete(&held, &mut transaction).await;
                self.swap_format(&mut held.source);
                completed?;
                source = held.source;
            }
            Content::Rows(_) | Content::Steps(_) | Content::Streamed { .. } => {}
        }
        Ok(Some((transaction, source)))
    }

    /// What prepared the XA transaction that `entry` completes, if it is held: it is no longer. What cannot be read completes
    /// none.
    pub(super) fn let_go(&mut self, entry: &LogEntry) -> Option<Prepared> {
        match self.xa_content(entry) {
            Ok(Some(Content::XaCommit { xid } | Content::XaRollback { xid })) => {
                self.prepared.remove(&xid).map(|held| prepared(&held))
            }
            Ok(_) => None,
            Err(error) => {
                debug!("what is left out cannot be read: {error}");
                None
            }
        }
    }

    /// Exchanges what events are read by for what those of `source` are to be read by; once more, and it is as before.
    pub(super) fn swap_format(&mut self, source: &mut Source) {
        if let Some(format) = &mut source.format {
            self.decoder.swap_format(format);
        }
    }

    /// Gives `transaction`, which commits it, what an XA transaction did when it was prepared.
    async fn complete(&mut self, held: &Waiting, transaction: &mut Transaction) -> Result<(), ApplyError> {
        let Waiting { span, source: Source { entry, .. } } = held;
        let mut log = entries::again(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = if large { Bytes::new() } else { log.read_entry(0)? };
        loop {
            match self.decoder.xa_rows(entry, *span, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(rows) => {
                    transaction.prepared = Some(prepared(held));
                    transaction.content = rows.content;
                    transaction.writeset = rows.writeset;
                    transaction.memory_bytes += rows.memory_bytes;
                    return Ok(());
                }
                Decoded::NeedsTable { schema, table } => self.target.load(entry, &schema, &table).await?,
                Decoded::NeedsSource { schema, table } => self.load_source(entry, &schema, &table).await?,
            }
        }
    }
}

/// What it is to the transaction that completes it.
fn prepared(held: &Waiting) -> Prepared {
    Prepared { span: held.span, gtid: held.source.entry.gtid.clone() }
}
