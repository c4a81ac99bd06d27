//! The newest segment after a crash: from the end of its index on, whole transactions are kept and the rest is cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tailwater_wire::event::{EventType, FormatDescription, Rotate};
use tailwater_wire::gtid::GtidSet;

use crate::control::Control;
use crate::error::LogError;
use crate::framing::{Before, Framing};
use crate::gtid_before;
use crate::index::{Record, SegmentHeader};
use crate::index_file::{self, IndexFront, IndexReader};
use crate::position::{EntryKind, LogEntry, LogPosition};
use crate::progress::{SegmentState, TailStart};
use crate::recovery::{RecoveredTail, RecoveryReport, TailTruncation, check_magic, open_index};
use crate::segment::{
    BadEvent, EventScan, FIRST_EVENT_OFFSET, SCAN_WINDOW_BYTES, Scanned, index_name, segment_name,
};
use crate::storage::{Directory, File, OpenMode};
use crate::tear::{self, Tail};

/// How much of what the index vouches for is read back on opening, at least; the rest is `log verify`'s.
const CHECKED_BYTES: u64 = 16 << 20;

/// A segment's file being recovered.
struct Segment<'a> {
    directory: &'a dyn Directory,
    number: u64,
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
}

/// What the index vouches for.
struct Indexed {
    front: IndexFront,
    gtids: GtidSet,
    last_transaction: Option<LogEntry>,
    /// Where to begin to check, an entry's start at least [`CHECKED_BYTES`] before the end if there are that many.
    check_from: u64,
    source_end: u64,
    /// Whether the index's header was readable.
    header_readable: bool,
}

/// How a walk over entries ended.
enum WalkEnd {
    /// Between two entries, or in the midst of a transaction whose events so far are good.
    Clean,
    /// At a bad event.
    Bad(BadEvent),
}

/// Makes the newest segment whole. `segments` are those before it.
pub(crate) fn recover(
    directory: &Arc<dyn Directory>,
    number: u64,
    control: &Control,
    segments: &BTreeMap<u64, SegmentState>,
    recovery: &mut RecoveryReport,
) -> Result<RecoveredTail, LogError> {
    let segment = Segment::open(directory.as_ref(), number, OpenMode::ReadWrite)?;
    let header = index_file::read_or_derive_header(directory.as_ref(), number, Some(control), segments)?;
    let mut indexed = segment.read_index(&header)?;
    if indexed.front.end > segment.length {
        let reason =
            format!("the index has entries up to {}, the file ends at {}", indexed.front.end, segment.length);
        return Err(LogError::corrupt(&segment.path, segment.length, reason));
    }
    let format = match indexed.front.entries {
        0 => None,
        _ => Some(segment.format_description()?),
    };
    segment.check(indexed.check_from, indexed.front.end, format.clone())?;
    let mut gtids_known =
        header.gtids_known || segment.learn_gtids(&header, indexed.front.end, &mut indexed.gtids)?;

    let new_framing = || {
        let mut framing = Framing::new(number, header.source_offset, header.source.flavour);
        framing.resume(indexed.source_end, format.clone());
        framing
    };
    // First only look; write when it is certain that nothing is damaged.
    let mut framing = new_framing();
    let mut end = indexed.front.end;
    let mut count = 0;
    let walk_end = segment.walk(end, segment.length, &mut framing, |entry, _| {
        end = entry.end().offset;
        count += 1;
        Ok(())
    })?;
    let sealed = indexed.front.sealed.is_some();
    let unchecked = framing.format().is_some_and(|format| !format.has_checksums());
    let cut = if unchecked && indexed.front.ends_cleanly && !sealed {
        // Without checksums, what looks whole behind the index's end may be torn. What was published is in the index.
        end = indexed.front.end;
        count = 0;
        segment.cut_unchecked(end)?
    } else {
        segment.judge_rest(&walk_end, end, &framing, sealed)?
    };

    let index = segment.mend(&header, &indexed, end)?;
    let mut framing = new_framing();
    let mut index_bytes = indexed.index_start(&header);
    let Indexed { mut gtids, mut last_transaction, front, header_readable, .. } = indexed;
    let mut encoded = Vec::new();
    let index_path = directory.path_of(&index_name(number));
    let mut write_index = |encoded: &mut Vec<u8>| {
        index.write_at(encoded, index_bytes).map_err(|error| LogError::write("write", &index_path, error))?;
        index_bytes += encoded.len() as u64;
        encoded.clear();
        Ok::<_, LogError>(())
    };
    segment.walk(front.end, end, &mut framing, |entry, before| {
        if let Some(before) = before.filter(|_| !gtids_known && header.source_offset == FIRST_EVENT_OFFSET) {
            gtids = unite(&gtids, &before, &segment.path)?;
            gtids_known = true;
        }
        insert(&mut gtids, &entry, &segment.path)?;
        Record::encode_entry(&entry, &mut encoded);
        if entry.kind == EntryKind::Transaction {
            last_transaction = Some(entry);
        }
        if encoded.len() >= SCAN_WINDOW_BYTES { write_index(&mut encoded) } else { Ok(()) }
    })?;
    write_index(&mut encoded)?;
    index.sync().map_err(|error| LogError::write("fdatasync", &index_path, error))?;
    framing.rollback();

    if !header_readable {
        recovery.indexes_rebuilt.push(number);
    }
    recovery.entries_recovered = count;
    recovery.cut = cut;
    let entries = front.entries + count;
    let start =
        TailStart { segment: number, index, index_bytes, entries, end, gtids, gtids_known, last_transaction };
    Ok(RecoveredTail { header: Arc::new(header), file: segment.file, framing, start })
}

impl Indexed {
    /// Where entries are appended to the index.
    fn index_start(&self, header: &SegmentHeader) -> u64 {
        if self.header_readable { self.front.bytes } else { header.encode().len() as u64 }
    }
}

fn insert(gtids: &mut GtidSet, entry: &LogEntry, path: &Path) -> Result<(), LogError> {
    match &entry.gtid {
        Some(gtid) => gtids.insert(gtid).map_err(|error| {
            LogError::corrupt(path, entry.position.offset, format!("its GTID {gtid}: {error}"))
        }),
        None => Ok(()),
    }
}

fn unite(gtids: &GtidSet, before: &GtidSet, path: &Path) -> Result<GtidSet, LogError> {
    gtids.union(before).map_err(|error| LogError::corrupt(path, FIRST_EVENT_OFFSET, error.to_string()))
}

/// The set that a segment's header states.
pub(crate) fn parse_gtids_before(header: &SegmentHeader, path: &Path) -> Result<GtidSet, LogError> {
    GtidSet::parse(header.source.flavour, &header.gtids_before)
        .map_err(|error| LogError::corrupt(path, 0, format!("the GTID set in its header: {error}")))
}

impl<'a> Segment<'a> {
    fn open(directory: &'a dyn Directory, number: u64, mode: OpenMode) -> Result<Self, LogError> {
        let name = segment_name(number);
        let path = directory.path_of(&name);
        let file = directory.open(&name, mode).map_err(|error| LogError::io("open", &path, error))?;
        let length = file.length().map_err(|error| LogError::io("read", &path, error))?;
        check_magic(directory, number, file.as_ref())?;
        Ok(Self { directory, number, file, path, length })
    }

    fn scan(&self, start: u64, end: u64, format: Option<FormatDescription>) -> EventScan {
        EventScan::new(Arc::clone(&self.file), self.path.clone(), start, end, format)
    }

    fn read_index(&self, header: &SegmentHeader) -> Result<Indexed, LogError> {
        let index_path = self.directory.path_of(&index_name(self.number));
        let mut indexed = Indexed {
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
        indexed.front = index_file::read_front(&mut reader, FIRST_EVENT_OFFSET, |entry| {
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

    /// The format description that the segment begins with.
    fn format_description(&self) -> Result<FormatDescription, LogError> {
        let mut scan = self.scan(FIRST_EVENT_OFFSET, self.length, None);
        if let Scanned::Bad(bad) = scan.next()? {
            return Err(LogError::corrupt(&self.path, bad.offset, bad.reason));
        }
        match scan.format() {
            Some(format) => Ok(format.clone()),
            None => Err(LogError::corrupt(&self.path, FIRST_EVENT_OFFSET, "no format description begins it")),
        }
    }

    /// Reads back what was durable; anything wrong there is damage.
    fn check(&self, start: u64, end: u64, format: Option<FormatDescription>) -> Result<(), LogError> {
        let mut scan = self.scan(start, end, format);
        loop {
            match scan.next()? {
                Scanned::Event(_) => {}
                Scanned::End => return Ok(()),
                Scanned::Bad(bad) => {
                    let reason = format!("{}; the index says that it was durable", bad.reason);
                    return Err(LogError::corrupt(&self.path, bad.offset, reason));
                }
            }
        }
    }

    /// Adds the GTIDs before the segment as its first events, up to `end`, state them; whether they do.
    fn learn_gtids(&self, header: &SegmentHeader, end: u64, gtids: &mut GtidSet) -> Result<bool, LogError> {
        if header.source_offset != FIRST_EVENT_OFFSET {
            return Ok(false);
        }
        let mut scan = self.scan(FIRST_EVENT_OFFSET, end, None);
        loop {
            let Scanned::Event(event) = scan.next()? else { return Ok(false) };
            let (offset, header) = (event.offset, event.header);
            match header.event_type {
                EventType::FORMAT_DESCRIPTION | EventType::MARIADB_START_ENCRYPTION => {}
                EventType::PREVIOUS_GTIDS | EventType::MARIADB_GTID_LIST => {
                    let chunk = event.first_chunk.to_vec();
                    let Some(format) = scan.format() else { return Ok(false) };
                    let before = gtid_before::parse(&header, &chunk, format)
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

    /// Walks entries from `start` to `end`, calling `each` with every whole one, and with the GTID set that its event
    /// states if it is of that kind.
    fn walk(
        &self,
        start: u64,
        end: u64,
        framing: &mut Framing,
        mut each: impl FnMut(LogEntry, Option<GtidSet>) -> Result<(), LogError>,
    ) -> Result<WalkEnd, LogError> {
        let mut scan = self.scan(start, end, framing.format().cloned());
        loop {
            let event = match scan.next()? {
                Scanned::Event(event) => event,
                Scanned::End => return Ok(WalkEnd::Clean),
                Scanned::Bad(bad) => return Ok(WalkEnd::Bad(bad)),
            };
            let (offset, header) = (event.offset, event.header);
            let bad = |reason: String| Ok(WalkEnd::Bad(BadEvent { offset, header: Some(header), reason }));
            match framing.begin_event(offset, &header, event.first_chunk) {
                Ok(Before::Keep) => {}
                Ok(Before::CutTransaction) => return bad("the source restarted within a transaction".into()),
                Err(error) => return bad(error.to_string()),
            }
            let before =
                match framing.format().map(|format| gtid_before::parse(&header, event.first_chunk, format)) {
                    Some(Ok(before)) => before,
                    Some(Err(error)) => return bad(error.to_string()),
                    None => None,
                };
            if let Some(entry) = framing.end_event(offset + u64::from(header.event_length)) {
                framing.keep();
                each(entry, before)?;
            }
        }
    }

    /// Decides about what stands behind `end`, the end of the last whole entry.
    fn judge_rest(
        &self,
        walk_end: &WalkEnd,
        end: u64,
        framing: &Framing,
        sealed: bool,
    ) -> Result<Option<TailTruncation>, LogError> {
        let bad = match walk_end {
            WalkEnd::Bad(bad) => bad,
            WalkEnd::Clean if end == self.length => return Ok(None),
            // The file ends with good events of a transaction that is not whole.
            WalkEnd::Clean => {
                if sealed {
                    return Err(LogError::corrupt(
                        &self.path,
                        end,
                        "bytes stand behind the end that its index states",
                    ));
                }
                let reason = "the transaction there is not complete".to_owned();
                return Ok(Some(TailTruncation { position: self.at(end), bytes: self.length - end, reason }));
            }
        };
        if sealed {
            return Err(LogError::corrupt(&self.path, bad.offset, bad.reason.clone()));
        }
        let shift = framing.source_position().wrapping_sub(bad.offset);
        let checksums = framing.format().is_some_and(FormatDescription::has_checksums);
        match tear::judge(self.file.as_ref(), &self.path, bad, self.length, shift, checksums)? {
            Tail::Unwritten if bad.offset == end => Ok(None),
            Tail::Unwritten => {
                let reason = "the transaction there is not complete".to_owned();
                Ok(Some(TailTruncation { position: self.at(end), bytes: bad.offset - end, reason }))
            }
            Tail::Torn { bytes } => {
                let reason = format!("a write was torn: {}", bad.reason);
                Ok(Some(TailTruncation { position: self.at(end), bytes: bad.offset - end + bytes, reason }))
            }
            Tail::Damaged => Err(LogError::corrupt(&self.path, bad.offset, bad.reason.clone())),
        }
    }

    /// All that stands behind `end`, as something to be cut.
    fn cut_unchecked(&self, end: u64) -> Result<Option<TailTruncation>, LogError> {
        let data_end = tear::data_end(self.file.as_ref(), &self.path, end, self.length)?;
        Ok(data_end.map(|data_end| TailTruncation {
            position: self.at(end),
            bytes: data_end - end,
            reason: "events without checksums, which the index does not vouch for".to_owned(),
        }))
    }

    fn at(&self, offset: u64) -> LogPosition {
        LogPosition { segment: self.number, offset }
    }

    /// Cuts segment and index, makes the segment durable up to `end`, and gives back the index to append to.
    fn mend(&self, header: &SegmentHeader, indexed: &Indexed, end: u64) -> Result<Arc<dyn File>, LogError> {
        if self.length != end {
            self.file.truncate(end).map_err(|error| LogError::write("truncate", &self.path, error))?;
        }
        // What is behind the end of the index, and the index's own end, may be only in the page cache, marked clean by an
        // fdatasync that failed: only writing it again makes the next fdatasync mean something.
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

/// Writes `start..end` of a file as it reads.
fn rewrite(file: &dyn File, path: &Path, start: u64, end: u64) -> Result<(), LogError> {
    let mut at = start;
    let mut piece = Vec::new();
    while at < end {
        piece.resize(SCAN_WINDOW_BYTES.min((end - at) as usize), 0);
        let filled = file.read_full_at(&mut piece, at).map_err(|error| LogError::io("read", path, error))?;
        if filled == 0 {
            return Err(LogError::corrupt(path, at, "the file became shorter while it was read"));
        }
        file.write_at(&piece[..filled], at).map_err(|error| LogError::write("write to", path, error))?;
        at += filled as u64;
    }
    Ok(())
}

/// Writes the index of a sealed segment anew; gives the number of its entries. Anything wrong with the segment is damage.
pub(crate) fn rebuild_sealed_index(
    directory: &Arc<dyn Directory>,
    number: u64,
    header: &SegmentHeader,
    length: u64,
) -> Result<u64, LogError> {
    let segment = Segment::open(directory.as_ref(), number, OpenMode::Read)?;
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
    let walk_end = segment.walk(end, length, &mut framing, |entry, _| {
        end = entry.end().offset;
        entries += 1;
        Record::encode_entry(&entry, &mut encoded);
        if encoded.len() >= SCAN_WINDOW_BYTES {
            index.write_at(&encoded, written).map_err(fail("write"))?;
            written += encoded.len() as u64;
            encoded.clear();
        }
        Ok(())
    })?;
    match walk_end {
        WalkEnd::Bad(bad) => return Err(LogError::corrupt(&segment.path, bad.offset, bad.reason)),
        WalkEnd::Clean if end != length => {
            return Err(LogError::corrupt(&segment.path, end, "the segment ends within a transaction"));
        }
        WalkEnd::Clean => {}
    }
    Record::encode_seal(length, entries, &mut encoded);
    index.write_at(&encoded, written).map_err(fail("write"))?;
    index.sync().map_err(fail("fdatasync"))?;
    Ok(entries)
}

/// Every transaction of the log up to the end of a segment's index.
pub(crate) fn gtids_up_to(directory: &dyn Directory, header: &SegmentHeader) -> Result<GtidSet, LogError> {
    let segment = Segment::open(directory, header.segment, OpenMode::Read)?;
    let mut indexed = segment.read_index(header)?;
    if !header.gtids_known {
        segment.learn_gtids(header, indexed.front.end, &mut indexed.gtids)?;
    }
    Ok(indexed.gtids)
}

/// Every transaction before a segment; `None` where neither the log nor the segment's first events say what was before
/// the log.
pub(crate) fn gtids_before(
    directory: &dyn Directory,
    header: &SegmentHeader,
) -> Result<Option<GtidSet>, LogError> {
    let mut gtids = parse_gtids_before(header, &directory.path_of(&index_name(header.segment)))?;
    if header.gtids_known {
        return Ok(Some(gtids));
    }
    let segment = Segment::open(directory, header.segment, OpenMode::Read)?;
    let known = segment.learn_gtids(header, segment.length, &mut gtids)?;
    Ok(known.then_some(gtids))
}

/// What the header of the segment behind `previous` must have said, if the segments themselves tell.
pub(crate) fn header_after(
    directory: &dyn Directory,
    previous: &SegmentHeader,
) -> Result<Option<SegmentHeader>, LogError> {
    let segment = Segment::open(directory, previous.segment, OpenMode::Read)?;
    let index_path = directory.path_of(&index_name(previous.segment));
    let mut gtids = parse_gtids_before(previous, &index_path)?;
    let gtids_known = previous.gtids_known || segment.learn_gtids(previous, segment.length, &mut gtids)?;
    let mut framing = Framing::new(previous.segment, previous.source_offset, previous.source.flavour);
    let mut last = None;
    segment.walk(FIRST_EVENT_OFFSET, segment.length, &mut framing, |entry, _| {
        insert(&mut gtids, &entry, &segment.path)?;
        last = Some(entry);
        Ok(())
    })?;
    // A file of the source ends with the name of the next.
    let (Some(last), Some(format)) = (last.filter(|entry| !entry.is_transaction()), framing.format()) else {
        return Ok(None);
    };
    let mut scan = segment.scan(last.position.offset, last.end().offset, Some(format.clone()));
    let Scanned::Event(event) = scan.next()? else { return Ok(None) };
    if event.header.event_type != EventType::ROTATE {
        return Ok(None);
    }
    let body_end = event.first_chunk.len().saturating_sub(format.trailer_bytes(&event.header));
    let body = event.first_chunk.get(tailwater_wire::event::EVENT_HEADER_BYTES..body_end).unwrap_or_default();
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
