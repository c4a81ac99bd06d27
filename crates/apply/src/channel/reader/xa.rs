//! XA transactions, which are prepared in one entry of the log and completed in another: they are applied with the latter.

use std::collections::HashMap;

use bytes::Bytes;
use tailwater_log::Entry;
use tracing::debug;

use super::{Reader, entries};
use crate::decode::Decoded;
use crate::error::ApplyError;
use crate::transaction::{Content, Prepared, Span, Transaction};
use crate::writeset::Writeset;

/// XA transactions that were prepared and not completed yet, by their XIDs.
pub(super) type Open = HashMap<Vec<u8>, (Entry, Span)>;

impl Reader {
    /// Holds what is prepared, and gives what completes it all that it completes; `None` for what is held. With the entry that
    /// its rows are in.
    pub(super) async fn hold_xa(
        &mut self,
        entry: &Entry,
        mut transaction: Transaction,
    ) -> Result<Option<(Transaction, Entry)>, ApplyError> {
        if matches!(transaction.content, Content::Streamed { .. })
            && let Some(content) = self.xa_content(entry)?
        {
            (transaction.content, transaction.writeset) = (content, Writeset::default());
        }
        let mut source = entry.clone();
        match &transaction.content {
            Content::XaPrepare { xid } => {
                debug!(gtid = transaction.gtid_text(), "an XA transaction is held until it is completed");
                self.prepared.insert(xid.clone(), (source, transaction.span));
                return Ok(None);
            }
            Content::XaRollback { xid } => {
                transaction.prepared = self.prepared.remove(xid).map(|(entry, span)| prepared(&entry, span));
                transaction.content = Content::Rows(Vec::new());
                transaction.writeset.barrier = false;
            }
            Content::XaCommit { xid } => {
                let Some((entry, span)) = self.prepared.remove(xid) else {
                    return Err(ApplyError::Unsupported {
                        gtid: transaction.gtid_text(),
                        what: format!("XA COMMIT {}", String::from_utf8_lossy(xid)),
                        reason: "it was prepared before the channel began; complete it on the target by hand, and skip \
                                 this transaction"
                            .to_owned(),
                    });
                };
                self.complete(&entry, span, &mut transaction).await?;
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
        span: Span,
        transaction: &mut Transaction,
    ) -> Result<(), ApplyError> {
        let mut log = entries::again(&self.setup.log, entry, &self.setup.shared.options.name)?;
        let large = entry.length > self.setup.shared.options.transaction_bytes_max;
        let bytes = if large { Bytes::new() } else { entries::read_entry(&mut log, entry)? };
        loop {
            match self.decoder.xa_rows(entry, span, bytes.clone(), &mut self.target)? {
                Decoded::Transaction(rows) => {
                    transaction.prepared = Some(prepared(entry, span));
                    transaction.content = rows.content;
                    transaction.writeset = rows.writeset;
                    transaction.memory_bytes += rows.memory_bytes;
                    return Ok(());
                }
                Decoded::NeedsTable { schema, table } => self.target.load(entry, &schema, &table).await?,
            }
        }
    }
}

/// What `entry` is to the transaction that completes it.
fn prepared(entry: &Entry, span: Span) -> Prepared {
    Prepared { span, gtid: entry.gtid.clone() }
}
