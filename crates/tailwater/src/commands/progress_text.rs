//! Formats the progress of bulk work as text. No I/O and no clock.

use std::time::Duration;

use tailwater_binlog_stats::humanize::{bytes as size, duration, grouped};
use tailwater_tables::progress::ProgressFigures;

/// Time after which the rate is shown.
const RATE_KNOWN_AFTER: Duration = Duration::from_secs(3);

/// The remaining time rises only if the estimate exceeds the shown value by this much, in percent and
/// seconds; otherwise it would fluctuate.
const CLIMB_PERCENT: u32 = 25;
const CLIMB_SECONDS: Duration = Duration::from_secs(10);

/// State of the display: what was shown before.
#[derive(Debug, Default)]
pub(super) struct ProgressText {
    /// Expected total when the first rows arrived. It does not grow afterwards.
    total: u64,
    /// Time of the first rows, and their number.
    flowing_since: Option<(Duration, u64)>,
    /// Remaining time shown last, and when.
    left: Option<(Duration, Duration)>,
}

/// A line of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProgressLine {
    /// The text.
    pub(super) text: String,
    /// Done and total amount, if known.
    pub(super) bar: Option<(u64, u64)>,
}

impl ProgressText {
    /// The line at a time since the start of the work.
    pub(super) fn next(&mut self, figures: &ProgressFigures, elapsed: Duration) -> ProgressLine {
        // Physical copies count bytes instead of rows.
        let in_bytes = figures.bytes_total > 0;
        let (done, total) = match in_bytes {
            true => (figures.bytes, figures.bytes_total),
            false => (figures.rows, figures.rows_total),
        };
        if done == 0 || self.total == 0 {
            self.total = total;
        }
        if done > 0 && self.flowing_since.is_none() {
            self.flowing_since = Some((elapsed, done));
        }
        let mut parts = vec![match in_bytes {
            true => counted(size(done), size(self.total), done, self.total, ""),
            false => counted(grouped(done), grouped(self.total), done, self.total, " rows"),
        }];
        if figures.tables_total > 0 {
            parts.push(format!("{} of {} tables", grouped(figures.tables), grouped(figures.tables_total)));
        }
        if !in_bytes && figures.bytes > 0 {
            parts.push(size(figures.bytes));
        }
        let (since, first) = self.flowing_since.unwrap_or((elapsed, done));
        let flowing = elapsed.saturating_sub(since);
        if flowing >= RATE_KNOWN_AFTER {
            let a_second = |amount: u64| (amount as f64 / flowing.as_secs_f64()) as u64;
            parts.push(match figures.bytes {
                0 => format!("{} rows/s", grouped(a_second(figures.rows))),
                bytes => format!("{}/s", size(a_second(bytes))),
            });
            if let Some(left) = self.left(done, done.saturating_sub(first), flowing, elapsed) {
                parts.push(match left.as_secs() {
                    seconds @ 0..60 => format!("{seconds} s left"),
                    seconds => format!("{} left", duration(seconds as f64)),
                });
            }
        }
        let bar = (self.total > 0).then(|| (done.min(self.total), self.total));
        let text = if self.total == 0 && done == 0 { "preparing".to_owned() } else { parts.join(", ") };
        ProgressLine { text, bar }
    }

    /// Estimated remaining time at the rate so far.
    fn left(&mut self, done: u64, flowed: u64, flowing: Duration, elapsed: Duration) -> Option<Duration> {
        // If there is more than expected, the rest is unknown.
        let rest = self.total.checked_sub(done).filter(|rest| *rest > 0 && flowed > 0)?;
        let now = flowing.mul_f64(rest as f64 / flowed as f64);
        let expected = self.left.map(|(left, at)| left.saturating_sub(elapsed.saturating_sub(at)));
        let shown = match expected {
            Some(expected)
                if now > expected && now <= expected * (100 + CLIMB_PERCENT) / 100 + CLIMB_SECONDS =>
            {
                expected
            }
            _ => now,
        };
        self.left = Some((shown, elapsed));
        Some(shown)
    }
}

fn counted(done_text: String, total_text: String, done: u64, total: u64, of: &str) -> String {
    match total {
        0 => format!("{done_text}{of}"),
        _ if done > total => format!("{done_text}{of}, more than the {total_text} expected"),
        _ => format!("{done_text} of about {total_text}{of}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: u64, rows_total: u64, bytes: u64) -> ProgressFigures {
        ProgressFigures { rows, rows_total, bytes, ..ProgressFigures::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn there_is_no_bar_of_nothing() {
        let mut text = ProgressText::default();
        let shown = text.next(&rows(0, 0, 0), at(0));
        assert_eq!((shown.text.as_str(), shown.bar), ("preparing", None));
        // The total is not known.
        let shown = text.next(&rows(7, 0, 70), at(1));
        assert_eq!((shown.text.as_str(), shown.bar), ("7 rows, 70 B", None));
    }

    #[test]
    fn the_total_does_not_grow_once_rows_flow() {
        let mut text = ProgressText::default();
        assert_eq!(text.next(&rows(0, 500, 0), at(0)).bar, Some((0, 500)));
        assert_eq!(text.next(&rows(0, 1000, 0), at(1)).bar, Some((0, 1000)));
        let shown = text.next(&rows(400, 1000, 5 << 20), at(2));
        assert_eq!(shown.text, "400 of about 1,000 rows, 5.0 MiB");
        assert_eq!(text.next(&rows(800, 2000, 10 << 20), at(3)).bar, Some((800, 1000)));
        let shown = text.next(&rows(1500, 1500, 20 << 20), at(12));
        assert_eq!(shown.bar, Some((1000, 1000)));
        assert_eq!(shown.text, "1,500 rows, more than the 1,000 expected, 20.0 MiB, 2.0 MiB/s");
    }

    #[test]
    fn what_is_left_does_not_climb_while_the_pace_is_about_the_same() {
        let mut text = ProgressText::default();
        let mut before = None;
        for second in 0..100u64 {
            // A bit slower all the time.
            let done = 10_000 * second - 2 * second * second;
            let shown = text.next(&rows(done, 1_000_000, 100 * done), at(second));
            let left = text.left.map(|(left, _)| left);
            assert!(before.is_none_or(|before| left <= Some(before)), "{second}: {}", shown.text);
            before = left.or(before);
        }
        assert!(before.is_some());
        // Standing still shows.
        let left = |text: &mut ProgressText, second| {
            text.next(&rows(800_000, 1_000_000, 80_000_000), at(second));
            text.left.unwrap().0
        };
        assert!(left(&mut text, 1000) > left(&mut text, 101));
    }

    #[test]
    fn files_are_counted_in_bytes() {
        let figures = ProgressFigures { bytes: 1 << 30, bytes_total: 4 << 30, ..ProgressFigures::default() };
        let shown = ProgressText::default().next(&figures, at(1));
        assert_eq!((shown.text.as_str(), shown.bar), ("1.0 GiB of about 4.0 GiB", Some((1 << 30, 4 << 30))));
    }
}
