//! Errors of servers, links and workloads of the sandbox.

use std::io;
use std::path::{Path, PathBuf};

use crate::server_kind::ServerKind;

/// Why an operation of the sandbox failed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// The operation on the file, as a verb phrase such as "create".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The environment does not name a folder for servers and data.
    #[error("no cache folder: set TAILWATER_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// The server is not on this machine, and downloading it was not requested.
    #[error("{kind} is not installed here: {reason}; `tailwater sandbox up` downloads it")]
    NotInstalled {
        /// The requested server.
        kind: ServerKind,
        /// Where the sandbox searched for the server, and why the server cannot be used.
        reason: String,
    },
    /// The server's packages could not be downloaded or unpacked.
    #[error("cannot install {kind}: {reason}")]
    Install {
        /// The requested server.
        kind: ServerKind,
        /// What failed, and what to do about it.
        reason: String,
    },
    /// A program could not be started.
    #[error("cannot start {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A server ended while it was starting up.
    #[error("{name} ended while starting ({status}); the end of {log}:\n{tail}", log = .log.display())]
    EndedEarly {
        /// Name of the server.
        name: String,
        /// Exit status of the server.
        status: String,
        /// Error log of the server.
        log: PathBuf,
        /// Last lines of the error log.
        tail: String,
    },
    /// A server did not become ready, or did not stop, within the time limit.
    #[error("{name} was not {state} within {seconds} s; the end of {log}:\n{tail}", log = .log.display())]
    TimedOut {
        /// Name of the server.
        name: String,
        /// The state that the server did not reach, such as "ready".
        state: &'static str,
        /// The time limit in seconds.
        seconds: u64,
        /// Error log of the server.
        log: PathBuf,
        /// Last lines of the error log.
        tail: String,
    },
    /// A server is in a state that does not allow the operation.
    #[error("{name} is {state}: cannot {action}")]
    WrongState {
        /// Name of the server.
        name: String,
        /// State of the server.
        state: &'static str,
        /// The operation that was requested.
        action: &'static str,
    },
    /// A client program ended with an error.
    #[error("{program} failed ({status}): {message}")]
    Client {
        /// The program.
        program: String,
        /// Exit status of the program.
        status: String,
        /// What the program printed.
        message: String,
    },
    /// No free port was found on the loopback address.
    #[error("no free TCP port on 127.0.0.1 after {tries} tries")]
    NoFreePort {
        /// Number of ports that were tried.
        tries: u32,
    },
    /// The requested TCP port is in use.
    #[error(
        "port {port} on 127.0.0.1 is in use: stop the program that listens there, or choose another port with --port"
    )]
    PortTaken {
        /// The requested port.
        port: u16,
    },
    /// Not every server can get a port, because TCP ports end at 65535.
    #[error(
        "{count} servers need ports from {first} on, but the last TCP port is 65535: choose a lower --port"
    )]
    PortRange {
        /// First port of the range.
        first: u16,
        /// Number of servers, each of which needs a port.
        count: u32,
    },
    /// The path of a Unix socket would be longer than the kernel allows.
    #[error("socket path {path} is longer than 107 bytes: set TMPDIR to a shorter folder", path = .path.display())]
    SocketPath {
        /// The path that is too long.
        path: PathBuf,
    },
}

impl SandboxError {
    /// Returns the stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File { .. } => "TW-SBX-0001",
            Self::NoCacheFolder => "TW-SBX-0002",
            Self::NotInstalled { .. } => "TW-SBX-0003",
            Self::Install { .. } => "TW-SBX-0004",
            Self::Spawn { .. } => "TW-SBX-0005",
            Self::EndedEarly { .. } => "TW-SBX-0006",
            Self::TimedOut { .. } => "TW-SBX-0007",
            Self::WrongState { .. } => "TW-SBX-0008",
            Self::Client { .. } => "TW-SBX-0009",
            Self::NoFreePort { .. } => "TW-SBX-0010",
            Self::SocketPath { .. } => "TW-SBX-0011",
            Self::PortTaken { .. } => "TW-SBX-0022",
            Self::PortRange { .. } => "TW-SBX-0023",
        }
    }
}

/// Adds the operation and the path to an I/O error.
pub(crate) trait FileContext<T> {
    /// `action` is a verb phrase such as "create".
    fn on_path(self, action: &'static str, path: &Path) -> Result<T, SandboxError>;
}

impl<T, E: Into<io::Error>> FileContext<T> for Result<T, E> {
    fn on_path(self, action: &'static str, path: &Path) -> Result<T, SandboxError> {
        self.map_err(|source| SandboxError::File { action, path: path.to_owned(), source: source.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::BinlogCheckError;

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../docs/reference/errors.md");
        let text = String::new;
        let path = PathBuf::new;
        let source = || io::Error::other("full");
        let kind = ServerKind::Mysql97;
        let errors = [
            SandboxError::File { action: "read", path: path(), source: source() },
            SandboxError::NoCacheFolder,
            SandboxError::NotInstalled { kind, reason: text() },
            SandboxError::Install { kind, reason: text() },
            SandboxError::Spawn { program: text(), source: source() },
            SandboxError::EndedEarly { name: text(), status: text(), log: path(), tail: text() },
            SandboxError::TimedOut { name: text(), state: "ready", seconds: 1, log: path(), tail: text() },
            SandboxError::WrongState { name: text(), state: "running", action: "start it" },
            SandboxError::Client { program: text(), status: text(), message: text() },
            SandboxError::NoFreePort { tries: 1 },
            SandboxError::SocketPath { path: path() },
            SandboxError::PortTaken { port: 1 },
            SandboxError::PortRange { first: 1, count: 1 },
        ];
        let binlog = [
            BinlogCheckError::File { path: path(), source: source() },
            BinlogCheckError::Event {
                path: path(),
                position: 4,
                source: tailwater_wire::WireError::unsupported("event", "a type"),
            },
        ];
        let codes: Vec<_> =
            errors.iter().map(SandboxError::code).chain(binlog.iter().map(BinlogCheckError::code)).collect();
        for code in &codes {
            assert_eq!(
                page.matches(&format!("| {code} | ")).count(),
                1,
                "{code} is not documented in docs/reference/errors.md"
            );
        }
        assert_eq!(
            page.matches("| TW-SBX-").count(),
            codes.len(),
            "errors.md documents codes that no error has"
        );
    }
}
