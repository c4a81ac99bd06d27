//! The terminal: keys in, pictures out. Restores the terminal whatever ends the program.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use rustix::process::{Signal, getpid, kill_process};

use crate::daemon_answer::DaemonAnswer;
use crate::daemon_poller::{self, Clocks, PollerMessage};
use crate::model::{AnswerHistory, AnswerState, Moment};
use crate::view::screen_layout::{Picture, page_lines};
use crate::view::terminal_style::TerminalStyle;
use crate::view::{KeyEffect, Screen, TopView};

/// How long the program waits for a key before it processes answers of the daemon and signals.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The width of a picture that does not go to a terminal.
const COLUMNS: u16 = 80;

/// What `tailwater top` shows, and how.
#[derive(Debug, Clone)]
pub struct TopOptions {
    /// The control socket of the daemon.
    pub socket: PathBuf,
    /// The time between two requests to the daemon.
    pub interval: Duration,
    /// The first screen.
    pub screen: Screen,
    /// What the terminal supports.
    pub style: TerminalStyle,
}

/// Shows the screens until the operator quits.
///
/// # Errors
/// If standard output is no terminal that can show them. A daemon that does not run is shown, and is no
/// error.
pub fn run(options: &TopOptions) -> anyhow::Result<()> {
    ensure!(
        stdout().is_terminal(),
        "standard output is not a terminal: run `tailwater top` in a terminal, or add --once to print one screen"
    );
    let terminal = std::env::var("TERM").unwrap_or_default();
    ensure!(
        !terminal.is_empty() && terminal != "dumb",
        "the terminal cannot move its cursor (TERM={terminal:?}): set TERM, or add --once to print one screen"
    );
    let clocks = Clocks::start();
    let messages = daemon_poller::start(options.socket.clone(), options.interval, clocks)?;
    // Also installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init().context("the terminal cannot be prepared")?;
    let result = Session::new(options, clocks).run(&mut terminal, &messages);
    ratatui::restore();
    result
}

/// Asks the daemon twice, because rates need two answers, and returns the picture as text.
///
/// # Errors
/// If the daemon does not answer.
pub async fn once(options: &TopOptions) -> anyhow::Result<String> {
    let clocks = Clocks::start();
    let mut model = AnswerHistory::new(clocks.now(), options.interval);
    let first = DaemonAnswer::read(&options.socket).await?;
    model.accept(clocks.now(), first);
    tokio::time::sleep(options.interval).await;
    let second = DaemonAnswer::read(&options.socket).await?;
    model.accept(clocks.now(), second);
    let width = match stdout().is_terminal() {
        true => ratatui::crossterm::terminal::size().map_or(COLUMNS, |(columns, _)| columns),
        false => COLUMNS,
    };
    let session = Session { model, ..Session::new(options, clocks) };
    Ok(session.picture(&AnswerState::Answering, clocks.now()).text(width))
}

struct Session {
    clocks: Clocks,
    style: TerminalStyle,
    machine: String,
    view: TopView,
    model: AnswerHistory,
    /// What is shown while the view is paused, and since when.
    paused: Option<(Moment, AnswerHistory)>,
}

impl Session {
    fn new(options: &TopOptions, clocks: Clocks) -> Self {
        Self {
            clocks,
            style: options.style,
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            view: TopView::new(options.screen),
            model: AnswerHistory::new(clocks.now(), options.interval),
            paused: None,
        }
    }

    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        messages: &Receiver<PollerMessage>,
    ) -> anyhow::Result<()> {
        loop {
            self.draw(terminal)?;
            let is_event = event::poll(KEY_WAIT).context("the keyboard cannot be read")?;
            if is_event && self.handle(event::read()?, terminal)? {
                return Ok(());
            }
            loop {
                match messages.try_recv() {
                    Ok(PollerMessage::End) => return Ok(()),
                    Ok(PollerMessage::Answer(at, answer)) => match *answer {
                        Ok(state) => self.model.accept(at, state),
                        Err(error) => self.model.reject(error_text(&error)),
                    },
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        bail!("the thread that asks the daemon has ended; report this as a bug")
                    }
                }
            }
        }
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
        let now = self.clocks.now();
        let answer_state = self.model.answer_state(now);
        let picture = self.picture(&answer_state, now);
        terminal
            .draw(|frame| picture.draw(frame.area(), frame.buffer_mut()))
            .context("the terminal cannot be written to")?;
        Ok(())
    }

    fn picture<'a>(&'a self, answer_state: &'a AnswerState, now: Moment) -> Picture<'a> {
        let (shown_at, model) = self.paused.as_ref().map_or((now, &self.model), |(at, model)| (*at, model));
        let (view, machine, style) = (&self.view, self.machine.as_str(), self.style);
        Picture { view, model, shown_at, answer_state, now, machine, style }
    }

    /// Handles an event. Returns whether the program ends.
    fn handle(&mut self, event: Event, terminal: &mut DefaultTerminal) -> anyhow::Result<bool> {
        let Event::Key(key) = event else { return Ok(false) };
        let area = terminal.get_frame().area();
        let shown = self.paused.as_ref().map_or(&self.model, |(_, model)| model);
        match self.view.press(key, shown, page_lines(area.height)) {
            KeyEffect::None => {}
            KeyEffect::Quit => return Ok(true),
            KeyEffect::Redraw => terminal.clear()?,
            KeyEffect::Suspend => suspend(terminal)?,
        }
        let now = self.clocks.now();
        match (self.view.is_paused, &self.paused) {
            (true, None) => self.paused = Some((now, self.model.clone())),
            (false, Some(_)) => self.paused = None,
            _ => {}
        }
        let answer_state = self.model.answer_state(now);
        let lines_max = self.picture(&answer_state, now).scroll_max(area);
        self.view.limit_scroll(lines_max);
        Ok(false)
    }
}

/// Gives the terminal back to the shell until the shell resumes this process.
fn suspend(terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
    ratatui::restore();
    kill_process(getpid(), Signal::TSTP).context("the process cannot be suspended")?;
    enable_raw_mode().context("the terminal cannot be prepared")?;
    execute!(stdout(), EnterAlternateScreen)?;
    terminal.hide_cursor()?;
    terminal.clear()?;
    Ok(())
}

/// Returns the text of an error, with its code if it has one.
fn error_text(error: &anyhow::Error) -> String {
    match error.downcast_ref::<tailwater_daemon::control_socket::ControlError>() {
        Some(control) => format!("{}: {control}", control.code()),
        None => format!("{error:#}"),
    }
}
