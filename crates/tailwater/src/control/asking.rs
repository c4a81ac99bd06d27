//! Asking a daemon.

use std::path::Path;

use anyhow::{Context, ensure};

use super::protocol::too_long;
use super::{Answer, LINE_BYTES_MAX, Request};

/// Asks the daemon that listens at `socket`.
///
/// # Errors
/// If there is none, or it does not answer.
pub fn ask(socket: &Path, request: &Request) -> anyhow::Result<Answer> {
    Conversation::open(socket)?.ask(request)
}

/// A connection to a daemon, for requests that count as long as it stands.
#[derive(Debug)]
pub struct Conversation {
    stream: std::io::BufReader<std::os::unix::net::UnixStream>,
}

impl Conversation {
    /// With the daemon that listens at `socket`.
    ///
    /// # Errors
    /// If there is none.
    pub fn open(socket: &Path) -> anyhow::Result<Self> {
        let stream = std::os::unix::net::UnixStream::connect(socket).with_context(|| {
            format!(
                "no daemon listens at {}; is `tailwater run` running with this configuration?",
                socket.display()
            )
        })?;
        Ok(Self { stream: std::io::BufReader::new(stream) })
    }

    /// Asks it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Answer> {
        use std::io::{BufRead, Read, Write};
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        ensure!(line.len() as u64 <= LINE_BYTES_MAX, too_long("the request"));
        self.stream.get_mut().write_all(&line)?;
        let mut answer = Vec::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut answer)?;
        serde_json::from_slice(&answer).context("the daemon's answer is not understood")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::socket_of;

    #[test]
    fn a_request_that_is_too_long_is_not_sent() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
        let gtids = "x".repeat(LINE_BYTES_MAX as usize);
        let error = ask(&socket, &Request::Seek { channel: "replica".into(), gtids });
        assert!(error.is_err_and(|error| error.to_string().contains("longer than 4194304 bytes")));
        Ok(())
    }
}
