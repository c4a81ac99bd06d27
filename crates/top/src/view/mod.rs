//! What is shown: the present screen and selection, what keys do, and the text of each screen.
//!
//! - [`terminal_style`]: styles and characters. [`number_with_unit`]: numbers as text. [`text_table`]:
//!   columns in a given width.
//! - [`screen_layout`]: the lines that all screens have, and the whole picture.
//!   `overview`, `channel_list`, `channel_detail`, `clusters`, `trends`, `job_list`, `problem_list`,
//!   `key_help`: its parts.

mod channel_detail;
mod channel_list;
mod clusters;
mod job_list;
mod key_help;
pub mod number_with_unit;
mod overview;
mod problem_list;
pub mod screen_layout;
pub mod terminal_style;
#[cfg(test)]
mod tests;
pub mod text_table;
mod trends;

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::channel_list::sorted_channels;
use crate::model::AnswerHistory;

/// The windows of the trends.
const WINDOWS: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(2 * 60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
];

/// The screens, in the order of their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// Problems, sources, readers of the binlog servers, the log's disk.
    Overview,
    /// The channels.
    Channels,
    /// The clusters and their servers.
    Clusters,
    /// The rates and lags of the last minutes.
    Trends,
    /// Long work of the daemon and of command lines.
    Jobs,
}

impl Screen {
    /// All screens.
    pub const ALL: [Self; 5] = [Self::Overview, Self::Channels, Self::Clusters, Self::Trends, Self::Jobs];

    /// Returns the title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Channels => "Channels",
            Self::Clusters => "Clusters",
            Self::Trends => "Trends",
            Self::Jobs => "Jobs",
        }
    }

    /// Returns the screen that is `steps` to the right; after the last one comes the first one.
    fn step(self, steps: usize) -> Self {
        let number = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(number + steps) % Self::ALL.len()]
    }
}

/// The order of the channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelSort {
    /// By name.
    Name,
    /// Channels that do not run come first. The others are sorted by lag, with the greatest lag first.
    Lag,
    /// The greatest number of transactions per second comes first.
    Rate,
}

impl ChannelSort {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Lag,
            Self::Lag => Self::Rate,
            Self::Rate => Self::Name,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Lag => "lag",
            Self::Rate => "trx/s",
        }
    }
}

/// What a key has changed besides the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyEffect {
    /// Nothing.
    None,
    /// The program ends.
    Quit,
    /// The program is suspended until the shell resumes it.
    Suspend,
    /// The picture is drawn from scratch.
    Redraw,
}

/// Which screen is shown, and what of it.
#[derive(Debug, Clone)]
pub struct TopView {
    /// The present screen.
    pub screen: Screen,
    /// The number of lines above the first one that is shown.
    scroll: usize,
    /// The name of the selected channel; the first one if absent.
    channel: Option<String>,
    /// The number of the selected job; the first one if absent.
    job: Option<u64>,
    /// Whether the details of the present screen are shown: of a channel, or all problems.
    is_detail: bool,
    sort: ChannelSort,
    window: usize,
    is_help: bool,
    /// Whether the picture stays as it is.
    pub is_paused: bool,
}

impl TopView {
    /// The view at the start.
    pub fn new(screen: Screen) -> Self {
        Self {
            screen,
            scroll: 0,
            channel: None,
            job: None,
            is_detail: false,
            sort: ChannelSort::Name,
            window: 1,
            is_help: false,
            is_paused: false,
        }
    }

    fn window(&self) -> Duration {
        WINDOWS[self.window]
    }

    /// Changes the view as a key demands. `model` is what is shown, and `page` the number of lines that a
    /// page key moves.
    pub fn press(&mut self, key: KeyEvent, model: &AnswerHistory, page: usize) -> KeyEffect {
        if key.kind == KeyEventKind::Release {
            return KeyEffect::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyEffect::Quit,
                KeyCode::Char('z') => KeyEffect::Suspend,
                KeyCode::Char('l') => KeyEffect::Redraw,
                _ => KeyEffect::None,
            };
        }
        match key.code {
            KeyCode::Char('q' | 'Q') => return KeyEffect::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => (self.is_help, self.scroll) = (!self.is_help, 0),
            KeyCode::Char(digit @ '1'..='5') => self.show(Screen::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab | KeyCode::Right => self.show(self.screen.step(1)),
            KeyCode::BackTab | KeyCode::Left => self.show(self.screen.step(Screen::ALL.len() - 1)),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') if self.screen == Screen::Channels => self.sort = self.sort.next(),
            KeyCode::Char('+' | '=') => self.window = (self.window + 1).min(WINDOWS.len() - 1),
            KeyCode::Char('-') => self.window = self.window.saturating_sub(1),
            KeyCode::Enter if matches!(self.screen, Screen::Overview | Screen::Channels) => {
                (self.is_detail, self.is_help, self.scroll) = (!self.is_detail, false, 0);
            }
            KeyCode::Esc | KeyCode::Backspace => {
                (self.is_detail, self.is_help, self.scroll) = (false, false, 0);
            }
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1, model),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1, model),
            KeyCode::PageUp => self.move_by(-(page.max(1) as isize), model),
            KeyCode::PageDown | KeyCode::Char(' ') => self.move_by(page.max(1) as isize, model),
            KeyCode::Home => self.move_by(isize::MIN / 2, model),
            KeyCode::End => self.move_by(isize::MAX / 2, model),
            _ => {}
        }
        KeyEffect::None
    }

    fn show(&mut self, screen: Screen) {
        (self.screen, self.scroll, self.is_detail, self.is_help) = (screen, 0, false, false);
    }

    /// Limits the scrolling, so that the next key for the other direction has an effect at once.
    pub fn limit_scroll(&mut self, lines_max: usize) {
        self.scroll = self.scroll.min(lines_max);
    }

    /// Moves the selection, or what is shown.
    fn move_by(&mut self, lines: isize, model: &AnswerHistory) {
        let selects = matches!(self.screen, Screen::Channels | Screen::Jobs);
        if !selects || self.is_detail || self.is_help {
            self.scroll = self.scroll.saturating_add_signed(lines);
            return;
        }
        if self.screen == Screen::Jobs {
            let jobs = model.state().map_or(&[][..], |state| &state.jobs);
            let last = jobs.len().saturating_sub(1);
            let next = job_list::selected(self, jobs).saturating_add_signed(lines).min(last);
            self.job = jobs.get(next).map(|job| job.id);
            return;
        }
        let names = sorted_channels(self, model);
        let last = names.len().saturating_sub(1);
        let next = self.selected(&names).saturating_add_signed(lines).min(last);
        self.channel = names.get(next).map(|channel| channel.name.clone());
    }

    /// Returns the number of the selected channel among the sorted channels.
    fn selected(&self, sorted: &[&tailwater_daemon::api::channels::ChannelStatus]) -> usize {
        sorted.iter().position(|channel| Some(&channel.name) == self.channel.as_ref()).unwrap_or(0)
    }
}
