//! Figures of the last hour and day, for charts.

use serde::{Deserialize, Serialize};

/// How many values a point has at most.
pub const VALUES_MAX: usize = 6;

/// A period that charts show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryPeriod {
    /// The last hour, one point every 10 s.
    #[default]
    Hour,
    /// The last day, one point a minute.
    Day,
}

impl HistoryPeriod {
    /// The length of the period, in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }

    /// The time between two points, in seconds.
    pub const fn step_seconds(self) -> u64 {
        match self {
            Self::Hour => 10,
            Self::Day => 60,
        }
    }
}

/// What a series is about. The name of a series is this kind, a slash, and the name of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryKind {
    /// A source and its log: `source/NAME`.
    Source,
    /// A channel: `channel/NAME`.
    Channel,
    /// A server or relay of a cluster: `server/SOURCE/NAME`.
    Server,
}

impl HistoryKind {
    /// The kind of a series.
    pub fn of(series: &str) -> Option<Self> {
        match series.split('/').next()? {
            "source" => Some(Self::Source),
            "channel" => Some(Self::Channel),
            "server" => Some(Self::Server),
            _ => None,
        }
    }

    /// The names of the values of a point, in their order. Names that end with `_per_second` are rates.
    pub const fn values(self) -> &'static [&'static str] {
        match self {
            Self::Source => &[
                "bytes_per_second",
                "transactions_per_second",
                "acks_per_second",
                "behind_transactions",
                "heard_ago_seconds",
                "sync_seconds",
            ],
            Self::Channel => &["lag_seconds", "transactions_per_second", "rows_per_second", "buffered_bytes"],
            Self::Server => &["lag_seconds", "behind_transactions"],
        }
    }
}

/// The values of a series at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistoryPoint {
    /// The time, in seconds since 1970.
    pub at_seconds: u64,
    /// The values in the order of [`HistoryKind::values`]. A value that is not known is NaN.
    pub values: [f32; VALUES_MAX],
}
