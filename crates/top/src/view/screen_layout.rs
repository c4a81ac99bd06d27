//! The whole picture: two lines of title, the text of the screen, and a line of keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Widget;
use tailwater_wire::printable;

use super::problem_list::wrapped;
use super::terminal_style::{TerminalStyle, Tone};
use super::text_table::{cut, text_width};
use super::{
    Screen, TopView, channel_detail, channel_list, clusters, job_list, key_help, number_with_unit, overview,
    problem_list, trends,
};
use crate::model::{AnswerHistory, AnswerState, Moment};

/// The lines above the text of the screen.
const TITLE_LINES: usize = 2;

/// The lines of the reason why the daemon does not answer.
const SILENCE_LINES_MAX: usize = 4;

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// What is shown.
    pub view: &'a TopView,
    /// The answers of the daemon, up to the pause if the view is paused.
    pub model: &'a AnswerHistory,
    /// The time that the picture shows.
    pub shown_at: Moment,
    /// Whether the daemon answers now.
    pub answer_state: &'a AnswerState,
    /// The present time.
    pub now: Moment,
    /// The name of this machine.
    pub machine: &'a str,
    /// What the terminal supports.
    pub style: TerminalStyle,
}

/// The text of a screen.
pub(super) struct Body {
    pub lines: Vec<Line<'static>>,
    /// Whether arrow keys scroll the text. Otherwise they select a row, and the text fits.
    pub scrolls: bool,
}

impl Body {
    pub(super) fn scrolling(lines: Vec<Line<'static>>) -> Self {
        Self { lines, scrolls: true }
    }
}

/// Returns the number of lines that a screen of this height has for its text.
pub fn page_lines(height: u16) -> usize {
    usize::from(height).saturating_sub(TITLE_LINES + 1)
}

impl Picture<'_> {
    /// Draws the picture.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let (width, height) = (usize::from(area.width), page_lines(area.height));
        let body = self.body(width, Some(height));
        let hidden = body.lines.len().saturating_sub(height);
        let scroll = if body.scrolls { self.view.scroll.min(hidden) } else { 0 };
        let keys =
            self.keys(width, (hidden > 0 && body.scrolls).then_some((scroll, body.lines.len(), height)));
        let mut lines = self.titles(width);
        lines.extend(body.lines.into_iter().skip(scroll).take(height));
        lines.resize(TITLE_LINES + height, Line::default());
        lines.push(keys);
        for (line, row) in lines.into_iter().zip(area.rows()) {
            line.render(row, buffer);
        }
    }

    /// Returns the picture as text, without keys and with all lines of the screen.
    pub fn text(&self, width: u16) -> String {
        let mut lines = self.titles(width.into());
        lines.extend(self.body(width.into(), None).lines);
        lines.iter().map(|line| format!("{}\n", line.to_string().trim_end())).collect()
    }

    /// The largest number of lines by which the text can be scrolled.
    pub fn scroll_max(&self, area: Rect) -> usize {
        let height = page_lines(area.height);
        self.body(area.width.into(), Some(height)).lines.len().saturating_sub(height)
    }

    fn body(&self, width: usize, height: Option<usize>) -> Body {
        if self.view.is_help {
            return Body::scrolling(key_help::lines(self.style));
        }
        let mut lines = self.silence(width);
        let height = height.map(|height| height.saturating_sub(lines.len()));
        let body = match (self.view.screen, self.view.is_detail) {
            _ if self.model.state().is_none() => Body::scrolling(Vec::new()),
            (Screen::Overview, false) => overview::body(self, width, height),
            (Screen::Overview, true) => Body::scrolling(problem_list::all(self, width)),
            (Screen::Channels, false) => channel_list::body(self, width, height),
            (Screen::Channels, true) => channel_detail::body(self, width),
            (Screen::Clusters, _) => clusters::body(self, width),
            (Screen::Trends, _) => trends::body(self, width, height),
            (Screen::Jobs, _) => job_list::body(self, width, height),
        };
        lines.extend(body.lines);
        Body { lines, scrolls: body.scrolls }
    }

    /// The lines that say that the daemon does not answer.
    fn silence(&self, width: usize) -> Vec<Line<'static>> {
        let text = match self.answer_state {
            AnswerState::Answering => return Vec::new(),
            AnswerState::Starting => return vec![Line::from("Waiting for the first answer of the daemon.")],
            AnswerState::Silent { since, has_answered, error } => {
                let since = since.wall.format("%H:%M:%S");
                let state = if *has_answered { "below is its last state" } else { "it has not answered yet" };
                let hangs = "It accepts requests and answers none of them: it may hang";
                let reason = error.as_deref().unwrap_or(hangs);
                format!("! No answer from the daemon since {since}; {state}. {reason}")
            }
        };
        let remedy = "  what to do: start the daemon (`tailwater run`), or see its log; top retries";
        let lines = wrapped(&text, "  ", width, SILENCE_LINES_MAX).into_iter();
        let lines = lines.map(|line| Line::from(self.style.span(Tone::Bad, line)));
        lines.chain([Line::from(cut(remedy, width)), Line::default()]).collect()
    }

    fn titles(&self, width: usize) -> Vec<Line<'static>> {
        let name = match self.model.state() {
            Some(state) => format!(
                "Tailwater {} on {}, up {}",
                state.status.version,
                self.machine,
                number_with_unit::seconds(state.status.uptime_seconds as f64)
            ),
            None => format!("Tailwater on {}", self.machine),
        };
        let clock = self.shown_at.wall.format("%Y-%m-%d %H:%M:%S").to_string();
        let space = width.saturating_sub(text_width(&clock) + 2);
        let name = cut(&printable(&name), space);
        let gap = " ".repeat(width.saturating_sub(text_width(&name) + text_width(&clock)));
        let first = Line::from(vec![self.style.span(Tone::Title, name), gap.into(), clock.into()]);
        vec![first, self.tabs(width)]
    }

    fn tabs(&self, width: usize) -> Line<'static> {
        let mut spans = Vec::new();
        let mut used = 0;
        for (number, screen) in Screen::ALL.into_iter().enumerate() {
            let is_shown = screen == self.view.screen;
            let (open, close) = if is_shown { ('[', ']') } else { (' ', ' ') };
            let text = format!("{open}{} {}{close}", number + 1, screen.title());
            used += text_width(&text);
            spans.push(self.style.span(if is_shown { Tone::Selected } else { Tone::Plain }, text));
        }
        let (tone, text) = self.state_text();
        let text = cut(&text, width.saturating_sub(used + 1));
        spans.push(" ".repeat(width.saturating_sub(used + text_width(&text))).into());
        spans.push(self.style.span(tone, text));
        Line::from(spans)
    }

    /// The state of everything in a few words.
    fn state_text(&self) -> (Tone, String) {
        let (tone, text) = match (self.answer_state, self.model.state()) {
            (AnswerState::Silent { since, .. }, _) => {
                let silent = number_with_unit::duration(self.now.elapsed.saturating_sub(since.elapsed));
                (Tone::Bad, format!("NO ANSWER for {silent}"))
            }
            (_, None) => (Tone::Warning, "connecting".to_owned()),
            (_, Some(state)) => match state.status.problems.len() {
                0 => (Tone::Good, "all is well".to_owned()),
                1 => (Tone::Bad, "1 PROBLEM".to_owned()),
                count => (Tone::Bad, format!("{count} PROBLEMS")),
            },
        };
        if self.view.is_paused { (Tone::Warning, format!("PAUSED, {text}")) } else { (tone, text) }
    }

    fn keys(&self, width: usize, scrolled: Option<(usize, usize, usize)>) -> Line<'static> {
        let view = self.view;
        let special = match (view.screen, view.is_detail, view.is_help) {
            (_, _, true) => "Esc back",
            (Screen::Overview, false, _) => "Enter all problems",
            (Screen::Channels, false, _) => "Up/Down select  Enter details  s sort",
            (Screen::Overview | Screen::Channels, true, _) => "Esc back",
            (Screen::Trends, ..) => "+/- time",
            (Screen::Jobs, ..) => "Up/Down select",
            (Screen::Clusters, ..) => "",
        };
        let mut keys = vec![
            "q quit",
            "1-5 screen",
            special,
            if view.is_paused { "p resume" } else { "p pause" },
            "? help",
        ];
        keys.retain(|key| !key.is_empty());
        let left = keys.join("  ");
        let right = scrolled.map_or_else(String::new, |(first, all, height)| {
            format!("Up/Down: lines {}-{} of {all}", first + 1, (first + height).min(all))
        });
        let left = cut(&left, width.saturating_sub(text_width(&right) + 1));
        let gap = " ".repeat(width.saturating_sub(text_width(&left) + text_width(&right)));
        Line::from(vec![left.into(), gap.into(), self.style.span(Tone::Title, right)])
    }
}
