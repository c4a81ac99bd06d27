//! What is wrong, and what to do.

use ratatui::text::Line;
use tailwater_daemon::api::daemon_status::StatusProblem;
use tailwater_wire::printable;

use super::screen_layout::Picture;
use super::terminal_style::{TerminalStyle, Tone};

/// Returns the lines of a problem: the cause and the remedy, each cut after `lines_max` lines.
pub(super) fn problem(
    problem: &StatusProblem,
    width: usize,
    lines_max: usize,
    style: TerminalStyle,
) -> Vec<Line<'static>> {
    let StatusProblem { object, code, text, remedy } = problem;
    let cause = wrapped(&format!("! {object}: {code}: {text}"), "  ", width, lines_max);
    let remedy = wrapped(&format!("  what to do: {remedy}"), "  ", width, lines_max);
    let cause = cause.into_iter().map(|line| Line::from(style.span(Tone::Bad, line)));
    cause.chain(remedy.into_iter().map(Line::from)).collect()
}

/// Returns a text in lines of at most `width` characters. All but the first one begin with `indent`. If there
/// are more than `lines_max`, the last one ends with `...`.
pub(super) fn wrapped(text: &str, indent: &str, width: usize, lines_max: usize) -> Vec<String> {
    let options = textwrap::Options::new(width.max(4))
        .subsequent_indent(indent)
        // A code such as TW-APP-0002 stays whole.
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let mut lines: Vec<String> =
        textwrap::wrap(&printable(text), options).into_iter().map(|line| line.into_owned()).collect();
    if lines.len() > lines_max {
        lines.truncate(lines_max.max(1));
        if let Some(last) = lines.last_mut() {
            let kept = last.chars().take(width.saturating_sub(4)).collect::<String>();
            *last = format!("{} ...", kept.trim_end());
        }
    }
    lines
}

/// Returns all problems in full.
pub(super) fn all(picture: &Picture<'_>, width: usize) -> Vec<Line<'static>> {
    let Some(state) = picture.model.state() else { return Vec::new() };
    let problems = &state.status.problems;
    let title = match problems.len() {
        0 => "PROBLEMS: none".to_owned(),
        count => format!("PROBLEMS: {count}"),
    };
    let title = Line::from(picture.style.span(Tone::Title, title));
    let lines = problems.iter().flat_map(|one| problem(one, width, usize::MAX, picture.style));
    std::iter::once(title).chain(lines).collect()
}
