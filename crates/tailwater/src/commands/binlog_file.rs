//! A binlog file by itself, read event by event: of a server, or a segment by its own name.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use tailwater_wire::event::{BINLOG_MAGIC, EVENT_HEADER_BYTES, EventHeader};

/// The biggest event that is read, in bytes: the servers' own limit of `max_allowed_packet`.
const EVENT_BYTES_MAX: u64 = 1 << 30;

/// An open binlog file, read from its first event on.
pub struct BinlogFile {
    name: String,
    input: io::BufReader<File>,
    offset: u64,
}

/// What comes next in a file.
pub enum Next {
    /// An event, whole.
    Event {
        /// Where it begins.
        offset: u64,
        /// Its header.
        header: EventHeader,
    },
    /// Nothing more, or the reserved space of a segment that is being written, or was when its process died.
    End,
    /// No event, or a part of one; nothing behind it can be read.
    Broken {
        /// Where it begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl BinlogFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be read, or does not begin as binlog files do.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).with_context(|| format!("open {name}"))?;
        let mut input = io::BufReader::with_capacity(1 << 18, file);
        let mut magic = Vec::new();
        let read = io::Read::by_ref(&mut input).take(BINLOG_MAGIC.len() as u64).read_to_end(&mut magic);
        read.with_context(|| format!("read {name}"))?;
        if magic != BINLOG_MAGIC {
            bail!("{name} is no binlog file: it does not begin with fe 62 69 6e");
        }
        Ok(Self { name, input, offset: BINLOG_MAGIC.len() as u64 })
    }

    /// The file as it was named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Goes to the event at `offset`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn seek(&mut self, offset: u64) -> anyhow::Result<()> {
        // Within the buffer, where it can be: readers of neighbouring transactions do not read twice.
        let distance = offset as i64 - self.offset as i64;
        self.input.seek_relative(distance).with_context(|| format!("read {}", self.name))?;
        self.offset = offset;
        Ok(())
    }

    /// Everything behind the magic number, verbatim, if nothing was read yet.
    pub fn into_rest(self) -> impl Read {
        self.input
    }

    /// Reads the next event into `event`, header and checksum included.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next(&mut self, event: &mut Vec<u8>) -> anyhow::Result<Next> {
        let offset = self.offset;
        let broken = |reason: String| Ok(Next::Broken { offset, reason });
        event.clear();
        self.fill(event, EVENT_HEADER_BYTES as u64)?;
        if event.iter().all(|byte| *byte == 0) {
            return Ok(Next::End);
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
        // Grows with what is there, not with what the header claims.
        let read = self.fill(event, body)?;
        if read < body {
            return broken(format!("the event is cut short: {read} of {body} bytes behind its header"));
        }
        self.offset += length;
        Ok(Next::Event { offset, header })
    }

    fn fill(&mut self, event: &mut Vec<u8>, bytes: u64) -> anyhow::Result<u64> {
        let read = io::Read::by_ref(&mut self.input).take(bytes).read_to_end(event);
        Ok(read.with_context(|| format!("read {}", self.name))? as u64)
    }
}
