//! Reads the tail of a server's own binlog: the complete transactions at its end that the log does not have.
//! Keeps these transactions in memory.

use std::io::{self, Write};
use std::path::Path;

use bytes::{Bytes, BytesMut};
use tailwater_log::{EntryFlags, EntryKind, LogEntry, LogPosition};
use tailwater_session::binlog_dump::{DumpRequest, DumpStart};
use tailwater_session::{ConnectOptions, Connection};
use tailwater_wire::Flavour;
use tailwater_wire::binlog_event::event_header::BINLOG_MAGIC;
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription,
};
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};

use crate::error::RejoinError;

/// A transaction that only this server has.
#[derive(Debug, Clone)]
pub struct TailTransaction {
    /// An index entry for the transaction, like the entries in the index of Tailwater's log. The position of
    /// the entry is the offset in the dump stream.
    pub entry: LogEntry,
    /// The events of the transaction.
    pub events: Bytes,
}

/// Reads a stream of complete binlog events, and collects the transactions for a [`BinlogTail`].
#[derive(Debug)]
pub struct TailReader {
    flavour: Flavour,
    known: GtidSet,
    bytes_max: usize,
    tracker: TransactionTracker,
    format: FormatDescription,
    description: Bytes,
    open: Option<(LogEntry, BytesMut)>,
    bytes: usize,
    offset: u64,
    transactions: Vec<TailTransaction>,
}

/// The tail of a server's own binlog: the transactions that the log does not have.
#[derive(Debug, Clone, Default)]
pub struct BinlogTail {
    /// The format description event for the events of these transactions.
    pub description: Bytes,
    /// The transactions, in order.
    pub transactions: Vec<TailTransaction>,
}

impl TailReader {
    /// Creates a reader that collects transactions which are not in `known`, up to `bytes_max` bytes of
    /// events.
    pub fn new(flavour: Flavour, known: GtidSet, bytes_max: usize) -> Self {
        Self {
            flavour,
            known,
            bytes_max,
            tracker: TransactionTracker::new(flavour),
            format: FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32),
            description: Bytes::new(),
            open: None,
            bytes: 0,
            offset: 4,
            transactions: Vec::new(),
        }
    }

    /// Adds the next event of the stream.
    ///
    /// # Errors
    /// [`RejoinError::Impossible`] for malformed bytes, or if the limit is exceeded.
    pub fn event(&mut self, event: &[u8]) -> Result<(), RejoinError> {
        let header = EventHeader::parse(event).map_err(RejoinError::own_binlog)?;
        let body = event.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.format = FormatDescription::parse(body).map_err(RejoinError::own_binlog)?;
            if self.description.is_empty() {
                self.description = Bytes::copy_from_slice(event);
            }
        }
        let prefix = body.get(..body.len().min(TransactionTracker::PREFIX_BYTES)).unwrap_or(body);
        match self.tracker.observe(&header, prefix, &self.format).map_err(RejoinError::own_binlog)? {
            TransactionStep::Outside => return Ok(()),
            TransactionStep::Abandoned => {
                self.open = None;
                return Ok(());
            }
            TransactionStep::Begin(start) => {
                let is_known = start.gtid.as_ref().is_some_and(|gtid| self.known.contains(gtid));
                let seconds = u64::from(header.timestamp) * 1_000_000;
                let entry = LogEntry {
                    position: LogPosition { segment: 0, offset: self.offset },
                    length: 0,
                    kind: EntryKind::Transaction,
                    gtid: start.gtid,
                    source_end: u64::from(header.end_log_pos),
                    commit_time_us: start.commit_time_us.unwrap_or(seconds),
                    flags: EntryFlags::default(),
                };
                self.open = (!is_known).then(|| (entry, BytesMut::new()));
                self.keep(event, &header)?;
            }
            TransactionStep::Inside => self.keep(event, &header)?,
            TransactionStep::End => {
                self.keep(event, &header)?;
                if let Some((mut entry, events)) = self.open.take() {
                    entry.length = events.len() as u64;
                    self.transactions.push(TailTransaction { entry, events: events.freeze() });
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, event: &[u8], header: &EventHeader) -> Result<(), RejoinError> {
        let Some((entry, events)) = &mut self.open else { return Ok(()) };
        self.bytes += event.len();
        if self.bytes > self.bytes_max {
            return Err(RejoinError::Impossible {
                reason: format!(
                    "the server's own binlog holds more than {} bytes that the log does not have; copy the server from scratch (--copy)",
                    self.bytes_max
                ),
            });
        }
        self.offset += event.len() as u64;
        entry.source_end = u64::from(header.end_log_pos);
        events.extend_from_slice(event);
        Ok(())
    }

    /// Returns the collected transactions. The result does not include an incomplete last transaction,
    /// because the server itself rolls that transaction back.
    pub fn finish(self) -> BinlogTail {
        BinlogTail { description: self.description, transactions: self.transactions }
    }
}

impl BinlogTail {
    /// Returns the GTIDs of the transactions as text.
    pub fn gtids(&self) -> Vec<String> {
        let text = |transaction: &TailTransaction| {
            transaction.entry.gtid.as_ref().map_or_else(|| "without GTID".to_owned(), ToString::to_string)
        };
        self.transactions.iter().map(text).collect()
    }

    /// Writes the transactions to a binlog file that `mysqlbinlog` can read, and syncs the file.
    ///
    /// # Errors
    /// File system errors.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        // Give the file the same access mode as the files of the log. It contains row values, so only its
        // owner and group can read it.
        let mut file = tailwater_files::create_replacing(path, 0o640)?;
        file.write_all(&BINLOG_MAGIC)?;
        file.write_all(&self.description)?;
        for transaction in &self.transactions {
            file.write_all(&transaction.events)?;
        }
        file.sync_all()?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

/// Reads from a server the transactions that are not in `common`, the GTID set that the server and the log
/// share.
///
/// # Errors
/// [`RejoinError::Session`] if the server cannot send the transactions, for example because it purged them;
/// the errors of [`TailReader`].
pub async fn read(
    server: &ConnectOptions,
    server_id: u32,
    known: &GtidSet,
    common: &GtidSet,
    bytes_max: usize,
) -> Result<BinlogTail, RejoinError> {
    let connection = Connection::connect(server).await?;
    let flavour = connection.server().flavour;
    let start = match common {
        GtidSet::MySql(set) => DumpStart::MysqlGtid { set_block: set.encode() },
        GtidSet::MariaDb(state) => DumpStart::MariadbGtid { connect_state: state.position().to_string() },
    };
    let request = DumpRequest { non_blocking: true, ..DumpRequest::new(server_id, start) };
    let mut stream = connection.dump(request).await?;
    let mut reader = TailReader::new(flavour, known.clone(), bytes_max);
    let mut whole = BytesMut::new();
    while let Some(chunk) = stream.next().await? {
        if chunk.first && chunk.last {
            reader.event(&chunk.data)?;
            continue;
        }
        whole.extend_from_slice(&chunk.data);
        if whole.len() > bytes_max {
            return Err(RejoinError::Impossible {
                reason: format!(
                    "an event of the server's own binlog is longer than {bytes_max} bytes; copy the server from scratch (--copy)"
                ),
            });
        }
        if chunk.last {
            reader.event(&whole)?;
            whole.clear();
        }
    }
    // Reader and stream use the same flavour.
    debug_assert_eq!(reader.flavour, flavour);
    Ok(reader.finish())
}
