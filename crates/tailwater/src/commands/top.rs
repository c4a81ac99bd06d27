//! `tailwater top`: what a running daemon does, second by second.

use std::time::Duration;

use anyhow::ensure;
use tailwater_daemon::control_socket::socket_of;
use tailwater_top::terminal_session::{self, TopOptions};
use tailwater_top::view::Screen;
use tailwater_top::view::terminal_style::TerminalStyle;

use crate::arguments::{Output, ScreenArg, TopArgs};
use crate::exit_codes::Exit;

/// Shows the screens until the operator quits, or prints one screen.
///
/// # Errors
/// If standard output is not a terminal, or, with `--once`, if the daemon does not answer.
pub fn top(arguments: &TopArgs, output: Output) -> anyhow::Result<Exit> {
    ensure!(
        output == Output::Text,
        "`tailwater top` has no JSON output: use `tailwater status --output json`, or GET /api/v1/snapshot"
    );
    let config = arguments.file.load()?;
    let style = TerminalStyle::of_environment(|name| std::env::var(name).ok());
    let options = TopOptions {
        socket: socket_of(&config.log.directory),
        interval: Duration::from_secs(arguments.interval),
        screen: match arguments.screen {
            ScreenArg::Overview => Screen::Overview,
            ScreenArg::Channels => Screen::Channels,
            ScreenArg::Clusters => Screen::Clusters,
            ScreenArg::Trends => Screen::Trends,
            ScreenArg::Jobs => Screen::Jobs,
        },
        style: TerminalStyle { ascii: style.ascii || arguments.ascii, ..style },
    };
    if arguments.once {
        let picture = super::on_runtime(terminal_session::once(&options))?;
        super::write_stdout(picture.as_bytes())?;
    } else {
        terminal_session::run(&options)?;
    }
    Ok(Exit::Done)
}
