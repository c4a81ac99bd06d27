//! The control socket: a Unix socket in the log's folder. The client sends one JSON object a line, and gets
//! one line for each.
//!
//! While a command is carried out the daemon sends empty lines: a daemon that sends none hangs. Only
//! processes that may write in the log's folder may connect.
//!
//! - `listener`: the daemon's side. It parses commands, and prints the answers of
//!   [`crate::control::Control`].
//! - `client`: the other side.
//! - `directory_lock`: makes sure that one daemon alone uses the folder.

mod client;
mod directory_lock;
mod listener;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use client::{ControlConnection, ControlError, ask};
pub use directory_lock::DirectoryLock;
pub use listener::listen;

/// The longest command, and the longest answer, in bytes.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// Interval of the empty lines that the daemon sends while it carries out a command.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Files of the daemon in the log's folder, which no source may have as its name.
pub const OWN_NAMES: [&str; 4] = [SOCKET, directory_lock::NAME, "manager", "rejoin"];

/// The name of the socket.
const SOCKET: &str = "control.sock";

/// The socket of the daemon with its log in `directory`.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

fn too_long(what: &str) -> String {
    format!("{what} is longer than {LINE_BYTES_MAX} bytes")
}
