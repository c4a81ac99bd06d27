//! What a running daemon can be told and asked, over a Unix socket in the log's folder: one JSON object per line, one
//! answer to each. Only who may write in that folder may connect.
//!
//! - `protocol`: what is asked and answered.
//! - `controlled`: what the daemon has that can be told something.
//! - `listening`: the daemon's side of a connection.
//! - `obeying`: does what is asked.
//! - `asking`: the other side.

mod asking;
mod controlled;
mod listening;
mod obeying;
mod protocol;

use std::path::{Path, PathBuf};

pub use asking::{Conversation, ask};
pub use controlled::{Controlled, ControlledSource};
pub use listening::listen;
pub use protocol::{Answer, LINE_BYTES_MAX, Request, SourceReport};

/// Where the daemon with its log in `directory` listens.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join("control.sock")
}
