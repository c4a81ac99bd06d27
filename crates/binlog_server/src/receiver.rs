//! What the binlog server asks of the capture that writes the served log. The capture is to the log what the
//! receiver (I/O) thread of a replica is to its relay log, and clients see it as that: `SHOW REPLICA STATUS`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use tailwater_session::ConnectOptions;
use tokio::sync::watch;

/// What a receiver is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverState {
    /// Connecting to the source.
    Connecting,
    /// Reading the source's stream.
    Streaming,
    /// Waiting before the next attempt to connect; the text is the error of the last one.
    Waiting(String),
    /// Stopped by an error; the text is the cause and the remedy.
    Refused(String),
    /// Stopped by order of a manager.
    StoppedByOrder,
    /// Stopped with the daemon.
    Stopped,
}

/// Why a receiver last stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverFailure {
    /// The error text.
    pub message: String,
    /// When it happened.
    pub at: SystemTime,
}

/// A receiver at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverStatus {
    /// What it is doing.
    pub state: ReceiverState,
    /// Why it last stopped, if it ever did, whether it runs again or not.
    pub last_failure: Option<ReceiverFailure>,
}

/// The receiver that writes a served log.
pub trait LogReceiver: fmt::Debug + Send + Sync {
    /// Its state now.
    fn status(&self) -> ReceiverStatus;

    /// The source's settings that readers of its binlog query, as last read; empty before the source was
    /// reached.
    fn source_variables(&self) -> BTreeMap<String, String>;

    /// The time on the source's clock, in microseconds since 1970.
    fn source_now_us(&self) -> u64;

    /// Changes when [`LogReceiver::source_now_us`] was found wrong. Clients that got the time from it must
    /// query it again.
    fn clock_steps(&self) -> watch::Receiver<u64>;

    /// Milliseconds since a transaction was last appended to the log; `None` if none was since the receiver
    /// started.
    fn appended_ago_ms(&self) -> Option<u64>;

    /// The address of the server that it follows by order; `None` while it reads from its own source.
    fn followed_server(&self) -> Option<ConnectOptions>;
}
