//! Recovers the newest segment after a crash: keeps whole transactions after the end of its index, and
//! removes the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::binlog_event::{EventType, FIRST_EVENT_OFFSET, FormatDescription, Rotate};
use tailwater_wire::gtid::GtidSet;

use crate::control_file::ControlFile;
use crate::crash_recovery::{RecoveredTail, RecoveryReport, TailTruncation, check_magic, open_index};
use crate::error::LogError;
use crate::index_entry_builder::{Framing, FramingAction};
use crate::log_position::{EntryKind, LogEntry, LogPosition};
use crate::previous_gtids;
use crate::segment_files::{BadEvent, EventScanner, SCAN_WINDOW_BYTES, ScanItem, index_name, segment_name};
use crate::segment_index::{IndexRecord, SegmentHeader};
use crate::segment_index_reader::{self, IndexFront, IndexReader};
use crate::shared_log_state::{SegmentState, TailStart};
use crate::storage::{Directory, LogFile, OpenMode};
use crate::torn_write::{self, TornTail};

/// When the log is opened, recovery checks at least this many of the bytes that the segment's index covers,
/// namely the last ones. `log verify` checks all bytes.
const CHECKED_BYTES: u64 = 16 << 20;

/// The file of a segment during recovery.
struct SegmentFile<'a> {
    directory: &'a dyn Directory,
    number: u64,
    file: Arc<dyn LogFile>,
    path: PathBuf,
    length: u64,
}

/// The part of a segment that its index covers.
struct IndexedPart {
    front: IndexFront,
    gtids: GtidSet,
    last_transaction: Option<LogEntry>,
    /// The offset from which to check the segment: the start of an entry at least [`CHECKED_BYTES`] before
    /// the end, or the start of a shorter segment.
    check_from: u64,
    source_end: u64,
    /// Whether the header of the index was readable.
    header_readable: bool,
}

/// Why a scan of entries stopped.
enum ScanEnd {
    /// The scan reached the end of its range, either between two entries or in a transaction whose events so
    /// far are valid.
    Clean,
    /// The scan found a bad event.
    Bad(BadEvent),
}

/// The entries after the end of the index that recovery keeps.
struct KeptTail {
    /// The offset after the last whole entry.
    end: u64,
    /// The number of entries.
    count: u64,
    /// The bytes after `end` that recovery removes.
    cut: Option<TailTruncation>,
}

/// Recovers the newest segment. `segments` holds the segments before it.
pub(crate) fn recover(
    directory: &Arc<dyn Directory>,
    number: u64,
    control: &ControlFile,
    segments: &BTreeMap<u64, SegmentState>,
    recovery: &mut RecoveryReport,
) -> Result<RecoveredTail, LogError> {
    let segment = SegmentFile::open(directory.as_ref(), number, OpenMode::ReadWrite)?;
    let header =
        segment_index_reader::read_or_derive_header(directory.as_ref(), number, Some(control), segments)?;
    let mut indexed = segment.read_index(&header)?;
    if indexed.front.end > segment.length {
        let reason = format!(
            "the index has entries up to {}, but the file ends at {}",
            indexed.front.end, segment.length
        );
        return Err(LogError::corrupt(&segment.path, segment.length, reason));
    }
    let format = match indexed.front.entries {
        0 => None,
        _ => Some(segment.format_description()?),
    };
    segment.check(indexed.check_from, indexed.front.end, format.clone())?;
    let gtids_known =
        header.gtids_known || segment.learn_gtids(&header, indexed.front.end, &mut indexed.gtids)?;

    let new_framing = || {
        let mut framing = Framing::new(number, header.source_offset, header.source.flavour);
        framing.resume(indexed.source_end, format.clone());
        framing
    };
    // Recovery writes nothing until it has read all bytes and found no damage.
    let kept = segment.find_end(&indexed, new_framing())?;
    let index = segment.repair(&header, &indexed, kept.end)?;
    if !indexed.header_readable {
        recovery.indexes_rebuilt.push(number);
    }
    let mut framing = new_framing();
    let start = segment.index_tail(&header, indexed, &kept, index, &mut framing, gtids_known)?;
    framing.rollback();
    recovery.entries_recovered = kept.count;
    recovery.cut = kept.cut;
    Ok(RecoveredTail { header: Arc::new(header), file: segment.file, framing, start })
}

impl IndexedPart {
    /// Returns the offset in the index at which new entries are appended.
    fn index_start(&self, header: &SegmentHeader) -> u64 {
        if self.header_readable { self.front.bytes } else { header.encode().len() as u64 }
    }
}

fn insert(gtids: &mut GtidSet, entry: &LogEntry, path: &Path) -> Result<(), LogError> {
    match &entry.gtid {
        Some(gtid) => gtids.insert(gtid).map_err(|error| {
            LogError::corrupt(
                path,
                entry.position.offset,
                format!("the GTID {gtid} of the transaction cannot be added: {error}"),
            )
        }),
        None => Ok(()),
    }
}

fn unite(gtids: &GtidSet, before: &GtidSet, path: &Path) -> Result<GtidSet, LogError> {
    gtids.union(before).map_err(|error| LogError::corrupt(path, FIRST_EVENT_OFFSET, error.to_string()))
}

/// Returns the GTID set in the header of a segment.
pub(crate) fn parse_gtids_before(header: &SegmentHeader, path: &Path) -> Result<GtidSet, LogError> {
    GtidSet::parse(header.source.flavour, &header.gtids_before).map_err(|error| {
        LogError::corrupt(path, 0, format!("the GTID set in its header is invalid: {error}"))
    })
}

impl<'a> SegmentFile<'a> {
    fn open(directory: &'a dyn Directory, number: u64, mode: OpenMode) -> Result<Self, LogError> {
        let name = segment_name(number);
        let path = directory.path_of(&name);
        let file = directory.open(&name, mode).map_err(|error| LogError::io("open", &path, error))?;
        let length = file.length().map_err(|error| LogError::io("read", &path, error))?;
        check_magic(directory, number, file.as_ref())?;
        Ok(Self { directory, number, file, path, length })
    }

    fn scan(&self, start: u64, end: u64, format: Option<FormatDescription>) -> EventScanner {
        EventScanner::new(Arc::clone(&self.file), self.path.clone(), start, end, format)
    }

    fn read_index(&self, header: &SegmentHeader) -> Result<IndexedPart, LogError> {
        let index_path = self.directory.path_of(&index_name(self.number));
        let mut indexed = IndexedPart {
            front: IndexFront {
                bytes: 0,
                entries: 0,
                end: FIRST_EVENT_OFFSET,
                sealed: None,
                ends_cleanly: false,
            },
            gtids: parse_gtids_before(header, &index_path)?,
            last_transaction: None,
            check_from: FIRST_EVENT_OFFSET,
            source_end: header.source_offset,
            header_readable: false,
        };
        let Ok((_, mut reader)) = IndexReader::open(self.directory, self.number)? else {
            return Ok(indexed);
        };
        indexed.header_readable = true;
        let mut checkpoint = FIRST_EVENT_OFFSET;
        indexed.front = segment_index_reader::read_front(&mut reader, FIRST_EVENT_OFFSET, |entry| {
            insert(&mut indexed.gtids, entry, &index_path)?;
            indexed.source_end = entry.source_end;
            if entry.is_transaction() {
                indexed.last_transaction = Some(entry.clone());
            }
            if entry.position.offset >= checkpoint + CHECKED_BYTES {
                indexed.check_from = checkpoint;
                checkpoint = entry.position.offset;
            }
            Ok(())
        })?;
        Ok(indexed)
    }

    /// Returns the format description event at the start of the segment.
    fn format_description(&self) -> Result<FormatDescription, LogError> {
        let mut scan = self.scan(FIRST_EVENT_OFFSET, self.length, None);
        if let ScanItem::Bad(bad) = scan.next()? {
            return Err(LogError::corrupt(&self.path, bad.offset, bad.reason));
        }
        match scan.format() {
            Some(format) => Ok(format.clone()),
            None => Err(LogError::corrupt(
                &self.path,
                FIRST_EVENT_OFFSET,
                "the segment does not begin with a format description event",
            )),
        }
    }

    /// Reads durable bytes of the segment back. Any error in these bytes is damage.
    fn check(&self, start: u64, end: u64, format: Option<FormatDescription>) -> Result<(), LogError> {
        let mut scan = self.scan(start, end, format);
        loop {
            match scan.next()? {
                ScanItem::Event(_) => {}
                ScanItem::End => return Ok(()),
                ScanItem::Bad(bad) => {
                    let reason = format!("{}; according to the index these bytes were durable", bad.reason);
                    return Err(LogError::corrupt(&self.path, bad.offset, reason));
                }
            }
        }
    }

    /// If an event before the offset `end` lists the GTIDs of all transactions before the segment, adds them
    /// to `gtids`. Returns whether such an event exists.
    fn learn_gtids(&self, header: &SegmentHeader, end: u64, gtids: &mut GtidSet) -> Result<bool, LogError> {
        if header.source_offset != FIRST_EVENT_OFFSET {
            return Ok(false);
        }
        let mut scan = self.scan(FIRST_EVENT_OFFSET, end, None);
        loop {
            let ScanItem::Event(event) = scan.next()? else { return Ok(false) };
            let (offset, header) = (event.offset, event.header);
            match header.event_type {
                EventType::FORMAT_DESCRIPTION | EventType::MARIADB_START_ENCRYPTION => {}
                EventType::PREVIOUS_GTIDS | EventType::MARIADB_GTID_LIST => {
                    let chunk = event.first_chunk.to_vec();
                    let Some(format) = scan.format() else { return Ok(false) };
                    let before = previous_gtids::parse(&header, &chunk, format)
                        .map_err(|error| LogError::corrupt(&self.path, offset, error.to_string()))?;
                    if let Some(before) = before {
                        *gtids = unite(gtids, &before, &self.path)?;
                    }
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
    }

    /// Scans the entries after the end of the index, and decides where the segment ends.
    fn find_end(&self, indexed: &IndexedPart, mut framing: Framing) -> Result<KeptTail, LogError> {
        let indexed_end = indexed.front.end;
        let (mut end, mut count) = (indexed_end, 0);
        let scan_end = self.scan_entries(indexed_end, self.length, &mut framing, |entry, _| {
            end = entry.end().offset;
            count += 1;
            Ok(())
        })?;
        let sealed = indexed.front.sealed.is_some();
        let unchecked = framing.format().is_some_and(|format| !format.has_checksums());
        if unchecked && indexed.front.ends_cleanly && !sealed {
            // Without checksums, an event after the end of the index may look complete although its write was
            // torn. Every published event is in the index. So recovery keeps nothing after the end of the
            // index.
            let cut = self.cut_without_checksums(indexed_end)?;
            return Ok(KeptTail { end: indexed_end, count: 0, cut });
        }
        let cut = self.classify_rest(&scan_end, end, &framing, sealed)?;
        Ok(KeptTail { end, count, cut })
    }

    /// Adds the kept entries to the index, and makes the index durable. Returns the end of the segment, where
    /// the writer continues.
    fn index_tail(
        &self,
        header: &SegmentHeader,
        indexed: IndexedPart,
        kept: &KeptTail,
        index: Arc<dyn LogFile>,
        framing: &mut Framing,
        mut gtids_known: bool,
    ) -> Result<TailStart, LogError> {
        let mut index_bytes = indexed.index_start(header);
        let IndexedPart { mut gtids, mut last_transaction, front, .. } = indexed;
        let mut encoded = Vec::new();
        let index_path = self.directory.path_of(&index_name(self.number));
        let mut write_index = |encoded: &mut Vec<u8>| {
            index
                .write_at(encoded, index_bytes)
                .map_err(|error| LogError::write("write", &index_path, error))?;
            index_bytes += encoded.len() as u64;
            encoded.clear();
            Ok::<_, LogError>(())
        };
        self.scan_entries(front.end, kept.end, framing, |entry, before| {
            if let Some(before) =
                before.filter(|_| !gtids_known && header.source_offset == FIRST_EVENT_OFFSET)
            {
                gtids = unite(&gtids, &before, &self.path)?;
                gtids_known = true;
            }
            insert(&mut gtids, &entry, &self.path)?;
            IndexRecord::encode_entry(&entry, &mut encoded);
            if entry.kind == EntryKind::Transaction {
                last_transaction = Some(entry);
            }
            if encoded.len() >= SCAN_WINDOW_BYTES { write_index(&mut encoded) } else { Ok(()) }
        })?;
        write_index(&mut encoded)?;
        index.sync().map_err(|error| LogError::write("fdatasync", &index_path, error))?;
        Ok(TailStart {
            segment: self.number,
            index,
            index_bytes,
            entries: front.entries + kept.count,
            end: kept.end,
            gtids,
            gtids_known,
            last_transaction,
        })
    }

    /// Scans the entries from `start` to `end`. Calls `each` for every whole entry. If the entry is an event
    /// that lists the GTIDs of earlier transactions, also passes this GTID set.
    fn scan_entries(
        &self,
        start: u64,
        end: u64,
        framing: &mut Framing,
        mut each: impl FnMut(LogEntry, Option<GtidSet>) -> Result<(), LogError>,
    ) -> Result<ScanEnd, LogError> {
        let mut scan = self.scan(start, end, framing.format().cloned());
        loop {
            let event = match scan.next()? {
                ScanItem::Event(event) => event,
                ScanItem::End => return Ok(ScanEnd::Clean),
                ScanItem::Bad(bad) => return Ok(ScanEnd::Bad(bad)),
            };
            let (offset, header) = (event.offset, event.header);
            let bad = |reason: String| Ok(ScanEnd::Bad(BadEvent { offset, header: Some(header), reason }));
            match framing.begin_event(offset, &header, event.first_chunk) {
                Ok(FramingAction::Accept) => {}
                Ok(FramingAction::CutTransaction) => {
                    return bad("the source restarted inside a transaction".into());
                }
                Err(error) => return bad(error.to_string()),
            }
            let before = match framing
                .format()
                .map(|format| previous_gtids::parse(&header, event.first_chunk, format))
            {
                Some(Ok(before)) => before,
                Some(Err(error)) => return bad(error.to_string()),
                None => None,
            };
            if let Some(entry) = framing.end_event(offset + u64::from(header.event_length)) {
                framing.commit_entries();
                each(entry, before)?;
            }
        }
    }

    /// Decides what to do with the bytes after `end`, where the last whole entry ends.
    fn classify_rest(
        &self,
        scan_end: &ScanEnd,
        end: u64,
        framing: &Framing,
        sealed: bool,
    ) -> Result<Option<TailTruncation>, LogError> {
        let bad = match scan_end {
            ScanEnd::Bad(bad) => bad,
            ScanEnd::Clean if end == self.length => return Ok(None),
            // The file ends with valid events of an incomplete transaction.
            ScanEnd::Clean => {
                if sealed {
                    return Err(LogError::corrupt(
                        &self.path,
                        end,
                        "the segment has bytes after the end that its index states",
                    ));
                }
                let reason = "the transaction at this position is incomplete".to_owned();
                return Ok(Some(TailTruncation { position: self.at(end), bytes: self.length - end, reason }));
            }
        };
        if sealed {
            return Err(LogError::corrupt(&self.path, bad.offset, bad.reason.clone()));
        }
        let shift = framing.source_position().wrapping_sub(bad.offset);
        let checksums = framing.format().is_some_and(FormatDescription::has_checksums);
        match torn_write::classify_tail(self.file.as_ref(), &self.path, bad, self.length, shift, checksums)? {
            TornTail::Unwritten if bad.offset == end => Ok(None),
            TornTail::Unwritten => {
                let reason = "the transaction at this position is incomplete".to_owned();
                Ok(Some(TailTruncation { position: self.at(end), bytes: bad.offset - end, reason }))
            }
            TornTail::Torn { bytes } => {
                let reason = format!("a write was torn: {}", bad.reason);
                Ok(Some(TailTruncation { position: self.at(end), bytes: bad.offset - end + bytes, reason }))
            }
            TornTail::Damaged => Err(LogError::corrupt(&self.path, bad.offset, bad.reason.clone())),
        }
    }

    /// Returns the range of bytes after `end` that recovery must remove: all up to the last byte that is not
    /// zero.
    fn cut_without_checksums(&self, end: u64) -> Result<Option<TailTruncation>, LogError> {
        let data_end = torn_write::data_end(self.file.as_ref(), &self.path, end, self.length)?;
        Ok(data_end.map(|data_end| TailTruncation {
            position: self.at(end),
            bytes: data_end - end,
            reason: "events without checksums that are not in the index".to_owned(),
        }))
    }

    fn at(&self, offset: u64) -> LogPosition {
        LogPosition { segment: self.number, offset }
    }

    /// Truncates the segment and its index, and makes the segment durable up to `end`. Returns the index, to
    /// which entries can be appended.
    fn repair(
        &self,
        header: &SegmentHeader,
        indexed: &IndexedPart,
        end: u64,
    ) -> Result<Arc<dyn LogFile>, LogError> {
        if self.length != end {
            self.file.truncate(end).map_err(|error| LogError::write("truncate", &self.path, error))?;
        }
        // The segment's bytes after the end of the index, and the last bytes of the index, may exist only in
        // the page cache: a failed fdatasync marks such pages as clean. The next fdatasync writes them to the
        // disk only if they are written to the file again.
        rewrite(self.file.as_ref(), &self.path, indexed.front.end, end)?;
        self.file.sync().map_err(|error| LogError::write("fdatasync", &self.path, error))?;

        let index = open_index(self.directory, self.number)?;
        let path = self.directory.path_of(&index_name(self.number));
        let cut_to = if indexed.header_readable { indexed.front.bytes } else { 0 };
        index.truncate(cut_to).map_err(|error| LogError::write("truncate", &path, error))?;
        match indexed.header_readable {
            true => rewrite(index.as_ref(), &path, 0, cut_to)?,
            false => {
                index
                    .write_at(&header.encode(), 0)
                    .map_err(|error| LogError::write("write", &path, error))?;
            }
        }
        Ok(index)
    }
}

/// Reads the bytes `start..end` of a file and writes the same bytes again.
fn rewrite(file: &dyn LogFile, path: &Path, start: u64, end: u64) -> Result<(), LogError> {
    let mut at = start;
    let mut piece = Vec::new();
    while at < end {
        piece.resize(SCAN_WINDOW_BYTES.min((end - at) as usize), 0);
        let filled = file.read_full_at(&mut piece, at).map_err(|error| LogError::io("read", path, error))?;
        if filled == 0 {
            return Err(LogError::corrupt(path, at, "the file shrank while it was read"));
        }
        file.write_at(&piece[..filled], at).map_err(|error| LogError::write("write to", path, error))?;
        at += filled as u64;
    }
    Ok(())
}

/// Rebuilds the index of a sealed segment. Returns the number of entries. Treats any error in the segment as
/// damage.
pub(crate) fn rebuild_sealed_index(
    directory: &Arc<dyn Directory>,
    number: u64,
    header: &SegmentHeader,
    length: u64,
) -> Result<u64, LogError> {
    let segment = SegmentFile::open(directory.as_ref(), number, OpenMode::Read)?;
    let path = directory.path_of(&index_name(number));
    let fail = |action| {
        let path = path.clone();
        move |error| LogError::write(action, path, error)
    };
    let index = open_index(directory.as_ref(), number)?;
    index.truncate(0).map_err(fail("truncate"))?;
    let mut encoded = header.encode();
    let mut written = 0;
    let mut entries = 0;
    let mut end = FIRST_EVENT_OFFSET;
    let mut framing = Framing::new(number, header.source_offset, header.source.flavour);
    let scan_end = segment.scan_entries(end, length, &mut framing, |entry, _| {
        end = entry.end().offset;
        entries += 1;
        IndexRecord::encode_entry(&entry, &mut encoded);
        if encoded.len() >= SCAN_WINDOW_BYTES {
            index.write_at(&encoded, written).map_err(fail("write"))?;
            written += encoded.len() as u64;
            encoded.clear();
        }
        Ok(())
    })?;
    match scan_end {
        ScanEnd::Bad(bad) => return Err(LogError::corrupt(&segment.path, bad.offset, bad.reason)),
        ScanEnd::Clean if end != length => {
            return Err(LogError::corrupt(&segment.path, end, "the segment ends inside a transaction"));
        }
        ScanEnd::Clean => {}
    }
    IndexRecord::encode_seal(length, entries, &mut encoded);
    index.write_at(&encoded, written).map_err(fail("write"))?;
    index.sync().map_err(fail("fdatasync"))?;
    Ok(entries)
}

/// Returns the GTIDs of all transactions of the log up to the end of a segment's index.
pub(crate) fn gtids_up_to(directory: &dyn Directory, header: &SegmentHeader) -> Result<GtidSet, LogError> {
    let segment = SegmentFile::open(directory, header.segment, OpenMode::Read)?;
    let mut indexed = segment.read_index(header)?;
    if !header.gtids_known {
        segment.learn_gtids(header, indexed.front.end, &mut indexed.gtids)?;
    }
    Ok(indexed.gtids)
}

/// Returns the GTIDs of all transactions before a segment. Returns `None` if neither the log nor the first
/// events of the segment list the GTIDs from before the log.
pub(crate) fn gtids_before(
    directory: &dyn Directory,
    header: &SegmentHeader,
) -> Result<Option<GtidSet>, LogError> {
    let mut gtids = parse_gtids_before(header, &directory.path_of(&index_name(header.segment)))?;
    if header.gtids_known {
        return Ok(Some(gtids));
    }
    let segment = SegmentFile::open(directory, header.segment, OpenMode::Read)?;
    let known = segment.learn_gtids(header, segment.length, &mut gtids)?;
    Ok(known.then_some(gtids))
}

/// Derives the header of the segment after `previous` from the events of both segments. Returns `None` if the
/// events lack the necessary data.
pub(crate) fn header_after(
    directory: &dyn Directory,
    previous: &SegmentHeader,
) -> Result<Option<SegmentHeader>, LogError> {
    let segment = SegmentFile::open(directory, previous.segment, OpenMode::Read)?;
    let index_path = directory.path_of(&index_name(previous.segment));
    let mut gtids = parse_gtids_before(previous, &index_path)?;
    let gtids_known = previous.gtids_known || segment.learn_gtids(previous, segment.length, &mut gtids)?;
    let mut framing = Framing::new(previous.segment, previous.source_offset, previous.source.flavour);
    let mut last = None;
    segment.scan_entries(FIRST_EVENT_OFFSET, segment.length, &mut framing, |entry, _| {
        insert(&mut gtids, &entry, &segment.path)?;
        last = Some(entry);
        Ok(())
    })?;
    // A binlog file of the source ends with a rotate event, which holds the name of the next file.
    let (Some(last), Some(format)) = (last.filter(|entry| !entry.is_transaction()), framing.format()) else {
        return Ok(None);
    };
    let mut scan = segment.scan(last.position.offset, last.end().offset, Some(format.clone()));
    let ScanItem::Event(event) = scan.next()? else { return Ok(None) };
    if event.header.event_type != EventType::ROTATE {
        return Ok(None);
    }
    let body_end = event.first_chunk.len().saturating_sub(format.trailer_bytes(&event.header));
    let body =
        event.first_chunk.get(tailwater_wire::binlog_event::EVENT_HEADER_BYTES..body_end).unwrap_or_default();
    let Ok(rotate) = Rotate::parse(body, format) else { return Ok(None) };
    Ok(Some(SegmentHeader {
        segment: previous.segment + 1,
        source_file: String::from_utf8_lossy(rotate.file_name).into_owned(),
        source_offset: FIRST_EVENT_OFFSET,
        source: previous.source.clone(),
        epoch: previous.epoch,
        gtids_before: gtids.to_string(),
        gtids_known,
    }))
}
