//! Errors of reading events for statistics.

use std::io;
use std::path::{Path, PathBuf};

use tailwater_log::LogError;
use tailwater_session::SessionError;
use tailwater_wire::WireError;

/// Why the events of a log, a file or a server could not be read to the end.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// The log cannot be read.
    #[error("cannot read the log {}", path.display())]
    Log {
        /// The folder of the log.
        path: PathBuf,
        /// The log's error.
        #[source]
        cause: LogError,
    },
    /// A binlog file cannot be opened or read.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What failed: `open` or `read`.
        action: &'static str,
        /// The path of the binlog file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The file is not a binlog file: it does not start with the four magic bytes.
    #[error("{} is not a binlog file: it does not start with fe 62 69 6e", path.display())]
    NotBinlog {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file that is not the last one ends in the middle of an event.
    #[error(
        "{} ends in the middle of an event, but more files follow it; only the last file may be incomplete",
        path.display()
    )]
    Incomplete {
        /// The path of the binlog file.
        path: PathBuf,
    },
    /// The rest of the file is encrypted (MariaDB only).
    #[error(
        "event at {}:{offset}: the file is encrypted from here on; read the binlog from its server instead",
        path.display()
    )]
    Encrypted {
        /// The path of the binlog file.
        path: PathBuf,
        /// The offset of the event that starts the encryption.
        offset: u64,
    },
    /// An event is damaged, or cannot be parsed.
    #[error("cannot read the event at {file}:{offset}")]
    Event {
        /// The file with the event: its path, or its name on the server.
        file: String,
        /// The offset of the event.
        offset: u64,
        /// What is wrong with the event.
        #[source]
        cause: WireError,
    },
    /// The server cannot be reached, or closed the stream.
    #[error("cannot read the binlog of {server}")]
    Server {
        /// The server's address.
        server: String,
        /// The error of the connection.
        #[source]
        cause: Box<SessionError>,
    },
}

impl StatsError {
    pub(crate) fn open(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::File { action: "open", path: path.to_owned(), cause }
    }

    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |cause| Self::File { action: "read", path: path.to_owned(), cause }
    }

    pub(crate) fn event(file: &str, offset: u64) -> impl FnOnce(WireError) -> Self {
        move |cause| Self::Event { file: file.to_owned(), offset, cause }
    }
}
