//! The driver: one thread per source that reads the stream, appends to the log, syncs, and acknowledges.
//!
//! Everything between the socket and the disk happens on this one thread, without handing over to another: on the way
//! of a commit each hand-over costs about as much as the fdatasync itself (docs/adr/001-one-capture-thread.md). While
//! the thread is in fdatasync the kernel's socket buffer collects what comes meanwhile; all of that is the next group.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tailwater_log::{LogHandle, LogOptions, LogWriter};
use tailwater_session::{
    Backoff, ConnectOptions, Connection, DumpRequest, DumpStart, DumpStream, Purpose, ServerError,
    SessionError, check_grants,
};
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use crate::error::{RelayError, Retry};
use crate::reading::{FIRST_EVENT_OFFSET, Reading};
use crate::resume::{self, LogState, Resume, SourceState, StartPolicy};
use crate::status::{CaptureState, CaptureStatus};
use crate::track::{LogTail, Overlap, StreamKind, StreamTrack};
use crate::watch::{SemiSyncAlarm, SemiSyncSample};
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
    log: LogHandle,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    thread: std::thread::JoinHandle<Result<(), RelayError>>,
}

/// A capture whose log is open, and that has not begun.
#[derive(Debug)]
pub struct OpenCapture {
    options: CaptureOptions,
    writer: LogWriter,
}

impl OpenCapture {
    /// Starts the capture's thread.
    ///
    /// `ended` is cancelled when the thread ends, for whatever reason.
    ///
    /// # Errors
    /// [`RelayError::Runtime`] if the system has no room for a thread.
    pub fn start(self, ended: CancellationToken) -> Result<Capture, RelayError> {
        let Self { options, writer } = self;
        let log = writer.handle();
        let status = Arc::new(CaptureStatus::default());
        let stop = CancellationToken::new();
        let span = info_span!("relay.capture", source = %options.name);
        let mut connect = options.connect.clone();
        let patience = ANSWER_PATIENCE.max(options.heartbeat * 3);
        connect.read_timeout = Some(connect.read_timeout.map_or(patience, |timeout| timeout.min(patience)));
        let driver = Driver {
            options,
            connect,
            status: status.clone(),
            stop: stop.clone(),
            log: writer,
            torn: None,
            hung: false,
            watch: Watch::default(),
        };
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
        Ok(Capture { log, status, stop, thread })
    }
}

impl Capture {
    /// Opens the log, so that what is wrong with it shows at once.
    ///
    /// # Errors
    /// [`RelayError::Log`] if the log cannot be opened.
    pub fn open(options: CaptureOptions) -> Result<OpenCapture, RelayError> {
        let writer = LogWriter::open(&options.directory, options.log.clone())?;
        Ok(OpenCapture { options, writer })
    }

    /// Opens the log and starts at once.
    ///
    /// # Errors
    /// As [`Capture::open`] and [`OpenCapture::start`].
    pub fn start(options: CaptureOptions, ended: CancellationToken) -> Result<Self, RelayError> {
        Self::open(options)?.start(ended)
    }

    /// The log that it writes, for readers. It outlives the capture.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
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

/// How long the source may take to answer a question. On a link that was cut without a word nothing else tells; and a
/// source whose commits wait for us must not wait for longer than this either.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

struct Driver {
    options: CaptureOptions,
    /// As in `options`, with patience limited.
    connect: ConnectOptions,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    log: LogWriter,
    /// The source's file that it says is torn; see [`LogState::torn`].
    torn: Option<String>,
    /// The last stream asked for did not begin; see [`Driver::wake`].
    hung: bool,
    watch: Watch,
}

/// What the semi-sync watch remembers from one connection to the next: commits that went out without us while we were
/// away count too.
#[derive(Default)]
struct Watch {
    before: Option<SemiSyncSample>,
    told: Vec<SemiSyncAlarm>,
}

impl Driver {
    async fn run(self) -> Result<(), RelayError> {
        let retention = tokio::spawn(keep_retention(self.log.handle()).in_current_span());
        let result = self.capture().await;
        retention.abort();
        result
    }

    async fn capture(mut self) -> Result<(), RelayError> {
        let seed = u64::from(std::process::id());
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), seed);
        // Two that push each other aside must leave each other time to capture something.
        let mut displaced = Backoff::new(Duration::from_secs(1), Duration::from_secs(15), seed);
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
                (Ok(()), Ok(())) if !stop.is_cancelled() => continue,
                (Ok(()), Ok(())) => {
                    self.log.close()?;
                    self.status.set_state(CaptureState::Stopped);
                    return Ok(());
                }
                (Err(error), Ok(())) => error,
                // Of a log that failed, the first error says why.
                (Err(error @ RelayError::Log(_)), Err(_)) => error,
                (_, Err(log_error)) => log_error.into(),
            };
            let error = match error {
                error if error.says_displaced() => {
                    RelayError::ServerIdTaken { server_id: self.options.server_id }
                }
                error => error,
            };
            match error.retry() {
                Retry::Reconnect => {
                    let pause = if matches!(error, RelayError::ServerIdTaken { .. }) {
                        displaced.next_delay()
                    } else {
                        if self.status.snapshot().transactions > transactions_before {
                            backoff.reset();
                        }
                        displaced.reset();
                        backoff.next_delay()
                    };
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
                refused @ (Retry::Refuse | Retry::Fatal) => {
                    error!(code = error.code(), "capture stopped: {error}");
                    if refused == Retry::Refuse
                        && let Err(error) = self.log.close()
                    {
                        warn!(code = error.code(), "the log could not be closed in good order: {error}");
                    }
                    self.status.set_state(CaptureState::Refused(error.to_string()));
                    return Err(error);
                }
            }
        }
    }

    /// One connection's worth of capturing. Returns with an error, or when the next one is to follow at once.
    async fn stream_once(&mut self) -> Result<(), RelayError> {
        let mut control = Connection::connect(&self.connect).await?;
        check_grants(&mut control, Purpose::Capture).await?;
        let mut source = source::ask_state(&mut control).await?;
        self.status.set_source_variables(source::ask_variables(&mut control).await?);
        let log_state = self.log_state(source.identity.flavour)?;
        if log_state.tail.is_none() && self.options.start == StartPolicy::Current {
            let current = source::ask_current_binlog(&mut control, &self.connect, self.options.server_id);
            source.current_binlog = current.await?;
        }
        let catch_up = self.catch_up(&mut control, &log_state, &source).await?;
        let resume = resume::decide(&log_state, &source, &self.options.start)?;
        let waker = if std::mem::take(&mut self.hung) { self.wake(&resume, &log_state).await } else { None };
        let opened = self.open_stream(&resume, &log_state, catch_up.is_none()).await;
        drop(waker);
        let (stream, kind) = match opened {
            Err(RelayError::Session(error @ SessionError::Timeout { .. })) => {
                self.hung = self.options.semi_sync && source.identity.flavour == Flavour::MariaDb;
                return Err(error.into());
            }
            Err(RelayError::Session(refusal)) if is_refusal(&refusal) => {
                self.explain(&mut control, &log_state, &mut source, &resume, refusal).await?;
                match self.open_stream(&Resume::Gtid, &log_state, catch_up.is_none()).await {
                    Err(RelayError::Session(refusal)) if is_refusal(&refusal) => {
                        return Err(resume::refused_by_gtid(&log_state, &refusal.to_string()));
                    }
                    result => result?,
                }
            }
            result => result?,
        };
        if self.options.semi_sync && catch_up.is_none() && !stream.semi_sync() {
            return Err(RelayError::SemiSyncOff);
        }
        self.status.count_connection();
        self.status.set_state(CaptureState::Streaming);

        let tail = log_state.tail.as_ref().map(|(tail, _)| tail.clone());
        let mut reading = Reading::new(
            &self.status,
            StreamTrack::new(kind, tail),
            source.identity.clone(),
            &mut self.log,
            self.options.log.ack,
            log_state.head.clone(),
            catch_up,
        );
        let watching = watch_semi_sync(control, &self.options, &self.status, &mut self.watch);
        let error = tokio::select! {
            result = reading.run(stream) => result,
            result = watching => result,
        };
        let placed = reading.has_placed();
        match error {
            // Nothing of the file came: it cannot be read where the log says that an event begins.
            Err(RelayError::Session(refusal)) if !placed && is_refusal(&refusal) => {
                let mut control = Connection::connect(&self.connect).await?;
                self.explain(&mut control, &log_state, &mut source, &resume, refusal).await?;
                Err(RelayError::stream("the source could not give it by file and position"))
            }
            Err(error) => {
                if placed && error.says_torn() {
                    self.torn = self.log.source_tail().map(|tail| tail.file);
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// MariaDB: the newest file, if the log ends in an older one; up to there the stream is to be an asynchronous one.
    ///
    /// The older file may end in the middle of an event, which ends the stream; and a semi-sync stream that ends as soon as
    /// it began can leave MariaDB's dump thread waiting for its ACK receiver for ever, with every later stream of the same
    /// `server_id` waiting for that thread.
    async fn catch_up(
        &self,
        control: &mut Connection,
        log: &LogState,
        source: &SourceState,
    ) -> Result<Option<String>, RelayError> {
        match &log.tail {
            Some((tail, _))
                if self.options.semi_sync && source.identity.flavour == Flavour::MariaDb && !log.torn =>
            {
                let current =
                    source::ask_current_binlog(control, &self.connect, self.options.server_id).await?;
                Ok(current.filter(|current| resume::number(current) > resume::number(&tail.file)))
            }
            _ => Ok(None),
        }
    }

    /// Frees a dump thread of MariaDB that hangs as [`Driver::catch_up`] says: any new semi-sync stream does so. One with
    /// server id 0, as `mariadb-binlog` has it, does not wait for other threads itself. It acknowledges nothing.
    async fn wake(&self, resume: &Resume, log: &LogState) -> Option<DumpStream> {
        let (start, _) = dump_start(resume, log);
        let request =
            DumpRequest { semi_sync: true, heartbeat: self.options.heartbeat, ..DumpRequest::new(0, start) };
        let opened = match Connection::connect(&self.connect).await {
            Ok(connection) => connection.dump(request).await,
            Err(error) => Err(error),
        };
        // Without it the next attempt is as good as the last.
        opened.inspect_err(|error| warn!(code = error.code(), "cannot free a hanging stream: {error}")).ok()
    }

    async fn open_stream(
        &self,
        resume: &Resume,
        log: &LogState,
        synchronous: bool,
    ) -> Result<(DumpStream, StreamKind), RelayError> {
        let (start, kind) = dump_start(resume, log);
        let connection = Connection::connect(&self.connect).await?;
        info!(version = %connection.server().version_text, from = %describe(resume, log), "capturing");
        let request = DumpRequest {
            semi_sync: self.options.semi_sync && synchronous,
            heartbeat: self.options.heartbeat,
            ..DumpRequest::new(self.options.server_id, start)
        };
        Ok((connection.dump(request).await?, kind))
    }

    /// The source's binlog files; `None` if it keeps them locked. The connection is a new one then.
    async fn ask_binlogs(&self, control: &mut Connection) -> Result<Option<Vec<(String, u64)>>, RelayError> {
        match source::ask_binlogs(control).await {
            Err(error @ RelayError::Answer { .. }) => {
                warn!(code = error.code(), "{error}");
                *control = Connection::connect(&self.connect).await?;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// The source refused what was asked for. That GTIDs may lead on is no error; all else is, and says what it means.
    async fn explain(
        &self,
        control: &mut Connection,
        log: &LogState,
        source: &mut SourceState,
        resume: &Resume,
        refusal: SessionError,
    ) -> Result<(), RelayError> {
        let Some((tail, _)) = &log.tail else {
            return Err(match &self.options.start {
                StartPolicy::Position { file, position } => RelayError::StartRefused {
                    start: format!("{file}:{position}"),
                    reason: refusal.to_string(),
                },
                StartPolicy::Current | StartPolicy::Oldest => refusal.into(),
            });
        };
        if log.torn {
            return Err(RelayError::TornTail { file: tail.file.clone() });
        }
        let Resume::FilePosition { file, position } = resume else {
            return Err(resume::refused_by_gtid(log, &refusal.to_string()));
        };
        source.binlogs = match self.ask_binlogs(control).await? {
            // What the list would show can be told from the refusal.
            None if says(&refusal, "Could not find first log file") => Some(Vec::new()),
            None if says(&refusal, "position") => Some(vec![(file.clone(), 0)]),
            None => return Err(refusal.into()),
            list => list,
        };
        match resume::decide(log, source, &self.options.start)? {
            Resume::Gtid => Ok(()),
            Resume::FilePosition { .. } => Err(RelayError::Diverged {
                file: file.clone(),
                position: *position,
                detail: format!("no event can be read there ({refusal})"),
            }),
        }
    }

    fn log_state(&mut self, flavour: Flavour) -> Result<LogState, RelayError> {
        let mut head = None;
        let tail = match self.log.source_tail() {
            None => None,
            Some(tail) => {
                let mut overlap = tail
                    .last_transaction
                    .map(|last| Overlap { start: last.source_start, end: last.source_end });
                let segment = self.log.handle().segments().pop();
                if let Some(segment) = segment
                    && overlap.is_none()
                    && segment.source_offset == FIRST_EVENT_OFFSET
                    && tail.end > FIRST_EVENT_OFFSET
                {
                    // What is to be compared is read from the file.
                    self.log.flush()?;
                    overlap = Some(Overlap { start: FIRST_EVENT_OFFSET, end: tail.end });
                    head = Some(segment.path);
                }
                Some((LogTail { file: tail.file, end: tail.end, overlap }, tail.source))
            }
        };
        let gtids = self.log.gtid_set().cloned().unwrap_or_else(|| GtidSet::empty(flavour));
        let torn = tail.as_ref().is_some_and(|(tail, _)| self.torn.as_ref() == Some(&tail.file));
        Ok(LogState { tail, head, gtids, torn })
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
    let number = error.server_error().map(|server| server.number);
    number == Some(ServerError::SOURCE_FATAL_ERROR_READING_BINLOG) && !says(error, "same server")
}

fn says(error: &SessionError, text: &str) -> bool {
    error.server_error().is_some_and(|server| server.message.contains(text))
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
    options: &CaptureOptions,
    status: &CaptureStatus,
    watch: &mut Watch,
) -> Result<(), RelayError> {
    if !options.semi_sync {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(options.watch_interval).await;
        let now = source::ask_semi_sync(&mut control).await?;
        let alarms = watch::assess(watch.before.as_ref(), &now);
        for alarm in alarms.iter().filter(|alarm| !watch.told.contains(*alarm)) {
            warn!(code = alarm.code(), "{alarm}");
        }
        if alarms.is_empty() && !watch.told.is_empty() {
            info!("semi-sync is sound again");
        }
        watch.told = alarms.clone();
        status.set_alarms(alarms);
        watch.before = Some(now);
    }
}
