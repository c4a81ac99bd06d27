//! Interfaces through which failovers, switchovers and recoveries act on servers, relays and hooks. The state
//! machines do no I/O of their own: a driver calls these interfaces for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tailwater_wire::gtid::GtidSet;

use crate::lossless_rules::AckerEvidence;
use crate::model::{ActionOutcome, LeaseToken, RunAction};

/// Executes the actions of a failover or switchover, one at a time or several in parallel.
pub trait ActionExecutor: Send + Sync {
    /// Executes one action in bounded time. [`ActionOutcome::Failed`] means that the action certainly had no
    /// effect; [`ActionOutcome::Unknown`] means that the action may have had an effect. It is safe to repeat
    /// an action that has already taken effect.
    ///
    /// The driver answers [`RunAction::CheckLease`] and [`RunAction::ConfirmFailure`] itself, so this method
    /// never receives them.
    fn execute(&self, act: &RunAction, token: LeaseToken) -> impl Future<Output = ActionOutcome> + Send;
}

/// The result of a request to an acker, as a future: the acker's answer, or why there is no answer.
pub type AckerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, AckerError>> + Send + 'a>>;

/// The state of an acker, and which transactions its log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckerReport {
    /// State of the acker. In the answer to an order to stop, this is the state after the acker has stopped.
    pub acker: AckerEvidence,
    /// Transactions before the beginning of the acker's log. The acker can no longer send them.
    pub before: GtidSet,
    /// The highest lease term from which the acker has accepted an order.
    pub term: LeaseToken,
}

/// Why an acker did not execute an order of the manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckerError {
    /// The acker certainly did not execute the order: it refused, or could not be reached.
    Refused(String),
    /// The acker may have executed the order.
    Unknown(String),
}

/// Control of a relay, in this process or on another machine. Each order carries the token of a lease term. A
/// relay refuses an order if it has already seen a higher token.
pub trait AckerControl: Send + Sync {
    /// Returns a control of the same relay for one failover, switchover or recovery: number `run` of those
    /// that this manager process began in its lease term. After an order of a later one, the relay refuses
    /// the orders of this one, which may arrive late. A manager process that starts again gets a later lease
    /// term.
    fn in_run(&self, run: u64) -> Arc<dyn AckerControl>;
    /// Stops capture and semi-sync ACKs, also after a restart of the relay. Then reports what the log holds.
    fn stop(&self, token: LeaseToken) -> AckerFuture<'_, AckerReport>;
    /// Reports what the relay's log holds now. Changes nothing.
    fn read(&self) -> AckerFuture<'_, AckerReport>;
    /// Resumes capture from the same source as before.
    fn start(&self, token: LeaseToken) -> AckerFuture<'_, ()>;
    /// Makes the relay capture from another server of the cluster. Returns when that stream is established.
    fn follow<'a>(&'a self, token: LeaseToken, server: &'a str) -> AckerFuture<'a, ()>;
}
