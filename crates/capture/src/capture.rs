//! The public side of captures: options, starting, stopping.
//!
//! Everything between the socket and the disk runs on one thread per source, without handing over to another
//! thread. On the path of a commit each hand-over costs about as much as the fdatasync itself
//! (docs/adr/001-one-capture-thread.md). During an fdatasync the kernel's socket buffer collects events; all
//! of them form the next group.
//!
//! Where no commit waits for an ACK, the capture is a task on the runtime of the log's readers instead. Only
//! those readers wait for its work, and they need not be woken on another thread
//! (docs/adr/029-asynchronous-source-log.md).

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
use crate::error::CaptureError;
use crate::persisted_orders::PersistedOrders;
use crate::resume::StartPolicy;
use crate::status::{CaptureState, CaptureStatus};

/// What to capture, and where to store it.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The source's name in messages.
    pub name: String,
    /// How to connect to the source. The flavour of an empty log is unknown before the source was reached; an
    /// existing log must match.
    pub connect: ConnectOptions,
    /// The `server_id` to register with.
    pub server_id: u32,
    /// Request semi-sync, and treat its absence as an error.
    pub semi_sync: bool,
    /// Where an empty log begins.
    pub start: StartPolicy,
    /// The longest silence of the source; three times that counts as a broken connection.
    pub heartbeat: Duration,
    /// Pause between two checks of the source's clock and its semi-sync settings.
    pub source_check_interval: Duration,
    /// The source's own directory in the log.
    pub directory: PathBuf,
    /// Options of the log.
    pub log: LogOptions,
    /// The other servers of the cluster, by name, that an order can make the capture follow.
    pub servers: BTreeMap<String, ConnectOptions>,
    /// After a permanent error, wait for orders instead of ending, because a manager is there to give them.
    pub wait_when_refused: bool,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    acker: CaptureAcker,
    log: LogHandle,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    /// Receives the result of the capture; disconnects without one if the capture panicked.
    result: mpsc::Receiver<Result<(), CaptureError>>,
}

/// A capture whose log is open and that has not started.
#[derive(Debug)]
pub struct OpenCapture {
    options: CaptureOptions,
    writer: LogWriter,
    ordered: PersistedOrders,
}

impl OpenCapture {
    /// Starts the capture: on a thread of its own if commits of the source wait for it, otherwise as a task
    /// of the `readers` runtime. The disk may block one of that runtime's threads at times, so a
    /// single-threaded runtime is not used.
    ///
    /// `ended` is cancelled when the capture ends, for any reason.
    ///
    /// # Errors
    /// [`CaptureError::Runtime`] if the system cannot create the thread.
    pub fn start(self, ended: CancellationToken, readers: Option<&Handle>) -> Result<Capture, CaptureError> {
        let Self { options, writer, ordered } = self;
        let has_more_threads = |readers: &&Handle| readers.runtime_flavor() == RuntimeFlavor::MultiThread;
        let readers = readers.filter(|_| !options.semi_sync).filter(has_more_threads);
        let log = writer.handle();
        let status = Arc::new(CaptureStatus::default());
        // Set before the thread runs, so that an early reader of the status does not see `Connecting`.
        if let Some(stop) = ordered.stopped {
            status.set_state(CaptureState::StoppedByOrder(stop));
        }
        status.set_orders(ordered);
        let stop = CancellationToken::new();
        let (order_sender, orders) = capture_acker::order_channel();
        let acker = CaptureAcker::new(&options, order_sender, log.clone(), status.clone());
        let span = info_span!("capture", source = %options.name);
        let driver = CaptureDriver::new(options, status.clone(), stop.clone(), writer);
        let (result_of, result) = mpsc::channel();
        let run = async move {
            let _ended = ended.drop_guard();
            let result = driver.run(orders).instrument(span).await;
            // The receiver may have been dropped.
            let _ = result_of.send(result);
        };
        match readers {
            Some(readers) => drop(readers.spawn(run)),
            None => spawn_capture_thread(run)?,
        }
        Ok(Capture { acker, log, status, stop, result })
    }
}

fn spawn_capture_thread(run: impl Future<Output = ()> + Send + 'static) -> Result<(), CaptureError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CaptureError::runtime)?;
    let thread = std::thread::Builder::new().name("capture".into());
    thread.spawn(move || runtime.block_on(run)).map(drop).map_err(CaptureError::runtime)
}

impl Capture {
    /// Opens the log and reads the persisted orders, so that errors in them are reported at once.
    ///
    /// # Errors
    /// [`CaptureError::Log`] if one cannot be opened.
    pub fn open(options: CaptureOptions) -> Result<OpenCapture, CaptureError> {
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
    ) -> Result<Self, CaptureError> {
        Self::open(options)?.start(ended, readers)
    }

    /// The log that it writes, for readers. Outlives the capture.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
    }

    /// State and counters, live.
    pub fn status(&self) -> Arc<CaptureStatus> {
        self.status.clone()
    }

    /// A handle to give it orders.
    pub fn acker(&self) -> CaptureAcker {
        self.acker.clone()
    }

    /// Ends the capture; [`Capture::join`] waits for the end. A restarted process captures again; after
    /// [`CaptureAcker::stop`] it does not.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the capture to end, and returns why it ended. Blocks the thread.
    ///
    /// # Errors
    /// The error that ended the capture, unless [`Capture::stop`] did.
    pub fn join(self) -> Result<(), CaptureError> {
        let panicked = |_| Err(CaptureError::Runtime { detail: "the capture panicked".into() });
        tailwater_log::blocking(|| self.result.recv()).unwrap_or_else(panicked)
    }
}
