//! Events of logs and of binlog files, in chunks, for a collector.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use tailwater_log::stats::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN};
use tailwater_log::{LogDir, LogPosition};
use tailwater_wire::WireError;
use tailwater_wire::event::{
    BINLOG_MAGIC, ChecksumChecker, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription,
    verify_checksum,
};
use tailwater_wire::print::EventLocation;

use super::progress;

/// How much of an event is read at once.
const CHUNK_BYTES: usize = 256 << 10;
const _: () = assert!(CHUNK_BYTES >= FIRST_CHUNK_BYTES_MIN);

/// Feeds the whole of a log; transactions that are not wanted by their time are passed over by the index alone.
///
/// # Errors
/// If the log cannot be read, or an event cannot be understood.
pub(super) fn log(
    log: &LogDir,
    folder: &Path,
    options: &CollectorOptions,
    collector: &mut Collector,
) -> anyhow::Result<()> {
    let segments = log.segments()?;
    let bar = progress(&folder.display().to_string(), segments.iter().map(|segment| segment.bytes).sum())?;
    let mut reader = log.reader(LogPosition::ZERO)?;
    let mut checksums = Checksums::default();
    while let Some(entry) = reader.try_next()? {
        bar.inc(entry.length);
        if entry.is_transaction() && !options.wants_time(entry.commit_time_us) {
            continue;
        }
        let file = reader.source().map(|(_, file)| file.to_owned()).unwrap_or_default();
        while let Some(header) = reader.next_event()? {
            // The segment's bytes are the file's, but a segment may begin in the middle of its file.
            let inside = reader.event_position().offset - entry.position.offset;
            let place = EventLocation { file: &file, offset: entry.source_start() + inside };
            let at = || format!("event at {}:{}", place.file, place.offset);
            checksums.begin(&header).with_context(at)?;
            let mut left = header.event_length as usize;
            while left > 0 {
                let chunk = reader.read_event_chunk(CHUNK_BYTES)?;
                left = left.saturating_sub(chunk.len());
                checksums.take(chunk, left == 0).with_context(at)?;
                collector.chunk(place, &header, chunk, left == 0).with_context(at)?;
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Feeds binlog files, in the order given.
///
/// # Errors
/// If a file cannot be read, or an event cannot be understood. A last file that ends in the middle of an event, as that
/// of a server that is writing does, is no error.
pub(super) fn files(paths: &[&Path], collector: &mut Collector) -> anyhow::Result<()> {
    let mut bytes_total = 0;
    for path in paths {
        bytes_total += std::fs::metadata(path).with_context(|| format!("open {}", path.display()))?.len();
    }
    let bar = progress("binlog files", bytes_total)?;
    for (number, path) in paths.iter().enumerate() {
        bar.set_message(path.display().to_string());
        let whole = BinlogChunks::open(path)?.feed(collector, &bar)?;
        if !whole && number + 1 < paths.len() {
            bail!("{} ends in the middle of an event, and is not the last", path.display());
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Compares the checksums of events, where they have some: figures out of damaged bytes would be worse than none.
#[derive(Default)]
struct Checksums {
    format: Option<FormatDescription>,
    /// Of a format description, which says whether others have checksums, itself included: it is read whole first.
    description: Option<Vec<u8>>,
    checker: Option<ChecksumChecker>,
}

impl Checksums {
    fn begin(&mut self, header: &EventHeader) -> Result<(), WireError> {
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            self.description = Some(Vec::new());
            return Ok(());
        }
        let has_one = self.format.as_ref().is_some_and(|format| format.trailer_bytes(header) > 0);
        self.checker = has_one.then(|| ChecksumChecker::new(header.event_length.into())).transpose()?;
        Ok(())
    }

    fn take(&mut self, chunk: &[u8], is_last: bool) -> Result<(), WireError> {
        if let Some(description) = &mut self.description {
            description.extend_from_slice(chunk);
        }
        if let Some(checker) = &mut self.checker {
            checker.update(chunk);
        }
        if !is_last {
            return Ok(());
        }
        if let Some(event) = self.description.take() {
            let format = FormatDescription::parse(event.get(EVENT_HEADER_BYTES..).unwrap_or_default())?;
            let header = EventHeader::parse(&event)?;
            if format.trailer_bytes(&header) > 0 {
                verify_checksum(&event)?;
            }
            self.format = Some(format);
        }
        self.checker.take().map_or(Ok(()), ChecksumChecker::finish)
    }
}

/// A binlog file, read in chunks.
struct BinlogChunks {
    path: String,
    /// Without the folder.
    name: String,
    input: File,
    offset: u64,
    buffer: Vec<u8>,
    /// What of the buffer was not used yet.
    start: usize,
    end: usize,
}

impl BinlogChunks {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let input = File::open(path).with_context(|| format!("open {}", path.display()))?;
        let buffer = vec![0; 2 * CHUNK_BYTES];
        let path = path.display().to_string();
        let mut file = Self { path, name, input, offset: 0, buffer, start: 0, end: 0 };
        if file.fill(BINLOG_MAGIC.len())? != BINLOG_MAGIC {
            bail!("{} is no binlog file: it does not begin with fe 62 69 6e", file.path);
        }
        file.pass(BINLOG_MAGIC.len());
        Ok(file)
    }

    /// At least `bytes` bytes from here on, or all that are left, with what else is at hand.
    fn fill(&mut self, bytes: usize) -> anyhow::Result<&[u8]> {
        while self.end - self.start < bytes {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("read {}", self.path)),
            }
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + bytes)])
    }

    fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Feeds all events; false if the last one is not whole.
    fn feed(mut self, collector: &mut Collector, bar: &ProgressBar) -> anyhow::Result<bool> {
        let mut checksums = Checksums::default();
        loop {
            let offset = self.offset;
            let at = |path: &str| format!("event at {path}:{offset}");
            let head = self.fill(EVENT_HEADER_BYTES)?;
            // The end, or the reserved space of a segment that is being written.
            if head.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            if head.len() < EVENT_HEADER_BYTES {
                return Ok(false);
            }
            let header = EventHeader::parse(head).with_context(|| at(&self.path))?;
            if header.event_type == EventType::MARIADB_START_ENCRYPTION {
                bail!("{}: {} is encrypted from here on; ask its server instead", at(&self.path), self.path);
            }
            checksums.begin(&header).with_context(|| at(&self.path))?;
            let mut left = header.event_length as usize;
            while left > 0 {
                let wanted = left.min(CHUNK_BYTES);
                if self.fill(wanted)?.len() < wanted {
                    return Ok(false);
                }
                left -= wanted;
                let chunk = &self.buffer[self.start..self.start + wanted];
                let place = EventLocation { file: &self.name, offset };
                checksums.take(chunk, left == 0).with_context(|| at(&self.path))?;
                collector.chunk(place, &header, chunk, left == 0).with_context(|| at(&self.path))?;
                self.pass(wanted);
            }
            bar.inc(u64::from(header.event_length));
        }
    }
}
