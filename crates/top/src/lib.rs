//! `tailwater top`: what a running daemon does, second by second, in a terminal of at least 80x24.
//!
//! - [`terminal_session`]: the driver. It polls the daemon and the keyboard, and draws.
//!   `daemon_poller`: asks the daemon once per interval, in a thread of its own.
//! - [`daemon_answer`]: what the daemon answers.
//! - [`model`]: the answers of the last minutes, and the rates and trends that follow from them. Has no side
//!   effects; times are parameters.
//! - [`view`]: which screen is shown, what keys do, and the text of each screen. Has no side effects.

pub mod daemon_answer;
mod daemon_poller;
pub mod model;
pub mod terminal_session;
#[cfg(test)]
mod test_daemon_states;
pub mod view;
