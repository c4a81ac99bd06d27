//! How text looks: styles and characters that the terminal supports. No state is shown by colour alone.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// The meaning of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// An ordinary text.
    #[default]
    Plain,
    /// A title.
    Title,
    /// What is well.
    Good,
    /// What needs attention.
    Warning,
    /// What is wrong.
    Bad,
    /// What is less important.
    Minor,
    /// The selected row, or the present screen.
    Selected,
}

/// What the terminal supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Whether to use colours.
    pub colours: bool,
    /// Whether to use only ASCII characters.
    pub ascii: bool,
}

impl TerminalStyle {
    /// What the terminal supports, by the environment variables that `variable` returns. Colours are off with
    /// `NO_COLOR`, and on terminals without colours. Other characters than ASCII need a locale with UTF-8.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let terminal = set("TERM").unwrap_or_default();
        let has_colours = !["dumb", "vt52", "vt100", "vt102", "vt220", "linux-m"]
            .contains(&terminal.as_str())
            && !terminal.ends_with("-mono")
            && !terminal.ends_with("-m");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Self {
            colours: has_colours && set("NO_COLOR").is_none(),
            ascii: !locale.contains("utf-8") && !locale.contains("utf8"),
        }
    }

    /// Returns the style of a tone.
    pub fn style(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain | Tone::Minor => (Color::Reset, Modifier::empty()),
            Tone::Title => (Color::Reset, Modifier::BOLD),
            Tone::Good => (Color::Green, Modifier::empty()),
            Tone::Warning => (Color::Yellow, Modifier::BOLD),
            Tone::Bad => (Color::Red, Modifier::BOLD),
            Tone::Selected => (Color::Reset, Modifier::REVERSED),
        };
        let style = Style::new().add_modifier(modifier);
        if self.colours { style.fg(colour) } else { style }
    }

    /// Returns a text in the style of a tone.
    pub fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }

    /// Returns the characters of bars, from empty to full.
    pub fn bars(self) -> &'static [char] {
        if self.ascii {
            &[' ', '.', ':', '|', '#']
        } else {
            &[' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        let style = |set: &[(&str, &str)]| {
            let find =
                |name: &str| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned());
            let style = TerminalStyle::of_environment(find);
            (style.colours, style.ascii)
        };
        assert_eq!(style(&[("TERM", "xterm-256color"), ("LANG", "de_DE.UTF-8")]), (true, false));
        assert_eq!(style(&[("TERM", "screen"), ("LANG", "C.utf8"), ("NO_COLOR", "")]), (true, false));
        assert_eq!(style(&[("TERM", "xterm"), ("NO_COLOR", "1"), ("LANG", "C.UTF-8")]), (false, false));
        assert_eq!(style(&[("TERM", "vt100"), ("LC_ALL", "C"), ("LANG", "C.UTF-8")]), (false, true));
        assert_eq!(style(&[("TERM", "xterm-mono")]), (false, true));
    }
}
