//! Determines how a former primary was replaced.
//!
//! If the failover that replaced it proved completeness, transactions that only the former primary has were
//! never acknowledged. This proof is used only if the audit records lead from that failover to the present
//! primary. Otherwise the server may have been primary once more since then. Relays that followed another
//! server since the newest record show that records are missing.

use super::failover_effect::{RunEffect, term};
use crate::model::{Audit, LeaseToken, RelayAssignment};

/// How a former primary was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// The failover or switchover proved that no acknowledged transaction exists only on the former primary.
    Lossless,
    /// In this failover or switchover an operator accepted that acknowledged transactions may be missing. The
    /// former primary may be the only server that has them.
    LossAccepted(String),
    /// The audit records do not show how the former primary was replaced. The text is the reason.
    Unknown(String),
}

/// Returns how `server` was last replaced, from records with the newest first, and from the orders that the
/// relays have. `primary` is the present primary.
pub fn last_replacement(
    server: &str,
    primary: &str,
    newest_first: impl IntoIterator<Item = Audit>,
    relays: impl IntoIterator<Item = RelayAssignment>,
) -> Replacement {
    let mut newest_first = newest_first.into_iter().peekable();
    let is_change = |audit: &Audit| matches!(RunEffect::of(audit), RunEffect::Promoted { .. });
    while newest_first.next_if(|audit| !is_change(audit)).is_some() {}
    let recorded_in = newest_first.peek().map_or(LeaseToken(0), term);
    let is_later = |relay: &RelayAssignment| relay.assigned_term > recorded_in && relay.source != primary;
    if let Some(relay) = relays.into_iter().find(is_later) {
        return Replacement::Unknown(format!(
            "a relay follows {} since lease term {}, and the newest audit record is of lease term {}",
            relay.source, relay.assigned_term.0, recorded_in.0
        ));
    }
    let mut successor = primary.to_owned();
    let mut last_run = None;
    for audit in newest_first {
        let RunEffect::Promoted { server: promoted } = RunEffect::of(&audit) else { continue };
        // The audit record of a recovery describes the same change as the record of the failover or
        // switchover that it recovered.
        let run = audit.resumes.clone().unwrap_or_else(|| audit.id.clone());
        if last_run.as_ref() == Some(&run) {
            continue;
        }
        if promoted != successor {
            return Replacement::Unknown(format!(
                "no audit record shows how {successor} became primary after {}",
                audit.id
            ));
        }
        if audit.primary == server {
            return match audit.possible_loss {
                Some(_) => Replacement::LossAccepted(audit.id),
                None => Replacement::Lossless,
            };
        }
        last_run = Some(run);
        successor = audit.primary;
    }
    Replacement::Unknown(format!("no audit record shows how {successor} became primary"))
}
