//! A socket on which a test receives what a daemon reports to its service manager, as systemd does. The
//! environment variable `NOTIFY_SOCKET` gives its path to the daemon.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Time limit of each wait. A passing test never reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The messages of a daemon. A thread reads them as they arrive, because the daemon would wait at a full
/// socket.
pub struct Notifications {
    messages: Receiver<String>,
}

impl Notifications {
    /// Creates the socket at `path`. The thread that reads it ends with the process, or at the first message
    /// after this value is dropped.
    pub fn bind(path: &Path) -> Result<Self> {
        let socket =
            UnixDatagram::bind(path).with_context(|| format!("cannot bind the socket {}", path.display()))?;
        let (received, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = socket.recv(&mut buffer) {
                if received.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { messages })
    }

    /// Returns the messages up to the first one that contains `text`.
    pub fn until(&self, text: &str) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut messages = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => messages.push(message),
                Err(_) => bail!("no message contains {text:?}; received: {messages:?}"),
            }
            if messages.last().is_some_and(|message| message.contains(text)) {
                return Ok(messages);
            }
        }
    }

    /// Waits until no message arrives for `duration`.
    pub fn until_silent(&self, duration: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.messages.recv_timeout(duration) {
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => bail!("the socket cannot be read"),
                Ok(message) => {
                    ensure!(begun.elapsed() < PATIENCE, "the daemon still sends messages: {message:?}")
                }
            }
        }
    }
}
