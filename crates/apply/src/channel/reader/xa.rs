//! XA transactions, which are prepared in one entry of the log and completed in another: they are applied with the latter.

use std::collections::HashMap;

use bytes::Bytes;
use tailwater_log::{LogEntry, LogPosition};
use tailwater_wire::event::FormatDescription;
use tracing::debug;

use super::{ChannelReader, entries};
use crate::decode::Decoded;
use crate::error::ApplyError;
use crate::transaction::{LogSpan, Transaction, TransactionContent, XaPrepareEntry};
use crate::writeset::Writeset;

/// XA transactions that were prepared and not completed yet, by their XIDs.
pub(super) type PreparedXas = HashMap<Vec<u8>, PreparedXa>;

/// A prepared XA transaction.
#[derive(Debug)]
pub(super) struct PreparedXa {
    span: LogSpan,
    source: RowSource,
}

/// Where the rows of a transaction stand.
#[derive(Debug)]
pub(super) struct RowSource {
    /// The entry that they are in.
    pub(super) entry: LogEntry,
    /// By what they are to be read, if it is not what is in force now: the source may have changed the format of its events,
    /// as with `binlog_checksum`, after it had prepared them.
    pub(super) format: Option<FormatDescription>,
}

impl ChannelReader {
    /// Up to where the log has to be durable before [`Self::hold_xa`] and what comes behind it: what they read once more may be
    /// other bytes if it is not.
    pub(super) fn rereads_until(&self, transaction: &Transaction) -> LogPosition {
        match &transaction.content {
            TransactionContent::Streamed { .. } => transaction.span.end,
            TransactionContent::XaCommit { xid } => {
                self.prepared.get(xid).map_or(LogPosition::ZERO, |prepared| prepared.span.end)
            }
            _ => LogPosition::ZERO,
        }
    }

    /// Holds what is prepared, and gives what completes it all that it completes; `None` for what is held. With where its rows
    /// stand.
    pub(super) async fn track_xa(
        &mut self,
        entry: &LogEntry,
        mut transaction: Transaction,
    ) -> Result<Option<(Transaction, RowSource)>, ApplyError> {
        if matches!(transaction.content, TransactionContent::Streamed { .. })
            && let Some(content) = self.xa_content(entry)?
        {
            (transaction.content, transaction.writeset) = (content, Writeset::default());
        }
        let mut source = RowSource { entry: entry.clone(), format: None };
        match &transaction.content {
            TransactionContent::XaPrepare { xid } => {
                debug!(gtid = transaction.gtid_text(), "an XA transaction is held until it is completed");
                source.format = Some(self.decoder.format().clone());
                self.prepared.insert(xid.clone(), PreparedXa { span: transaction.span, source });
                return Ok(None);
            }
            TransactionContent::XaRollback { xid } => {
                transaction.prepared = self.prepared.remove(xid).map(|xa| completed(&xa));
                transaction.content = TransactionContent::Rows(Vec::new());
                transaction.writeset.barrier = false;
            }
            TransactionContent::XaCommit { xid } => {
                let Some(mut xa) = self.prepared.remove(xid) else {
                    return Err(ApplyError::Unsupported {
                        gtid: transaction.gtid_text(),
                        what: format!("XA COMMIT {}", String::from_utf8_lossy(xid)),
                        reason: "it was prepared before the channel began; complete it on the target by hand, and skip \
                                 this transaction"
                            .to_owned(),
                    });
                };
                self.swap_format(&mut xa.source);
                let completed = self.read_prepared_rows(&xa, &mut transaction).await;
                self.swap_format(&mut xa.source);
                completed?;
                source = xa.source;
            }
            TransactionContent::Rows(_)
            | TransactionContent::Steps(_)
            | TransactionContent::Streamed { .. } => {}
        }
        Ok(Some((transaction, source)))
    }

    /// What prepared the XA transaction that `entry` completes, if it is held: it is no longer. What cannot be read completes
    /// none.
    pub(super) fn forget_prepared(&mut self, entry: &LogEntry) -> Option<XaPrepareEntry> {
        match self.xa_content(entry) {
            Ok(Some(TransactionContent::XaCommit { xid } | TransactionContent::XaRollback { xid })) => {
                self.prepared.remove(&xid).map(|xa| completed(&xa))
            }
            Ok(_) => None,
            Err(error) => {
                debug!("what is left out cannot be read: {error}");
                None
            }
        }
    }

    /// Exchanges what events are read by for what those of `source` are to be read by; once more, and it is as before.
    pub(super) fn swap_format(&mut self, source: &mut RowSource) {
        if let Some(format) = &mut source.format {
            self.decoder.swap_format(format);
        }
    }

    /// Gives `transaction`, which commits it, what an XA transaction did when it was prepared.
    async fn read_prepared_rows(
        &mut self,
        xa: &PreparedXa,
        transaction: &mut Transaction,
    ) -> Result<(), ApplyError> {
        let PreparedXa { span, source: RowSource { entry, .. } } = xa;
        let mut log = entries::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = if large { Bytes::new() } else { log.read_entry(0)? };
        loop {
            match self.decoder.xa_rows(entry, *span, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(rows) => {
                    transaction.prepared = Some(completed(xa));
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
fn completed(xa: &PreparedXa) -> XaPrepareEntry {
    XaPrepareEntry { span: xa.span, gtid: xa.source.entry.gtid.clone() }
}
