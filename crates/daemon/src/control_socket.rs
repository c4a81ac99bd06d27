//! The client's side of the control socket: a Unix socket in the log's folder, at which the daemon serves its
//! HTTP API. Only processes that may write in the log's folder may connect.
//!
//! - [`socket_client`]: sends commands and returns the daemon's answers.
//! - [`command_to_http_request`]: converts commands to HTTP requests, and responses to answers.
//! - `directory_lock`: makes sure that only one daemon uses the folder.

pub mod command_to_http_request;
mod directory_lock;
pub mod socket_client;

use std::path::{Path, PathBuf};

use tailwater_config::CONTROL_SOCKET;

pub use directory_lock::DirectoryLock;
pub use socket_client::{ControlError, PausedChannel, ask, get, pause_channel, send_within};

/// The longest body of a request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The longest body of a response, in bytes.
const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Returns the path of the control socket of the daemon whose log is in `directory`.
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(CONTROL_SOCKET)
}
