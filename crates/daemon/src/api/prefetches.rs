//! Replicas and targets whose pages are read ahead.

use serde::{Deserialize, Serialize};
pub use tailwater_prefetch::PrefetchStatus;

/// The values of [`PrefetchStatus::state`].
pub const PREFETCH_STATES: [&str; 7] =
    ["connecting", "reading", "too_near", "asleep", "measuring", "stopped", "failed"];

/// A prefetch with its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PrefetchSnapshot {
    /// The name of the `[[prefetch]]`, or of the channel whose target is read ahead.
    pub name: String,
    /// The name of the source from whose log the events come.
    pub source: String,
    /// The address of the replica or target.
    pub server: String,
    /// Whether a channel of Tailwater applies the transactions, instead of native replication.
    pub is_of_channel: bool,
    /// The figures.
    pub figures: PrefetchStatus,
}
