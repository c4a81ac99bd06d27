//! The client side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::{KEEPALIVE_INTERVAL, LINE_BYTES_MAX, too_long};
use crate::api::daemon_requests::{ControlAnswer, ControlCommand};

/// How long the daemon may send nothing. A healthy daemon sends many empty lines in this time, even if the
/// command takes longer.
const SILENCE_MAX: Duration = KEEPALIVE_INTERVAL.saturating_mul(10);

/// Why the daemon cannot be reached, or cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No daemon listens at the socket.
    #[error("no daemon listens at {}; is `tailwater run` running with this configuration?", socket.display())]
    NoDaemon {
        /// The path of the socket.
        socket: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The daemon accepts the connection but sends nothing.
    #[error(
        "the daemon that listens at {} has sent nothing for {silent_ms} ms: it hangs, and may still execute the command",
        socket.display()
    )]
    Silent {
        /// The path of the socket.
        socket: PathBuf,
        /// How long the daemon has sent nothing, in milliseconds.
        silent_ms: u128,
    },
    /// Another daemon uses the log's folder.
    #[error(
        "the log's folder {} is in use by {holder}, another `tailwater run`; stop that, or give log.directory another folder",
        directory.display()
    )]
    DirectoryInUse {
        /// The log's folder.
        directory: PathBuf,
        /// The process that uses the folder.
        holder: String,
    },
    /// The log's folder cannot be used.
    #[error("the log's folder {} cannot be used: {source}", directory.display())]
    Directory {
        /// The log's folder.
        directory: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl ControlError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoDaemon { .. } => "TW-CTL-0001",
            Self::Silent { .. } => "TW-CTL-0002",
            Self::DirectoryInUse { .. } => "TW-CTL-0003",
            Self::Directory { .. } => "TW-CTL-0004",
        }
    }
}

/// Sends a command to the daemon that listens at `socket`, and returns the answer.
///
/// # Errors
/// If no daemon listens there, or it does not answer.
pub fn ask(socket: &Path, command: &ControlCommand) -> anyhow::Result<ControlAnswer> {
    ControlConnection::open(socket)?.ask(command)
}

/// A connection to a daemon, for commands whose effect lasts until the connection closes.
#[derive(Debug)]
pub struct ControlConnection {
    socket: PathBuf,
    stream: BufReader<UnixStream>,
    silence_max: Duration,
}

impl ControlConnection {
    /// Connects to the daemon that listens at `socket`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn open(socket: &Path) -> anyhow::Result<Self> {
        Self::open_within(socket, SILENCE_MAX)
    }

    fn open_within(socket: &Path, silence_max: Duration) -> anyhow::Result<Self> {
        let stream = connect(socket, silence_max).map_err(|error| match is_late(&error) {
            true => silent(socket, silence_max),
            false => ControlError::NoDaemon { socket: socket.to_owned(), source: error },
        })?;
        Ok(Self { socket: socket.to_owned(), stream: BufReader::new(stream), silence_max })
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Errors
    /// If no answer comes; [`ControlError::Silent`] if the daemon hangs.
    pub fn ask(&mut self, command: &ControlCommand) -> anyhow::Result<ControlAnswer> {
        let mut line = serde_json::to_vec(command)?;
        line.push(b'\n');
        ensure!(line.len() as u64 <= LINE_BYTES_MAX, too_long("the request"));
        let answer = self.exchange(&line).map_err(|error| match is_late(&error) {
            true => silent(&self.socket, self.silence_max).into(),
            false => anyhow::Error::new(error),
        })?;
        serde_json::from_slice(&answer).context("the daemon's answer cannot be parsed")
    }

    fn exchange(&mut self, line: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.get_mut().write_all(line)?;
        let mut answer = Vec::new();
        // Empty lines show that the daemon is working on the command.
        while matches!(answer.as_slice(), [] | [b'\n']) {
            answer.clear();
            if (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut answer)? == 0 {
                break;
            }
        }
        Ok(answer)
    }
}

/// Connects to the socket. The time-out also limits connecting: a daemon that hangs accepts no connection,
/// and connecting blocks when the socket's backlog is full.
fn connect(socket: &Path, silence_max: Duration) -> io::Result<UnixStream> {
    let stream =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&stream, direction, Some(silence_max))?;
    }
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream.into())
}

/// Whether an error is a time-out of the socket.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn silent(socket: &Path, silence_max: Duration) -> ControlError {
    ControlError::Silent { socket: socket.to_owned(), silent_ms: silence_max.as_millis() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::control_socket::socket_of;

    const SHORT: Duration = Duration::from_millis(100);

    fn is_silent(asked: &anyhow::Error) -> bool {
        asked.downcast_ref::<ControlError>().is_some_and(|error| error.code() == "TW-CTL-0002")
    }

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../../docs/reference/errors.md");
        let socket = || PathBuf::from("control.sock");
        let errors = [
            ControlError::NoDaemon { socket: socket(), source: io::ErrorKind::NotFound.into() },
            ControlError::Silent { socket: socket(), silent_ms: 1 },
            ControlError::DirectoryInUse { directory: socket(), holder: "process 1".into() },
            ControlError::Directory { directory: socket(), source: io::ErrorKind::NotFound.into() },
        ];
        for error in &errors {
            // A new variant must be added to the list above. This match does not compile without it.
            match error {
                ControlError::NoDaemon { .. }
                | ControlError::Silent { .. }
                | ControlError::DirectoryInUse { .. }
                | ControlError::Directory { .. } => {}
            }
            assert_eq!(page.matches(&format!("\n| {} | ", error.code())).count(), 1, "{error}");
        }
        assert_eq!(
            page.matches("\n| TW-CTL-").count(),
            errors.len(),
            "errors.md lists codes that no error has"
        );
    }

    #[test]
    fn a_daemon_that_hangs_causes_a_time_out() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let absent = ControlConnection::open_within(&socket, SHORT).expect_err("no daemon listens");
        assert!(matches!(absent.downcast_ref(), Some(ControlError::NoDaemon { .. })), "{absent:#}");
        // The listener accepts no connection: connections wait until the backlog is full.
        let listener = UnixListener::bind(&socket)?;
        rustix::net::listen(&listener, 1)?;
        let mut waiting = Vec::new();
        let full = loop {
            match ControlConnection::open_within(&socket, SHORT) {
                Ok(conversation) => waiting.push(conversation),
                Err(error) => break error,
            }
        };
        assert!(is_silent(&full), "{full:#}");
        let mut first = waiting.swap_remove(0);
        let asked = first.ask(&ControlCommand::List).expect_err("the daemon does not answer");
        assert!(is_silent(&asked), "{asked:#}");
        Ok(())
    }

    #[test]
    fn empty_lines_extend_the_wait_for_an_answer() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let listener = UnixListener::bind(&socket)?;
        let daemon = std::thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            for _ in 0..12 {
                std::thread::sleep(SHORT);
                stream.write_all(b"\n")?;
            }
            stream.write_all(b"{\"channels\": []}\n")
        });
        let answer = ControlConnection::open_within(&socket, SHORT * 10)?.ask(&ControlCommand::List)?;
        assert!(matches!(answer, ControlAnswer::Channels(channels) if channels.is_empty()));
        daemon.join().expect("the daemon's thread must not panic")?;
        Ok(())
    }

    #[test]
    fn a_request_that_is_too_long_is_not_sent() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let socket = socket_of(folder.path());
        let _listener = UnixListener::bind(&socket)?;
        let gtids = "x".repeat(LINE_BYTES_MAX as usize);
        let error = ask(&socket, &ControlCommand::Seek { channel: "replica".into(), gtids });
        assert!(error.is_err_and(|error| error.to_string().contains("longer than 4194304 bytes")));
        Ok(())
    }
}
