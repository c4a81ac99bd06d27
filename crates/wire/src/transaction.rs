//! Where a transaction begins and ends in a stream of events.
//!
//! A binlog has no transaction lengths that could be relied on: MariaDB writes none at all. So the boundaries are
//! found by grammar, from the first bytes of each event, by the rules that the servers' own replicas follow.

mod mariadb;
mod mysql;
#[cfg(test)]
mod tests;

use crate::event::{EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription};
use crate::gtid::Gtid;
use crate::{Flavour, WireError};

/// The source's own statement of which transactions may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDependency {
    /// MySQL: may run as soon as the transaction numbered `last_committed` of the same file is done.
    Logical {
        /// The newest transaction of the file that this one may depend on; 0 for none.
        last_committed: i64,
        /// This transaction's own number in the file.
        sequence_number: i64,
    },
    /// MariaDB: transactions with the same id committed together, so they do not conflict.
    CommitGroup(u64),
    /// Nothing is known.
    None,
}

/// What the event that opens a transaction says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionStart {
    /// `None` for MySQL's anonymous transactions.
    pub gtid: Option<Gtid>,
    /// See [`SourceDependency`].
    pub dependency: SourceDependency,
    /// Microseconds since 1970 at which the originating server committed, where the event carries it (MySQL 8).
    pub commit_time_us: Option<u64>,
    /// Length of the whole transaction with its opening event, in bytes, where the event carries it (MySQL 8).
    pub transaction_bytes: Option<u64>,
    /// MariaDB: one statement that commits by itself. MySQL does not say so in advance.
    pub standalone: bool,
    /// MariaDB: holds DDL. MySQL does not say so in advance.
    pub ddl: bool,
}

/// What one event means for the transaction being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionStep {
    /// The event is of no transaction (format description, rotate, previous GTIDs, heartbeat, stop, ...). A transaction
    /// that is being read goes on behind it.
    Outside,
    /// The event opens a transaction.
    Begin(TransactionStart),
    /// The event is in the middle of one.
    Inside,
    /// The event is the last of its transaction.
    End,
    /// The event is of no transaction, and the one being read will never end: the source restarted in its midst, so
    /// it was rolled back there. What was read of it must be dropped.
    Abandoned,
}

/// Follows a stream of events and says where transactions begin and end.
#[derive(Debug, Clone)]
pub struct TransactionTracker {
    flavour: Flavour,
    open: Option<Open>,
}

/// The transaction being read.
#[derive(Debug, Clone)]
struct Open {
    phase: Phase,
    /// Bytes of its events so far.
    bytes: u64,
    /// What its opening event says that these will be.
    bytes_stated: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Only the opening event was seen, or what prepares a statement: the statement will be the end (MySQL).
    Opened,
    /// Inside `BEGIN` .. `COMMIT`.
    Block,
    /// One statement that commits by itself (MariaDB).
    Standalone,
}

/// What an event means by its type and its first bytes, before the state is looked at.
#[derive(Debug)]
enum Meaning {
    /// Opens a transaction.
    Open { start: TransactionStart, phase: Phase },
    /// Opens the block of a transaction: `BEGIN`, `XA START`.
    OpenBlock,
    /// Ends a block: commit, or prepare of an XA transaction.
    CloseBlock,
    /// Ends a block, and is the whole of a transaction without one: `XA ROLLBACK`, an incident.
    Close,
    /// The whole of a transaction, which has no block: a compressed one.
    Whole,
    /// A statement: the whole of a transaction without a block.
    Statement,
    /// Part of a statement that is not its end.
    StatementPart,
    /// Can only be in a block.
    InBlock,
    /// May be anywhere; belongs to a transaction if in one.
    Anywhere,
    /// Of no transaction; can come in the midst of one.
    Aside,
    /// Of no transaction; cannot come in the midst of one.
    Between,
    /// The source restarted.
    Restart,
}

impl TransactionTracker {
    /// How much of an event's body [`TransactionTracker::observe`] needs to see at least, unless the body is shorter.
    /// The statement of a query event begins well within these: servers write a few KiB of variables before it.
    pub const PREFIX_BYTES: usize = 64 * 1024;

    /// Starts between transactions.
    pub fn new(flavour: Flavour) -> Self {
        Self { flavour, open: None }
    }

    /// Forgets the transaction being read: the stream was interrupted and starts anew at a boundary.
    pub fn reset(&mut self) {
        self.open = None;
    }

    /// Whether a transaction was opened and has not ended.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Takes the next event: its header, and of its body (all that is behind the header, the checksum included if
    /// `format` says that there is one) at least the first [`TransactionTracker::PREFIX_BYTES`], or all if shorter.
    ///
    /// `format` is the format description in force, for a format description event itself too.
    ///
    /// # Errors
    /// [`WireError::Malformed`] if the event cannot stand here (a second opening, rows outside a transaction, an end
    /// of a transaction at another length than its beginning states); [`WireError::Unsupported`] for a type that we
    /// do not know and that may not be ignored. The tracker is then good for nothing until
    /// [`TransactionTracker::reset`].
    pub fn observe(
        &mut self,
        header: &EventHeader,
        body_prefix: &[u8],
        format: &FormatDescription,
    ) -> Result<TransactionStep, WireError> {
        let event = Prefix::new(header, body_prefix, format)?;
        let meaning = match self.flavour {
            Flavour::MySql => mysql::meaning(&event)?,
            Flavour::MariaDb => mariadb::meaning(&event)?,
        };
        self.step(header, meaning)
    }

    fn step(&mut self, header: &EventHeader, meaning: Meaning) -> Result<TransactionStep, WireError> {
        let length = u64::from(header.event_length);
        let Some(open) = &mut self.open else {
            return match meaning {
                Meaning::Open { start, phase } => {
                    self.open = Some(Open { phase, bytes: length, bytes_stated: start.transaction_bytes });
                    Ok(TransactionStep::Begin(start))
                }
                Meaning::Anywhere | Meaning::Aside | Meaning::Between | Meaning::Restart => {
                    Ok(TransactionStep::Outside)
                }
                // An incident stands without a GTID in MariaDB and in MySQL before 5.7.
                Meaning::Close if header.event_type == EventType::INCIDENT => Ok(TransactionStep::Outside),
                _ => Err(misplaced(header, "outside a transaction")),
            };
        };
        let ends = match meaning {
            Meaning::Aside => return Ok(TransactionStep::Outside),
            Meaning::Restart => {
                self.open = None;
                return Ok(TransactionStep::Abandoned);
            }
            Meaning::Open { .. } => return Err(misplaced(header, "inside a transaction that has not ended")),
            Meaning::Between => return Err(misplaced(header, "inside a transaction")),
            Meaning::OpenBlock => match open.phase {
                Phase::Opened => {
                    open.phase = Phase::Block;
                    false
                }
                Phase::Block | Phase::Standalone => {
                    return Err(misplaced(header, "inside a transaction that has begun"));
                }
            },
            Meaning::Whole => match open.phase {
                Phase::Opened => true,
                Phase::Block | Phase::Standalone => {
                    return Err(misplaced(header, "inside a transaction that has begun"));
                }
            },
            Meaning::Close => true,
            Meaning::CloseBlock => match open.phase {
                Phase::Opened => return Err(misplaced(header, "in a transaction that has not begun")),
                Phase::Block | Phase::Standalone => true,
            },
            Meaning::Statement => open.phase != Phase::Block,
            Meaning::InBlock => match open.phase {
                Phase::Opened => return Err(misplaced(header, "in a transaction that has not begun")),
                Phase::Block => false,
                Phase::Standalone => true,
            },
            Meaning::StatementPart | Meaning::Anywhere => false,
        };
        open.bytes += length;
        if let Some(stated) = open.bytes_stated
            && (open.bytes > stated || (ends && open.bytes != stated))
        {
            let reason = format!(
                "{} bytes {} a {} event, {stated} bytes stated by its gtid event",
                open.bytes,
                if ends { "up to" } else { "and more behind" },
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
}

fn misplaced(header: &EventHeader, place: &'static str) -> WireError {
    let reason = format!("a {} event {place}, ending at {}", header.event_type, header.end_log_pos);
    WireError::malformed("event stream", reason)
}

/// The front of an event, as far as it is at hand.
struct Prefix<'a> {
    header: &'a EventHeader,
    /// The body without checksum, or its first bytes.
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
            let reason = format!("{} bytes of body in one of {behind_header}", body_prefix.len());
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

    /// What types mean that are alike in both flavours; `None` for the others.
    fn common_meaning(&self) -> Option<Meaning> {
        // MariaDB 11.4 and later write a position of 0 in real events too, but not in events of these types.
        let from_stream = self.header.is_artificial() || self.header.end_log_pos == 0;
        Some(match self.header.event_type {
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => Meaning::Aside,
            EventType::FORMAT_DESCRIPTION if !from_stream && self.created() != 0 => Meaning::Restart,
            EventType::FORMAT_DESCRIPTION
            | EventType::ROTATE
            | EventType::STOP
            | EventType::PREVIOUS_GTIDS
            | EventType::MARIADB_GTID_LIST
            | EventType::MARIADB_BINLOG_CHECKPOINT
            | EventType::MARIADB_START_ENCRYPTION => match from_stream {
                true => Meaning::Aside,
                false => Meaning::Between,
            },
            EventType::INCIDENT => Meaning::Close,
            EventType::XID | EventType::XA_PREPARE => Meaning::CloseBlock,
            EventType::INTVAR | EventType::RAND | EventType::USER_VAR => Meaning::StatementPart,
            EventType::APPEND_BLOCK | EventType::BEGIN_LOAD_QUERY => Meaning::StatementPart,
            EventType::EXECUTE_LOAD_QUERY => Meaning::Statement,
            EventType::IGNORABLE | EventType::DELETE_FILE => Meaning::Anywhere,
            _ => return None,
        })
    }

    /// What is left: types that we do not know.
    fn unknown_meaning(&self) -> Result<Meaning, WireError> {
        if self.header.has(EventHeader::FLAG_IGNORABLE) {
            return Ok(Meaning::Anywhere);
        }
        let detail = format!("{}, ending at {}", self.header.event_type, self.header.end_log_pos);
        Err(WireError::unsupported("event type", detail))
    }

    /// The `created` field of a format description event.
    fn created(&self) -> u32 {
        self.body.get(52..56).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// Whether `text` begins with `prefix`, in letters of either case.
fn starts_with(text: &[u8], prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|front| front.eq_ignore_ascii_case(prefix.as_bytes()))
}
