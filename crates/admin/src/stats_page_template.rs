//! The page of binlog statistics: findings, charts and tables.

use askama::Template;

use crate::svg_chart::{self, Drawing, number};

/// The content of the page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatsPage {
    /// What the statistics are of: a log, binlog files or a server.
    pub title: String,
    /// The range of the binlog and its times, one line each.
    pub subtitle: Vec<String>,
    /// The findings, the most severe first.
    pub findings: Vec<FindingView>,
    /// The totals.
    pub tiles: Vec<Tile>,
    /// The chart of the rate over time; `None` if the range is too short for a chart.
    pub rate: Option<RateChart>,
    /// The numbers of transactions, by size.
    pub sizes: Vec<Bar>,
    /// The tables with the most changes.
    pub tables: Vec<Bar>,
    /// The figures as tables.
    pub listings: Vec<StatsTable>,
}

/// A finding, as the page shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FindingView {
    /// Whether the finding is a problem, such as a stall. Otherwise it is information.
    pub alarm: bool,
    /// The text of the finding.
    pub text: String,
}

/// A box with one total.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tile {
    /// What the total counts.
    pub label: String,
    /// The total as text.
    pub value: String,
    /// An explanation of the total.
    pub note: String,
}

/// The chart of bytes and rows per second over time, in columns of equal length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RateChart {
    /// The time that one column covers, and how to read the chart.
    pub note: String,
    /// The title of the chart of bytes, with the unit.
    pub bytes_label: String,
    /// The height of each column in the chart of bytes, from 0 to 1.
    pub bytes: Vec<f64>,
    /// The labels of the vertical axis in the chart of bytes.
    pub bytes_ticks: Vec<Tick>,
    /// The title of the chart of rows.
    pub rows_label: String,
    /// The height of each column in the chart of rows, from 0 to 1.
    pub rows: Vec<f64>,
    /// The labels of the vertical axis in the chart of rows.
    pub rows_ticks: Vec<Tick>,
    /// The tooltip of each column.
    pub tips: Vec<String>,
    /// The labels of the time axis.
    pub ticks: Vec<Tick>,
    /// The periods without a commit.
    pub gaps: Vec<Band>,
}

/// A label on an axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tick {
    /// The position on the axis, from 0 to 1.
    pub at: f64,
    /// The text of the label.
    pub label: String,
}

/// A marked period on the time axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Band {
    /// The start of the period on the axis, from 0 to 1.
    pub from: f64,
    /// The end of the period on the axis, from 0 to 1.
    pub to: f64,
    /// The text of the period.
    pub label: String,
}

/// A horizontal bar with a label and a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// What the bar counts.
    pub label: String,
    /// The length of the bar, from 0 to 1.
    pub part: f64,
    /// The value of the bar as text.
    pub value: String,
}

impl Bar {
    fn percent(&self) -> String {
        number(self.part.clamp(0.0, 1.0) * 100.0)
    }
}

/// A table of the page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatsTable {
    /// What the table lists.
    pub title: String,
    /// How to read the table; may be empty.
    pub note: String,
    /// The headers of the columns.
    pub heads: Vec<ColumnHeader>,
    /// The rows, each with one cell per header.
    pub rows: Vec<Vec<String>>,
}

/// The header of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnHeader {
    /// The text of the header.
    pub label: String,
    /// Whether the column contains numbers. Numbers are aligned to the right.
    pub figures: bool,
}

#[derive(Template)]
#[template(path = "stats.html")]
struct StatsTemplate<'a> {
    page: &'a StatsPage,
    drawings: Vec<Drawing>,
}

impl StatsTemplate<'_> {
    fn is_figures(&self, listing: &StatsTable, index: &usize) -> bool {
        listing.heads.get(*index).is_some_and(|head| head.figures)
    }
}

/// Renders the page as one HTML file without external resources.
pub(crate) fn render(page: &StatsPage) -> String {
    let drawings = page.rate.iter().flat_map(|rate| {
        let height = |of: &[f64], index: usize| of.get(index).copied().unwrap_or(0.0);
        [
            svg_chart::draw(rate, "bytes", &rate.bytes_label, &rate.bytes_ticks, |index| {
                height(&rate.bytes, index)
            }),
            svg_chart::draw(rate, "rows", &rate.rows_label, &rate.rows_ticks, |index| {
                height(&rate.rows, index)
            }),
        ]
    });
    let html = StatsTemplate { page, drawings: drawings.collect() };
    // Rendering cannot fail: it writes to a string, and the template calls nothing that can fail.
    html.render().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether all HTML elements are closed in the right order. Skips elements that HTML does not close, and
    /// self-closing SVG elements.
    fn is_balanced(html: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html.split_once("<body>").map_or("", |(_, body)| body);
        while let Some((_, rest_of_html)) = rest.split_once('<') {
            let Some((tag, after)) = rest_of_html.split_once('>') else { return false };
            rest = after;
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            match tag.starts_with('/') {
                true if name == "body" || name == "html" => {}
                true if open.pop() != Some(name) => return false,
                false if !tag.ends_with('/') => open.push(name),
                _ => {}
            }
        }
        open.is_empty()
    }

    #[test]
    fn texts_are_escaped_and_the_page_loads_nothing() {
        let page = StatsPage {
            title: "<script>alert(1)</script> & co".into(),
            subtitle: vec!["a".into(), "b".into()],
            findings: vec![FindingView { alarm: true, text: "\"stalled\" <b>".into() }],
            tiles: vec![Tile { label: "Bytes".into(), value: "1.0 GiB".into(), note: "n".into() }],
            rate: Some(RateChart {
                bytes: vec![0.5, 1.0],
                rows: vec![1.0],
                tips: vec!["<one>".into(), "two".into()],
                gaps: vec![Band { from: 0.0, to: 0.5, label: "none".into() }],
                ..RateChart::default()
            }),
            sizes: vec![Bar { label: "from 1".into(), part: 2.0, value: "v".into() }],
            tables: vec![Bar { label: "a.<t>".into(), part: 0.123, value: "v".into() }],
            listings: vec![StatsTable {
                title: "List".into(),
                note: "note".into(),
                heads: vec![
                    ColumnHeader { label: "N".into(), figures: true },
                    ColumnHeader { label: "T".into(), figures: false },
                ],
                rows: vec![vec!["1".into(), "x<y".into()]],
            }],
        };
        let html = render(&page);
        assert!(is_balanced(&html), "an HTML element is not closed: {html}");
        for hidden in ["<script", "<one>", "x<y", "a.<t>", "<b>\""] {
            assert!(!html.contains(hidden), "the page contains {hidden}");
        }
        assert!(
            !html.contains("http") && !html.contains("src=") && !html.contains("@import"),
            "the page loads a file or script from elsewhere: {html}"
        );
        for shown in ["1.0 GiB", "width:100%", "width:12.3%", "class=\"alarm\"", "td class=\"figures\">1<"] {
            assert!(html.contains(shown), "the page does not contain {shown}");
        }
        assert!(is_balanced(&render(&StatsPage::default())));
    }
}
