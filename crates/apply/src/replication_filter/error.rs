//! Errors of filters.

/// A filter set that is invalid, or that conflicts with the tables in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A pattern is invalid.
    #[error("filter: {pattern:?} is not a pattern: {reason}")]
    Pattern {
        /// The pattern, as configured.
        pattern: String,
        /// Why the pattern is invalid.
        reason: &'static str,
    },
    /// A rewrite is invalid.
    #[error("filter: the rewrite from {from:?} to {to:?} cannot be done: {reason}")]
    Rewrite {
        /// The pattern of the source's tables, as configured.
        from: String,
        /// The name on the target, as configured.
        to: String,
        /// Why the rewrite cannot be done.
        reason: String,
    },
    /// Two rules contradict each other, or one of the two has no effect.
    #[error("filter: the rules {first:?} and {second:?} conflict: {reason}")]
    Rules {
        /// The pattern of the first rule, as configured.
        first: String,
        /// The pattern of the second rule, as configured.
        second: String,
        /// Why the rules conflict.
        reason: &'static str,
    },
    /// Two source tables would be written to one target table.
    #[error(
        "filter: {first} and {second} of the source would both be written to {target}; exclude one, or rename it"
    )]
    Clash {
        /// The table that came first in the log.
        first: String,
        /// The table that came later in the log.
        second: String,
        /// The table on the target to which both source tables would be written.
        target: String,
    },
    /// A new edit of the filters would take effect before an edit that was made earlier.
    #[error(
        "filter: an edit that takes effect at {from} cannot follow an edit at {last}; the earliest possible position is {last}"
    )]
    Order {
        /// Log position at which the new edit would take effect.
        from: String,
        /// Log position at which the last edit takes effect.
        last: String,
    },
}
