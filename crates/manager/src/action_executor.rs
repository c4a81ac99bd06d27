//! Interfaces through which runs act: on servers, relays and hooks. Drivers implement them; the state
//! machines know nothing else of the outside.

use std::future::Future;
use std::pin::Pin;

use tailwater_wire::gtid::GtidSet;

use crate::lossless::AckerEvidence;
use crate::model::LeaseToken;
use crate::model::{ActionOutcome, RunAction};

/// Executes the actions of a run, one at a time or several in parallel.
pub trait ActionExecutor: Send + Sync {
    /// Executes one action in bounded time. [`ActionOutcome::Failed`] means that it certainly had no effect;
    /// [`ActionOutcome::Unknown`] that it may have had one. Repeating an action changes nothing more.
    ///
    /// Never called with [`RunAction::CheckLease`] and [`RunAction::ConfirmFailure`], which the driver
    /// answers itself.
    fn execute(&self, act: &RunAction, token: LeaseToken) -> impl Future<Output = ActionOutcome> + Send;
}

/// The pending answer of an acker.
pub type AckerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// State of an acker and the transactions that its log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerReport {
    /// Its state; after a stop, read once it has stopped.
    pub acker: AckerEvidence,
    /// Transactions before the beginning of its log, which it cannot send any more.
    pub before: GtidSet,
    /// The highest lease term from which it has accepted an order.
    pub term: LeaseToken,
}

/// Why an acker did not execute an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckerError {
    /// It certainly did nothing: it refused, or was never reached.
    Refused(String),
    /// It may have executed the order.
    Unknown(String),
}

/// Control of a relay, in this process or on another machine. A relay refuses a token below the highest it
/// has seen.
pub trait AckerControl: Send + Sync {
    /// Stops capture and acknowledgements durably, then reports what the log holds.
    fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport>;
    /// Reports what the log holds now, without changing anything.
    fn read(&self) -> AckerFuture<'_, AckerReport>;
    /// Resumes capture from the same source as before.
    fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()>;
    /// Captures from another server of the cluster. Returns once that stream is established.
    fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()>;
}
