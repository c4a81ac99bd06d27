//! Relays as ackers that the manager can order about: those of this process, and those of another daemon on this machine.
//! Orders and answers as text are the same wherever they are carried.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tailwater_capture::persisted_orders::AckerState;
use tailwater_capture::{CaptureAcker, CaptureError};
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerFuture, AckerReport};
use tailwater_manager::lease::LeaseToken;
use tailwater_manager::lossless;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::control::{Answer, LINE_BYTES_MAX, Request};

/// How long an acker may take until it streams from a new source. It goes on trying afterwards; who asked goes on, too.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(20);

/// How long another daemon may take to answer: longer than it takes itself at the most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// An order to an acker, or the question how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum AckerOrder {
    /// Stop capturing and acknowledging, over restarts too.
    Stop {
        /// The term of the lease.
        token: u64,
    },
    /// Say what is held, and change nothing.
    Read,
    /// Go on, with whom it followed.
    Start {
        /// The term of the lease.
        token: u64,
    },
    /// Capture from another server.
    Follow {
        /// The term of the lease.
        token: u64,
        /// The `[[server]]`'s name, or the source's own.
        server: String,
    },
}

/// How an acker stands and what its log holds, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckerStatus {
    /// The highest term of the lease that an order came from.
    pub token: u64,
    /// Since when it stands still by order, in milliseconds since 1970; absent if it does not.
    pub stopped_since_ms: Option<u64>,
    /// The server that it was told to follow; its own source if absent.
    pub follows: Option<String>,
    /// The term in which it was told that; 0 if it never was, or does not say.
    #[serde(default)]
    pub followed_in: u64,
    /// Whether it acknowledges only what a power cut would leave.
    pub durable: bool,
    /// The family of the sets; absent while the log is empty.
    pub is_mariadb: Option<bool>,
    /// All that its log holds durably, and what was before it; absent while it is empty.
    pub holds: Option<String>,
    /// What of that its log cannot give any more.
    pub before: Option<String>,
}

impl From<&AckerState> for AckerStatus {
    fn from(state: &AckerState) -> Self {
        Self {
            token: state.orders.token,
            stopped_since_ms: state.orders.stopped.map(|stop| stop.since_ms),
            follows: state.orders.follows.clone(),
            followed_in: state.orders.followed_in,
            durable: state.durable,
            is_mariadb: state.holds.as_ref().map(|holds| holds.flavour() == Flavour::MariaDb),
            holds: state.holds.as_ref().map(ToString::to_string),
            before: state.before.as_ref().map(ToString::to_string),
        }
    }
}

impl AckerStatus {
    /// The same as the manager takes it, of the acker that it calls `name`.
    ///
    /// # Errors
    /// In words, if a set is none.
    pub fn report(&self, name: &str) -> Result<AckerReport, String> {
        let flavour = if self.is_mariadb == Some(true) { Flavour::MariaDb } else { Flavour::MySql };
        let parse = |set: &String| {
            GtidSet::parse(flavour, set)
                .map_err(|error| format!("{name} answers with a set that is none: {error}"))
        };
        let holds = self.holds.as_ref().map(parse).transpose()?;
        let before = self.before.as_ref().map(parse).transpose()?.unwrap_or_else(|| GtidSet::empty(flavour));
        let stop = match self.stopped_since_ms {
            Some(_) => lossless::AckerStop::Persistent,
            None => lossless::AckerStop::Unknown,
        };
        Ok(AckerReport {
            acker: lossless::AckerEvidence { name: name.to_owned(), durable: self.durable, stop, holds },
            before,
            term: LeaseToken(self.token),
        })
    }
}

/// Why an order was not obeyed, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckerFailure {
    /// The stable code, if there is one.
    pub code: Option<String>,
    /// Why.
    pub message: String,
}

impl From<CaptureError> for AckerFailure {
    fn from(error: CaptureError) -> Self {
        Self { code: Some(error.code().to_owned()), message: error.to_string() }
    }
}

impl From<AckerFailure> for AckerError {
    fn from(failure: AckerFailure) -> Self {
        // Of these nothing was done; of all others who knows.
        const REFUSALS: [&str; 2] = ["TW-RELAY-0015", "TW-RELAY-0016"];
        let is_refusal = failure.code.as_deref().is_some_and(|code| REFUSALS.contains(&code));
        let message = match failure.code {
            Some(code) => format!("{code}: {}", failure.message),
            None => failure.message,
        };
        if is_refusal { Self::Refused(message) } else { Self::Unknown(message) }
    }
}

/// Has a capture of this process obey, and says how it stands then. Back in bounded time.
///
/// # Errors
/// [`AckerFailure`] with the code of the [`CaptureError`].
pub async fn obey(acker: &CaptureAcker, order: &AckerOrder) -> Result<AckerStatus, AckerFailure> {
    match order {
        AckerOrder::Stop { token } => return Ok(AckerStatus::from(&acker.stop(*token).await?)),
        AckerOrder::Read => {}
        AckerOrder::Start { token } => acker.start(*token).await?,
        AckerOrder::Follow { token, server } => acker.follow(*token, server, FOLLOW_PATIENCE).await?,
    }
    Ok(AckerStatus::from(&acker.read()?))
}

/// A capture of this process.
#[derive(Debug, Clone)]
pub struct LocalAcker {
    name: String,
    acker: CaptureAcker,
}

impl LocalAcker {
    /// The capture as the manager's acker `name`.
    pub fn new(name: &str, acker: CaptureAcker) -> Self {
        Self { name: name.to_owned(), acker }
    }

    async fn give(&self, order: AckerOrder) -> Result<AckerReport, AckerError> {
        let text = obey(&self.acker, &order).await?;
        text.report(&self.name).map_err(AckerError::Unknown)
    }
}

/// A capture of another daemon on this machine.
#[derive(Debug, Clone)]
pub struct SocketAcker {
    name: String,
    socket: PathBuf,
    source: String,
}

impl SocketAcker {
    /// The capture of `source` by the daemon that listens at `socket`, as the manager's acker `name`.
    pub fn new(name: &str, socket: &Path, source: &str) -> Self {
        Self { name: name.to_owned(), socket: socket.to_owned(), source: source.to_owned() }
    }

    async fn give(&self, order: AckerOrder) -> Result<AckerReport, AckerError> {
        let (name, socket) = (&self.name, self.socket.display());
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| {
            AckerError::Refused(format!("{name}: no daemon listens at {socket}: {error}"))
        })?;
        let unknown = |reason: String| AckerError::Unknown(format!("{name}, at {socket}: {reason}"));
        let answer = match tokio::time::timeout(ANSWER_PATIENCE, converse(stream, &self.request(order))).await
        {
            Ok(answer) => answer.map_err(|error| unknown(error.to_string()))?,
            Err(_) => return Err(unknown(format!("no answer within {} s", ANSWER_PATIENCE.as_secs()))),
        };
        match answer {
            Answer::Acker(text) => text.report(name).map_err(AckerError::Unknown),
            Answer::Failed { code, message } => Err(AckerFailure { code, message }.into()),
            _ => Err(unknown("it answered something else".into())),
        }
    }

    fn request(&self, order: AckerOrder) -> Request {
        let source = self.source.clone();
        match order {
            AckerOrder::Stop { token } => Request::AckerStop { source, token },
            AckerOrder::Read => Request::AckerRead { source },
            AckerOrder::Start { token } => Request::AckerStart { source, token },
            AckerOrder::Follow { token, server } => Request::AckerFollow { source, token, server },
        }
    }
}

async fn converse(stream: UnixStream, request: &Request) -> std::io::Result<Answer> {
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    let mut answer = Vec::new();
    BufReader::new(read).take(LINE_BYTES_MAX).read_until(b'\n', &mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}

macro_rules! acker_port {
    ($($acker:ty),*) => { $(
        impl AckerControl for $acker {
            fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport> {
                Box::pin(self.give(AckerOrder::Stop { token: token.0 }))
            }

            fn read(&self) -> AckerFuture<'_, AckerReport> {
                Box::pin(self.give(AckerOrder::Read))
            }

            fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()> {
                Box::pin(async move { self.give(AckerOrder::Start { token: token.0 }).await.map(drop) })
            }

            fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()> {
                let order = AckerOrder::Follow { token: token.0, server: server.to_owned() };
                Box::pin(async move { self.give(order).await.map(drop) })
            }
        }
    )* };
}

acker_port!(LocalAcker, SocketAcker);
