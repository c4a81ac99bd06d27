//! What a running daemon can be told and asked, over a Unix socket in the log's folder: one JSON object per line, one
//! answer to each. While it is being done empty lines say that the daemon lives: one that is silent stands still. Only who may write in that folder may connect.
//!
//! - `protocol`: what is asked and answered.
//! - `daemon_state`: what the daemon has that can be told something.
//! - `listener`: the daemon's side of a connection.
//! - `dispatch`: does what is asked.
//! - `client`: the other side.
//! - `directory_lock`: that one daemon alone has the folder.

mod client;
mod daemon_state;
mod directory_lock;
mod dispatch;
mod listener;
mod protocol;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use client::{ControlConnection, ControlError, ask};
pub use daemon_state::{DaemonState, SourceHandle};
pub use directory_lock::DirectoryLock;
pub use listener::listen;
pub use protocol::{Answer, LINE_BYTES_MAX, Request, SourceReport};

/// How often the daemon says that it lives, while it does as it was told.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);

/// What is in the log's folder beside the sources' own folders: no source may be called so.
pub const OWN_NAMES: [&str; 4] = [SOCKET, directory_lock::NAME, "manager", "rejoin"];

/// Where the daemon listens for commands.
const SOCKET: &str = "control.sock";

/// Where the daemon with its log in `directory` listens.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}
