//! A small chart for terminals, made of block characters.

use crate::chart_scale::Scale;
use crate::number_format::bytes;
use crate::{BinlogReport, Gap, LocalTime, TimelineColumns, number_format};

/// The maximum number of columns.
const COLUMNS_MAX: usize = 90;
/// The number of lines for each series.
const LINES: usize = 4;
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A chart of the commit rate over time, in which gaps are marked. Empty if the time is too short.
pub(crate) fn text_chart(report: &BinlogReport) -> String {
    let Some(columns) = report.timeline.columns(COLUMNS_MAX).filter(|columns| columns.columns.len() > 1)
    else {
        return String::new();
    };
    let seconds = columns.seconds as f64;
    let mut text = String::new();
    let per_second = |total: u64| total as f64 / seconds;
    let byte_rates: Vec<f64> = columns.columns.iter().map(|column| per_second(column.bytes)).collect();
    let row_rates: Vec<f64> = columns.columns.iter().map(|column| per_second(column.rows)).collect();
    let marks = gap_marks(&columns, &report.gaps);
    let scale = Scale::of(&byte_rates, 1024.0);
    let label = format!("bytes per second{}, up to {}/s", scale.note(), bytes(scale.greatest() as u64));
    series(&mut text, &label, &byte_rates, &scale);
    let scale = Scale::of(&row_rates, 10.0);
    let label =
        format!("rows per second{}, up to {}/s", scale.note(), number_format::count(scale.greatest() as u64));
    series(&mut text, &label, &row_rates, &scale);
    let times = (LocalTime(columns.start_us), LocalTime(report.span.last_commit_us));
    let (from, to) = match times.0.same_day(times.1) {
        true => (times.0.time(), times.1.time()),
        false => (times.0.date_and_time(), times.1.date_and_time()),
    };
    let width = columns.columns.len();
    text.push_str(&format!("  {marks}\n"));
    let room = width.saturating_sub(from.len() + to.len()).max(1);
    text.push_str(&format!("  {from}{}{to}\n", " ".repeat(room)));
    let each = number_format::duration(seconds);
    let gap = if marks.contains('╳') { "; ╳: nothing was committed" } else { "" };
    text.push_str(&format!("  each column is {each}{gap}\n"));
    text
}

fn series(text: &mut String, label: &str, rates: &[f64], scale: &Scale) {
    text.push_str(&format!("  {label}\n"));
    let eighths = |rate: f64| (scale.part(rate) * (8 * LINES) as f64).ceil() as usize;
    for line in (0..LINES).rev() {
        let bars: String =
            rates.iter().map(|rate| BLOCKS[eighths(*rate).saturating_sub(8 * line).min(8)]).collect();
        text.push_str("  ");
        text.push_str(bars.trim_end());
        text.push('\n');
    }
}

/// The line under the chart, with a cross for each column that a gap covers completely.
fn gap_marks(columns: &TimelineColumns, gaps: &[Gap]) -> String {
    let width_us = columns.seconds * 1_000_000;
    let covered =
        |start_us: u64| gaps.iter().any(|gap| gap.start_us <= start_us && gap.end_us >= start_us + width_us);
    columns.columns.iter().map(|column| if covered(column.start_us) { '╳' } else { '─' }).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Bucket, Timeline};

    use super::*;

    #[test]
    fn the_chart_shows_rates_and_gaps() {
        let bucket =
            |second: u64, bytes| Bucket { start_us: second * 1_000_000, transactions: 1, bytes, rows: 1 };
        let mut report = BinlogReport {
            timeline: Timeline {
                bucket_seconds: 1,
                buckets: vec![bucket(100, 1024), bucket(101, 512), bucket(105, 1)],
            },
            ..BinlogReport::default()
        };
        report.gaps =
            vec![Gap { start_us: 101_500_000, end_us: 105_000_000, seconds: 3.5, ..Gap::default() }];
        report.span.last_commit_us = 105_000_000;
        let text = text_chart(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  bytes per second, up to 1.0 KiB/s");
        assert_eq!(&lines[1..5], ["  █", "  █", "  ██", "  ██   ▁"]);
        assert_eq!(lines[10], "  ──╳╳╳─");
        assert!(
            text.contains("each column is 1.0 s; ╳: nothing was committed"),
            "the chart has no legend: {text}"
        );
        assert_eq!(text_chart(&BinlogReport::default()), "");
    }
}
