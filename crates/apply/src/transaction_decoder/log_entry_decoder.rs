//! Decodes the log entry of one transaction.

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_wire::transaction_boundary::SourceDependency;

use super::decoder_state::Decoder;
use super::statement_classifier;
use super::streaming_decoder::{TransactionEnding, TransactionRead, TransactionReader};
use super::table_lookup::TableLookup;
use crate::error::ApplyError;
use crate::log_position_range::LogSpan;
use crate::source_transaction::{
    ApplyStep, RowChanges, RowPlace, Statement, StatementVariable, Transaction, TransactionContent,
};
use crate::writeset::{Access, Writeset};

/// The result of decoding a log entry.
#[derive(Debug)]
pub enum Decoded {
    /// The decoded transaction.
    Transaction(Box<Transaction>),
    /// The caller must load this table of the target, so that [`TableLookup::target`] returns it, and then
    /// decode the same entry again.
    NeedsTable {
        /// Database name.
        schema: String,
        /// Table name.
        table: String,
    },
    /// The caller must load the columns of this source table, so that [`TableLookup::old_time_digits`]
    /// returns them, and then decode the same entry again.
    NeedsSource {
        /// Database name.
        schema: String,
        /// Table name.
        table: String,
    },
}

impl Decoder {
    /// Decodes a transaction. `events` are the bytes of `entry`. For an entry longer than
    /// [`DecodeLimits::transaction_bytes_max`](super::DecodeLimits::transaction_bytes_max), the first event
    /// is enough.
    ///
    /// Such a long entry becomes [`TransactionContent::Streamed`]. The same applies to an entry that creates
    /// a table and then fills it (`CREATE TABLE ... SELECT`). [`TransactionReader`] then returns the steps of
    /// the transaction one by one.
    ///
    /// # Errors
    /// [`ApplyError::Event`] for malformed bytes; [`ApplyError::IncompatibleColumn`] if a target table lacks
    /// a column; [`ApplyError::UnknownDigits`] if the digits of an old temporal column are not known;
    /// [`ApplyError::NameCollision`] if [`TableLookup::route`] reports one; [`ApplyError::Unsupported`] for
    /// changes that cannot be applied.
    pub fn transaction(
        &mut self,
        entry: &LogEntry,
        span: LogSpan,
        events: Bytes,
        tables: &mut dyn TableLookup,
    ) -> Result<Decoded, ApplyError> {
        self.decode(entry, span, events, tables, false)
    }

    /// Decodes the log entry that prepared an XA transaction. The channel applies the changes in this entry
    /// with the XA commit.
    ///
    /// # Errors
    /// As [`Decoder::transaction`].
    pub fn xa_rows(
        &mut self,
        entry: &LogEntry,
        span: LogSpan,
        events: Bytes,
        tables: &mut dyn TableLookup,
    ) -> Result<Decoded, ApplyError> {
        self.decode(entry, span, events, tables, true)
    }

    fn decode(
        &mut self,
        entry: &LogEntry,
        span: LogSpan,
        events: Bytes,
        tables: &mut dyn TableLookup,
        xa_rows: bool,
    ) -> Result<Decoded, ApplyError> {
        let mut reader = TransactionReader::new(entry);
        let mut gathered = TransactionBuilder::default();
        let mut rest = events.clone();
        let too_long = entry.length > self.limits.transaction_bytes_max as u64;
        let streamed = loop {
            let bytes_max = self.limits.transaction_bytes_max.saturating_mul(DECODED_FACTOR_MAX);
            if (too_long && reader.has_begun()) || gathered.bytes > bytes_max {
                break true;
            }
            match reader.read(self, tables)? {
                TransactionRead::NeedsEvent if rest.is_empty() => break too_long,
                TransactionRead::NeedsEvent => reader.event(reader.cut(&mut rest)?),
                TransactionRead::NeedsTable { schema, table } if !reader.has_defined() => {
                    return Ok(Decoded::NeedsTable { schema, table });
                }
                TransactionRead::NeedsSource { schema, table } if !reader.has_defined() => {
                    return Ok(Decoded::NeedsSource { schema, table });
                }
                TransactionRead::NeedsTable { .. } | TransactionRead::NeedsSource { .. } => break true,
                // The transaction itself may have created the table of these rows, so the rows cannot be
                // decoded yet.
                TransactionRead::Step(ApplyStep::Rows(_)) if reader.has_defined() => break true,
                TransactionRead::Step(step) => gathered.take(step),
            }
        };
        let (content, writeset) = if streamed {
            (
                TransactionContent::Streamed { bytes: entry.length },
                Writeset { accesses: Vec::new(), barrier: true },
            )
        } else {
            match reader.ending() {
                TransactionEnding::XaPrepare(xid) if !xa_rows => {
                    (TransactionContent::XaPrepare { xid: xid.clone() }, Writeset::default())
                }
                TransactionEnding::XaCommit(xid) => {
                    (TransactionContent::XaCommit { xid: xid.clone() }, Writeset::default())
                }
                TransactionEnding::XaRollback(xid) => {
                    (TransactionContent::XaRollback { xid: xid.clone() }, Writeset::default())
                }
                TransactionEnding::XaPrepare(_) | TransactionEnding::Commit => gathered.finish(),
            }
        };
        let mut transaction = Transaction {
            span,
            prepared: None,
            gtid: entry.gtid.clone(),
            commit_time_us: entry.commit_time_us,
            dependency: reader.dependency().unwrap_or(SourceDependency::None),
            content,
            writeset,
            memory_bytes: 0,
        };
        transaction.memory_bytes = memory_bytes(&transaction, &events);
        Ok(Decoded::Transaction(Box::new(transaction)))
    }
}

/// The maximum size of a decoded transaction, as a multiple of
/// [`DecodeLimits::transaction_bytes_max`](super::DecodeLimits::transaction_bytes_max).
const DECODED_FACTOR_MAX: usize = 4;

/// The steps of a transaction that were read so far.
#[derive(Debug, Default)]
struct TransactionBuilder {
    steps: Vec<ApplyStep>,
    /// Number of statements.
    statements: usize,
    /// Number of `SAVEPOINT` statements.
    savepoints: usize,
    /// Whether the transaction contains a `ROLLBACK TO` a savepoint.
    rolls_back: bool,
    /// Memory of the steps, in bytes.
    bytes: usize,
}

impl TransactionBuilder {
    fn take(&mut self, step: ApplyStep) {
        self.bytes = self.bytes.saturating_add(match &step {
            ApplyStep::Rows(changes) => bytes_of_rows(changes) + changes.images.len(),
            ApplyStep::Statement(statement) => bytes_of_statement(statement) + statement.text.len(),
        });
        if let ApplyStep::Statement(statement) = &step {
            self.statements += 1;
            match statement_classifier::meaning(&statement.text) {
                statement_classifier::StatementClass::Savepoint => self.savepoints += 1,
                statement_classifier::StatementClass::RollbackTo => self.rolls_back = true,
                _ => {}
            }
        }
        self.steps.push(step);
    }

    fn finish(mut self) -> (TransactionContent, Writeset) {
        if !self.rolls_back && self.savepoints > 0 {
            self.statements -= self.savepoints;
            self.steps.retain(|step| match step {
                ApplyStep::Rows(_) => true,
                ApplyStep::Statement(statement) => {
                    statement_classifier::meaning(&statement.text)
                        != statement_classifier::StatementClass::Savepoint
                }
            });
        }
        if self.statements > 0 {
            return (TransactionContent::Steps(self.steps), Writeset { accesses: Vec::new(), barrier: true });
        }
        let changes = self.steps.into_iter().filter_map(|step| match step {
            ApplyStep::Rows(changes) => Some(changes),
            ApplyStep::Statement(_) => None,
        });
        let changes: Vec<RowChanges> = changes.collect();
        let accesses = union(&changes);
        // Changes of a nontransactional table cannot be rolled back. So no other transaction may be in the
        // same batch, because the failure of another transaction would roll the batch back.
        let barrier = changes.iter().any(|changes| !changes.table.target.transactional);
        (TransactionContent::Rows(changes), Writeset { accesses, barrier })
    }
}

/// Returns the key accesses of all rows, each key once. An entry is exclusive if any access to its key is
/// exclusive.
fn union(changes: &[RowChanges]) -> Vec<Access> {
    let mut accesses: Vec<Access> =
        Vec::with_capacity(changes.iter().map(|changes| changes.accesses.len()).sum());
    for changes in changes {
        accesses.extend_from_slice(&changes.accesses);
    }
    accesses.sort_unstable_by_key(|access| (access.key, access.shared));
    accesses.dedup_by_key(|access| access.key);
    accesses.shrink_to_fit();
    accesses
}

/// Returns the memory of rows without their images, in bytes.
fn bytes_of_rows(changes: &RowChanges) -> usize {
    size_of::<RowChanges>()
        + if changes.rows.spilled() { changes.rows.capacity() * size_of::<RowPlace>() } else { 0 }
        + if changes.accesses.spilled() { changes.accesses.capacity() * size_of::<Access>() } else { 0 }
}

/// Returns the memory of a statement without its text, in bytes.
fn bytes_of_statement(statement: &Statement) -> usize {
    size_of::<ApplyStep>() + statement.variables.capacity() * size_of::<StatementVariable>()
}

/// Returns the memory of a transaction with these events, in bytes.
fn memory_bytes(transaction: &Transaction, events: &Bytes) -> usize {
    // Most buffers are slices of `events`, which is counted separately.
    let own = |bytes: &Bytes| if events.as_ptr_range().contains(&bytes.as_ptr()) { 0 } else { bytes.len() };
    let of_rows = |changes: &RowChanges| bytes_of_rows(changes) + own(&changes.images);
    let of_statement = |statement: &Statement| bytes_of_statement(statement) + own(&statement.text);
    let content = match &transaction.content {
        TransactionContent::Rows(changes) => changes.iter().map(of_rows).sum(),
        TransactionContent::Steps(steps) => steps
            .iter()
            .map(|step| match step {
                ApplyStep::Rows(changes) => of_rows(changes),
                ApplyStep::Statement(statement) => of_statement(statement),
            })
            .sum(),
        // The events of a streamed transaction are not kept in memory.
        TransactionContent::Streamed { .. }
        | TransactionContent::XaPrepare { .. }
        | TransactionContent::XaCommit { .. }
        | TransactionContent::XaRollback { .. } => 0,
    };
    let events = if content > 0 { events.len() } else { 0 };
    size_of::<Transaction>()
        + events
        + content
        + transaction.writeset.accesses.capacity() * size_of::<Access>()
}
