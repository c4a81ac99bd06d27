//! Errors of filters.

/// An invalid filter set, or one that conflicts with the tables in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// An invalid pattern.
    #[error("filter: {pattern:?} is not a pattern: {reason}")]
    Pattern {
        /// As configured.
        pattern: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// An invalid rewrite.
    #[error("filter: the rewrite from {from:?} to {to:?} cannot be done: {reason}")]
    Rewrite {
        /// As configured.
        from: String,
        /// As configured.
        to: String,
        /// Why not.
        reason: String,
    },
    /// Two rules contradict each other, or one has no effect.
    #[error("filter: {first:?} and {second:?}: {reason}")]
    Rules {
        /// The pattern of the first rule, as configured.
        first: String,
        /// The pattern of the second rule.
        second: String,
        /// The conflict.
        reason: &'static str,
    },
    /// Two source tables would be written to one target table.
    #[error(
        "filter: {first} and {second} of the source would both be written to {target}; exclude one, or rename it"
    )]
    Clash {
        /// The table that came first in the log.
        first: String,
        /// The other table.
        second: String,
        /// The target's table.
        target: String,
    },
    /// An edit would take effect before an earlier edit.
    #[error(
        "filter: an edit at {from} cannot follow one at {last}; the earliest possible position is {last}"
    )]
    Order {
        /// Log position of the edit.
        from: String,
        /// Log position of the last edit.
        last: String,
    },
}
