//! Captures as the outside has them: options, starting, stopping.
//!
//! Everything between the socket and the disk happens on one thread per source, without handing over to another: on the way
//! of a commit each hand-over costs about as much as the fdatasync itself (docs/adr/001-one-capture-thread.md). While
//! the thread is in fdatasync the kernel's socket buffer collects what comes meanwhile; all of that is the next group.
//!
//! Where nobody waits for an ACK, the same is a task on the runtime on which the log is read: what waits there are the readers, and
//! they then need not be woken on another thread (docs/adr/029-asynchronous-source-log.md).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tailwater_log::{LogHandle, LogOptions, LogWriter};
use tailwater_session::ConnectOptions;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::capture_acker::{self, CaptureAcker};
use crate::driver::CaptureDriver;
use crate::error::RelayError;
use crate::persisted_orders::PersistedOrders;
use crate::resume::StartPolicy;
use crate::status::{CaptureState, CaptureStatus};

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
    /// How often the source's clock and its semi-sync settings are looked at.
    pub source_check_interval: Duration,
    /// The source's own folder in the log.
    pub directory: PathBuf,
    /// How the log is kept.
    pub log: LogOptions,
    /// The other servers of the cluster, by name: those that it can be ordered to follow.
    pub servers: BTreeMap<String, ConnectOptions>,
    /// Once refused, wait for orders rather than end: somebody is there to give them.
    pub wait_when_refused: bool,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    acker: CaptureAcker,
    log: LogHandle,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    /// Gets what it ended with; nothing if it panicked.
    result: mpsc::Receiver<Result<(), RelayError>>,
}

/// A capture whose log is open, and that has not begun.
#[derive(Debug)]
pub struct OpenCapture {
    options: CaptureOptions,
    writer: LogWriter,
    ordered: PersistedOrders,
}

impl OpenCapture {
    /// Starts the capture: on a thread of its own if the source waits for it, else among the tasks of `readers`. As the disk may block one
    /// of their threads at times, it has a thread of its own also beside readers that have only one.
    ///
    /// `ended` is cancelled when it ends, for whatever reason.
    ///
    /// # Errors
    /// [`RelayError::Runtime`] if the system has no room for a thread of its own.
    pub fn start(self, ended: CancellationToken, readers: Option<&Handle>) -> Result<Capture, RelayError> {
        let Self { options, writer, ordered } = self;
        let has_more_threads = |readers: &&Handle| readers.runtime_flavor() == RuntimeFlavor::MultiThread;
        let readers = readers.filter(|_| !options.semi_sync).filter(has_more_threads);
        let log = writer.handle();
        let status = Arc::new(CaptureStatus::default());
        // Known before the thread runs: who asks at once is not to hear that it connects.
        if let Some(stop) = ordered.stopped {
            status.set_state(CaptureState::StoppedByOrder(stop));
        }
        status.set_orders(ordered);
        let stop = CancellationToken::new();
        let (giving, orders) = capture_acker::order_channel();
        let acker = CaptureAcker::new(&options, giving, log.clone(), status.clone());
        let span = info_span!("relay.capture", source = %options.name);
        let driver = CaptureDriver::new(options, status.clone(), stop.clone(), writer);
        let (result_of, result) = mpsc::channel();
        let run = async move {
            let _ended = ended.drop_guard();
            let ended = driver.run(orders).instrument(span).await;
            // Nobody may want to know.
            let _ = result_of.send(ended);
        };
        match readers {
            Some(readers) => drop(readers.spawn(run)),
            None => spawn_capture_thread(run)?,
        }
        Ok(Capture { acker, log, status, stop, result })
    }
}

fn spawn_capture_thread(run: impl Future<Output = ()> + Send + 'static) -> Result<(), RelayError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RelayError::runtime)?;
    let thread = std::thread::Builder::new().name("capture".into());
    thread.spawn(move || runtime.block_on(run)).map(drop).map_err(RelayError::runtime)
}

impl Capture {
    /// Opens the log and what the capture was ordered, so that what is wrong with them shows at once.
    ///
    /// # Errors
    /// [`RelayError::Log`] if one cannot be opened.
    pub fn open(options: CaptureOptions) -> Result<OpenCapture, RelayError> {
        let writer = LogWriter::open(&options.directory, options.log.clone())?;
        let ordered = PersistedOrders::read(&options.directory)?;
        Ok(OpenCapture { options, writer, ordered })
    }

    /// Opens the log and starts at once.
    ///
    /// # Errors
    /// As [`Capture::open`] and [`OpenCapture::start`].
    pub fn start(
        options: CaptureOptions,
        ended: CancellationToken,
        readers: Option<&Handle>,
    ) -> Result<Self, RelayError> {
        Self::open(options)?.start(ended, readers)
    }

    /// The log that it writes, for readers. It outlives the capture.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
    }

    /// State and counters, live.
    pub fn status(&self) -> Arc<CaptureStatus> {
        self.status.clone()
    }

    /// To give it orders.
    pub fn acker(&self) -> CaptureAcker {
        self.acker.clone()
    }

    /// Ends the capture; [`Capture::join`] waits until it has. After a restart it goes on: for good it is stopped by
    /// [`CaptureAcker::stop`].
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for its end, and says why it ended. Blocks the thread.
    ///
    /// # Errors
    /// Whatever ended the capture, unless that was [`Capture::stop`].
    pub fn join(self) -> Result<(), RelayError> {
        let panicked = |_| Err(RelayError::Runtime { detail: "it panicked".into() });
        tailwater_log::blocking(|| self.result.recv()).unwrap_or_else(panicked)
    }
}
