//! Whether a failover would succeed if the primary died now. Pure.
//!
//! Runs the real state machine ([`Failover`]) as a dry run, with the last report of each relay and server. A
//! rule that refuses the dry run would therefore also refuse a real failover.

use std::collections::{BTreeMap, VecDeque};

use tailwater_topology::failure_analysis::FailoverReadiness;

use crate::action_executor::AckerReport;
use crate::candidates::CandidateServer;
use crate::failover::{Failover, FailoverRequest};
use crate::model::{ActionOutcome, LeaseToken, RunAction, RunOutcome};
use crate::safety_refusals::SafetyRefusal;

/// Readiness if this safety rule would refuse the failover.
pub fn refused(refusal: &SafetyRefusal) -> FailoverReadiness {
    FailoverReadiness::NotReady { rule: refusal.code().to_owned(), reason: refusal.to_string() }
}

/// Rehearses a failover with the last report of each relay (or why there is none) and of each server. Returns
/// whether it would succeed.
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
        None => FailoverReadiness::Unknown { reason: "the rehearsal of the failover did not end".to_owned() },
    }
}

/// Returns the outcome that an action would have if the primary were dead and this manager held the lease.
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
            None => ActionOutcome::Unknown("the acker has not answered yet".to_owned()),
        },
        RunAction::ProbeCandidates => ActionOutcome::Candidates(servers.to_vec()),
        _ => ActionOutcome::Done,
    }
}
