//! What the binlog server needs to know about the capture that writes the served log. The capture has the
//! role of a replica's receiver (I/O) thread, which writes the relay log. `SHOW REPLICA STATUS` therefore
//! shows the capture as a receiver thread.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use tailwater_session::ConnectOptions;
use tokio::sync::watch;

/// The state of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverState {
    /// The receiver connects to the source.
    Connecting,
    /// The receiver reads the source's stream.
    Streaming,
    /// The receiver waits before its next attempt to connect. The text is the error of the last attempt.
    Waiting(String),
    /// An error stopped the receiver. The text has the cause and the remedy.
    Refused(String),
    /// An order of a manager stopped the receiver.
    StoppedByOrder,
    /// The receiver stopped because the daemon stops.
    Stopped,
}

/// Why a receiver last stopped, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverFailure {
    /// The text of the error.
    pub message: String,
    /// When the receiver stopped.
    pub at: SystemTime,
}

/// The state of a receiver at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverStatus {
    /// What the receiver is doing.
    pub state: ReceiverState,
    /// Why the receiver last stopped. `None` if it has never stopped. The value stays the same when the
    /// receiver starts again.
    pub last_failure: Option<ReceiverFailure>,
}

/// The receiver that writes a served log.
pub trait LogReceiver: fmt::Debug + Send + Sync {
    /// The current state of the receiver.
    fn status(&self) -> ReceiverStatus;

    /// The source's global variables that readers of its binlog query, with the values that the capture last
    /// read. Empty before the capture has reached the source.
    fn source_variables(&self) -> BTreeMap<String, String>;

    /// The time on the source's clock, in microseconds since 1970.
    fn source_now_us(&self) -> u64;

    /// A channel whose value changes when the receiver finds that [`LogReceiver::source_now_us`] was wrong.
    /// Clients that received the wrong time must query the time again.
    fn clock_steps(&self) -> watch::Receiver<u64>;

    /// Milliseconds since the receiver last appended a transaction to the log. `None` if it has not appended
    /// a transaction since it started.
    fn appended_ago_ms(&self) -> Option<u64>;

    /// The address of the server that the receiver reads from by order of a manager; `None` while it reads
    /// from its own source.
    fn followed_server(&self) -> Option<ConnectOptions>;
}
