//! The driver: one thread per source that reads the stream, appends to the log, syncs, and acknowledges.
//!
//! Everything between the socket and the disk happens on this one thread, without handing over to another: on the way
//! of a commit each hand-over costs about as much as the fdatasync itself (docs/adr/001-one-capture-thread.md). While
//! the thread is in fdatasync the kernel's socket buffer collects what comes meanwhile; all of that is the next group.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_log::{AckMode, LogHandle, LogOptions, LogWriter, SourceIdentity};
use tailwater_session::{
    Backoff, ConnectOptions, Connection, DumpRequest, DumpStart, DumpStream, EventChunk, Purpose,
    ServerError, SessionError, check_grants,
};
use tailwater_wire::event::{
    ChecksumAlgorithm, ChecksumChecker, EVENT_HEADER_BYTES, EventHeader, EventType, FormatDescription,
    Rotate, verify_checksum,
};
use tailwater_wire::gtid::GtidSet;
use tailwater_wire::{Flavour, WireError};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use crate::error::{RelayError, Retry};
use crate::resume::{self, LogState, Resume, ServerIdentity, SourceState, StartPolicy};
use crate::status::{CaptureState, CaptureStatus};
use crate::track::{Action, LogTail, StreamKind, StreamTrack, TailTransaction};
use crate::{source, watch};

/// What to capture, and into where.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Names the source in messages.
    pub name: String,
    /// The flavour of an empty log is not known before the source was seen; a log that has one must match.
    pub connect: ConnectOptions,
    /// The `server_id` to register under.
    pub server_id: u32,
    /// Ask for semi-sync, and treat its absence as an error.
    pub semi_sync: bool,
    /// From where an empty log begins.
    pub start: StartPolicy,
    /// The longest that the source may be silent; three times that is a broken link.
    pub heartbeat: Duration,
    /// How often the semi-sync watch looks.
    pub watch_interval: Duration,
    /// The source's own folder in the log.
    pub directory: PathBuf,
    /// How the log is kept.
    pub log: LogOptions,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<Result<(), RelayError>>,
}

impl Capture {
    /// Opens the log, so that what is wrong with it shows at once, and starts the capture's thread.
    ///
    /// `ended` is cancelled when the thread ends, for whatever reason.
    ///
    /// # Errors
    /// [`RelayError::Log`] if the log cannot be opened.
    pub fn start(options: CaptureOptions, ended: CancellationToken) -> Result<Self, RelayError> {
        let writer = LogWriter::open(&options.directory, options.log.clone())?;
        let status = Arc::new(CaptureStatus::default());
        let stop = CancellationToken::new();
        let span = info_span!("relay.capture", source = %options.name);
        let driver = Driver { options, status: status.clone(), stop: stop.clone(), log: writer, torn: None };
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || {
                let _ended = ended.drop_guard();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(RelayError::runtime)?;
                runtime.block_on(driver.run().instrument(span))
            })
            .map_err(RelayError::runtime)?;
        Ok(Self { status, stop, thread })
    }

    /// State and counters, live.
    pub fn status(&self) -> Arc<CaptureStatus> {
        self.status.clone()
    }

    /// Tells the capture to stop; [`Capture::join`] waits until it has.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the thread's end, and says why it ended.
    ///
    /// # Errors
    /// Whatever ended the capture, unless that was [`Capture::stop`].
    pub fn join(self) -> Result<(), RelayError> {
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(RelayError::Runtime { detail: "the capture thread panicked".into() }),
        }
    }
}

struct Driver {
    options: CaptureOptions,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    log: LogWriter,
    /// The source's file that it says is torn; see [`LogState::torn`].
    torn: Option<String>,
}

impl Driver {
    async fn run(self) -> Result<(), RelayError> {
        let retention = tokio::spawn(keep_retention(self.log.handle()).in_current_span());
        let result = self.capture().await;
        retention.abort();
        result
    }

    async fn capture(mut self) -> Result<(), RelayError> {
        let mut backoff =
            Backoff::new(Duration::from_millis(50), Duration::from_secs(2), u64::from(std::process::id()));
        loop {
            self.status.set_state(CaptureState::Connecting);
            let stop = self.stop.clone();
            let transactions_before = self.status.snapshot().transactions;
            let result = tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                result = self.stream_once() => result,
            };
            // Whatever ended the stream, half a transaction may have been written; it comes again from its start.
            let error = match (result, self.log.rollback_partial()) {
                (Ok(()), Ok(())) => {
                    self.log.close()?;
                    self.status.set_state(CaptureState::Stopped);
                    return Ok(());
                }
                (Err(error), Ok(())) => error,
                (_, Err(log_error)) => log_error.into(),
            };
            if error.says_torn() {
                self.torn = self.log.source_tail().map(|tail| tail.file);
            }
            match error.retry() {
                Retry::Reconnect => {
                    if self.status.snapshot().transactions > transactions_before {
                        backoff.reset();
                    }
                    let pause = backoff.next_delay();
                    warn!(
                        code = error.code(),
                        pause_ms = pause.as_millis() as u64,
                        "capture interrupted: {error}"
                    );
                    self.status.set_state(CaptureState::Waiting(error.to_string()));
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                Retry::Refuse | Retry::Fatal => {
                    error!(code = error.code(), "capture stopped: {error}");
                    self.status.set_state(CaptureState::Refused(error.to_string()));
                    return Err(error);
                }
            }
        }
    }

    /// One connection's worth of capturing; returns only with an error.
    async fn stream_once(&mut self) -> Result<(), RelayError> {
        let mut control = Connection::connect(&self.options.connect).await?;
        check_grants(&mut control, Purpose::Capture).await?;
        let mut source = source::ask_state(&mut control).await?;
        let log_state = self.log_state(source.identity.flavour);
        if log_state.tail.is_none() && self.options.start == StartPolicy::Current {
            source.current_binlog = source::ask_current_binlog(&mut control).await?;
        }
        if log_state.torn {
            source.binlogs = Some(source::ask_binlogs(&mut control).await?);
        }
        let version = control.server().version_text.clone();
        let (stream, kind) = match self.open_stream(&log_state, &source).await {
            Err(RelayError::Session(refusal)) if is_refusal(&refusal) => {
                source.binlogs = Some(source::ask_binlogs(&mut control).await?);
                // What the list shows is a better reason than the server's, and a missing file may be got around.
                match resume::decide(&log_state, &source, &self.options.start)? {
                    Resume::Gtid => self.open_stream(&log_state, &source).await?,
                    Resume::FilePosition { .. } => return Err(refusal.into()),
                }
            }
            result => result?,
        };
        if self.options.semi_sync && !stream.semi_sync() {
            return Err(RelayError::SemiSyncOff);
        }
        self.status.count_connection();
        self.status.set_state(CaptureState::Streaming);

        let watching = watch_semi_sync(control, self.options.clone(), self.status.clone());
        let tail = log_state.tail.map(|(tail, _)| tail);
        let mut reading = Reading {
            status: &self.status,
            track: StreamTrack::new(kind, tail),
            identity: identity_for_log(&source, version),
            log: &mut self.log,
            ack_mode: self.options.log.ack,
            format: None,
            current: None,
            ack: None,
        };
        tokio::select! {
            result = reading.run(stream) => result,
            result = watching => result,
        }
    }

    async fn open_stream(
        &self,
        log: &LogState,
        source: &SourceState,
    ) -> Result<(DumpStream, StreamKind), RelayError> {
        let resume = resume::decide(log, source, &self.options.start)?;
        let (start, kind) = dump_start(&resume, log);
        let connection = Connection::connect(&self.options.connect).await?;
        info!(version = %connection.server().version_text, from = %describe(&resume, log), "capturing");
        let request = DumpRequest {
            semi_sync: self.options.semi_sync,
            heartbeat: self.options.heartbeat,
            ..DumpRequest::new(self.options.server_id, start)
        };
        Ok((connection.dump(request).await?, kind))
    }

    fn log_state(&self, flavour: Flavour) -> LogState {
        let tail = self.log.source_tail().map(|tail| {
            let last_transaction = tail
                .last_transaction
                .map(|last| TailTransaction { start: last.source_start, end: last.source_end });
            let identity = ServerIdentity {
                flavour: tail.source.flavour,
                server_uuid: tail.source.server_uuid.clone(),
                server_id: tail.source.server_id,
            };
            (LogTail { file: tail.file.clone(), end: tail.end, last_transaction }, identity)
        });
        let gtids = self.log.gtid_set().cloned().unwrap_or_else(|| GtidSet::empty(flavour));
        let torn = tail.as_ref().is_some_and(|(tail, _)| self.torn.as_ref() == Some(&tail.file));
        LogState { tail, gtids, torn }
    }
}

/// The server's version belongs to the identity in the log, but only the connection knows it.
fn identity_for_log(source: &SourceState, server_version: String) -> SourceIdentity {
    SourceIdentity {
        flavour: source.identity.flavour,
        server_uuid: source.identity.server_uuid.clone(),
        server_id: source.identity.server_id,
        server_version,
    }
}

fn dump_start(resume: &Resume, log: &LogState) -> (DumpStart, StreamKind) {
    match (resume, &log.gtids) {
        (Resume::FilePosition { file, position }, _) => {
            (DumpStart::FilePosition { file: file.clone(), position: *position }, StreamKind::FilePosition)
        }
        (Resume::Gtid, GtidSet::MySql(set)) => {
            (DumpStart::MysqlGtid { set_block: set.encode() }, StreamKind::Gtid)
        }
        (Resume::Gtid, GtidSet::MariaDb(state)) => {
            (DumpStart::MariadbGtid { connect_state: state.position().to_string() }, StreamKind::Gtid)
        }
    }
}

/// Whether the source said that it cannot give the stream that was asked for.
fn is_refusal(error: &SessionError) -> bool {
    error.server_error().is_some_and(|server| server.number == ServerError::SOURCE_FATAL_ERROR_READING_BINLOG)
}

fn describe(resume: &Resume, log: &LogState) -> String {
    match resume {
        Resume::FilePosition { file, .. } if file.is_empty() => "the oldest binlog file".into(),
        Resume::FilePosition { file, position } => format!("{file}:{position}"),
        Resume::Gtid => format!("GTIDs behind {}", log.gtids),
    }
}

/// How often old segments are looked at.
const RETENTION_INTERVAL: Duration = Duration::from_secs(60);

/// Drops segments that are past the configured limits, for as long as the capture runs. Removing a big file takes long
/// enough to be felt by waiting commits, so it happens on another thread.
async fn keep_retention(log: LogHandle) {
    loop {
        tokio::time::sleep(RETENTION_INTERVAL).await;
        let log = log.clone();
        match tokio::task::spawn_blocking(move || log.purge(SystemTime::now())).await {
            Ok(Ok(purge)) if !purge.segments.is_empty() => {
                info!(segments = purge.segments.len(), bytes = purge.bytes, "dropped old segments");
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => warn!(code = error.code(), "old segments could not be dropped: {error}"),
            Err(error) => warn!("dropping old segments failed: {error}"),
        }
    }
}

/// Looks at the source's semi-sync settings until the connection breaks; alarms are logged when they appear.
async fn watch_semi_sync(
    mut control: Connection,
    options: CaptureOptions,
    status: Arc<CaptureStatus>,
) -> Result<(), RelayError> {
    if !options.semi_sync {
        return std::future::pending().await;
    }
    let mut before = None;
    let mut told = Vec::new();
    loop {
        tokio::time::sleep(options.watch_interval).await;
        let now = source::ask_semi_sync(&mut control).await?;
        let alarms = watch::assess(before.as_ref(), &now);
        for alarm in alarms.iter().filter(|alarm| !told.contains(*alarm)) {
            warn!(code = alarm.code(), "{alarm}");
        }
        if alarms.is_empty() && !told.is_empty() {
            info!("semi-sync is sound again");
        }
        told = alarms.clone();
        status.set_alarms(alarms);
        before = Some(now);
    }
}

/// Where the stream goes on, from a rotate that the source made up.
///
/// The first one comes before any format description, so only its own bytes tell whether it has a checksum.
fn made_up_rotate(flavour: Flavour, event: &[u8]) -> Result<(String, u64), WireError> {
    let algorithm = match verify_checksum(event) {
        Ok(()) => ChecksumAlgorithm::Crc32,
        Err(_) => ChecksumAlgorithm::Off,
    };
    let format = FormatDescription::assumed(flavour, algorithm);
    let end = event.len().saturating_sub(algorithm.trailer_bytes());
    let rotate = Rotate::parse(event.get(EVENT_HEADER_BYTES..end).unwrap_or_default(), &format)?;
    match std::str::from_utf8(rotate.file_name) {
        Ok(file) => Ok((file.to_owned(), rotate.position)),
        Err(_) => Err(WireError::malformed("rotate event", "the file name is not text")),
    }
}

/// One open stream.
struct Reading<'a> {
    status: &'a CaptureStatus,
    track: StreamTrack,
    identity: SourceIdentity,
    log: &'a mut LogWriter,
    ack_mode: AckMode,
    /// The format of the source's present file.
    format: Option<FormatDescription>,
    /// The event whose chunks are passing.
    current: Option<CurrentEvent>,
    /// The newest event that asked for an ACK and has not got it.
    ack: Option<(String, u64)>,
}

struct CurrentEvent {
    header: EventHeader,
    action: Action,
    /// `None` where events carry no checksum.
    checksum: Option<ChecksumChecker>,
    /// How many bytes of it have passed.
    passed: u64,
}

/// With nobody waiting, bytes are synced in the background in steps of this size...
const BACKGROUND_SYNC_BYTES: u64 = 8 << 20;
/// ... and the rest when the stream has been quiet for this long.
const QUIET_SYNC: Duration = Duration::from_millis(20);

impl Reading<'_> {
    async fn run(&mut self, mut stream: DumpStream) -> Result<(), RelayError> {
        loop {
            let chunk = if self.log.unsynced_bytes() > 0 && !stream.has_buffered() {
                match tokio::time::timeout(QUIET_SYNC, stream.next()).await {
                    Ok(chunk) => chunk?,
                    Err(_) => {
                        self.log.sync()?;
                        continue;
                    }
                }
            } else {
                stream.next().await?
            };
            let Some(chunk) = chunk else {
                return Err(RelayError::stream("the source ended it"));
            };
            let asks = chunk.ack_requested && chunk.last;
            self.chunk(chunk)?;
            if asks {
                self.ack = self.track.position().map(|(file, position)| (file.to_owned(), position));
            }
            if stream.has_buffered() {
                continue;
            }
            if let Some((file, position)) = self.ack.take() {
                match self.ack_mode {
                    AckMode::Durable => self.log.sync()?,
                    AckMode::Received => self.log.flush()?,
                };
                self.status.count_sync();
                stream.ack(&file, position).await?;
                self.status.count_ack();
            } else if self.log.unsynced_bytes() >= BACKGROUND_SYNC_BYTES {
                self.log.sync_in_background()?;
            }
        }
    }

    fn chunk(&mut self, chunk: EventChunk) -> Result<(), RelayError> {
        if chunk.first {
            self.begin_event(&chunk)?;
        }
        let Some(mut event) = self.current.take() else {
            return Err(RelayError::stream("an event's continuation came before its beginning"));
        };
        if let Some(checksum) = &mut event.checksum {
            checksum.update(&chunk.data);
        }
        if chunk.last
            && let Some(checksum) = event.checksum.take()
        {
            checksum.finish().map_err(|error| self.event_error(&event.header, error))?;
        }
        match &event.action {
            Action::Drop => {}
            Action::Compare { offset } => self.compare(&event, offset + event.passed, &chunk)?,
            Action::Append | Action::StartSegment { .. } => {
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

    fn begin_event(&mut self, chunk: &EventChunk) -> Result<(), RelayError> {
        let header = chunk.header;
        let body = chunk.data.get(EVENT_HEADER_BYTES..).unwrap_or_default();
        if header.event_type == EventType::FORMAT_DESCRIPTION {
            let format = FormatDescription::parse(body).map_err(|error| self.event_error(&header, error))?;
            self.format = Some(format);
        }
        if header.event_type == EventType::ROTATE && header.is_artificial() {
            let (file, position) = made_up_rotate(self.identity.flavour, &chunk.data)
                .map_err(|error| self.event_error(&header, error))?;
            self.track.rotated(file, position);
        }
        let action = self.track.event(&header, &chunk.data, self.log.in_transaction())?;
        if let Action::StartSegment { file, position, preamble } = &action {
            self.log.start_segment(file, *position, &self.identity)?;
            for event in preamble {
                let header = EventHeader::parse(event).map_err(|error| self.event_error(&header, error))?;
                self.log.append(&header, event, true, true)?;
            }
        }
        // Before the first format description nothing says whether there are checksums.
        let checksum = match &self.format {
            Some(format) if format.trailer_bytes(&header) > 0 => Some(
                ChecksumChecker::new(u64::from(header.event_length))
                    .map_err(|error| self.event_error(&header, error))?,
            ),
            _ => None,
        };
        self.current = Some(CurrentEvent { header, action, checksum, passed: 0 });
        Ok(())
    }

    fn compare(&mut self, event: &CurrentEvent, offset: u64, chunk: &EventChunk) -> Result<(), RelayError> {
        let mut ours = vec![0; chunk.data.len()];
        self.log.read_last_transaction(offset, &mut ours)?;
        if ours == chunk.data {
            return Ok(());
        }
        let (file, end) = self.track.position().unwrap_or_default();
        Err(RelayError::Diverged {
            file: file.to_owned(),
            position: end.saturating_sub(u64::from(event.header.event_length)),
            detail: format!("the {} event there has other bytes", event.header.event_type),
        })
    }

    fn event_error(&self, header: &EventHeader, error: WireError) -> RelayError {
        let (file, position) = self.track.position().unwrap_or_default();
        let position = match u64::from(header.end_log_pos) {
            0 => position,
            end => end.saturating_sub(u64::from(header.event_length)),
        };
        RelayError::Event { file: file.to_owned(), position, error }
    }
}
