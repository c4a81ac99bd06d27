//! Whether a failover would succeed if the primary died now. Pure.
//!
//! Runs a dry run of the real state machine ([`Failover`]) on the last reports of all relays and servers, so
//! a rule that refuses here also refuses a real failover.

use std::collections::{BTreeMap, VecDeque};

use tailwater_topology::analysis::FailoverReadiness;

use crate::action_executor::AckerReport;
use crate::candidates::CandidateServer;
use crate::failover::{Failover, FailoverRequest};
use crate::model::LeaseToken;
use crate::model::{ActionOutcome, RunAction, RunOutcome};
use crate::safety_refusal::SafetyRefusal;

/// Readiness from the rule that would refuse.
pub fn refused(refusal: &SafetyRefusal) -> FailoverReadiness {
    FailoverReadiness::NotReady { rule: refusal.code().to_owned(), reason: refusal.to_string() }
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
        ) => refused(refusal),
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
