//! The rates and lags of the last minutes as bars, from what this process has sampled.

use std::time::Duration;

use ratatui::text::Line;

use super::number_with_unit::{self, or_unknown};
use super::screen_layout::{Body, Picture};
use super::terminal_style::{TerminalStyle, Tone};
use super::text_table::cut;
use crate::model::{Series, SeriesKind};

/// The width of the label beside the bars.
const LABEL: usize = 18;
/// The width of the newest or highest value.
const VALUE: usize = 15;
/// The greatest height of the bars of a series.
const HEIGHT_MAX: usize = 4;

pub(super) fn body(picture: &Picture<'_>, width: usize, height: Option<usize>) -> Body {
    let window = picture.view.window();
    let minutes = match window.as_secs() / 60 {
        1 => "Last minute".to_owned(),
        minutes => format!("Last {minutes} minutes"),
    };
    let title = format!("{minutes}, sampled by this program. Full height: the highest value.");
    let mut lines = vec![Line::from(cut(&title, width))];
    let all: Vec<_> = picture.model.series().collect();
    if all.is_empty() {
        lines.push(Line::from("There is nothing to show: no source and no channel."));
        return Body::scrolling(lines);
    }
    // Each series has its bars and an empty line; the last lines are the axis.
    let room = height.map_or(HEIGHT_MAX, |height| height.saturating_sub(2) / all.len()).max(1);
    let has_gaps = room > 2;
    let bars_height = (room - usize::from(has_gaps)).clamp(1, HEIGHT_MAX);
    let bars_width = width.saturating_sub(LABEL + VALUE + 2).max(1);
    for (kind, object, series) in all {
        let bars = Bars { picture, series, window, width: bars_width, height: bars_height };
        lines.extend(bars.lines(kind, object));
        if has_gaps {
            lines.push(Line::default());
        }
    }
    lines.push(axis(window, bars_width));
    Body::scrolling(lines)
}

/// The label of a series, and how its values are shown.
fn label(kind: SeriesKind) -> (&'static str, fn(f64) -> String) {
    fn per_second(text: String) -> String {
        text + "/s"
    }
    match kind {
        SeriesKind::SourceBytes => ("written", |value| per_second(number_with_unit::bytes(value))),
        SeriesKind::SourceTransactions => {
            ("captured trx", |value| per_second(number_with_unit::count(value)))
        }
        SeriesKind::ChannelTransactions => {
            ("applied trx", |value| per_second(number_with_unit::count(value)))
        }
        SeriesKind::ChannelRows => ("applied rows", |value| per_second(number_with_unit::count(value))),
        SeriesKind::ChannelLag => ("channel lag", number_with_unit::seconds),
        SeriesKind::ServerLag => ("replica lag", number_with_unit::seconds),
    }
}

/// A full bar represents at least this value, so that a lag of some milliseconds is not shown as a high bar.
fn full_min(kind: SeriesKind) -> f64 {
    match kind {
        SeriesKind::ChannelLag | SeriesKind::ServerLag => 1.0,
        _ => 0.0,
    }
}

struct Bars<'a> {
    picture: &'a Picture<'a>,
    series: &'a Series,
    window: Duration,
    width: usize,
    height: usize,
}

impl Bars<'_> {
    fn lines(&self, kind: SeriesKind, object: &str) -> Vec<Line<'static>> {
        let (what, text) = label(kind);
        let now = self.picture.shown_at.elapsed;
        let highest = self.series.highest(now, self.window);
        let columns = self.series.columns(now, self.window, self.width);
        let full = highest.unwrap_or(0.0).max(full_min(kind));
        let rows = bar_rows(&columns, full, self.height, self.picture.style);
        let newest = or_unknown(self.series.newest(), text);
        let highest = or_unknown(highest, |value| format!("max {}", text(value)));
        let object = tailwater_wire::printable(object).into_owned();
        let labels = match self.height {
            1 => [format!("{what} {object}"), String::new()],
            _ => [what.to_owned(), object],
        };
        let values = match self.height {
            1 => [newest, String::new()],
            _ => [newest, highest],
        };
        let mut lines = Vec::new();
        for (number, row) in rows.into_iter().enumerate() {
            let label = labels.get(number).map_or("", String::as_str);
            let value = values.get(number).map_or("", String::as_str);
            let tone = if number == 0 { Tone::Title } else { Tone::Plain };
            let label = self.picture.style.span(tone, format!("{:LABEL$} ", cut(label, LABEL)));
            lines.push(Line::from(vec![label, row.into(), format!(" {:>VALUE$}", cut(value, VALUE)).into()]));
        }
        lines
    }
}

/// Returns the rows of bars, the highest first. A part without a value is empty; every other part has at
/// least the lowest character.
fn bar_rows(columns: &[Option<f64>], highest: f64, height: usize, style: TerminalStyle) -> Vec<String> {
    let characters = style.bars();
    let steps = characters.len() - 1;
    let filled = |value: &Option<f64>| {
        let value = (*value)?;
        let share = if highest > 0.0 { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
        Some(((share * (height * steps) as f64).round() as usize).max(1))
    };
    let row = |row: usize| {
        let below = (height - 1 - row) * steps;
        let character = |column| characters[filled(column).unwrap_or(0).saturating_sub(below).min(steps)];
        columns.iter().map(character).collect()
    };
    (0..height).map(row).collect()
}

fn axis(window: Duration, width: usize) -> Line<'static> {
    let (oldest, newest) = (format!("-{} min", window.as_secs() / 60), "now");
    let space = width.saturating_sub(oldest.len() + newest.len());
    Line::from(format!("{}{oldest}{}{newest}", " ".repeat(LABEL + 1), " ".repeat(space)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_gaps_zeros_and_peaks() {
        let columns = [None, Some(0.0), Some(4.0), Some(8.0)];
        let ascii = TerminalStyle { colours: false, ascii: true };
        assert_eq!(bar_rows(&columns, 8.0, 2, ascii), ["   #", " .##"]);
        let blocks = TerminalStyle { colours: false, ascii: false };
        assert_eq!(bar_rows(&columns, 8.0, 1, blocks), [" ▁▄█"]);
        assert_eq!(bar_rows(&columns, 0.0, 1, blocks), [" ▁▁▁"]);
    }
}
