//! What may be lost when a failover continues without the proof of completeness.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tailwater_wire::gtid::GtidSet;

use super::LossEvidence;
use crate::safety_refusals::SafetyRefusal;

/// What may be missing from the log that the failover continues from. GTIDs are text, for the audit record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleLoss {
    /// All transactions that the log holds. Any later transaction may have been acknowledged. `None` if no
    /// log could be read.
    pub after: Option<String>,
    /// Transactions that were observed on the primary and that the log lacks. They are lost, whether they
    /// were acknowledged or not.
    pub known: Option<String>,
    /// Names of the ackers that may hold more transactions.
    pub held_by: Vec<String>,
    /// Whether the old primary may acknowledge further commits. These would all be lost.
    pub grows: bool,
}

impl PossibleLoss {
    pub(super) fn of(
        evidence: &LossEvidence<'_>,
        holds: Option<&GtidSet>,
        good: &BTreeSet<&str>,
        refusals: &[SafetyRefusal],
    ) -> Self {
        let known = evidence.last_known.and_then(|last| match holds {
            None => Some(last.to_string()),
            Some(holds) => {
                last.subtract(holds).ok().filter(|lack| !lack.is_empty()).map(|lack| lack.to_string())
            }
        });
        let mut held_by = BTreeSet::new();
        for policy in
            evidence.ack_policies.into_iter().flat_map(|ack_policies| ack_policies.relevant_policies())
        {
            held_by.extend(policy.ackers.iter().filter(|name| !good.contains(name.as_str())).cloned());
        }
        let grows = evidence.fenced_by.is_none()
            && (evidence.ack_policies.is_none()
                || refusals.iter().any(|refusal| matches!(refusal, SafetyRefusal::Unfenced { .. })));
        Self { after: holds.map(GtidSet::to_string), known, held_by: held_by.into_iter().collect(), grows }
    }
}

impl fmt::Display for PossibleLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.after {
            Some(after) if after.is_empty() => f.write_str("all acknowledged commits may be lost")?,
            Some(after) => write!(f, "acknowledged commits after {after} may be lost")?,
            None => {
                f.write_str("no log could be read: acknowledged commits that the new primary lacks are lost")?
            }
        }
        if let Some(known) = &self.known {
            write!(f, "; the old primary had {known}, which will be missing")?;
        }
        if !self.held_by.is_empty() {
            write!(f, "; more may be held by {}", self.held_by.join(", "))?;
        }
        if self.grows {
            f.write_str("; the old primary may acknowledge further commits, and those are lost too")?;
        }
        Ok(())
    }
}
