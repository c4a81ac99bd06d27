//! Reads one binlog file event by event: a binlog file of a server, or a segment given by its path.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use tailwater_wire::binlog_event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader};

/// Maximum size of an event in bytes: the largest `max_allowed_packet` of the servers.
const EVENT_BYTES_MAX: u64 = 1 << 30;

/// An open binlog file, positioned at an event.
pub struct BinlogFile {
    name: String,
    input: io::BufReader<File>,
    offset: u64,
}

/// What the next read of a binlog file finds.
pub enum NextEvent {
    /// A complete event.
    Event {
        /// Offset of the first byte of the event.
        offset: u64,
        /// Header of the event.
        header: EventHeader,
    },
    /// The end of the file. The preallocated space of an open segment, or of a segment whose relay was
    /// killed, counts as the end too.
    End,
    /// Invalid or truncated data; nothing after it can be read.
    Broken {
        /// Offset of the first byte that is invalid.
        offset: u64,
        /// What is wrong with the data.
        reason: String,
    },
}

impl BinlogFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or does not start with the magic number of a binlog file.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
        let mut input = io::BufReader::with_capacity(1 << 18, file);
        let mut magic = Vec::new();
        let read = io::Read::by_ref(&mut input).take(BINLOG_MAGIC.len() as u64).read_to_end(&mut magic);
        read.with_context(|| format!("cannot read {name}"))?;
        if magic != BINLOG_MAGIC {
            bail!("{name} is not a binlog file: it does not start with fe 62 69 6e");
        }
        Ok(Self { name, input, offset: BINLOG_MAGIC.len() as u64 })
    }

    /// Returns the path that was given to [`BinlogFile::open`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seeks to the event at `offset`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn seek(&mut self, offset: u64) -> anyhow::Result<()> {
        // Seeks within the read buffer if possible. Neighbouring transactions are then not read from disk
        // twice.
        let distance = offset as i64 - self.offset as i64;
        self.input.seek_relative(distance).with_context(|| format!("cannot read {}", self.name))?;
        self.offset = offset;
        Ok(())
    }

    /// Returns a reader of everything after the magic number. Call it before any event is read.
    pub fn into_rest(self) -> impl Read {
        self.input
    }

    /// Reads the next event with its header and checksum into `event`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next(&mut self, event: &mut Vec<u8>) -> anyhow::Result<NextEvent> {
        let offset = self.offset;
        let broken = |reason: String| Ok(NextEvent::Broken { offset, reason });
        event.clear();
        self.fill(event, EVENT_HEADER_BYTES as u64)?;
        if event.iter().all(|byte| *byte == 0) {
            return Ok(NextEvent::End);
        }
        let header = match EventHeader::parse(event) {
            Ok(header) => header,
            Err(error) => return broken(error.to_string()),
        };
        let length = u64::from(header.event_length);
        if length > EVENT_BYTES_MAX {
            return broken(format!("the event header has an impossible length: {length} bytes"));
        }
        let body = length.saturating_sub(EVENT_HEADER_BYTES as u64);
        // The buffer grows with the bytes that are read. The length in the header may be wrong, so no memory
        // of that length is allocated in advance.
        let read = self.fill(event, body)?;
        if read < body {
            return broken(format!("the event is cut short: {read} of {body} bytes after its header"));
        }
        self.offset += length;
        Ok(NextEvent::Event { offset, header })
    }

    fn fill(&mut self, event: &mut Vec<u8>, bytes: u64) -> anyhow::Result<u64> {
        let read = io::Read::by_ref(&mut self.input).take(bytes).read_to_end(event);
        Ok(read.with_context(|| format!("cannot read {}", self.name))? as u64)
    }
}
