//! What happened in a binlog, as a page: findings in words, charts, tables.

use askama::Template;

use crate::chart::{self, Drawing, number};

/// All that the page shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatsPage {
    /// What was looked at.
    pub title: String,
    /// From where to where, and when; a line each.
    pub subtitle: Vec<String>,
    /// What deserves a word, the gravest first.
    pub findings: Vec<FindingView>,
    /// The great sums.
    pub tiles: Vec<Tile>,
    /// The rate over time; `None` for too little of it.
    pub rate: Option<RateChart>,
    /// Transactions by size.
    pub sizes: Vec<Bar>,
    /// The hottest tables.
    pub tables: Vec<Bar>,
    /// Everything as tables.
    pub listings: Vec<StatsTable>,
}

/// A finding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FindingView {
    /// Whether something stood still; else it is good to know.
    pub alarm: bool,
    /// In words.
    pub text: String,
}

/// A sum.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tile {
    /// Of what.
    pub label: String,
    /// The figure.
    pub value: String,
    /// What else is to be said of it.
    pub note: String,
}

/// Bytes and rows per second over time, in columns of equal length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RateChart {
    /// How long a column is, and what else is to be known to read the chart.
    pub note: String,
    /// What the first chart shows, with its scale.
    pub bytes_label: String,
    /// How high each column is, from 0 to 1.
    pub bytes: Vec<f64>,
    /// The scale of the first chart.
    pub bytes_ticks: Vec<Tick>,
    /// What the second chart shows.
    pub rows_label: String,
    /// How high each column is, from 0 to 1.
    pub rows: Vec<f64>,
    /// The scale of the second chart.
    pub rows_ticks: Vec<Tick>,
    /// Each column in words.
    pub tips: Vec<String>,
    /// Moments below the columns.
    pub ticks: Vec<Tick>,
    /// Times without a commit.
    pub gaps: Vec<Band>,
}

/// A mark on an axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tick {
    /// From 0 to 1.
    pub at: f64,
    /// What stands there.
    pub label: String,
}

/// A stretch of the time axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Band {
    /// From 0 to 1.
    pub from: f64,
    /// From 0 to 1.
    pub to: f64,
    /// In words.
    pub label: String,
}

/// A horizontal bar.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bar {
    /// Of what.
    pub label: String,
    /// How long, from 0 to 1.
    pub part: f64,
    /// The figure.
    pub value: String,
}

impl Bar {
    fn percent(&self) -> String {
        number(self.part.clamp(0.0, 1.0) * 100.0)
    }
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatsTable {
    /// Of what.
    pub title: String,
    /// What else is to be known to read it; empty for nothing.
    pub note: String,
    /// The heads of its columns.
    pub heads: Vec<ColumnHeader>,
    /// Its lines, a cell for each head.
    pub rows: Vec<Vec<String>>,
}

/// The head of a column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnHeader {
    /// What stands below.
    pub label: String,
    /// Whether it is figures, which are aligned at their ends.
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

/// The page as HTML, everything in it.
pub(crate) fn render(page: &StatsPage) -> String {
    let drawings = page.rate.iter().flat_map(|rate| {
        let height = |of: &[f64], index: usize| of.get(index).copied().unwrap_or(0.0);
        [
            chart::draw(rate, "bytes", &rate.bytes_label, &rate.bytes_ticks, |index| {
                height(&rate.bytes, index)
            }),
            chart::draw(rate, "rows", &rate.rows_label, &rate.rows_ticks, |index| height(&rate.rows, index)),
        ]
    });
    let html = StatsTemplate { page, drawings: drawings.collect() };
    // Writing into a string cannot fail, and nothing in the template does.
    html.render().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether each element that is opened is closed, in order; those that HTML does not close, and SVG's that close
    /// themselves, are passed over.
    fn is_balanced(html: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html.split_once("<body>").map_or("", |(_, body)| body);
        while let Some((_, behind)) = rest.split_once('<') {
            let Some((tag, after)) = behind.split_once('>') else { return false };
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
    fn what_is_shown_is_text_and_nothing_is_fetched() {
        let page = StatsPage {
            title: "<script>alert(1)</script> & co".into(),
            subtitle: vec!["a".into(), "b".into()],
            findings: vec![FindingView { alarm: true, text: "stood \"still\" <b>".into() }],
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
        assert!(is_balanced(&html), "{html}");
        for hidden in ["<script", "<one>", "x<y", "a.<t>", "<b>\""] {
            assert!(!html.contains(hidden), "{hidden}");
        }
        assert!(!html.contains("http") && !html.contains("src=") && !html.contains("@import"), "{html}");
        for shown in ["1.0 GiB", "width:100%", "width:12.3%", "class=\"alarm\"", "td class=\"figures\">1<"] {
            assert!(html.contains(shown), "no {shown}");
        }
        assert!(is_balanced(&render(&StatsPage::default())));
    }
}
