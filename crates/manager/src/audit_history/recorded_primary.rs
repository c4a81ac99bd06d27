//! Determines which server is the primary according to the audit records.

use std::collections::BTreeSet;

use super::failover_effect::{RunEffect, term};
use crate::model::{Audit, LeaseToken};

/// The last change of primary, according to the audit records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryRecord {
    /// The lease term of the change.
    pub term: LeaseToken,
    /// The new primary.
    pub server: String,
}

/// Which server is the primary according to the audit records, both this manager's own and those that other
/// managers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedPrimary {
    /// No failover or switchover has changed the primary.
    NeverChanged,
    /// The last failover or switchover that changed the primary.
    Known(PrimaryRecord),
    /// A failover or switchover changed something, and was neither undone nor finished.
    Unfinished {
        /// The lease term of that failover or switchover.
        term: LeaseToken,
    },
}

impl RecordedPrimary {
    /// Reads audit records, with the newest first. Skips failovers and switchovers that changed nothing or
    /// were undone.
    pub fn of(newest_first: impl IntoIterator<Item = Audit>) -> Self {
        let mut recovered = BTreeSet::new();
        for audit in newest_first {
            match RunEffect::of(&audit) {
                RunEffect::Promoted { server } => {
                    return Self::Known(PrimaryRecord { term: term(&audit), server });
                }
                RunEffect::Recovered { run } => {
                    recovered.insert(run);
                }
                RunEffect::Interrupted(_) | RunEffect::Incomplete if !recovered.contains(&audit.id) => {
                    return Self::Unfinished { term: term(&audit) };
                }
                // The audit record of a failed recovery does not show which server is the primary. The record
                // of the interrupted failover or switchover shows it.
                RunEffect::None
                | RunEffect::Undone
                | RunEffect::RecoveryFailed { .. }
                | RunEffect::Interrupted(_)
                | RunEffect::Incomplete => {}
            }
        }
        Self::NeverChanged
    }
}
