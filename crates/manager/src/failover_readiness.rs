//! Whether a failover would succeed if the primary died now. Pure.
//!
//! Runs a dry run of the real state machine ([`Failover`]) on the last reports of all relays and servers, so
//! a rule that refuses here also refuses a real failover.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action_executor::AckerReport;
use crate::candidates::CandidateServer;
use crate::failover::{ActionOutcome, Failover, FailoverRequest, RunAction, RunOutcome};
use crate::lease::LeaseToken;
use crate::safety_refusal::SafetyRefusal;

/// Result of the rehearsal for the present primary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FailoverReadiness {
    /// A failover would promote a server.
    Ready {
        /// The server.
        server: String,
    },
    /// A rule would refuse.
    NotReady {
        /// Code of the rule.
        rule: String,
        /// Object, cause and remedy.
        reason: String,
    },
    /// Readiness cannot be determined now.
    Unknown {
        /// The reason.
        reason: String,
    },
}

impl FailoverReadiness {
    /// Code of the rule that would refuse, if any.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::NotReady { rule, .. } => Some(rule),
            Self::Ready { .. } | Self::Unknown { .. } => None,
        }
    }

    /// From the rule that would refuse.
    pub fn refused(refusal: &SafetyRefusal) -> Self {
        Self::NotReady { rule: refusal.code().to_owned(), reason: refusal.to_string() }
    }
}

impl fmt::Display for FailoverReadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { server } => write!(f, "ready: a failover would promote {server}"),
            Self::NotReady { rule, reason } => {
                write!(f, "not ready: every failover would be refused: {rule} {reason}")
            }
            Self::Unknown { reason } => write!(f, "not known: {reason}"),
        }
    }
}

/// Rehearses a failover with the last report of each relay (or why there is none) and of each server.
pub fn rehearse(
    order: FailoverRequest,
    ackers: &BTreeMap<String, Result<AckerReport, String>>,
    servers: &[CandidateServer],
) -> FailoverReadiness {
    let order = FailoverRequest { dry_run: true, allow_data_loss: false, wanted: None, ..order };
    let mut machine = Failover::new(order);
    let mut orders = VecDeque::from(machine.begin(0));
    while let Some((number, act)) = orders.pop_front() {
        orders.extend(machine.answer(0, number, answer(&act, ackers, servers)));
    }
    match &machine.audit().outcome {
        Some(RunOutcome::Planned { server, .. } | RunOutcome::Promoted { server, .. }) => {
            FailoverReadiness::Ready { server: server.clone() }
        }
        Some(
            RunOutcome::Unchanged { refusal }
            | RunOutcome::Undone { refusal, .. }
            | RunOutcome::Incomplete { refusal, .. },
        ) => FailoverReadiness::refused(refusal),
        None => FailoverReadiness::Unknown { reason: "the rehearsal did not end".to_owned() },
    }
}

/// Outcome of an action if the primary is dead and the lease held.
fn answer(
    act: &RunAction,
    ackers: &BTreeMap<String, Result<AckerReport, String>>,
    servers: &[CandidateServer],
) -> ActionOutcome {
    match act {
        RunAction::CheckLease => ActionOutcome::LeaseHeld(LeaseToken(0)),
        RunAction::ConfirmFailure => ActionOutcome::FailureConfirmed("a rehearsal".to_owned()),
        RunAction::ReadAcker { acker } | RunAction::StopAcker { acker } => match ackers.get(acker) {
            Some(Ok(AckerReport { acker, before, .. })) => {
                ActionOutcome::AckerState { acker: acker.clone(), before: before.clone() }
            }
            Some(Err(reason)) => ActionOutcome::Unknown(reason.clone()),
            None => ActionOutcome::Unknown("it did not answer yet".to_owned()),
        },
        RunAction::ProbeCandidates => ActionOutcome::Candidates(servers.to_vec()),
        _ => ActionOutcome::Done,
    }
}
