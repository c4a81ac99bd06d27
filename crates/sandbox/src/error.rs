//! What can go wrong with servers, links and workloads on this machine.

use std::io;
use std::path::{Path, PathBuf};

use crate::kind::ServerKind;

/// Why the sandbox could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A file or folder could not be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// No folder for servers and data can be derived from the environment.
    #[error("no cache folder: set TAILWATER_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// The server is not on this machine and was not to be fetched.
    #[error("{kind} is not installed here: {reason}; `tailwater sandbox up` fetches it")]
    NotInstalled {
        /// The server that was wanted.
        kind: ServerKind,
        /// What was looked at.
        reason: String,
    },
    /// Packages could not be fetched or unpacked.
    #[error("cannot install {kind}: {reason}")]
    Install {
        /// The server that was wanted.
        kind: ServerKind,
        /// What failed and what to do about it.
        reason: String,
    },
    /// A program of ours or of the server could not be started at all.
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
        /// The server's name.
        name: String,
        /// Its exit status.
        status: String,
        /// Its error log.
        log: PathBuf,
        /// The last lines of that log.
        tail: String,
    },
    /// A server did not get ready, or did not stop, in time.
    #[error("{name} was not {what} within {seconds} s; the end of {log}:\n{tail}", log = .log.display())]
    TimedOut {
        /// The server's name.
        name: String,
        /// What was waited for.
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
        /// Its error log.
        log: PathBuf,
        /// The last lines of that log.
        tail: String,
    },
    /// A server is not in the state that the call needs.
    #[error("{name} is {state}: cannot {action}")]
    WrongState {
        /// The server's name.
        name: String,
        /// What it is doing.
        state: &'static str,
        /// What was to be done with it.
        action: &'static str,
    },
    /// A client program ended with an error.
    #[error("{program} failed ({status}): {message}")]
    Client {
        /// The program.
        program: String,
        /// Its exit status.
        status: String,
        /// What it printed.
        message: String,
    },
    /// No free port was found on loopback.
    #[error("no free TCP port on 127.0.0.1 after {tries} tries")]
    NoFreePort {
        /// How many were tried.
        tries: u32,
    },
    /// The TCP port that was asked for is taken.
    #[error("port {port} on 127.0.0.1 is taken: end what listens there, or choose another with --port")]
    PortTaken {
        /// Which.
        port: u16,
    },
    /// There are not so many TCP ports.
    #[error(
        "{count} servers have no ports from {first} on: the last TCP port is 65535; choose a lower --port"
    )]
    PortRange {
        /// The first.
        first: u16,
        /// How many servers, each with one.
        count: u32,
    },
    /// The path of a Unix socket would be longer than the kernel allows.
    #[error("socket path {path} is longer than 107 bytes: set TMPDIR to a shorter folder", path = .path.display())]
    SocketPath {
        /// The path that was wanted.
        path: PathBuf,
    },
}

impl SandboxError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
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

/// Adds what was tried on which path to an I/O error.
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
            SandboxError::TimedOut { name: text(), what: "ready", seconds: 1, log: path(), tail: text() },
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
                "{code} in docs/reference/errors.md"
            );
        }
        assert_eq!(
            page.matches("| TW-SBX-").count(),
            codes.len(),
            "errors.md explains codes that no error has"
        );
    }
}
