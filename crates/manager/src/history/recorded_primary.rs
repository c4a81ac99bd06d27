//! Which server the records make the primary.

use std::collections::BTreeSet;

use super::run_effect::{RunEffect, term};
use crate::model::{Audit, LeaseToken};

/// The last change of primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryRecord {
    /// The term of the change.
    pub term: LeaseToken,
    /// The new primary.
    pub server: String,
}

/// What the audit records say, this manager's own and shared ones of other managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedPrimary {
    /// No run has changed the primary.
    NeverChanged,
    /// The last run that changed it.
    Known(PrimaryRecord),
    /// A run changed something and was neither undone nor finished.
    Unfinished {
        /// The term.
        term: LeaseToken,
    },
}

impl RecordedPrimary {
    /// Reads records, the newest first. A run that changed nothing, or was undone, is skipped.
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
                // Of a failed recovery, the interrupted run decides.
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
