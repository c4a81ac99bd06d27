//! Computes the geometry of the charts, in SVG user units.

use crate::stats_page_template::{Band, RateChart, Tick};

/// A rectangle in a chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) width: String,
    pub(crate) height: String,
    /// The tooltip of the rectangle, which screen readers read too.
    pub(crate) tip: String,
}

/// A label on an axis of a chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    pub(crate) at: String,
    pub(crate) label: String,
    /// SVG `text-anchor`: which part of the text is at the label's position.
    pub(crate) anchor: &'static str,
}

/// The geometry of one chart over time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawing {
    pub(crate) label: String,
    /// The CSS class of the bars.
    pub(crate) series: &'static str,
    pub(crate) bars: Vec<Rect>,
    pub(crate) gaps: Vec<Rect>,
    pub(crate) horizontal: Vec<Mark>,
    pub(crate) vertical: Vec<Mark>,
}

/// The left edge of the area with the bars. The labels of the axes are around this area.
pub(crate) const LEFT: f64 = 84.0;
const WIDTH: f64 = 900.0;
const TOP: f64 = 10.0;
const HEIGHT: f64 = 150.0;

/// Computes the geometry of a series. `of` returns the height of the bar in a column, from 0 to 1.
pub(crate) fn draw(
    chart: &RateChart,
    series: &'static str,
    label: &str,
    ticks: &[Tick],
    of: impl Fn(usize) -> f64,
) -> Drawing {
    let count = chart.tips.len().max(1) as f64;
    let width = WIDTH / count;
    // Leave a gap between the bars, unless they are too narrow for it.
    let space = if width > 4.0 { 1.0 } else { 0.0 };
    let bars = (0..chart.tips.len()).filter(|index| of(*index) > 0.0).map(|index| {
        let height = (of(index).clamp(0.0, 1.0) * HEIGHT).max(1.0);
        Rect {
            x: number(LEFT + index as f64 * width),
            y: number(TOP + HEIGHT - height),
            width: number(width - space),
            height: number(height),
            tip: chart.tips[index].clone(),
        }
    });
    Drawing {
        label: label.to_owned(),
        series,
        bars: bars.collect(),
        gaps: chart.gaps.iter().map(gap).collect(),
        horizontal: ticks
            .iter()
            .map(|tick| mark(TOP + HEIGHT - tick.at.clamp(0.0, 1.0) * HEIGHT, tick))
            .collect(),
        vertical: chart.ticks.iter().map(|tick| mark(LEFT + tick.at.clamp(0.0, 1.0) * WIDTH, tick)).collect(),
    }
}

fn gap(band: &Band) -> Rect {
    let (from, to) = (band.from.clamp(0.0, 1.0), band.to.clamp(0.0, 1.0));
    Rect {
        x: number(LEFT + from * WIDTH),
        y: number(TOP),
        width: number(((to - from) * WIDTH).max(1.5)),
        height: number(HEIGHT),
        tip: band.label.clone(),
    }
}

fn mark(at: f64, tick: &Tick) -> Mark {
    // A centred label at the right edge would be cut off.
    let anchor = if tick.at >= 1.0 { "end" } else { "middle" };
    Mark { at: number(at), label: tick.label.clone(), anchor }
}

/// Formats a number with at most one decimal.
pub(crate) fn number(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_labels_are_placed_by_their_values() {
        let chart = RateChart {
            tips: vec!["a".into(), "b".into(), "c".into(), "d".into()],
            gaps: vec![Band { from: 0.25, to: 0.5, label: "nothing".into() }],
            ticks: vec![Tick { at: 1.0, label: "end".into() }],
            ..RateChart::default()
        };
        let heights = [1.0, 0.0, 0.5, 7.0];
        let ticks = [Tick { at: 0.5, label: "half".into() }];
        let drawing = draw(&chart, "bytes", "Bytes", &ticks, |index| heights[index]);
        let shape = |rect: &Rect| [rect.x.clone(), rect.y.clone(), rect.width.clone(), rect.height.clone()];
        assert_eq!(drawing.bars.len(), 3, "an empty column must have no bar");
        assert_eq!(shape(&drawing.bars[0]), ["84", "10", "224", "150"]);
        assert_eq!(shape(&drawing.bars[1]), ["534", "85", "224", "75"]);
        assert_eq!(shape(&drawing.bars[2]), ["759", "10", "224", "150"]);
        assert_eq!(shape(&drawing.gaps[0]), ["309", "10", "225", "150"]);
        assert_eq!((drawing.horizontal[0].at.as_str(), drawing.vertical[0].at.as_str()), ("85", "984"));
    }
}
