//! The values of the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

/// How long values are kept.
pub const KEPT: Duration = Duration::from_secs(15 * 60);

/// What a series measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesKind {
    /// Bytes of events written to the log of a source per second.
    SourceBytes,
    /// Transactions written to the log of a source per second.
    SourceTransactions,
    /// Transactions that a channel applied per second.
    ChannelTransactions,
    /// Rows that a channel applied per second.
    ChannelRows,
    /// The lag of a channel, in seconds.
    ChannelLag,
    /// The lag of a server, in seconds.
    ServerLag,
}

/// Values over time. A value is absent if it was not known.
#[derive(Debug, Clone)]
pub struct Series {
    gap_min: Duration,
    points: VecDeque<(Duration, Option<f64>)>,
}

impl Series {
    /// A series without values. A longer time than `gap_min` between two values is a gap.
    pub fn new(gap_min: Duration) -> Self {
        Self { gap_min, points: VecDeque::new() }
    }

    /// Adds a value, and removes values that are older than [`KEPT`].
    pub fn push(&mut self, at: Duration, value: Option<f64>) {
        self.points.push_back((at, value));
        while self.points.front().is_some_and(|(oldest, _)| at.saturating_sub(*oldest) > KEPT) {
            self.points.pop_front();
        }
    }

    /// Returns the newest value.
    pub fn newest(&self) -> Option<f64> {
        self.points.back().and_then(|(_, value)| *value)
    }

    /// Returns the highest value of the last `window` before `now`.
    pub fn highest(&self, now: Duration, window: Duration) -> Option<f64> {
        let from = now.saturating_sub(window);
        let values = self.points.iter().filter(|(at, _)| *at >= from).filter_map(|(_, value)| *value);
        values.reduce(f64::max)
    }

    /// Divides the last `window` before `now` into `columns` equal parts, the oldest first, and returns the
    /// highest value of each part, so that a short peak stays visible. A value belongs to the time since the
    /// value before it, unless that is a gap. A part without a value has `None`.
    pub fn columns(&self, now: Duration, window: Duration, columns: usize) -> Vec<Option<f64>> {
        let mut parts: Vec<Option<f64>> = vec![None; columns];
        let width = window.as_secs_f64() / columns.max(1) as f64;
        let from_right = |at: Duration| (now.saturating_sub(at).as_secs_f64() / width) as usize;
        let mut before: Option<Duration> = None;
        for (at, value) in &self.points {
            let since = before.replace(*at).filter(|before| at.saturating_sub(*before) <= self.gap_min);
            let Some(value) = value else { continue };
            // The previous value is already counted in its own part, so this value begins in the next part.
            let first = since.map_or(0, from_right).saturating_sub(1).max(from_right(*at));
            for part in parts.iter_mut().rev().take(first.saturating_add(1)).skip(from_right(*at)) {
                *part = Some(part.map_or(*value, |highest| highest.max(*value)));
            }
        }
        parts
    }
}
