//! Finds the transaction boundaries in a stream of events.
//!
//! A binlog does not always contain the lengths of transactions: MariaDB writes none. So this module finds
//! the boundaries from the order of events. It reads the first bytes of each event and follows the same rules
//! as replicas of MySQL and MariaDB.

mod mariadb_event_group;
mod mysql_transaction;
#[cfg(test)]
mod tests;

use crate::binlog_event::{EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription};
use crate::gtid::Gtid;
use crate::{Flavour, WireError};

/// What the source logged about the transactions that may run in parallel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDependency {
    /// MySQL: the transaction may run after transaction `last_committed` of the same file has committed.
    Logical {
        /// The newest transaction of the file that this transaction may depend on; 0 for none.
        last_committed: i64,
        /// The number of this transaction in the file.
        sequence_number: i64,
    },
    /// MariaDB: transactions with the same id committed together, so they do not conflict.
    CommitGroup(u64),
    /// The source logged nothing about parallel execution.
    None,
}

/// The content of the event that opens a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionStart {
    /// The GTID; `None` for MySQL's anonymous transactions.
    pub gtid: Option<Gtid>,
    /// What the source logged about parallel execution.
    pub dependency: SourceDependency,
    /// When the originating server committed the transaction, in microseconds since 1970. `None` if the event
    /// does not contain this time (only MySQL 8 writes it).
    pub commit_time_us: Option<u64>,
    /// The length of the whole transaction in bytes, including this event. `None` if the event does not
    /// contain the length (only MySQL 8 writes it).
    pub transaction_bytes: Option<u64>,
    /// MariaDB: the transaction is one statement without a `COMMIT` event. MySQL's GTID event does not
    /// contain this information.
    pub standalone: bool,
    /// MariaDB: the transaction holds DDL. MySQL's GTID event does not contain this information.
    pub ddl: bool,
}

/// The position of an event relative to transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionStep {
    /// The event does not belong to a transaction (format description, rotate, previous GTIDs, heartbeat,
    /// stop, ...). An open transaction continues after this event.
    Outside,
    /// The event opens a transaction.
    Begin(TransactionStart),
    /// The event is inside a transaction.
    Inside,
    /// The event is the last of its transaction.
    End,
    /// The source restarted and rolled back the open transaction. The event does not belong to it. The caller
    /// must discard the events of the open transaction.
    Abandoned,
}

/// Finds transaction boundaries in a stream of events.
#[derive(Debug, Clone)]
pub struct TransactionTracker {
    flavour: Flavour,
    open: Option<TrackedTransaction>,
}

/// The open transaction.
#[derive(Debug, Clone)]
struct TrackedTransaction {
    phase: TransactionPhase,
    /// The total length of the transaction's events so far, in bytes.
    bytes: u64,
    /// The length in bytes that the transaction's opening event states.
    bytes_stated: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionPhase {
    /// MySQL: the opening event was read, and perhaps events that belong to the next statement. The next
    /// statement is `BEGIN`, or the only statement of the transaction.
    Opened,
    /// Between `BEGIN` and `COMMIT`.
    Block,
    /// One statement without a `COMMIT` event (MariaDB).
    Standalone,
}

/// The meaning of an event according to its type and first bytes, independent of the tracker's state.
#[derive(Debug)]
enum EventMeaning {
    /// Opens a transaction.
    Open { start: TransactionStart, phase: TransactionPhase },
    /// Starts the statements of a transaction: `BEGIN`, `XA START`.
    OpenBlock,
    /// Ends a block of statements: a commit, or the prepare of an XA transaction.
    CloseBlock,
    /// Ends a block of statements, or is a complete transaction without a block: `XA ROLLBACK`, an incident.
    Close,
    /// A complete transaction without a block: a compressed transaction.
    Whole,
    /// A statement. Outside a block it is a complete transaction.
    Statement,
    /// A part of a statement that comes before the statement's end.
    StatementPart,
    /// The event is allowed only between `BEGIN` and the commit.
    InBlock,
    /// The event is allowed anywhere. It belongs to the open transaction if there is one.
    Anywhere,
    /// The event does not belong to a transaction, but is allowed while a transaction is open.
    Aside,
    /// The event does not belong to a transaction, and is not allowed while a transaction is open.
    Between,
    /// The source restarted.
    Restart,
}

impl TransactionTracker {
    /// How many bytes of an event's body [`TransactionTracker::observe`] needs, unless the body is shorter.
    /// The statement of a query event begins within this prefix, because servers write at most a few KiB of
    /// variables before the statement.
    pub const PREFIX_BYTES: usize = 64 * 1024;

    /// Creates a tracker with no open transaction.
    pub fn new(flavour: Flavour) -> Self {
        Self { flavour, open: None }
    }

    /// Discards the open transaction, for a stream that was interrupted and restarts at a transaction
    /// boundary.
    pub fn reset(&mut self) {
        self.open = None;
    }

    /// Returns whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Processes the next event: its header, and at least the first [`TransactionTracker::PREFIX_BYTES`] of
    /// its body. A shorter body must be complete. The body is everything after the header, with the checksum
    /// if `format` has one.
    ///
    /// `format` is the current format description. If the event itself is a format description event,
    /// `format` must be the description in this event.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the event is not allowed at this point (a second opening event, rows
    /// outside a transaction, a transaction with another length than announced); [`WireError::Unsupported`]
    /// for an unknown type that may not be ignored. After an error, the tracker is unusable until
    /// [`TransactionTracker::reset`] is called.
    pub fn observe(
        &mut self,
        header: &EventHeader,
        body_prefix: &[u8],
        format: &FormatDescription,
    ) -> Result<TransactionStep, WireError> {
        let event = Prefix::new(header, body_prefix, format)?;
        let meaning = match self.flavour {
            Flavour::MySql => mysql_transaction::meaning(&event)?,
            Flavour::MariaDb => mariadb_event_group::meaning(&event)?,
        };
        self.step(header, meaning)
    }

    fn step(&mut self, header: &EventHeader, meaning: EventMeaning) -> Result<TransactionStep, WireError> {
        let length = u64::from(header.event_length);
        let Some(open) = &mut self.open else { return self.step_outside(header, meaning) };
        let ends = match meaning {
            EventMeaning::Aside => return Ok(TransactionStep::Outside),
            EventMeaning::Restart => {
                self.open = None;
                return Ok(TransactionStep::Abandoned);
            }
            meaning => open.advance(header, &meaning)?,
        };
        open.bytes += length;
        if let Some(stated) = open.bytes_stated
            && (open.bytes > stated || (ends && open.bytes != stated))
        {
            let reason = format!(
                "the transaction has {} bytes {} a {} event, but its GTID event states {stated} bytes",
                open.bytes,
                if ends { "up to" } else { "already up to" },
                header.event_type,
            );
            return Err(WireError::malformed("transaction", reason));
        }
        if ends {
            self.open = None;
            return Ok(TransactionStep::End);
        }
        Ok(TransactionStep::Inside)
    }

    /// Processes an event while no transaction is open.
    fn step_outside(
        &mut self,
        header: &EventHeader,
        meaning: EventMeaning,
    ) -> Result<TransactionStep, WireError> {
        match meaning {
            EventMeaning::Open { start, phase } => {
                self.open = Some(TrackedTransaction {
                    phase,
                    bytes: u64::from(header.event_length),
                    bytes_stated: start.transaction_bytes,
                });
                Ok(TransactionStep::Begin(start))
            }
            EventMeaning::Anywhere | EventMeaning::Aside | EventMeaning::Between | EventMeaning::Restart => {
                Ok(TransactionStep::Outside)
            }
            // MariaDB, and MySQL before 5.7, write an incident without a GTID.
            EventMeaning::Close if header.event_type == EventType::INCIDENT => Ok(TransactionStep::Outside),
            _ => Err(misplaced(header, "came outside a transaction")),
        }
    }
}

impl TrackedTransaction {
    /// Updates the phase of the transaction for an event inside it. Returns whether the event ends the
    /// transaction.
    fn advance(&mut self, header: &EventHeader, meaning: &EventMeaning) -> Result<bool, WireError> {
        use TransactionPhase::{Block, Opened, Standalone};
        match (meaning, self.phase) {
            (EventMeaning::Open { .. }, _) => {
                Err(misplaced(header, "came inside a transaction that has not ended"))
            }
            (EventMeaning::Between | EventMeaning::Aside | EventMeaning::Restart, _) => {
                Err(misplaced(header, "came inside a transaction"))
            }
            (EventMeaning::OpenBlock, Opened) => {
                self.phase = Block;
                Ok(false)
            }
            (EventMeaning::Whole, Opened) => Ok(true),
            (EventMeaning::OpenBlock | EventMeaning::Whole, Block | Standalone) => {
                Err(misplaced(header, "came inside a transaction that has started"))
            }
            (EventMeaning::Close, _) => Ok(true),
            (EventMeaning::CloseBlock | EventMeaning::InBlock, Opened) => {
                Err(misplaced(header, "came in a transaction that has not started"))
            }
            (EventMeaning::CloseBlock, Block | Standalone) => Ok(true),
            (EventMeaning::InBlock, phase) => Ok(phase == Standalone),
            (EventMeaning::Statement, phase) => Ok(phase != Block),
            (EventMeaning::StatementPart | EventMeaning::Anywhere, _) => Ok(false),
        }
    }
}

fn misplaced(header: &EventHeader, place: &'static str) -> WireError {
    let reason = format!("a {} event {place}; the event ends at {}", header.event_type, header.end_log_pos);
    WireError::malformed("event stream", reason)
}

/// The available first bytes of an event.
struct Prefix<'a> {
    header: &'a EventHeader,
    /// The body without its checksum, or the first bytes of the body.
    body: &'a [u8],
    format: &'a FormatDescription,
}

impl<'a> Prefix<'a> {
    fn new(
        header: &'a EventHeader,
        body_prefix: &'a [u8],
        format: &'a FormatDescription,
    ) -> Result<Self, WireError> {
        const WHAT: &str = "event";
        let behind_header = (header.event_length as usize).saturating_sub(EVENT_HEADER_BYTES);
        if body_prefix.len() > behind_header {
            let reason = format!(
                "the caller passed {} bytes of a body of only {behind_header} bytes",
                body_prefix.len()
            );
            return Err(WireError::malformed(WHAT, reason));
        }
        let needed = behind_header.min(TransactionTracker::PREFIX_BYTES);
        if body_prefix.len() < needed {
            let offset = EVENT_HEADER_BYTES + body_prefix.len();
            return Err(WireError::Truncated { what: WHAT, offset, needed: needed - body_prefix.len() });
        }
        let Some(body_length) = behind_header.checked_sub(format.trailer_bytes(header)) else {
            let offset = header.event_length as usize;
            return Err(WireError::Truncated { what: WHAT, offset, needed: 4 - behind_header });
        };
        let body = &body_prefix[..body_prefix.len().min(body_length)];
        Ok(Self { header, body, format })
    }

    /// Returns the meaning of the event types that both flavours share, or `None` for other types.
    fn common_meaning(&self) -> Option<EventMeaning> {
        // An event with position 0 is from a stream and not from a file. MariaDB 11.4 and later also writes
        // the position 0 into some events of binlog files, but not into events of the types that this
        // function handles.
        let from_stream = self.header.is_artificial() || self.header.end_log_pos == 0;
        Some(match self.header.event_type {
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => EventMeaning::Aside,
            EventType::FORMAT_DESCRIPTION if !from_stream && self.created() != 0 => EventMeaning::Restart,
            EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::PREVIOUS_GTIDS
            | EventType::MARIADB_GTID_LIST
            | EventType::MARIADB_BINLOG_CHECKPOINT
            | EventType::MARIADB_START_ENCRYPTION => match from_stream {
                true => EventMeaning::Aside,
                false => EventMeaning::Between,
            },
            EventType::INCIDENT => EventMeaning::Close,
            EventType::XID | EventType::XA_PREPARE => EventMeaning::CloseBlock,
            EventType::INTVAR | EventType::RAND | EventType::USER_VAR => EventMeaning::StatementPart,
            EventType::APPEND_BLOCK | EventType::BEGIN_LOAD_QUERY => EventMeaning::StatementPart,
            EventType::EXECUTE_LOAD_QUERY => EventMeaning::Statement,
            EventType::IGNORABLE | EventType::DELETE_FILE => EventMeaning::Anywhere,
            _ => return None,
        })
    }

    /// Returns the meaning of an event whose type this crate does not know.
    fn unknown_meaning(&self) -> Result<EventMeaning, WireError> {
        if self.header.has(EventHeader::FLAG_IGNORABLE) {
            return Ok(EventMeaning::Anywhere);
        }
        let detail = format!("{}, ending at {}", self.header.event_type, self.header.end_log_pos);
        Err(WireError::unsupported("event type", detail))
    }

    /// Returns the `created` field of a format description event.
    fn created(&self) -> u32 {
        self.body.get(52..56).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// Returns whether `text` begins with `prefix`, ignoring case.
fn starts_with(text: &[u8], prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|front| front.eq_ignore_ascii_case(prefix.as_bytes()))
}
