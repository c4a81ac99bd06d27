//! Verifies a whole log: every checksum, every index entry, and that no GTID is missing or duplicate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::gtid::GtidSet;

use crate::control_file::{self, ControlFile};
use crate::crash_recovery::check_magic;
use crate::error::LogError;
use crate::index_entry_builder::{Framing, FramingAction};
use crate::log_handle::{LogDir, if_purged};
use crate::log_position::{LogEntry, SourceIdentity};
use crate::newest_segment_recovery::parse_gtids_before;
use crate::previous_gtids;
use crate::segment_files::{EventScanner, ScanItem, segment_name};
use crate::segment_index::{IndexRecord, SegmentHeader};
use crate::segment_index_reader::{self, IndexReader, NextRecord};
use crate::storage::OpenMode;
use tailwater_wire::binlog_event::FIRST_EVENT_OFFSET;

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The number of segments read.
    pub segments: u64,
    /// The number of whole transactions that agree with the index.
    pub transactions: u64,
    /// The number of events read, those inside transactions included.
    pub events: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// The problems in the order of the log, at most [`Verification::PROBLEMS_MAX`].
    pub problems: Vec<LogProblem>,
    /// The number of further problems, which `problems` does not contain.
    pub problems_left_out: u64,
}

/// A problem in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogProblem {
    /// The file with the problem.
    pub path: PathBuf,
    /// The offset of the problem in the file, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

/// The progress of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyProgress {
    /// The number of bytes read so far.
    pub bytes: u64,
    /// The total number of bytes.
    pub bytes_total: u64,
    /// The number of the current segment.
    pub segment: u64,
}

impl Verification {
    /// The maximum number of problems that are listed.
    pub const PROBLEMS_MAX: usize = 1_000;

    /// Returns whether there are no problems.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, path: &Path, offset: u64, reason: impl Into<String>) {
        if self.problems.len() < Self::PROBLEMS_MAX {
            self.problems.push(LogProblem { path: path.to_owned(), offset, reason: reason.into() });
        } else {
            self.problems_left_out += 1;
        }
    }
}

/// Progress is reported each time this many bytes were read.
const PROGRESS_BYTES: u64 = 8 << 20;

impl LogDir {
    /// Reads everything durable in bounded memory and checks it. Events must have the right lengths and
    /// checksums, transactions must be complete, and the index must match the segment. GTIDs must be
    /// contiguous from segment to segment, without duplicates. If the start of a binlog file lists the GTIDs
    /// of earlier transactions, the log must hold these transactions.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::FormatVersion`]. Problems in the log are not errors; the result lists
    /// them.
    pub fn verify(&self, mut progress: impl FnMut(VerifyProgress)) -> Result<Verification, LogError> {
        let mut found = Verification::default();
        let mut verifier = LogVerifier {
            log: self,
            running: None,
            source: None,
            index_sound: true,
            reported_at: 0,
            bytes_total: 0,
        };
        self.missing_archived(&mut found)?;
        let numbers = self.numbers()?;
        let mut ends = Vec::new();
        for number in &numbers {
            let end = match segment_index_reader::read_sealed(self.directory(), *number)? {
                Some(index) => index.length,
                None if Some(number) == numbers.last() => self.indexed_end(*number)?,
                // The index has no seal, but the segment is complete. So use the length of the file.
                None => self.file_bytes(*number)?,
            };
            verifier.bytes_total += end;
            ends.push(end);
        }
        for (position, (number, end)) in numbers.iter().zip(ends).enumerate() {
            if let Some(next) = numbers.get(position + 1).filter(|next| **next != number + 1) {
                let path = self.directory().path_of(&segment_name(number + 1));
                found.problem(
                    &path,
                    0,
                    format!("a segment is missing: segment {next} follows segment {number}"),
                );
            }
            let newest = position + 1 == numbers.len();
            match verifier.segment(*number, end, newest, &mut found, &mut progress) {
                // The compressed form of an archived segment is damaged. Later segments can still be read.
                Err(LogError::Corrupt { path, offset, reason }) => {
                    found.problem(&path, offset, reason);
                    verifier.running = None;
                }
                result => result?,
            }
            found.segments += 1;
        }
        Ok(found)
    }

    /// Reports segments that are missing although older segments are archived.
    fn missing_archived(&self, found: &mut Verification) -> Result<(), LogError> {
        let Some(control) = ControlFile::read(self.directory())? else {
            // A log that is only in the archive has no control file.
            if self.has_directory() {
                found.problem(&self.directory().path_of(control_file::NAME), 0, control_file::MISSING_REASON);
            }
            return Ok(());
        };
        let missing = self.directory().missing_before(control.first_segment);
        for number in missing.map_err(|error| LogError::io("list", self.directory().path(), error))? {
            let path = self.directory().path_of(&segment_name(number));
            found.problem(
                &path,
                0,
                "the segment is neither local nor in the archive, although older ones are archived",
            );
        }
        Ok(())
    }

    fn file_bytes(&self, number: u64) -> Result<u64, LogError> {
        let name = segment_name(number);
        let file = self.directory().open(&name, OpenMode::Read).and_then(|file| file.length());
        file.map_err(|error| LogError::io("read", self.directory().path_of(&name), error))
    }
}

struct LogVerifier<'a> {
    log: &'a LogDir,
    /// The GTIDs of all transactions read so far. `None` if a problem makes them unknown.
    running: Option<GtidSet>,
    /// The source of the previous segment.
    source: Option<SourceIdentity>,
    /// Whether the index of the current segment has had no error so far. After the first error, the rest of
    /// the index is not compared with the segment.
    index_sound: bool,
    reported_at: u64,
    bytes_total: u64,
}

/// The segment that is being read.
struct VerifiedSegment {
    number: u64,
    path: PathBuf,
    header: SegmentHeader,
    index: IndexReader,
    framing: Framing,
    /// Whether the GTIDs of all transactions before the segment are known.
    gtids_known: bool,
    /// The number of bytes of all segments before this segment.
    bytes_before: u64,
}

impl LogVerifier<'_> {
    fn segment(
        &mut self,
        number: u64,
        end: u64,
        newest: bool,
        found: &mut Verification,
        progress: &mut impl FnMut(VerifyProgress),
    ) -> Result<(), LogError> {
        let directory = self.log.directory();
        let name = segment_name(number);
        let path = directory.path_of(&name);
        let Some((header, index)) = self.open_index(number, found)? else { return Ok(()) };
        let file =
            directory.open(&name, OpenMode::Read).map_err(|error| LogError::io("open", &path, error))?;
        if let Err(error) = check_magic(directory, number, file.as_ref()) {
            found.problem(&path, 0, reason_of(error));
        }
        self.begin(&header, index.path(), found);
        self.index_sound = true;
        let scan = EventScanner::new(Arc::clone(&file), path.clone(), FIRST_EVENT_OFFSET, end, None);
        let mut segment = VerifiedSegment {
            number,
            path,
            framing: Framing::new(number, header.source_offset, header.source.flavour),
            gtids_known: header.gtids_known,
            header,
            index,
            bytes_before: found.bytes,
        };
        let read_to_end = self.events(scan, &mut segment, found, progress)?;
        found.bytes = segment.bytes_before + end;
        if !read_to_end {
            self.running = None;
            return Ok(());
        }
        if segment.framing.in_transaction() {
            found.problem(&segment.path, end, "the last transaction is incomplete");
        }
        self.finish(end, newest, file.length().unwrap_or(end), &mut segment, found)?;
        self.source = Some(segment.header.source);
        progress(VerifyProgress { bytes: found.bytes, bytes_total: self.bytes_total, segment: number });
        Ok(())
    }

    /// Opens the index of a segment. Returns `None` if the index cannot be read, or if the segment was purged
    /// after the verification began.
    fn open_index(
        &mut self,
        number: u64,
        found: &mut Verification,
    ) -> Result<Option<(SegmentHeader, IndexReader)>, LogError> {
        let directory = self.log.directory();
        match IndexReader::open(directory, number)? {
            Ok(opened) => Ok(Some(opened)),
            Err(damage) => {
                if let Err(LogError::Purged { .. }) = if_purged(directory, number) {
                    return Ok(None);
                }
                let index_path = directory.path_of(&crate::segment_files::index_name(number));
                found.problem(&index_path, 0, format!("the index cannot be read: {damage}"));
                self.running = None;
                Ok(None)
            }
        }
    }

    /// Checks all events of a segment. Returns false if a damaged event makes the rest of the segment
    /// unreadable.
    fn events(
        &mut self,
        mut scan: EventScanner,
        segment: &mut VerifiedSegment,
        found: &mut Verification,
        progress: &mut impl FnMut(VerifyProgress),
    ) -> Result<bool, LogError> {
        loop {
            let event = match scan.next()? {
                ScanItem::Event(event) => event,
                ScanItem::End => return Ok(true),
                ScanItem::Bad(bad) => {
                    found.problem(&segment.path, bad.offset, bad.reason);
                    return Ok(false);
                }
            };
            let (offset, event_header) = (event.offset, event.header);
            let end = offset + u64::from(event_header.event_length);
            match segment.framing.begin_event(offset, &event_header, event.first_chunk) {
                Ok(FramingAction::Accept) => {}
                Ok(FramingAction::CutTransaction) => {
                    let reason = "the source restarted inside the previous transaction";
                    found.problem(&segment.path, offset, reason);
                    segment.framing.rollback();
                }
                Err(error) => {
                    found.problem(&segment.path, offset, error.to_string());
                    return Ok(false);
                }
            }
            if let Some(format) = segment.framing.format() {
                match previous_gtids::parse(&event_header, event.first_chunk, format) {
                    Ok(Some(before)) => self.stated(segment, &before, offset, found),
                    Ok(None) => {}
                    Err(error) => found.problem(&segment.path, offset, error.to_string()),
                }
            }
            found.events += 1;
            found.bytes = segment.bytes_before + end;
            if let Some(entry) = segment.framing.end_event(end) {
                segment.framing.commit_entries();
                self.entry(&entry, segment, found)?;
            }
            if found.bytes >= self.reported_at + PROGRESS_BYTES {
                self.reported_at = found.bytes;
                progress(VerifyProgress {
                    bytes: found.bytes,
                    bytes_total: self.bytes_total,
                    segment: segment.number,
                });
            }
        }
    }

    /// Checks that the GTID set in the header of a segment equals the GTIDs of all transactions before the
    /// segment.
    fn begin(&mut self, header: &SegmentHeader, index_path: &Path, found: &mut Verification) {
        let stated = match parse_gtids_before(header, index_path) {
            Ok(stated) => stated,
            Err(error) => {
                found.problem(index_path, 0, reason_of(error));
                self.running = None;
                return;
            }
        };
        if let Some(running) = self.running.as_ref().filter(|running| **running != stated) {
            let reason = format!(
                "the header of the index states the earlier GTIDs {stated}, but the previous segments end with {running}"
            );
            found.problem(index_path, 0, reason);
        }
        self.running = Some(stated);
    }

    /// Checks that the log holds all earlier transactions that the source lists at the start of a binlog
    /// file.
    fn stated(
        &mut self,
        segment: &mut VerifiedSegment,
        before: &GtidSet,
        offset: u64,
        found: &mut Verification,
    ) {
        let Some(running) = &self.running else { return };
        let header = &segment.header;
        if !segment.gtids_known {
            if header.source_offset == FIRST_EVENT_OFFSET
                && let Ok(all) = running.union(before)
            {
                self.running = Some(all);
                segment.gtids_known = true;
            }
            return;
        }
        // If this segment comes from another server than the segment before it, that server may have
        // transactions that the log never had.
        let same_source = self.source.as_ref().is_none_or(|source| *source == header.source);
        if same_source
            && !before.is_subset_of(running)
            && let Ok(missing) = before.subtract(running)
        {
            let reason =
                format!("{} states earlier transactions that the log lacks: {missing}", header.source_file);
            found.problem(&segment.path, offset, reason);
        }
    }

    fn entry(
        &mut self,
        entry: &LogEntry,
        segment: &mut VerifiedSegment,
        found: &mut Verification,
    ) -> Result<(), LogError> {
        let VerifiedSegment { index, path, .. } = segment;
        if self.index_sound {
            let at = index.offset();
            let fault = match index.peek()? {
                NextRecord::Record(IndexRecord::Entry(indexed), length) if indexed == *entry => {
                    index.advance(length);
                    found.transactions += u64::from(entry.is_transaction());
                    None
                }
                NextRecord::Record(IndexRecord::Entry(indexed), _) => Some(format!(
                    "the index has {}, but the segment has {}",
                    described(&indexed),
                    described(entry)
                )),
                NextRecord::Damaged(reason) => Some(reason),
                NextRecord::End | NextRecord::Record(IndexRecord::Seal { .. }, _) => {
                    Some(format!("the index lacks the entry at {}", entry.position))
                }
            };
            if let Some(reason) = fault {
                found.problem(index.path(), at, reason);
                self.index_sound = false;
            }
        }
        if let (Some(gtid), Some(running)) = (&entry.gtid, &mut self.running) {
            if running.contains(gtid) {
                found.problem(path, entry.position.offset, format!("{gtid} is already in the log"));
            }
            if let Err(error) = running.insert(gtid) {
                found.problem(path, entry.position.offset, error.to_string());
            }
        }
        Ok(())
    }

    /// Runs the checks after the last entry of a segment.
    fn finish(
        &mut self,
        end: u64,
        newest: bool,
        file_bytes: u64,
        segment: &mut VerifiedSegment,
        found: &mut Verification,
    ) -> Result<(), LogError> {
        let VerifiedSegment { index, path, .. } = segment;
        let at = index.offset();
        match index.peek()? {
            NextRecord::Record(IndexRecord::Seal { length, .. }, _) if length == end => {
                if file_bytes != end {
                    found.problem(
                        path,
                        end,
                        format!("the file has {file_bytes} bytes, but its index states {end} bytes"),
                    );
                }
            }
            // A writer may be appending to this segment, so its end is not checked.
            _ if newest || !self.index_sound => {}
            _ => found.problem(index.path(), at, "the index does not end with the segment's seal"),
        }
        Ok(())
    }
}

fn reason_of(error: LogError) -> String {
    match error {
        LogError::Corrupt { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// Returns the description of an entry for a message.
fn described(entry: &LogEntry) -> String {
    let LogEntry { position, length, gtid, source_end, commit_time_us, .. } = entry;
    let gtid = gtid.as_ref().map_or_else(|| "an entry without GTID".to_owned(), ToString::to_string);
    format!(
        "{gtid} at {position}, {length} bytes, up to {source_end} of the source's file, commit time {commit_time_us} \
         microseconds"
    )
}
