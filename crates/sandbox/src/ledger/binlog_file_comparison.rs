//! Reads the events of a server's binlog file or a captured segment, and compares them with a ledger.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use tailwater_wire::binlog_event::{
    BINLOG_MAGIC, BinlogEvent, ChecksumAlgorithm, EVENT_HEADER_BYTES, EventBody, EventHeader,
    FormatDescription, PayloadLimits,
};
use tailwater_wire::row_event::{RowChangeIter, TableMap};
use tailwater_wire::transaction_boundary::{TransactionStep, TransactionTracker};
use tailwater_wire::{Flavour, WireError};

use super::{Ledger, LedgerCheck, LedgerReport, LoggedTransaction};

/// Maximum length of an event. The workload writes shorter events, so a longer event means that the file is
/// damaged.
const EVENT_BYTES_MAX: u32 = 256 << 20;
/// Maximum number of table maps in one transaction. The workload has five tables.
const TABLE_MAPS_MAX: usize = 10_000;

/// Why a binlog could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum BinlogCheckError {
    /// The file could not be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a binlog, or is damaged.
    #[error("{}, position {position}: {source}", path.display())]
    Event {
        /// The file.
        path: PathBuf,
        /// Position of the event.
        position: u64,
        /// What is wrong with the event.
        source: WireError,
    },
}

impl BinlogCheckError {
    /// Returns the stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File { .. } => "TW-SBX-0020",
            Self::Event { .. } => "TW-SBX-0021",
        }
    }
}

/// Compares a log with a ledger; reads binlog events for a [`LedgerCheck`].
#[derive(Debug)]
pub struct BinlogCheck<'a> {
    check: LedgerCheck<'a>,
    reader: BinlogReader,
}

#[derive(Debug)]
struct BinlogReader {
    flavour: Flavour,
    format: FormatDescription,
    tracker: TransactionTracker,
    tables: HashMap<u64, TableMap>,
    current: LoggedTransaction,
}

impl<'a> BinlogCheck<'a> {
    /// Starts a comparison with a log of servers of this flavour.
    pub fn new(ledger: &'a Ledger, flavour: Flavour) -> Self {
        let reader = BinlogReader {
            flavour,
            format: FormatDescription::assumed(flavour, ChecksumAlgorithm::Crc32),
            tracker: TransactionTracker::new(flavour),
            tables: HashMap::new(),
            current: LoggedTransaction::default(),
        };
        Self { check: LedgerCheck::new(ledger), reader }
    }

    /// Adds the next event, with header and checksum. The checksum is verified.
    ///
    /// # Errors
    /// [`WireError`] if the event is damaged, or is not allowed at this point.
    pub fn event(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let event = BinlogEvent::parse(bytes, &self.reader.format)?;
        if let EventBody::FormatDescription(format) = &event.body {
            self.reader.format = format.clone();
        }
        let behind_header = &bytes[EVENT_HEADER_BYTES..];
        let step = self.reader.tracker.observe(&event.header, behind_header, &self.reader.format)?;
        if matches!(step, TransactionStep::Begin(_) | TransactionStep::Abandoned) {
            self.reader.current = LoggedTransaction::default();
            self.reader.tables.clear();
        }
        match &event.body {
            EventBody::TransactionPayload(payload) => {
                let mut events = payload.events(PayloadLimits {
                    event_bytes_max: u64::from(EVENT_BYTES_MAX),
                    ..PayloadLimits::default()
                })?;
                // Events inside a compressed payload have no checksums.
                let format = FormatDescription {
                    checksum: Some(ChecksumAlgorithm::Off),
                    ..self.reader.format.clone()
                };
                while let Some(inner) = events.next_event()? {
                    self.reader.rows(&BinlogEvent::parse(inner, &format)?.body)?;
                }
            }
            body => self.reader.rows(body)?,
        }
        if step == TransactionStep::End {
            self.check.transaction(&self.reader.current);
        }
        Ok(())
    }

    /// Adds a whole binlog file. An incomplete event or transaction at its end, which a killed server leaves,
    /// is ignored.
    ///
    /// # Errors
    /// [`BinlogCheckError`] with the file and the position.
    pub fn file(&mut self, path: &Path) -> Result<(), BinlogCheckError> {
        let failed = |source| BinlogCheckError::File { path: path.to_owned(), source };
        let mut input = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        let mut magic = [0; BINLOG_MAGIC.len()];
        let mut position = magic.len() as u64;
        let wrong = |position, source| BinlogCheckError::Event { path: path.to_owned(), position, source };
        input.read_exact(&mut magic).map_err(failed)?;
        if magic != BINLOG_MAGIC {
            return Err(wrong(
                0,
                WireError::malformed(
                    "binlog",
                    "the file does not begin with the magic number of a binlog".to_owned(),
                ),
            ));
        }
        self.reader.tracker.reset();
        let mut bytes = Vec::new();
        loop {
            bytes.resize(EVENT_HEADER_BYTES, 0);
            if !read_whole(&mut input, &mut bytes).map_err(failed)? {
                break;
            }
            // A preallocated file has zeros after its last event.
            if bytes.iter().all(|byte| *byte == 0) {
                break;
            }
            let length = EventHeader::parse(&bytes).map_err(|source| wrong(position, source))?.event_length;
            if length > EVENT_BYTES_MAX {
                let limit = u64::from(EVENT_BYTES_MAX);
                let source = WireError::TooLarge { what: "event", size: length.into(), size_max: limit };
                return Err(wrong(position, source));
            }
            bytes.resize(length as usize, 0);
            if !read_whole(&mut input, &mut bytes[EVENT_HEADER_BYTES..]).map_err(failed)? {
                break;
            }
            self.event(&bytes).map_err(|source| wrong(position, source))?;
            position += u64::from(length);
        }
        Ok(())
    }

    /// Ends the comparison, and returns its result.
    pub fn finish(self) -> LedgerReport {
        self.check.finish()
    }
}

impl BinlogReader {
    fn rows(&mut self, body: &EventBody<'_>) -> Result<(), WireError> {
        match body {
            EventBody::TableMap(body) => {
                if self.tables.len() >= TABLE_MAPS_MAX {
                    self.tables.clear();
                }
                let map = TableMap::parse(body, self.flavour)?;
                self.tables.insert(map.table_id, map);
            }
            EventBody::Rows(rows) => {
                let Some(map) = self.tables.get(&rows.table_id) else {
                    // A row event with the dummy table id has no rows and only ends a statement.
                    return Ok(());
                };
                let images = rows.images(EVENT_BYTES_MAX as usize)?;
                for change in RowChangeIter::new(map, rows, &images)? {
                    self.current.row(&change?)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Fills `bytes`. Returns false if the input ends before `bytes` is full.
fn read_whole(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
