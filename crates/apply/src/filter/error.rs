//! What is wrong with filters.

/// A filter set that cannot be meant, or that does not fit the tables that come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No pattern.
    #[error("filter: {pattern:?} is not a pattern: {reason}")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// Why it is none.
        reason: &'static str,
    },
    /// No rewrite.
    #[error("filter: the rewrite from {from:?} to {to:?} cannot be done: {reason}")]
    Rewrite {
        /// As it was given.
        from: String,
        /// As it was given.
        to: String,
        /// Why not.
        reason: String,
    },
    /// Two rules contradict each other, or one has no effect.
    #[error("filter: {first:?} and {second:?}: {reason}")]
    Rules {
        /// A rule's pattern, as it was given.
        first: String,
        /// Another's.
        second: String,
        /// What is wrong with the two.
        reason: &'static str,
    },
    /// Two tables of the source would be written to one.
    #[error(
        "filter: {first} and {second} of the source would both be written to {target}; leave one out, or rename it"
    )]
    Clash {
        /// The table that came first.
        first: String,
        /// The one that comes now.
        second: String,
        /// The target's table.
        target: String,
    },
    /// An edit that would take effect before one that was made earlier.
    #[error(
        "filter: an edit at {from} cannot follow one at {last}; the earliest possible position is {last}"
    )]
    Order {
        /// Where it was to take effect.
        from: String,
        /// Where the last edit takes effect.
        last: String,
    },
}
