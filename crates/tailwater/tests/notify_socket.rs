//! The socket of a service manager, as `NOTIFY_SOCKET` names it to a daemon.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Time limit of each wait; reached only on a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// The messages of a daemon. They are read as they arrive: a full socket would make the daemon wait.
pub struct Notifications {
    messages: Receiver<String>,
}

impl Notifications {
    /// A socket at `path`. Its thread ends with the process, or when a message arrives after this value was
    /// dropped.
    pub fn bind(path: &Path) -> Result<Self> {
        let socket = UnixDatagram::bind(path).with_context(|| format!("bind {}", path.display()))?;
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

    /// The messages up to the first that contains `text`.
    pub fn until(&self, text: &str) -> Result<Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut messages = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => messages.push(message),
                Err(_) => bail!("no message with {text:?} after {messages:?}"),
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
                Ok(message) => ensure!(begun.elapsed() < PATIENCE, "messages still arrive: {message:?}"),
            }
        }
    }
}
