//! The control socket: a Unix socket in the log's folder. The client sends one JSON object in each line, and
//! receives one line with the answer to each.
//!
//! While the daemon executes a command it sends empty lines. A daemon that sends none is considered hung.
//! Only processes that may write in the log's folder may connect.
//!
//! - `socket_listener`: the daemon's side. It parses commands, and sends the answers of
//!   [`crate::control_api::Control`].
//! - `socket_client`: the client's side.
//! - `directory_lock`: makes sure that only one daemon uses the folder.

mod directory_lock;
mod socket_client;
mod socket_listener;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tailwater_config::CONTROL_SOCKET;

pub use directory_lock::DirectoryLock;
pub use socket_client::{ControlConnection, ControlError, ask};
pub use socket_listener::listen;

/// The longest command, and the longest answer, in bytes.
pub const LINE_BYTES_MAX: u64 = 4 << 20;

/// Interval of the empty lines that the daemon sends while it executes a command.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the path of the control socket of the daemon whose log is in `directory`.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(CONTROL_SOCKET)
}

fn too_long(what: &str) -> String {
    format!("{what} is longer than {LINE_BYTES_MAX} bytes")
}
