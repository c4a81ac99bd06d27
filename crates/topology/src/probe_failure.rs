//! Why a probe failed, and what that means for the server's process.

use std::fmt;
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};
use tailwater_session::SessionError;

/// Why a probe or a statement failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeFailure {
    /// The host answers, but no process listens on the port.
    Refused,
    /// The server did not answer in time.
    TimedOut,
    /// There is no route to the host.
    NoRoute,
    /// The host name cannot be resolved.
    UnknownHost,
    /// The connection was interrupted.
    #[serde(rename = "broken", alias = "connection_lost")]
    ConnectionLost,
    /// The account or host is not allowed to connect, or lacks a privilege.
    Denied,
    /// All connections of the server or the account are in use.
    TooManyConnections,
    /// The server is shutting down.
    ShuttingDown,
    /// The server has no memory or thread for another connection.
    OutOfResources,
    /// A lock was not granted in time, or the statement was killed.
    Busy,
    /// The server is read-only.
    ReadOnly,
    /// The disk, or a tablespace, is full.
    DiskFull,
    /// The other side is not a usable server: TLS, the authentication or the protocol failed.
    #[serde(rename = "not_understood", alias = "protocol_error")]
    ProtocolError,
    /// An error that gives no information on the server's health.
    Other,
}

/// What a failure means for the server's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The process answered.
    Alive,
    /// The host refuses the connection, so the process does not exist.
    Down,
    /// The server does not answer. Its process, its host or the network may have failed.
    Unresponsive,
}

impl ProbeFailure {
    /// Returns what the failure means for the server's process.
    pub fn liveness(self) -> Liveness {
        match self {
            Self::Refused => Liveness::Down,
            Self::TimedOut | Self::NoRoute | Self::UnknownHost | Self::ConnectionLost => {
                Liveness::Unresponsive
            }
            Self::Denied
            | Self::TooManyConnections
            | Self::ShuttingDown
            | Self::OutOfResources
            | Self::Busy
            | Self::ReadOnly
            | Self::DiskFull
            | Self::ProtocolError
            | Self::Other => Liveness::Alive,
        }
    }

    /// Classifies a session error.
    pub fn from_error(error: &SessionError) -> Self {
        match error {
            SessionError::Connect { source, .. } => match source.kind() {
                // If the Unix socket does not exist, the server on this host has stopped.
                ErrorKind::ConnectionRefused | ErrorKind::NotFound => Self::Refused,
                ErrorKind::TimedOut => Self::TimedOut,
                ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Self::ConnectionLost,
                _ => Self::NoRoute,
            },
            SessionError::Resolve { .. } => Self::UnknownHost,
            SessionError::ConnectTimeout { .. } | SessionError::Timeout { .. } => Self::TimedOut,
            SessionError::Io { .. } | SessionError::Closed { .. } | SessionError::OutOfStep => {
                Self::ConnectionLost
            }
            SessionError::Server { error, .. } | SessionError::Denied { error, .. } => {
                Self::from_error_number(error.number, error.message.expose())
            }
            SessionError::MissingGrant { .. } => Self::Denied,
            _ => Self::ProtocolError,
        }
    }

    /// Classifies an error of the server by its number. `message` is used only for numbers with several
    /// meanings.
    pub fn from_error_number(number: u16, message: &str) -> Self {
        // The text contains the storage engine's error number; 28 is ENOSPC.
        if number == 1030 {
            return if message.contains("error 28 ") { Self::DiskFull } else { Self::Other };
        }
        // The option may be `--read-only`, but also another option that forbids a statement.
        if number == 1290 {
            return if message.contains("read-only") || message.contains("read_only") {
                Self::ReadOnly
            } else {
                Self::Other
            };
        }
        let row = ERROR_NUMBERS.iter().find(|(numbers, _)| numbers.contains(&number));
        row.map_or(Self::Other, |(_, failure)| *failure)
    }
}

/// Error numbers of MySQL and MariaDB, grouped by what they mean for the server's health. Any other number
/// only shows that the server is alive.
pub const ERROR_NUMBERS: &[(&[u16], ProbeFailure)] = &[
    // ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED.
    (&[1040, 1203, 1226], ProbeFailure::TooManyConnections),
    // ER_DBACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR,
    // ER_HOST_IS_BLOCKED, ER_HOST_NOT_PRIVILEGED, ER_TABLEACCESS_DENIED_ERROR,
    // ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_NOT_SUPPORTED_AUTH_MODE.
    (&[1044, 1045, 1698, 1129, 1130, 1142, 1227, 1251], ProbeFailure::Denied),
    // ER_MUST_CHANGE_PASSWORD, ER_MUST_CHANGE_PASSWORD_LOGIN, ER_ACCOUNT_HAS_BEEN_LOCKED (MySQL 3118, MariaDB
    // 4151), ER_USER_ACCESS_DENIED_FOR_USER_ACCOUNT_BLOCKED_BY_PASSWORD_LOCK.
    (&[1820, 1862, 3118, 4151, 3955], ProbeFailure::Denied),
    // ER_SERVER_OFFLINE_MODE: only administrators may connect.
    (&[3032], ProbeFailure::Denied),
    // ER_SERVER_SHUTDOWN, ER_NORMAL_SHUTDOWN, ER_SHUTDOWN_COMPLETE, ER_FORCING_CLOSE.
    (&[1053, 1077, 1079, 1080], ProbeFailure::ShuttingDown),
    // ER_OUTOFMEMORY, ER_OUT_OF_SORTMEMORY, ER_OUT_OF_RESOURCES, ER_CANT_CREATE_THREAD.
    (&[1037, 1038, 1041, 1135], ProbeFailure::OutOfResources),
    // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK, ER_QUERY_INTERRUPTED, ER_QUERY_TIMEOUT, ER_STATEMENT_TIMEOUT,
    // ER_SESSION_WAS_KILLED, ER_CONNECTION_KILLED, ER_CANT_UPDATE_WITH_READLOCK.
    (&[1205, 1213, 1317, 3024, 1969, 3169, 1927, 1223], ProbeFailure::Busy),
    // ER_READ_ONLY_MODE, ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_OPEN_AS_READONLY, ER_INNODB_READ_ONLY.
    (&[1836, 1792, 1036, 1874], ProbeFailure::ReadOnly),
    // ER_DISK_FULL, ER_RECORD_FILE_FULL, ER_ERROR_ON_WRITE, EE_WRITE, EE_DISK_FULL.
    (&[1021, 1114, 1026, 3, 20], ProbeFailure::DiskFull),
];

impl fmt::Display for ProbeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::TimedOut => "timed out",
            Self::NoRoute => "no route",
            Self::UnknownHost => "unknown host",
            Self::ConnectionLost => "connection broke",
            Self::Denied => "access denied",
            Self::TooManyConnections => "too many connections",
            Self::ShuttingDown => "shutting down",
            Self::OutOfResources => "out of resources",
            Self::Busy => "busy",
            Self::ReadOnly => "read-only",
            Self::DiskFull => "disk full",
            Self::ProtocolError => "not understood",
            Self::Other => "an error",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_error_number_is_in_one_row_only_and_means_that_the_server_is_alive() {
        let mut seen = HashSet::new();
        for (numbers, failure) in ERROR_NUMBERS {
            assert_eq!(
                failure.liveness(),
                Liveness::Alive,
                "{failure:?} must mean that the server is alive, because the server has sent an error"
            );
            for number in *numbers {
                assert!(seen.insert(number), "the error number {number} is in two rows");
                assert_eq!(ProbeFailure::from_error_number(*number, ""), *failure);
            }
        }
    }

    #[test]
    fn an_unknown_error_number_also_means_that_the_server_is_alive() {
        assert_eq!(ProbeFailure::from_error_number(1064, "syntax"), ProbeFailure::Other);
        assert_eq!(ProbeFailure::Other.liveness(), Liveness::Alive);
    }

    #[test]
    fn a_number_with_several_meanings_is_classified_by_its_text() {
        let check = |number, text: &str, failure| {
            assert_eq!(ProbeFailure::from_error_number(number, text), failure, "{text}")
        };
        let option =
            |name| format!("The MySQL server is running with the {name} option so it cannot execute this");
        check(1290, &option("--super-read-only"), ProbeFailure::ReadOnly);
        check(1290, &option("--read-only"), ProbeFailure::ReadOnly);
        check(1290, &option("--secure-file-priv"), ProbeFailure::Other);
        check(
            1030,
            "Got error 28 \"No space left on device\" from storage engine InnoDB",
            ProbeFailure::DiskFull,
        );
        check(
            1030,
            "Got error 168 - 'Unknown (generic) error from engine' from storage engine",
            ProbeFailure::Other,
        );
    }

    #[test]
    fn only_a_refused_connection_means_that_the_process_does_not_exist() {
        let connect = |kind: ErrorKind| {
            ProbeFailure::from_error(&SessionError::Connect {
                endpoint: "db1:3306".into(),
                source: kind.into(),
            })
        };
        assert_eq!(connect(ErrorKind::ConnectionRefused).liveness(), Liveness::Down);
        for kind in [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable, ErrorKind::TimedOut] {
            assert_eq!(connect(kind).liveness(), Liveness::Unresponsive, "{kind:?}");
        }
        let closed = SessionError::Closed { doing: "logging in" };
        assert_eq!(ProbeFailure::from_error(&closed).liveness(), Liveness::Unresponsive);
        let tls = SessionError::TlsNotOffered { endpoint: "db1:3306".into() };
        assert_eq!(ProbeFailure::from_error(&tls).liveness(), Liveness::Alive);
    }
}
