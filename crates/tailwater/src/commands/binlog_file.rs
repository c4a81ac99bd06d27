//! Reads one binlog file event by event: a server's file, or a segment given by its path.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use tailwater_wire::event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader};

/// Maximum event size in bytes: the servers' limit of `max_allowed_packet`.
const EVENT_BYTES_MAX: u64 = 1 << 30;

/// An open binlog file, positioned at an event.
pub struct BinlogFile {
    name: String,
    input: io::BufReader<File>,
    offset: u64,
}

/// The next item of a file.
pub enum NextEvent {
    /// A complete event.
    Event {
        /// Offset of its first byte.
        offset: u64,
        /// Its header.
        header: EventHeader,
    },
    /// End of file, or the preallocated space of a segment that is being written or was when its process
    /// died.
    End,
    /// Invalid or truncated data; nothing after it can be read.
    Broken {
        /// Offset of its first byte.
        offset: u64,
        /// The problem.
        reason: String,
    },
}

impl BinlogFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or does not start with the magic number of a binlog.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("open {name}"))?;
        let mut input = io::BufReader::with_capacity(1 << 18, file);
        let mut magic = Vec::new();
        let read = io::Read::by_ref(&mut input).take(BINLOG_MAGIC.len() as u64).read_to_end(&mut magic);
        read.with_context(|| format!("read {name}"))?;
        if magic != BINLOG_MAGIC {
            bail!("{name} is not a binlog file: it does not start with fe 62 69 6e");
        }
        Ok(Self { name, input, offset: BINLOG_MAGIC.len() as u64 })
    }

    /// The path as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seeks to the event at `offset`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn seek(&mut self, offset: u64) -> anyhow::Result<()> {
        // Inside the buffer if possible, so that neighbouring transactions are not read twice.
        let distance = offset as i64 - self.offset as i64;
        self.input.seek_relative(distance).with_context(|| format!("read {}", self.name))?;
        self.offset = offset;
        Ok(())
    }

    /// Everything after the magic number, unchanged, if nothing was read yet.
    pub fn into_rest(self) -> impl Read {
        self.input
    }

    /// Reads the next event into `event`, header and checksum included.
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
            return broken(format!("an event that claims {length} bytes"));
        }
        let body = length.saturating_sub(EVENT_HEADER_BYTES as u64);
        // The buffer grows with the data read, not with the length that the header claims.
        let read = self.fill(event, body)?;
        if read < body {
            return broken(format!("the event is cut short: {read} of {body} bytes after its header"));
        }
        self.offset += length;
        Ok(NextEvent::Event { offset, header })
    }

    fn fill(&mut self, event: &mut Vec<u8>, bytes: u64) -> anyhow::Result<u64> {
        let read = io::Read::by_ref(&mut self.input).take(bytes).read_to_end(event);
        Ok(read.with_context(|| format!("read {}", self.name))? as u64)
    }
}
