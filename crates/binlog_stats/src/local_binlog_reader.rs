//! Reads the events of a log or of binlog files, in chunks, and verifies their checksums.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tailwater_log::{LogDir, LogError, LogPosition, LogReader};
use tailwater_wire::WireError;
use tailwater_wire::binlog_event::{
    BINLOG_MAGIC, ChecksumChecker, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription,
    verify_checksum,
};
use tailwater_wire::event_printer::EventLocation;

use crate::{Collector, CollectorOptions, FIRST_CHUNK_BYTES_MIN, ReadProgress, StatsError};

/// The maximum number of bytes of an event that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
const _: () = assert!(CHUNK_BYTES >= FIRST_CHUNK_BYTES_MIN);

/// Passes all events of a log to the collector. For transactions outside the selected time, only the index is
/// read and not the events.
///
/// # Errors
/// [`StatsError::Log`] if the log cannot be read, [`StatsError::Event`] if an event is damaged or cannot be
/// parsed.
pub fn read_log(
    log: &LogDir,
    folder: &Path,
    options: &CollectorOptions,
    collector: &mut Collector,
    progress: &mut dyn ReadProgress,
) -> Result<(), StatsError> {
    let failed = |cause: LogError| StatsError::Log { path: folder.to_owned(), cause };
    let segments = log.segments().map_err(failed)?;
    progress.start(&folder.display().to_string(), segments.iter().map(|segment| segment.bytes).sum());
    let mut reader = log.reader(LogPosition::ZERO).map_err(failed)?;
    read_entries(&mut reader, folder, options, collector, progress)
}

/// Passes all events from the position of `reader` on to the collector. `reader` reads the log in `folder`.
///
/// # Errors
/// The errors of [`read_log`].
pub(crate) fn read_entries(
    reader: &mut LogReader,
    folder: &Path,
    options: &CollectorOptions,
    collector: &mut Collector,
    progress: &mut dyn ReadProgress,
) -> Result<(), StatsError> {
    let failed = |cause: LogError| StatsError::Log { path: folder.to_owned(), cause };
    let mut checksums = Checksums::default();
    while let Some(entry) = reader.try_next().map_err(failed)? {
        progress.advance(entry.length);
        if entry.is_transaction() && !options.wants_time(entry.commit_time_us) {
            continue;
        }
        let file = reader.source().map(|(_, file)| file.to_owned()).unwrap_or_default();
        while let Some(header) = reader.next_event().map_err(failed)? {
            // A segment may start in the middle of its binlog file. So compute the event's offset in the
            // source's file from the entry's offset in that file.
            let inside = reader.event_position().offset - entry.position.offset;
            let place = EventLocation { file: &file, offset: entry.source_start() + inside };
            let at = |cause: WireError| StatsError::event(place.file, place.offset)(cause);
            checksums.begin(&header).map_err(at)?;
            let mut left = header.event_length as usize;
            while left > 0 {
                let chunk = reader.read_event_chunk(CHUNK_BYTES).map_err(failed)?;
                left = left.saturating_sub(chunk.len());
                checksums.take(chunk, left == 0).map_err(at)?;
                collector.chunk(place, &header, chunk, left == 0).map_err(at)?;
            }
        }
    }
    Ok(())
}

/// Passes the events of binlog files to the collector, in the order of the list.
///
/// # Errors
/// See the variants of [`StatsError`]. It is not an error if the last file ends in the middle of an event,
/// because the server may still be writing it.
pub fn read_files(
    paths: &[&Path],
    collector: &mut Collector,
    progress: &mut dyn ReadProgress,
) -> Result<(), StatsError> {
    let mut bytes_total = 0;
    for path in paths {
        bytes_total += std::fs::metadata(path).map_err(StatsError::open(path))?.len();
    }
    progress.start("binlog files", bytes_total);
    for (number, path) in paths.iter().enumerate() {
        progress.file(&path.display().to_string());
        let whole = BinlogChunks::open(path)?.feed(collector, progress)?;
        if !whole && number + 1 < paths.len() {
            return Err(StatsError::Incomplete { path: (*path).to_owned() });
        }
    }
    Ok(())
}

/// Verifies the checksum of each event that has one, because statistics from damaged bytes would be wrong.
#[derive(Default)]
struct Checksums {
    format: Option<FormatDescription>,
    /// The bytes of a format description event. It is read completely before its checksum is verified,
    /// because it states whether events, including itself, have checksums.
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
    path: PathBuf,
    /// The name of the file without its folder.
    name: String,
    input: File,
    offset: u64,
    buffer: Vec<u8>,
    /// The start of the range in the buffer that is filled and not used yet.
    start: usize,
    end: usize,
}

impl BinlogChunks {
    fn open(path: &Path) -> Result<Self, StatsError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let input = File::open(path).map_err(StatsError::open(path))?;
        let buffer = vec![0; 2 * CHUNK_BYTES];
        let path = path.to_owned();
        let mut file = Self { path, name, input, offset: 0, buffer, start: 0, end: 0 };
        if file.fill(BINLOG_MAGIC.len())? != BINLOG_MAGIC {
            return Err(StatsError::NotBinlog { path: file.path });
        }
        file.pass(BINLOG_MAGIC.len());
        Ok(file)
    }

    /// Returns the next `bytes` bytes, or all remaining bytes if the file has fewer.
    fn fill(&mut self, bytes: usize) -> Result<&[u8], StatsError> {
        while self.end - self.start < bytes {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StatsError::read(&self.path)(error)),
            }
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + bytes)])
    }

    fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Passes all events of the file to the collector. Returns false if the last event is incomplete.
    fn feed(
        mut self,
        collector: &mut Collector,
        progress: &mut dyn ReadProgress,
    ) -> Result<bool, StatsError> {
        let mut checksums = Checksums::default();
        let path = self.path.display().to_string();
        loop {
            let offset = self.offset;
            let at = |cause: WireError| StatsError::event(&path, offset)(cause);
            let head = self.fill(EVENT_HEADER_BYTES)?;
            // Zeros follow the last event: space that a segment has reserved while it is being written.
            if head.iter().all(|byte| *byte == 0) {
                return Ok(true);
            }
            if head.len() < EVENT_HEADER_BYTES {
                return Ok(false);
            }
            let header = EventHeader::parse(head).map_err(at)?;
            if header.event_type == EventType::MARIADB_START_ENCRYPTION {
                return Err(StatsError::Encrypted { path: self.path, offset });
            }
            checksums.begin(&header).map_err(at)?;
            let mut left = header.event_length as usize;
            while left > 0 {
                let wanted = left.min(CHUNK_BYTES);
                if self.fill(wanted)?.len() < wanted {
                    return Ok(false);
                }
                left -= wanted;
                let chunk = &self.buffer[self.start..self.start + wanted];
                let place = EventLocation { file: &self.name, offset };
                checksums.take(chunk, left == 0).map_err(at)?;
                collector.chunk(place, &header, chunk, left == 0).map_err(at)?;
                self.pass(wanted);
            }
            progress.advance(u64::from(header.event_length));
        }
    }
}
