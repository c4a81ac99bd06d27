//! Determines how a former primary was replaced.
//!
//! If the failover that replaced it proved completeness, transactions that only the former primary has were
//! never acknowledged. This proof is used only if the audit records lead from that failover to the present
//! primary. Otherwise the server may have been primary once more since then.

use super::failover_effect::RunEffect;
use crate::model::Audit;

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

/// Returns how `server` was last replaced, from records with the newest first. `primary` is the present
/// primary.
pub fn last_replacement(
    server: &str,
    primary: &str,
    newest_first: impl IntoIterator<Item = Audit>,
) -> Replacement {
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
