//! An entry of the log becomes a [`Transaction`]: rows found, hashed and bound to the target's tables, none of them
//! copied.
//!
//! Pure: [`TableLookup`] says what becomes of a table and what the target has; a table that was not asked for yet comes back
//! as [`Decoded::NeedsTable`], and the caller asks the target and tries again.
//!
//! The map: `reader` goes through the events of a transaction, one step at a time; `mapping` keeps table maps that were
//! seen before; `xa_part` tells an XA transaction of any size; `rows` finds rows; `statement` and `xid` read the text of
//! statements.

mod mapping;
pub(crate) mod old_times;
mod reader;
mod rows;
pub(crate) mod statement;
mod xa_part;
mod xid;

use std::sync::Arc;

use bytes::Bytes;
use tailwater_log::LogEntry;
use tailwater_wire::event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, FormatDescription, RowsKind,
};
use tailwater_wire::transaction::SourceDependency;
use tailwater_wire::{Flavour, WireError};

use self::mapping::MapCache;
pub use self::old_times::{DeclaredColumns, OldTimeDigits};
use self::reader::TransactionEnding;
pub(crate) use self::reader::is_rows;
pub use self::reader::{TransactionRead, TransactionReader};
pub use self::xa_part::XaPartReader;
use crate::error::ApplyError;
use crate::filter::{FilterError, FilterRoute};
use crate::target::TargetTable;
use crate::transaction::{
    ApplyStep, LogSpan, RowChanges, RowPlace, Statement, StatementVariable, Transaction, TransactionContent,
};
use crate::writeset::{Access, Writeset};

/// How much is decoded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// The longest event, decompressed, in bytes. A longer one is an error.
    pub event_bytes_max: usize,
    /// The longest transaction that is held in memory, in bytes of its events. A longer one is [`TransactionContent::Streamed`]; as is
    /// one that takes more than four times as much when decoded.
    pub transaction_bytes_max: usize,
}

impl Default for DecodeLimits {
    /// Events of 1 GiB, the most that servers make, and transactions of 64 MiB.
    fn default() -> Self {
        Self { event_bytes_max: 1 << 30, transaction_bytes_max: 64 << 20 }
    }
}

/// What the decoder asks about tables. Answers are kept until [`Decoder::forget`].
pub trait TableLookup {
    /// What becomes of the rows of a table of the source.
    ///
    /// # Errors
    /// [`FilterError::Clash`] if another table's go to the same place.
    fn route(&mut self, schema: &str, table: &str, kind: RowsKind) -> Result<FilterRoute, FilterError>;
    /// A table of the target; `None` if it is not known (yet).
    fn target(&self, schema: &str, table: &str) -> Option<Arc<TargetTable>>;
    /// Where the digits of a table's columns are taken from that have the temporal layout of before MySQL 5.6; `schema` and `table`
    /// are the source's. Only called for tables of a MariaDB source with such columns.
    fn old_time_digits(&self, schema: &str, table: &str) -> OldTimeDigits;
}

/// What comes of decoding.
#[derive(Debug)]
pub enum Decoded {
    /// The transaction.
    Transaction(Box<Transaction>),
    /// [`TableLookup::target`] has to know this table of the target first; then the same entry decodes anew.
    NeedsTable {
        /// Its database.
        schema: String,
        /// Its name.
        table: String,
    },
    /// [`TableLookup::old_time_digits`] has to know this table of the source first; then the same entry decodes again.
    NeedsSource {
        /// Its database.
        schema: String,
        /// Its name.
        table: String,
    },
}

/// Decodes the transactions of one log, in their order.
///
/// Rows are bound to the target's tables as they are when it decodes. So a statement that is not [`Statement::dml`] must
/// have run, and [`Decoder::forget`] been called, before what stands behind it is decoded.
#[derive(Debug)]
pub struct Decoder {
    flavour: Flavour,
    limits: DecodeLimits,
    format: FormatDescription,
    maps: MapCache,
}

impl Decoder {
    /// For a log of this family. Hashes of keys are made with `seed`: see [`crate::keys::RowKeys`].
    pub fn new(flavour: Flavour, limits: DecodeLimits, seed: u64) -> Self {
        Self {
            flavour,
            limits,
            format: FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32),
            maps: MapCache::new(flavour, seed),
        }
    }

    /// Takes a whole format description event, which heads every segment. What is decoded after it is read by it.
    ///
    /// # Errors
    /// [`WireError`] if it is none.
    pub fn format_description(&mut self, event: &[u8]) -> Result<(), WireError> {
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        self.format = FormatDescription::parse(body)?;
        Ok(())
    }

    /// Exchanges the format description by which is decoded what comes next.
    pub fn swap_format(&mut self, other: &mut FormatDescription) {
        std::mem::swap(&mut self.format, other);
    }

    /// The format description by which is decoded what comes next.
    pub fn format(&self) -> &FormatDescription {
        &self.format
    }

    /// Forgets the answers of [`TableLookup`]: after statements that may have changed tables, and when filters change.
    pub fn forget(&mut self) {
        self.maps.forget();
    }

    /// Decodes a transaction. `entry` is a transaction's, `events` its bytes; of an entry that is longer than
    /// [`DecodeLimits::transaction_bytes_max`] its first event is enough.
    ///
    /// [`TransactionContent::Streamed`] is what a longer one gives, and one that defines tables before it fills them (`CREATE TABLE
    /// ... SELECT`): [`TransactionReader`] then gives its steps one by one.
    ///
    /// # Errors
    /// [`ApplyError::Event`] if the bytes are none of a transaction, [`ApplyError::IncompatibleColumn`] if a table of the target lacks
    /// a column, [`ApplyError::UnknownDigits`] if the digits of an old temporal column are not certain, [`ApplyError::NameCollision`] if [`TableLookup::route`] says so, [`ApplyError::Unsupported`] for what cannot be
    /// applied.
    pub fn transaction(
        &mut self,
        entry: &LogEntry,
        span: LogSpan,
        events: Bytes,
        tables: &mut dyn TableLookup,
    ) -> Result<Decoded, ApplyError> {
        self.decode(entry, span, events, tables, false)
    }

    /// Decodes the entry that prepared an XA transaction into what it does when it is committed.
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
                // The table may be one that the transaction itself has made.
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

/// See [`DecodeLimits::transaction_bytes_max`].
const DECODED_FACTOR_MAX: usize = 4;

/// The steps of a transaction, as they come.
#[derive(Debug, Default)]
struct TransactionBuilder {
    steps: Vec<ApplyStep>,
    /// How many of them are statements, and of those `SAVEPOINT`; whether there is a `ROLLBACK TO` one.
    statements: usize,
    savepoints: usize,
    rolls_back: bool,
    /// What they take in memory.
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
            match statement::meaning(&statement.text) {
                statement::StatementClass::Savepoint => self.savepoints += 1,
                statement::StatementClass::RollbackTo => self.rolls_back = true,
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
                    statement::meaning(&statement.text) != statement::StatementClass::Savepoint
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
        // What a table without transactions has taken cannot be undone: no other transaction may fail in the same
        // batch.
        let barrier = changes.iter().any(|changes| !changes.table.target.transactional);
        (TransactionContent::Rows(changes), Writeset { accesses, barrier })
    }
}

/// All that rows touch, each key once; exclusively, if it is touched so anywhere.
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

/// What rows take beside their images.
fn bytes_of_rows(changes: &RowChanges) -> usize {
    size_of::<RowChanges>()
        + if changes.rows.spilled() { changes.rows.capacity() * size_of::<RowPlace>() } else { 0 }
        + if changes.accesses.spilled() { changes.accesses.capacity() * size_of::<Access>() } else { 0 }
}

/// What a statement takes beside its text.
fn bytes_of_statement(statement: &Statement) -> usize {
    size_of::<ApplyStep>() + statement.variables.capacity() * size_of::<StatementVariable>()
}

/// What a transaction takes whose events are `events`.
fn memory_bytes(transaction: &Transaction, events: &Bytes) -> usize {
    // Most of what it holds are slices of its events, which were counted already.
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
        // The events are not kept.
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

/// The header of an event that is wholly at hand.
fn whole_header(event: &[u8]) -> Result<EventHeader, WireError> {
    let header = EventHeader::parse(event)?;
    if header.event_length as usize != event.len() {
        let reason = format!("{} bytes, and the header says {}", event.len(), header.event_length);
        return Err(WireError::malformed("event", reason));
    }
    Ok(header)
}
