//! Ranges of the log.

use tailwater_log::LogPosition;

/// A range of the log that starts and ends between entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogSpan {
    /// First byte of the range.
    pub start: LogPosition,
    /// End of the range, exclusive. It may be the start of the next segment.
    pub end: LogPosition,
}

/// Joins adjacent spans: the spans of consecutive transactions become one span.
pub fn joined(spans: impl Iterator<Item = LogSpan>) -> impl Iterator<Item = LogSpan> {
    let mut spans = spans.peekable();
    std::iter::from_fn(move || {
        let mut whole = spans.next()?;
        while let Some(next) = spans.next_if(|next| next.start == whole.end) {
            whole.end = next.end;
        }
        Some(whole)
    })
}
