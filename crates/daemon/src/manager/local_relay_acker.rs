//! Relays as ackers that take orders from the manager: relays of this process, and relays of another daemon
//! on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tailwater_capture::persisted_manager_orders::{AckerState, OrderNumber};
use tailwater_capture::{CaptureAcker, CaptureError};
use tailwater_manager::action_executor::{AckerControl, AckerError, AckerFuture, AckerReport};
use tailwater_manager::lossless_rules;
use tailwater_manager::model::LeaseToken;
use tailwater_wire::Flavour;
use tailwater_wire::gtid::GtidSet;

use crate::api::capture_orders::{AckerFailure, AckerOrder, AckerStatus};
use crate::api::daemon_requests::{ControlAnswer, ControlCommand};
use crate::control_socket::{ControlError, socket_client};
use crate::error_chain::ErrorChain;

/// How long an order to follow a server waits until the acker streams from that server. The acker keeps
/// trying afterwards.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(20);

/// How long another daemon may take to answer. This is longer than the time limits of that daemon for an
/// order.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

impl From<&AckerState> for AckerStatus {
    fn from(state: &AckerState) -> Self {
        Self {
            token: state.orders.token,
            stopped_since_ms: state.orders.stopped.map(|stop| stop.since_ms),
            follows: state.orders.follows.clone(),
            followed_in: state.orders.followed_in,
            run: Some(state.orders.run),
            durable: state.durable,
            is_mariadb: state.holds.as_ref().map(|holds| holds.flavour() == Flavour::MariaDb),
            holds: state.holds.as_ref().map(ToString::to_string),
            before: state.before.as_ref().map(ToString::to_string),
        }
    }
}

impl AckerStatus {
    /// Converts this state to a report about the acker that the manager calls `name`.
    ///
    /// # Errors
    /// If a GTID set cannot be parsed.
    pub fn report(&self, name: &str) -> Result<AckerReport, String> {
        let flavour = if self.is_mariadb == Some(true) { Flavour::MariaDb } else { Flavour::MySql };
        let parse = |set: &String| {
            GtidSet::parse(flavour, set)
                .map_err(|error| format!("{name} answers with an invalid GTID set: {error}"))
        };
        let holds = self.holds.as_ref().map(parse).transpose()?;
        let before = self.before.as_ref().map(parse).transpose()?.unwrap_or_else(|| GtidSet::empty(flavour));
        let stop = match self.stopped_since_ms {
            Some(_) => lossless_rules::AckerStop::Persistent,
            None => lossless_rules::AckerStop::Unknown,
        };
        Ok(AckerReport {
            acker: lossless_rules::AckerEvidence {
                name: name.to_owned(),
                durable: self.durable,
                stop,
                holds,
            },
            before,
            term: LeaseToken(self.token),
        })
    }
}

impl From<CaptureError> for AckerFailure {
    fn from(error: CaptureError) -> Self {
        Self { code: Some(error.code().to_owned()), message: error.to_string() }
    }
}

impl From<AckerFailure> for AckerError {
    fn from(failure: AckerFailure) -> Self {
        // An error with one of these codes means that the order was not executed. With any other error it may
        // have been executed.
        const REFUSALS: [&str; 2] = ["TW-RELAY-0015", "TW-RELAY-0016"];
        let is_refusal = failure.code.as_deref().is_some_and(|code| REFUSALS.contains(&code));
        let message = match failure.code {
            Some(code) => format!("{code}: {}", failure.message),
            None => failure.message,
        };
        if is_refusal { Self::Refused(message) } else { Self::Unknown(message) }
    }
}

/// Executes an order to a capture of this process, and returns the capture's state afterwards. Takes a
/// limited time.
///
/// # Errors
/// [`AckerFailure`] with the code of the [`CaptureError`].
pub async fn execute(acker: &CaptureAcker, order: &AckerOrder) -> Result<AckerStatus, AckerFailure> {
    match order {
        AckerOrder::Stop { token, run } => {
            let state = acker.stop(OrderNumber { token: *token, run: *run }).await?;
            return Ok(AckerStatus::from(&state));
        }
        AckerOrder::Read => {}
        AckerOrder::Start { token, run } => acker.start(OrderNumber { token: *token, run: *run }).await?,
        AckerOrder::Follow { token, run, server } => {
            acker.follow(OrderNumber { token: *token, run: *run }, server, FOLLOW_PATIENCE).await?;
        }
    }
    Ok(AckerStatus::from(&acker.read()?))
}

/// A capture of this process.
#[derive(Debug, Clone)]
pub struct LocalAcker {
    name: String,
    acker: CaptureAcker,
    run: Option<u64>,
}

impl LocalAcker {
    /// Creates an acker with the name `name` for this capture.
    pub fn new(name: &str, acker: CaptureAcker) -> Self {
        Self { name: name.to_owned(), acker, run: None }
    }

    async fn send(&self, order: AckerOrder) -> Result<AckerReport, AckerError> {
        let status = execute(&self.acker, &order).await?;
        status.report(&self.name).map_err(AckerError::Unknown)
    }
}

/// A capture of another daemon on this machine.
#[derive(Debug, Clone)]
pub struct SocketAcker {
    name: String,
    socket: PathBuf,
    source: String,
    run: Option<u64>,
}

impl SocketAcker {
    /// Creates an acker with the name `name` for the capture of `source` in the daemon that listens at
    /// `socket`.
    pub fn new(name: &str, socket: &Path, source: &str) -> Self {
        Self { name: name.to_owned(), socket: socket.to_owned(), source: source.to_owned(), run: None }
    }

    async fn send(&self, order: AckerOrder) -> Result<AckerReport, AckerError> {
        let (name, socket) = (&self.name, self.socket.display());
        let unknown = |reason: String| AckerError::Unknown(format!("{name}, at {socket}: {reason}"));
        let command = self.command(order);
        let sending = tokio::time::timeout(ANSWER_PATIENCE, socket_client::send(&self.socket, &command));
        let answer = match sending.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => match error.downcast_ref() {
                Some(ControlError::NoDaemon { source, .. }) => {
                    return Err(AckerError::Refused(format!(
                        "{name}: no daemon listens at {socket}: {source}"
                    )));
                }
                _ => return Err(unknown(ErrorChain(&error).to_string())),
            },
            Err(_) => return Err(unknown(format!("no answer within {} s", ANSWER_PATIENCE.as_secs()))),
        };
        match answer {
            ControlAnswer::Acker(status) => status.report(name).map_err(AckerError::Unknown),
            ControlAnswer::Failed { code, message } => Err(AckerFailure { code, message }.into()),
            _ => Err(unknown("the answer is not the state of an acker".into())),
        }
    }

    fn command(&self, order: AckerOrder) -> ControlCommand {
        let source = self.source.clone();
        match order {
            AckerOrder::Stop { token, run } => ControlCommand::AckerStop { source, token, run },
            AckerOrder::Read => ControlCommand::AckerRead { source },
            AckerOrder::Start { token, run } => ControlCommand::AckerStart { source, token, run },
            AckerOrder::Follow { token, run, server } => {
                ControlCommand::AckerFollow { source, token, run, server }
            }
        }
    }
}

macro_rules! impl_acker_control {
    ($($acker:ty),*) => { $(
        impl AckerControl for $acker {
            fn in_run(&self, run: u64) -> Arc<dyn AckerControl> {
                Arc::new(Self { run: Some(run), ..self.clone() })
            }

            fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport> {
                Box::pin(self.send(AckerOrder::Stop { token: token.0, run: self.run }))
            }

            fn read(&self) -> AckerFuture<'_, AckerReport> {
                Box::pin(self.send(AckerOrder::Read))
            }

            fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()> {
                let order = AckerOrder::Start { token: token.0, run: self.run };
                Box::pin(async move { self.send(order).await.map(drop) })
            }

            fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()> {
                let order = AckerOrder::Follow { token: token.0, run: self.run, server: server.to_owned() };
                Box::pin(async move { self.send(order).await.map(drop) })
            }
        }
    )* };
}

impl_acker_control!(LocalAcker, SocketAcker);
