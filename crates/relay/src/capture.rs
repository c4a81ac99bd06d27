//! Captures as the outside has them: options, starting, stopping.
//!
//! Everything between the socket and the disk happens on one thread per source, without handing over to another: on the way
//! of a commit each hand-over costs about as much as the fdatasync itself (docs/adr/001-one-capture-thread.md). While
//! the thread is in fdatasync the kernel's socket buffer collects what comes meanwhile; all of that is the next group.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tailwater_log::{LogHandle, LogOptions, LogWriter};
use tailwater_session::ConnectOptions;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::acker::Ordered;
use crate::driver::Driver;
use crate::error::RelayError;
use crate::orders::{self, Acker};
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
    pub watch_interval: Duration,
    /// The source's own folder in the log.
    pub directory: PathBuf,
    /// How the log is kept.
    pub log: LogOptions,
    /// The other servers of the cluster, by name: those that it can be ordered to follow.
    pub servers: BTreeMap<String, ConnectOptions>,
    /// Once refused, wait for orders rather than end: somebody is there to give them.
    pub stays: bool,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    acker: Acker,
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
    ordered: Ordered,
}

impl OpenCapture {
    /// Starts the capture's thread.
    ///
    /// `ended` is cancelled when the thread ends, for whatever reason.
    ///
    /// # Errors
    /// [`RelayError::Runtime`] if the system has no room for a thread.
    pub fn start(self, ended: CancellationToken) -> Result<Capture, RelayError> {
        let Self { options, writer, ordered } = self;
        let log = writer.handle();
        let status = Arc::new(CaptureStatus::default());
        // Known before the thread runs: who asks at once is not to hear that it connects.
        if let Some(stop) = ordered.stopped {
            status.set_state(CaptureState::StoppedByOrder(stop));
        }
        status.set_ordered(ordered);
        let stop = CancellationToken::new();
        let (giving, orders) = orders::channel();
        let acker = Acker::new(&options, giving, log.clone(), status.clone());
        let span = info_span!("relay.capture", source = %options.name);
        let driver = Driver::new(options, status.clone(), stop.clone(), writer);
        let thread = std::thread::Builder::new()
            .name("capture".into())
            .spawn(move || {
                let _ended = ended.drop_guard();
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(RelayError::runtime)?;
                runtime.block_on(driver.run(orders).instrument(span))
            })
            .map_err(RelayError::runtime)?;
        Ok(Capture { acker, log, status, stop, thread })
    }
}

impl Capture {
    /// Opens the log and what the capture was ordered, so that what is wrong with them shows at once.
    ///
    /// # Errors
    /// [`RelayError::Log`] if one cannot be opened.
    pub fn open(options: CaptureOptions) -> Result<OpenCapture, RelayError> {
        let writer = LogWriter::open(&options.directory, options.log.clone())?;
        let ordered = Ordered::read(&options.directory)?;
        Ok(OpenCapture { options, writer, ordered })
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

    /// To give it orders.
    pub fn acker(&self) -> Acker {
        self.acker.clone()
    }

    /// Ends the capture; [`Capture::join`] waits until it has. After a restart it goes on: for good it is stopped by
    /// [`Acker::stop`].
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
