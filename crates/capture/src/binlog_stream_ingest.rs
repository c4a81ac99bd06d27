//! Processes one open stream: appends every chunk to the log, makes every commit group durable, and then
//! acknowledges it to the source.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use tailwater_log::{AckMode, LogError, LogWriter, SourceIdentity};
use tailwater_session::{DumpStream, EventChunk};
use tailwater_wire::binlog_event::{
    ChecksumAlgorithm, ChecksumChecker, EVENT_HEADER_BYTES, EventHeader, EventType, FIRST_EVENT_OFFSET,
    FormatDescription, Rotate, verify_checksum,
};
use tailwater_wire::{Flavour, WireError};

use crate::CaptureError;
use crate::binlog_stream_position::{EventAction, StreamTracker};
use crate::capture_status::CaptureStatus;
use crate::fsync_pacer::{SyncDelay, SyncPacer};

/// Parses an artificial rotate event: the file and offset where the stream continues.
///
/// The first rotate event comes before any format description event, so only its own bytes show whether it
/// has a checksum.
pub(crate) fn parse_artificial_rotate(flavour: Flavour, event: &[u8]) -> Result<(String, u64), WireError> {
    let algorithm = match verify_checksum(event) {
        Ok(()) => ChecksumAlgorithm::Crc32,
        Err(_) => ChecksumAlgorithm::Off,
    };
    let format = FormatDescription::assumed(flavour, algorithm);
    let end = event.len().saturating_sub(algorithm.trailer_bytes());
    let rotate = Rotate::parse(event.get(EVENT_HEADER_BYTES..end).unwrap_or_default(), &format)?;
    match std::str::from_utf8(rotate.file_name) {
        Ok(file) if is_binlog_name(file) => Ok((file.to_owned(), rotate.position)),
        // In a damaged event, the bytes of the checksum may be parsed as the end of the file name. This check
        // detects such a name.
        _ => Err(WireError::malformed("rotate event", "the file name in the event does not end in a number")),
    }
}

/// All servers name their binlog files with a dot and a number at the end.
fn is_binlog_name(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(base, number)| {
        !base.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// One open stream and its state.
pub(crate) struct StreamIngest<'a> {
    status: &'a CaptureStatus,
    track: StreamTracker,
    identity: SourceIdentity,
    log: &'a mut LogWriter,
    ack_mode: AckMode,
    /// The file of the log's newest segment, if the stream repeats the beginning of this segment. `None` if
    /// the stream repeats the log's last transaction.
    head: Option<PathBuf>,
    /// The format description of the source's current binlog file.
    format: Option<FormatDescription>,
    /// The event whose chunks are being received.
    current: Option<CurrentEvent>,
    /// The newest event for which the source requested an ACK that is not sent yet: its file and end
    /// position.
    ack: Option<(String, u64)>,
    /// Whether the stream has contained an event that is in a binlog file of the source.
    has_source_events: bool,
    /// Processing of the stream ends when the log contains the start of this binlog file.
    until_file: Option<String>,
}

struct CurrentEvent {
    header: EventHeader,
    action: EventAction,
    /// `None` if the events have no checksum.
    checksum: Option<ChecksumChecker>,
    /// The number of bytes of the event that the capture has processed so far.
    passed: u64,
}

/// If no commit waits for an ACK, the log syncs bytes in the background when this many bytes have been
/// written. [`SyncPacer`] may sync them earlier for waiting readers.
const BACKGROUND_SYNC_BYTES: u64 = 8 << 20;

/// How many times the capture adds newly arrived bytes to a commit group before it syncs the group.
const PULLS_MAX: u32 = 4;

impl<'a> StreamIngest<'a> {
    /// Prepares to process a stream whose position is tracked by `track`. `head` is the file of the log's
    /// newest segment if the stream repeats the segment's beginning instead of the log's last transaction.
    /// With `until_file`, processing ends as soon as the log contains the start of that file.
    pub(crate) fn new(
        status: &'a CaptureStatus,
        track: StreamTracker,
        identity: SourceIdentity,
        log: &'a mut LogWriter,
        ack_mode: AckMode,
        head: Option<PathBuf>,
        until_file: Option<String>,
    ) -> Self {
        let (format, current, ack) = (None, None, None);
        Self {
            status,
            track,
            identity,
            log,
            ack_mode,
            head,
            format,
            current,
            ack,
            has_source_events: false,
            until_file,
        }
    }

    /// Whether the source has sent an event that is in one of its binlog files.
    pub(crate) fn has_source_events(&self) -> bool {
        self.has_source_events
    }

    /// Processes the stream until it breaks, which is an error, or until the log contains the start of the
    /// file given as `until_file`.
    pub(crate) async fn run(&mut self, mut stream: DumpStream) -> Result<(), CaptureError> {
        let mut pulls = 0;
        let mut pacer = SyncPacer::default();
        loop {
            let chunk = if stream.has_buffered() {
                stream.next().await?
            } else {
                match self.next_or_sync_due(&mut stream, &mut pacer).await? {
                    Some(chunk) => {
                        // Record the time of arrival once for all chunks that arrived together, including
                        // heartbeats.
                        self.status.mark_received();
                        self.log.check()?;
                        chunk
                    }
                    None => {
                        match self.ack_mode {
                            // No commit waits for the disk, so only write the bytes. They are synced as
                            // rarely as possible, so that the disk can do other work.
                            AckMode::Received => self.log.flush()?,
                            AckMode::Durable if pacer.source_waits() => self.log.sync()?,
                            // While the disk syncs, the capture reads more of the stream, and readers of the
                            // log prepare the entries that are written but not synced.
                            AckMode::Durable => self.log.sync_in_background()?,
                        };
                        continue;
                    }
                }
            };
            let Some(chunk) = chunk else {
                return Err(CaptureError::stream("the source ended the stream"));
            };
            let ack_requested = chunk.ack_requested && chunk.last;
            if ack_requested {
                pacer.expect_acks();
            }
            self.ingest_chunk(chunk)?;
            if self.until_file.is_some() && self.log.source_tail().map(|tail| tail.file) == self.until_file {
                return Ok(());
            }
            if ack_requested {
                // The log cannot make a transaction durable before it has the end of the transaction.
                if self.log.in_transaction() {
                    return Err(CaptureError::stream("the source requested an ACK inside a transaction"));
                }
                self.ack = self.track.position().map(|(file, position)| (file.to_owned(), position));
            }
            if stream.has_buffered() {
                continue;
            }
            // A group of commits arrives within microseconds. If the kernel has already received more bytes,
            // include them in this sync. Reading them costs far less than a separate fdatasync. The number of
            // reads is limited, because a client of the source waits for the ACK.
            if self.ack.is_some() && pulls < PULLS_MAX {
                pulls += 1;
                if stream.pull().await? {
                    continue;
                }
            }
            pulls = 0;
            if let Some((file, position)) = self.ack.take() {
                self.log.sync_for_ack()?;
                self.status.count_sync();
                stream.ack(&file, position).await?;
                self.status.count_ack();
            } else if self.log.unrequested_bytes() >= BACKGROUND_SYNC_BYTES {
                self.log.sync_in_background()?;
            }
        }
    }

    /// Returns the next chunk of the stream. `None` if the pending bytes must be synced before the capture
    /// reads more of the stream.
    async fn next_or_sync_due(
        &self,
        stream: &mut DumpStream,
        pacer: &mut SyncPacer,
    ) -> Result<Option<Option<EventChunk>>, CaptureError> {
        let bytes = self.log.unrequested_bytes();
        if bytes == 0 {
            pacer.reset();
            return Ok(Some(stream.next().await?));
        }
        match pacer.delay(bytes, self.log.in_transaction(), Instant::now()) {
            SyncDelay::Now => Ok(None),
            SyncDelay::IfIdle => Ok(tokio::select! {
                biased;
                chunk = stream.next() => Some(chunk?),
                () = std::future::ready(()) => None,
            }),
            SyncDelay::Wait(left) => match tokio::time::timeout(left, stream.next()).await {
                Ok(chunk) => Ok(Some(chunk?)),
                Err(_) => Ok(None),
            },
        }
    }

    fn ingest_chunk(&mut self, chunk: EventChunk) -> Result<(), CaptureError> {
        if chunk.first {
            self.begin_event(&chunk)?;
        }
        let Some(mut event) = self.current.take() else {
            return Err(CaptureError::stream("a later chunk of an event came before its first chunk"));
        };
        if !chunk.first
            && let Some(checksum) = &mut event.checksum
        {
            checksum.update(&chunk.data);
        }
        if chunk.last
            && let Some(checksum) = event.checksum.take()
        {
            checksum.finish().map_err(|error| self.event_error(&event.header, error))?;
        }
        match &event.action {
            EventAction::Drop => {}
            EventAction::Compare { offset } => self.compare(&event, offset + event.passed, &chunk)?,
            EventAction::Append | EventAction::StartSegment { .. } => {
                let appended = self.log.append(&event.header, &chunk.data, chunk.first, chunk.last)?;
                let transactions = u64::from(appended.ends_transaction);
                self.status.count_appended(chunk.data.len() as u64, transactions);
            }
        }
        event.passed += chunk.data.len() as u64;
        if !chunk.last {
            self.current = Some(event);
        }
        Ok(())
    }

    fn begin_event(&mut self, chunk: &EventChunk) -> Result<(), CaptureError> {
        let header = chunk.header;
        let body = chunk.data.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            let format = FormatDescription::parse(body).map_err(|error| self.event_error(&header, error))?;
            self.format = Some(format);
        }
        // Verify the checksum before using anything in the event. For a big event, only the header is used
        // until its last chunk has arrived. If the checksum is wrong, the log removes the appended bytes of
        // the event.
        let mut checksum = self.checksum(&header)?;
        if let Some(checker) = &mut checksum {
            checker.update(&chunk.data);
        }
        if chunk.last
            && let Some(checker) = checksum.take()
        {
            checker.finish().map_err(|error| self.event_error(&header, error))?;
        }
        if header.event_type == EventType::ROTATE && header.is_artificial() {
            let (file, position) = parse_artificial_rotate(self.identity.flavour, &chunk.data)
                .map_err(|error| self.event_error(&header, error))?;
            self.track.rotate(file, position);
        }
        let action = self.track.place_event(&header, &chunk.data, self.log.in_transaction())?;
        self.has_source_events |= action != EventAction::Drop;
        if let EventAction::StartSegment { file, position, preamble } = &action {
            let is_started = self.log.has_empty_partial_segment()
                && self.log.source_tail().is_some_and(|tail| (&tail.file, tail.end) == (file, *position));
            if !is_started {
                self.log.start_segment(file, *position, &self.identity)?;
            }
            for event in preamble {
                let header = EventHeader::parse(event).map_err(|error| self.event_error(&header, error))?;
                self.log.append(&header, event, true, true)?;
            }
            if *position > FIRST_EVENT_OFFSET {
                // Sync the first events of a segment that starts in the middle of a file. If a power failure
                // loses these events, the capture cannot continue the segment.
                self.log.sync()?;
            }
        }
        self.current = Some(CurrentEvent { header, action, checksum, passed: 0 });
        Ok(())
    }

    fn checksum(&self, header: &EventHeader) -> Result<Option<ChecksumChecker>, CaptureError> {
        let repeated = header.event_type == EventType::FORMAT_DESCRIPTION && header.end_log_pos == 0;
        match &self.format {
            // When a stream starts in the middle of a file, the source repeats the file's format description
            // event with a few changed fields. The source updates the checksum of this event only if
            // checksums are on. With checksums off, the checksum cannot be verified.
            Some(format) if repeated && !format.has_checksums() => Ok(None),
            Some(format) if format.trailer_bytes(header) > 0 => {
                let checker = ChecksumChecker::new(u64::from(header.event_length));
                checker.map(Some).map_err(|error| self.event_error(header, error))
            }
            // Before the first format description event, it is unknown whether events have checksums.
            _ => Ok(None),
        }
    }

    fn compare(&mut self, event: &CurrentEvent, offset: u64, chunk: &EventChunk) -> Result<(), CaptureError> {
        let mut ours = vec![0; chunk.data.len()];
        match &self.head {
            None => self.log.read_last_transaction(offset, &mut ours)?,
            Some(path) => {
                let read = File::open(path)
                    .and_then(|file| file.read_exact_at(&mut ours, offset + FIRST_EVENT_OFFSET));
                read.map_err(|source| LogError::Io { action: "read", path: path.clone(), source })?;
            }
        }
        if ours == chunk.data {
            return Ok(());
        }
        let (file, end) = self.track.position().unwrap_or_default();
        Err(CaptureError::Diverged {
            file: file.to_owned(),
            position: end.saturating_sub(u64::from(event.header.event_length)),
            detail: format!("the {} event at this position has other bytes", event.header.event_type),
        })
    }

    fn event_error(&self, header: &EventHeader, error: WireError) -> CaptureError {
        let (file, position) = self.track.position().unwrap_or_default();
        let position = match u64::from(header.end_log_pos) {
            0 => position,
            end => end.saturating_sub(u64::from(header.event_length)),
        };
        CaptureError::Event { file: file.to_owned(), position, error }
    }
}

#[cfg(test)]
mod tests {
    use super::is_binlog_name;

    #[test]
    fn a_binlog_file_name_ends_in_a_number() {
        for (name, expected) in [
            ("binlog.000001", true),
            ("mysql-bin.1000000", true),
            ("db1.example.0042", true),
            ("binlog.000001\u{1}a", false),
            ("binlog.000001abcd", false),
            ("binlog", false),
            (".000001", false),
            ("binlog.", false),
            ("", false),
        ] {
            assert_eq!(is_binlog_name(name), expected, "wrong result for {name:?}");
        }
    }
}
