//! Formats the progress of dump, load, copy, check and repair as text. This module does no I/O and reads no
//! clock.

use std::time::Duration;

use tailwater_binlog_stats::number_format::{bytes as size, duration, grouped};
use tailwater_tables::progress_counters::ProgressFigures;

/// How long after the first rows the rate is shown for the first time.
const RATE_KNOWN_AFTER: Duration = Duration::from_secs(3);

/// The shown remaining time increases only if the new estimate exceeds it by this much, in percent and in
/// seconds. Otherwise it would fluctuate.
const CLIMB_PERCENT: u32 = 25;
const CLIMB_SECONDS: Duration = Duration::from_secs(10);

/// What the display has shown so far.
#[derive(Debug, Default)]
pub(super) struct ProgressText {
    /// The total that was expected when the first rows arrived. It does not increase after that.
    total: u64,
    /// Time at which the first rows arrived, and their number.
    flowing_since: Option<(Duration, u64)>,
    /// The remaining time that was shown last, and when it was shown.
    left: Option<(Duration, Duration)>,
}

/// One line that shows the progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProgressLine {
    /// The line as text.
    pub(super) text: String,
    /// The amount of finished work and the total amount; `None` if the total is unknown.
    pub(super) bar: Option<(u64, u64)>,
    /// Rows for each second; `None` until it is known.
    pub(super) rows_per_second: Option<u64>,
    /// Bytes for each second; `None` until it is known.
    pub(super) bytes_per_second: Option<u64>,
    /// The estimated remaining time.
    pub(super) left: Option<Duration>,
}

impl ProgressText {
    /// Returns the line to show at `elapsed` since the start of the work.
    pub(super) fn next(&mut self, figures: &ProgressFigures, elapsed: Duration) -> ProgressLine {
        // Physical copies report bytes, not rows.
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
        let (mut rows_per_second, mut bytes_per_second, mut left) = (None, None, None);
        if flowing >= RATE_KNOWN_AFTER {
            let a_second = |amount: u64| (amount as f64 / flowing.as_secs_f64()) as u64;
            rows_per_second = (figures.rows > 0).then(|| a_second(figures.rows));
            bytes_per_second = (figures.bytes > 0).then(|| a_second(figures.bytes));
            parts.push(match bytes_per_second {
                None => format!("{} rows/s", grouped(a_second(figures.rows))),
                Some(bytes) => format!("{}/s", size(bytes)),
            });
            left = self.left(done, done.saturating_sub(first), flowing, elapsed);
            parts.extend(left.map(|left| match left.as_secs() {
                seconds @ 0..60 => format!("{seconds} s left"),
                seconds => format!("{} left", duration(seconds as f64)),
            }));
        }
        let bar = (self.total > 0).then(|| (done.min(self.total), self.total));
        let text = if self.total == 0 && done == 0 { "preparing".to_owned() } else { parts.join(", ") };
        ProgressLine { text, bar, rows_per_second, bytes_per_second, left }
    }

    /// Returns the estimated remaining time at the rate so far.
    fn left(&mut self, done: u64, flowed: u64, flowing: Duration, elapsed: Duration) -> Option<Duration> {
        // If more rows or bytes are done than were expected, the remaining amount is unknown.
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
    fn no_bar_is_shown_for_an_unknown_total() {
        let mut text = ProgressText::default();
        let shown = text.next(&rows(0, 0, 0), at(0));
        assert_eq!((shown.text.as_str(), shown.bar), ("preparing", None));
        // The total number of rows is not known.
        let shown = text.next(&rows(7, 0, 70), at(1));
        assert_eq!((shown.text.as_str(), shown.bar), ("7 rows, 70 B", None));
    }

    #[test]
    fn the_total_does_not_increase_after_the_first_rows() {
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
    fn the_remaining_time_does_not_increase_while_the_rate_is_nearly_constant() {
        let mut text = ProgressText::default();
        let mut before = None;
        for second in 0..100u64 {
            // The rate decreases slightly all the time.
            let done = 10_000 * second - 2 * second * second;
            let shown = text.next(&rows(done, 1_000_000, 100 * done), at(second));
            let left = text.left.map(|(left, _)| left);
            assert!(
                before.is_none_or(|before| left <= Some(before)),
                "the remaining time has increased at second {second}: {}",
                shown.text
            );
            before = left.or(before);
        }
        assert!(before.is_some());
        // If no more rows arrive, the remaining time increases.
        let left = |text: &mut ProgressText, second| {
            text.next(&rows(800_000, 1_000_000, 80_000_000), at(second));
            text.left.unwrap().0
        };
        assert!(left(&mut text, 1000) > left(&mut text, 101));
    }

    #[test]
    fn physical_copies_are_shown_in_bytes() {
        let figures = ProgressFigures { bytes: 1 << 30, bytes_total: 4 << 30, ..ProgressFigures::default() };
        let shown = ProgressText::default().next(&figures, at(1));
        assert_eq!((shown.text.as_str(), shown.bar), ("1.0 GiB of about 4.0 GiB", Some((1 << 30, 4 << 30))));
    }
}
