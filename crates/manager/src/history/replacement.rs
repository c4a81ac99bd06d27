//! How a former primary was replaced.
//!
//! Transactions that only a former primary has were never acknowledged if the failover that replaced it
//! proved completeness. That failover counts only if the records lead from it to the present primary:
//! otherwise the server may have been primary once more since.

use super::run_effect::RunEffect;
use crate::model::Audit;

/// How a former primary was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replacement {
    /// The run proved that no acknowledged transaction is only on it.
    Lossless,
    /// An operator accepted in this run that acknowledged transactions may be missing: the server may be the
    /// only one that has them.
    LossAccepted(String),
    /// The records do not say; the reason.
    Unknown(String),
}

/// How `server` was replaced last, from records with the newest first. `primary` is the present primary.
pub fn last_replacement(
    server: &str,
    primary: &str,
    newest_first: impl IntoIterator<Item = Audit>,
) -> Replacement {
    let mut successor = primary.to_owned();
    let mut last_run = None;
    for audit in newest_first {
        let RunEffect::Promoted { server: promoted } = RunEffect::of(&audit) else { continue };
        // The record of a recovery describes the same change as that of the run that it finished.
        let run = audit.resumes.clone().unwrap_or_else(|| audit.id.clone());
        if last_run.as_ref() == Some(&run) {
            continue;
        }
        if promoted != successor {
            return Replacement::Unknown(format!(
                "no record says how {successor} became primary after {}",
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
    Replacement::Unknown(format!("no record says how {successor} became primary"))
}
