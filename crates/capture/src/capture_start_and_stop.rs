//! The public interface of a capture: options, start and stop.
//!
//! Everything between the socket and the disk runs on one thread per source. Handing a commit over to another
//! thread costs about as much as the fdatasync itself (docs/adr/001-one-capture-thread.md). During an
//! fdatasync, the kernel's socket buffer collects events; all of them become durable with the next fdatasync.
//!
//! If no commit waits for an ACK, the capture has no thread of its own. It is a task on the runtime of the
//! log's readers, because only they wait for its work. Waking the readers then needs no switch to another
//! thread (docs/adr/029-asynchronous-source-log.md).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tailwater_log::{LogHandle, LogOptions, LogWriter};
use tailwater_session::ConnectOptions;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::capture_handle_for_manager::{self, CaptureAcker};
use crate::capture_loop::CaptureDriver;
use crate::capture_status::{CaptureState, CaptureStatus};
use crate::error::CaptureError;
use crate::persisted_manager_orders::PersistedOrders;
use crate::resume_position::StartPolicy;

/// The source to capture, and the log to store it in.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The name of the source in messages.
    pub name: String,
    /// How to connect to the source. If the log has events, the source must have the log's flavour. The
    /// flavour of an empty log is unknown until the capture has reached the source.
    pub connect: ConnectOptions,
    /// The `server_id` with which the capture registers at the source as a replica.
    pub server_id: u32,
    /// Whether to request semi-sync. If so, a source without semi-sync is an error.
    pub semi_sync: bool,
    /// Where the capture of an empty log starts.
    pub start: StartPolicy,
    /// How often the source sends a heartbeat when it has no events. If no bytes arrive for three heartbeat
    /// periods, the connection counts as broken. For short periods, the limit is higher, but at most 2 s.
    pub heartbeat: Duration,
    /// The time between two checks of the source's clock and its semi-sync settings.
    pub source_check_interval: Duration,
    /// The directory of the log. Each source needs its own directory.
    pub directory: PathBuf,
    /// The options of the log.
    pub log: LogOptions,
    /// The other servers of the cluster, by name. An order can make the capture follow one of them instead of
    /// the source.
    pub servers: BTreeMap<String, ConnectOptions>,
    /// Whether the capture waits for orders after a permanent error, instead of ending. True if a manager is
    /// configured, because only a manager gives orders.
    pub wait_when_refused: bool,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    acker: CaptureAcker,
    log: LogHandle,
    status: Arc<CaptureStatus>,
    stop: CancellationToken,
    /// Receives the result of the capture. The channel closes without a result if the capture panicked.
    result: mpsc::Receiver<Result<(), CaptureError>>,
}

/// A capture that has opened its log and has not started.
#[derive(Debug)]
pub struct OpenCapture {
    options: CaptureOptions,
    writer: LogWriter,
    ordered: PersistedOrders,
}

impl OpenCapture {
    /// Starts the capture. If commits of the source wait for its ACKs, the capture gets a thread of its own.
    /// Otherwise it is a task on the `readers` runtime, unless that runtime is single-threaded: disk writes
    /// would sometimes block its only thread.
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
        // Set the state before the capture's thread starts. Otherwise an early reader of the status would see
        // `Connecting` although an order has stopped the capture.
        if let Some(stop) = ordered.stopped {
            status.set_state(CaptureState::StoppedByOrder(stop));
        }
        status.set_orders(ordered);
        let stop = CancellationToken::new();
        let (order_sender, orders) = capture_handle_for_manager::order_channel();
        let acker = CaptureAcker::new(&options, order_sender, log.clone(), status.clone());
        let span = info_span!("capture", source = %options.name);
        let driver = CaptureDriver::new(options, status.clone(), stop.clone(), writer);
        let (result_of, result) = mpsc::channel();
        let run = async move {
            let _ended = ended.drop_guard();
            let result = driver.run(orders).instrument(span).await;
            // Ignore an error: the receiver may have been dropped.
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
    /// Opens the log and reads the persisted orders. So the caller gets an error in the log or the orders
    /// immediately.
    ///
    /// # Errors
    /// [`CaptureError::Log`] if the log or the orders cannot be read.
    pub fn open(options: CaptureOptions) -> Result<OpenCapture, CaptureError> {
        let writer = LogWriter::open(&options.directory, options.log.clone())?;
        let ordered = PersistedOrders::read(&options.directory)?;
        Ok(OpenCapture { options, writer, ordered })
    }

    /// Opens the log and starts the capture.
    ///
    /// # Errors
    /// The errors of [`Capture::open`] and [`OpenCapture::start`].
    pub fn start(
        options: CaptureOptions,
        ended: CancellationToken,
        readers: Option<&Handle>,
    ) -> Result<Self, CaptureError> {
        Self::open(options)?.start(ended, readers)
    }

    /// The log that the capture writes, for readers. It stays readable after the capture has ended.
    pub fn log(&self) -> LogHandle {
        self.log.clone()
    }

    /// The current state and counters of the capture.
    pub fn status(&self) -> Arc<CaptureStatus> {
        self.status.clone()
    }

    /// A handle for giving orders to the capture.
    pub fn acker(&self) -> CaptureAcker {
        self.acker.clone()
    }

    /// Ends the capture. [`Capture::join`] waits for the end. After a restart the process captures again,
    /// unless [`CaptureAcker::stop`] has stopped the capture.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the capture to end. Blocks the thread.
    ///
    /// # Errors
    /// The error that ended the capture. There is no error if [`Capture::stop`] ended it.
    pub fn join(self) -> Result<(), CaptureError> {
        let panicked = |_| Err(CaptureError::Runtime { detail: "the capture panicked".into() });
        tailwater_log::blocking(|| self.result.recv()).unwrap_or_else(panicked)
    }
}
