//! Tracks XA transactions, which are prepared in one log entry and committed or rolled back in another entry.
//! The channel applies the rows of an XA transaction with the second entry.

use bytes::Bytes;
use tailwater_log::{LogEntry, LogPosition};
use tracing::debug;

use super::prepared_xa_transactions::{PreparedXa, RowSource};
use super::{ChannelReader, earlier_log_entry_lookup};
use crate::error::ApplyError;
use crate::source_transaction::{Transaction, TransactionContent, XaPrepareEntry};
use crate::transaction_decoder::Decoded;
use crate::writeset::Writeset;

impl ChannelReader {
    /// Returns the position up to which [`Self::track_xa`] and later steps read the log again. The caller
    /// must first wait until the log is durable up to this position, because bytes that are not durable may
    /// still change.
    pub(super) fn rereads_until(&self, transaction: &Transaction) -> LogPosition {
        match &transaction.content {
            TransactionContent::Streamed { .. } => transaction.span.end,
            TransactionContent::XaCommit { xid } => {
                self.prepared.get(xid).map_or(LogPosition::ZERO, |prepared| prepared.span.end)
            }
            _ => LogPosition::ZERO,
        }
    }

    /// Stores a prepared transaction and returns `None`. Returns any other transaction. If this transaction
    /// is an XA commit, adds the prepared rows to it, and also returns where these rows are in the log.
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
                debug!(
                    gtid = transaction.gtid_text(),
                    "the channel keeps a prepared XA transaction until it is committed or rolled back"
                );
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
                        reason: "the XA transaction was prepared before the channel started; complete it on the target manually, and \
                                 skip this transaction"
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

    /// Removes and returns the prepared XA transaction that the log entry commits or rolls back. Returns
    /// `None` if the entry cannot be read.
    pub(super) fn forget_prepared(&mut self, entry: &LogEntry) -> Option<XaPrepareEntry> {
        match self.xa_content(entry) {
            Ok(Some(TransactionContent::XaCommit { xid } | TransactionContent::XaRollback { xid })) => {
                self.prepared.remove(&xid).map(|xa| completed(&xa))
            }
            Ok(_) => None,
            Err(error) => {
                debug!("the skipped transaction cannot be read: {error}");
                None
            }
        }
    }

    /// Swaps the decoder's event format with the format of `source`. A second call swaps them back.
    pub(super) fn swap_format(&mut self, source: &mut RowSource) {
        if let Some(format) = &mut source.format {
            self.decoder.swap_format(format);
        }
    }

    /// Gives an XA commit the rows that were prepared.
    async fn read_prepared_rows(
        &mut self,
        xa: &PreparedXa,
        transaction: &mut Transaction,
    ) -> Result<(), ApplyError> {
        let PreparedXa { span, source: RowSource { entry, .. } } = xa;
        let mut log =
            earlier_log_entry_lookup::reopen(&self.setup.log, entry, &self.setup.shared.options.name)?;
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

/// Returns the log span and the GTID of the prepared transaction, for the transaction that commits it.
fn completed(xa: &PreparedXa) -> XaPrepareEntry {
    XaPrepareEntry { span: xa.span, gtid: xa.source.entry.gtid.clone() }
}
