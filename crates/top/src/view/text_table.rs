//! Tables of text in a given width. Columns of names become narrower and optional columns are left out if
//! the width is small; a text that is cut ends with `~`.

use ratatui::text::{Line, Span};
use tailwater_wire::printable;

use super::terminal_style::{TerminalStyle, Tone};

/// The space between two columns.
const GAP: usize = 2;

/// A column that can be narrower than its texts keeps at least this width.
const NAME_MIN: usize = 8;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The title, with the unit if the cells have none.
    pub title: &'static str,
    /// Where the texts are.
    pub kind: ColumnKind,
    /// Columns with the highest value are left out first if the width is small; those with 0 stay.
    pub optional: u8,
}

/// The kinds of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Aligned to the left. May become narrower than its texts.
    Name,
    /// Aligned to the left.
    Text,
    /// Aligned to the right.
    Number,
}

/// A text in a table.
#[derive(Debug, Clone, Default)]
pub struct TableCell {
    text: String,
    tone: Tone,
}

impl TableCell {
    /// A text with a tone.
    pub fn new(tone: Tone, text: impl AsRef<str>) -> Self {
        Self { text: printable(text.as_ref()).into_owned(), tone }
    }
}

impl<T: AsRef<str>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::new(Tone::Plain, text)
    }
}

/// Returns the title line and one line per row. A row that is selected has the tone of selected rows.
pub fn table(
    columns: &[Column],
    rows: &[Vec<TableCell>],
    selected: Option<usize>,
    width: usize,
    style: TerminalStyle,
) -> Vec<Line<'static>> {
    let widths = widths(columns, rows, width);
    let line = |cells: &mut dyn Iterator<Item = (&str, Tone)>| {
        let mut spans = Vec::new();
        for ((text, tone), (column, width)) in cells.zip(columns.iter().zip(&widths)) {
            let Some(width) = width else { continue };
            if !spans.is_empty() {
                spans.push(style.span(tone_between(tone), " ".repeat(GAP)));
            }
            spans.push(style.span(tone, aligned(text, *width, column.kind)));
        }
        Line::from(spans)
    };
    let titles = line(&mut columns.iter().map(|column| (column.title, Tone::Title)));
    let rows = rows.iter().enumerate().map(|(number, cells)| {
        let is_selected = selected == Some(number);
        let tone = |tone| if is_selected { Tone::Selected } else { tone };
        line(&mut cells.iter().map(|cell| (cell.text.as_str(), tone(cell.tone))))
    });
    std::iter::once(titles).chain(rows).collect()
}

/// Returns the tone of the gap before a cell: `Selected` in a selected row, otherwise `Plain`.
fn tone_between(tone: Tone) -> Tone {
    if tone == Tone::Selected { tone } else { Tone::Plain }
}

/// Returns the width of each column; `None` for those that are left out.
fn widths(columns: &[Column], rows: &[Vec<TableCell>], width: usize) -> Vec<Option<usize>> {
    let longest = |number: usize| {
        let cells = rows.iter().filter_map(|row| row.get(number)).map(|cell| text_width(&cell.text));
        cells.max().unwrap_or(0)
    };
    let mut widths: Vec<Option<usize>> = columns
        .iter()
        .enumerate()
        .map(|(number, column)| Some(text_width(column.title).max(longest(number))))
        .collect();
    let excess = |widths: &[Option<usize>]| {
        let shown = widths.iter().flatten();
        let total = shown.clone().sum::<usize>() + shown.count().saturating_sub(1) * GAP;
        total.saturating_sub(width)
    };
    let smallest = |widths: &[Option<usize>]| -> Vec<Option<usize>> {
        let narrow = |(column, width): (&Column, &Option<usize>)| match column.kind {
            ColumnKind::Name => width.map(|width| width.min(NAME_MIN.max(text_width(column.title)))),
            ColumnKind::Text | ColumnKind::Number => *width,
        };
        columns.iter().zip(widths).map(narrow).collect()
    };
    while excess(&smallest(&widths)) > 0 {
        let optional =
            columns.iter().zip(&mut widths).filter(|(column, width)| column.optional > 0 && width.is_some());
        let Some((_, left_out)) = optional.max_by_key(|(column, _)| column.optional) else { break };
        *left_out = None;
    }
    let least = smallest(&widths);
    for _ in 0..excess(&widths) {
        let names =
            widths.iter_mut().zip(&least).filter_map(|(width, least)| Some((width.as_mut()?, (*least)?)));
        let Some((widest, _)) =
            names.filter(|(width, least)| **width > *least).max_by_key(|(width, _)| **width)
        else {
            break;
        };
        *widest -= 1;
    }
    widths
}

/// Returns the number of columns that a text takes on a terminal.
pub fn text_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the start of a text that takes at most `width` columns, with `~` at its end if it was cut.
pub fn cut(text: &str, width: usize) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if text_width(&kept) >= width {
            kept.pop();
            break;
        }
    }
    if width > 0 {
        kept.push('~');
    }
    kept
}

fn aligned(text: &str, width: usize, kind: ColumnKind) -> String {
    let text = cut(text, width);
    let space = " ".repeat(width.saturating_sub(text_width(&text)));
    match kind {
        ColumnKind::Name | ColumnKind::Text => text + &space,
        ColumnKind::Number => space + &text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: TerminalStyle = TerminalStyle { colours: false, ascii: true };

    fn shown(width: usize) -> Vec<String> {
        let column = |title, kind, optional| Column { title, kind, optional };
        let columns = [
            column("SOURCE", ColumnKind::Name, 0),
            column("SERVER", ColumnKind::Name, 2),
            column("STATE", ColumnKind::Text, 0),
            column("TRX/S", ColumnKind::Number, 1),
        ];
        let row = |cells: [&str; 4]| cells.map(TableCell::from).to_vec();
        let rows = [row(["a-very-long-name", "db1", "streaming", "1200"]), row(["b", "db2", "x\n", "7"])];
        table(&columns, &rows, None, width, LOOK).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_are_left_out_and_names_become_shorter() {
        assert_eq!(
            shown(80),
            [
                "SOURCE            SERVER  STATE      TRX/S",
                "a-very-long-name  db1     streaming   1200",
                "b                 db2     x\\n            7",
            ]
        );
        assert_eq!(
            shown(34),
            [
                "SOURCE    SERVER  STATE      TRX/S",
                "a-very-~  db1     streaming   1200",
                "b         db2     x\\n            7"
            ]
        );
        assert_eq!(shown(33)[1], "a-very-long~  streaming   1200".replace("long~", "long-na~").as_str());
        assert_eq!(shown(20)[1], "a-very-l~  streaming");
        assert_eq!(shown(1)[1], "a-very-~  streaming");
    }

    #[test]
    fn wide_characters_are_cut_by_their_width() {
        assert_eq!((cut("日本語", 6).as_str(), cut("日本語", 5).as_str()), ("日本語", "日本~"));
        assert_eq!(
            (cut("日本語", 4).as_str(), cut("ab", 1).as_str(), cut("ab", 0).as_str()),
            ("日~", "~", "")
        );
    }
}
