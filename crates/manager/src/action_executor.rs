//! Who does what the machines order: hands that reach servers, relays and hooks. Drivers implement these; the machines and
//! whoever drives them know nothing else of the world.

use std::future::Future;
use std::pin::Pin;

use tailwater_wire::gtid::GtidSet;

use crate::failover::{ActionOutcome, RunAction};
use crate::lease::LeaseToken;
use crate::lossless::AckerEvidence;

/// Does one act after the other, or several side by side.
pub trait ActionExecutor: Send + Sync {
    /// Does it in bounded time, and says how it went: [`ActionOutcome::Failed`] only if it certainly was not done, and
    /// [`ActionOutcome::Unknown`] where nobody can know. Done once more, it changes nothing more.
    ///
    /// Never asked for [`RunAction::CheckLease`] and [`RunAction::ConfirmFailure`]: those are for whoever drives.
    fn execute(&self, act: &RunAction, token: LeaseToken) -> impl Future<Output = ActionOutcome> + Send;
}

/// The answer of an acker, later.
pub type AckerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// How an acker stands, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerReport {
    /// Its state; of a stop, read behind it.
    pub acker: AckerEvidence,
    /// What its log cannot give any more.
    pub before: GtidSet,
    /// The highest term in which it was given an order.
    pub term: LeaseToken,
}

/// Why an acker did not do as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckerError {
    /// It did nothing, for certain: it refused, or was never reached.
    Refused(String),
    /// It may have done it.
    Unknown(String),
}

/// A relay that can be told what to do, in this process or on another machine. A relay that has seen a higher token refuses.
pub trait AckerControl: Send + Sync {
    /// Stops capturing and acknowledging, durably so, and tells what it holds then.
    fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport>;
    /// Tells what it holds now, and changes nothing.
    fn read(&self) -> AckerFuture<'_, AckerReport>;
    /// Captures again, from whom it did before.
    fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()>;
    /// Captures from another server of the cluster from now on, and is back when that streams.
    fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()>;
}
