//! Errors of connections to servers, and of connections from clients.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_wire::protocol::ErrPacket;
use tailwater_wire::sql_redaction::{
    KEPT_BYTES_MAX, SHOWN_BYTES_MAX, private_statement, private_text, public_statement, public_text,
};
use tailwater_wire::{WireError, printable};

/// An error of a connection, or an unexpected answer.
///
/// The connection is unusable after every error except [`SessionError::Server`],
/// [`SessionError::LocalInfileOff`], [`SessionError::UnexpectedResult`] and [`SessionError::MissingGrant`].
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server cannot be reached.
    #[error("cannot connect to {endpoint}: {source}; is the server running, and is the address right?")]
    Connect {
        /// The server's address.
        endpoint: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The host name cannot be resolved.
    #[error("cannot find the address of host {host}: {source}")]
    Resolve {
        /// The host name.
        host: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server did not finish the login in time.
    #[error("no login at {endpoint} within {} s (connect_timeout)", seconds.as_secs_f64())]
    ConnectTimeout {
        /// The server's address.
        endpoint: String,
        /// The limit (`connect_timeout`).
        seconds: Duration,
    },
    /// The connection broke.
    #[error("the connection broke while {doing}: {source}")]
    Io {
        /// What the connection was used for, as a phrase such as "running a statement".
        doing: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server, or the client in the server role, closed the connection.
    #[error("the other side closed the connection while {doing}")]
    Closed {
        /// What the connection was used for, as a phrase such as "running a statement".
        doing: &'static str,
    },
    /// The server or the client sent nothing, or accepted no bytes, for too long.
    #[error("the other side was silent for {} s while {doing}", seconds.as_secs_f64())]
    Timeout {
        /// What the connection was used for, as a phrase such as "running a statement".
        doing: &'static str,
        /// The limit that was exceeded.
        seconds: Duration,
    },
    /// The server or the client sent bytes that the protocol does not allow.
    #[error("the other side broke the protocol while {doing}: {source}")]
    Protocol {
        /// What the connection was used for, as a phrase such as "running a statement".
        doing: &'static str,
        /// What is wrong with the bytes.
        source: WireError,
    },
    /// An earlier call on this connection was cancelled or failed before it had read its answer.
    #[error(
        "the connection is in the middle of an earlier exchange that was cancelled or failed; connect again"
    )]
    OutOfStep,
    /// The server answered with an error.
    #[error("the server refused while {doing}: {error}{statement}")]
    Server {
        /// What the connection was used for, as a phrase such as "running a statement".
        doing: &'static str,
        /// The error that the server returned.
        error: ServerError,
        /// The beginning of the statement; empty if the command was not a statement.
        statement: StatementPrefix,
    },
    /// The server rejected the login.
    #[error(
        "{endpoint} rejected the login of user {user}: {}; check the user name, the password and the host of the account",
        // Show the error without values of rows, because the user has not logged in.
        error.private()
    )]
    Denied {
        /// The server's address.
        endpoint: String,
        /// The user name of the login.
        user: String,
        /// The error that the server returned.
        error: ServerError,
    },
    /// The server's version is so old that Tailwater cannot work with it.
    #[error("{endpoint} is {server}, which is too old for Tailwater; supported versions: {supported}")]
    ServerTooOld {
        /// The server's address.
        endpoint: String,
        /// The server's flavour and version.
        server: String,
        /// The supported versions of this flavour.
        supported: &'static str,
    },
    /// The TLS handshake failed.
    #[error("TLS with {endpoint} failed: {reason}")]
    Tls {
        /// The server's address.
        endpoint: String,
        /// The cause and the remedy.
        reason: String,
    },
    /// TLS is required, and the server does not offer it.
    #[error(
        "{endpoint} does not offer TLS, but the TLS mode requires it; set up certificates there, or use mode off"
    )]
    TlsNotOffered {
        /// The server's address.
        endpoint: String,
    },
    /// The TLS files or the TLS mode cannot be used.
    #[error("cannot set up TLS: {reason}")]
    TlsOptions {
        /// The cause, with the name of the file.
        reason: String,
    },
    /// The account uses an authentication plugin that Tailwater does not support.
    #[error("user {user} logs in with plugin {plugin}, which is not supported; supported are {supported}")]
    AuthPlugin {
        /// The user name of the login.
        user: String,
        /// The plugin of the account.
        plugin: String,
        /// The plugins that Tailwater supports.
        supported: String,
    },
    /// The server requested the password in clear text over an unprotected connection.
    #[error(
        "the server requests the password of {user} in clear text ({plugin}), which is refused: {reason}"
    )]
    ClearPassword {
        /// The user name of the login.
        user: String,
        /// The authentication plugin that the server requested.
        plugin: &'static str,
        /// Why Tailwater does not send the password, with the remedy.
        reason: &'static str,
    },
    /// The server requested a file of this machine.
    #[error("the server requests the local file {file:?}, which is refused; such a server may be hostile")]
    LocalInfile {
        /// The file name, truncated.
        file: String,
    },
    /// The server does not accept `LOAD DATA LOCAL`, because its `local_infile` is off.
    #[error(
        "{endpoint} does not accept LOAD DATA LOCAL: {error}; run there: SET GLOBAL local_infile = ON, and connect again"
    )]
    LocalInfileOff {
        /// The server's address.
        endpoint: String,
        /// The error that the server returned.
        error: ServerError,
    },
    /// The sender of the rows for a `LOAD DATA LOCAL` statement stopped before the last row.
    #[error(
        "the sender of the rows for LOAD DATA LOCAL stopped before the last row; the statement and its transaction were abandoned"
    )]
    LoadBody,
    /// The result of a query exceeds the memory limit.
    #[error(
        "the result exceeds {bytes_max} bytes (rows_bytes_max); request fewer rows, or read them as a stream"
    )]
    ResultTooLarge {
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The answer of the server does not have the expected columns or rows.
    #[error("unexpected answer while {doing}: {reason}")]
    UnexpectedResult {
        /// What the answer was needed for, as a phrase such as "reading the user's grants".
        doing: &'static str,
        /// What is wrong with the answer.
        reason: String,
    },
    /// The account lacks a privilege that the task needs.
    #[error("user {user} lacks {missing} for {purpose}; run: {statement}")]
    MissingGrant {
        /// The user name of the account.
        user: String,
        /// The privileges that are missing.
        missing: String,
        /// The task that needs the privileges.
        purpose: &'static str,
        /// The GRANT statement, which an administrator must run.
        statement: String,
    },
    /// The server cannot serve the requested binlog stream.
    #[error("cannot request the binlog: {reason}")]
    DumpRequest {
        /// The cause and the remedy.
        reason: String,
    },
    /// An option file cannot be read, or has an invalid line.
    #[error("option file {}, line {line}: {reason}", file.display())]
    OptionFile {
        /// The path of the option file.
        file: PathBuf,
        /// The number of the line, from 1. 0 if the error does not concern a single line.
        line: usize,
        /// The cause and the remedy.
        reason: String,
    },
    /// A client's login failed.
    #[error("login of user {user:?} from {peer} refused: {reason}")]
    LoginRefused {
        /// The client's address.
        peer: SocketAddr,
        /// The user name that the client sent, truncated.
        user: String,
        /// The cause, for the log only. The client gets only the error "access denied".
        reason: &'static str,
    },
    /// A client did not finish its login in time.
    #[error("no login from {peer} within {} s (login_timeout)", seconds.as_secs_f64())]
    LoginTimeout {
        /// The client's address.
        peer: SocketAddr,
        /// The limit (`login_timeout`).
        seconds: Duration,
    },
    /// A client exceeded a connection limit.
    #[error("connection from {peer} refused: {reason}")]
    LimitReached {
        /// The client's address.
        peer: SocketAddr,
        /// The limit that the client exceeded.
        reason: &'static str,
    },
    /// An account in Tailwater's configuration cannot be used.
    #[error("account {user:?}: {reason}")]
    Account {
        /// The user name of the account.
        user: String,
        /// The cause and the remedy, without the password or hash.
        reason: String,
    },
    /// TLS for clients cannot be configured.
    #[error("cannot set up TLS for clients: {reason}")]
    ServerTls {
        /// The cause, with the name of the file.
        reason: String,
    },
    /// The account lacks the privilege to set a session variable that changes results.
    #[error(
        "{endpoint} has a value of {variable} that would make results or definitions wrong, and this user may not set \
         it to {wanted} in the session: {error}; run there: SET GLOBAL {variable} = {wanted}, or grant the user \
         {privilege} ON *.*"
    )]
    SessionSetting {
        /// The server's address.
        endpoint: String,
        /// The session variable.
        variable: &'static str,
        /// The value that Tailwater needs, in SQL.
        wanted: &'static str,
        /// The privilege that the account needs to set the variable in a session.
        privilege: &'static str,
        /// The error that the server returned.
        error: Box<ServerError>,
    },
    /// A session variable that changes results does not keep the value that Tailwater set.
    #[error(
        "{endpoint} accepted {variable} = {wanted} for this session, but the session later has another value; is there \
         a proxy in between that spreads statements over several sessions?"
    )]
    SettingNotKept {
        /// The server's address.
        endpoint: String,
        /// The session variable.
        variable: &'static str,
        /// The value that Tailwater set, in SQL.
        wanted: &'static str,
    },
    /// An environment variable has an invalid value.
    #[error("the environment variable {name} is invalid: {reason}")]
    Environment {
        /// The name of the environment variable.
        name: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
}

/// Text from a server that may contain values of rows. `Display` prints the text without these values. To
/// show the values to a user who may see them, call [`PrivateText::expose`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PrivateText(String);

impl PrivateText {
    /// The complete text, with values of rows. Do not use it in logs or status output, nor before a login.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrivateText {
    /// Prints the text without values of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&public_text(&self.0))
    }
}

impl From<String> for PrivateText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for PrivateText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for PrivateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

/// The beginning of a statement. `Display` prints it without the values in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StatementPrefix(Vec<u8>);

impl StatementPrefix {
    /// Keeps the beginning of a statement, up to the length that messages show.
    pub fn of(statement: &[u8]) -> Self {
        Self(Self::cut(statement).to_owned())
    }

    /// The part of a statement that messages show.
    pub(crate) fn cut(statement: &[u8]) -> &[u8] {
        statement.get(..KEPT_BYTES_MAX).unwrap_or(statement)
    }

    /// The beginning of the statement with its values, but without passwords. Empty if there is no statement.
    pub fn private(&self) -> String {
        private_statement(&self.0, SHOWN_BYTES_MAX)
    }
}

impl fmt::Display for StatementPrefix {
    /// Prints `; the statement begins: ...`, or nothing if there is no statement.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match public_statement(&self.0, SHOWN_BYTES_MAX) {
            text if text.is_empty() => Ok(()),
            text => write!(f, "; the statement begins: {text}"),
        }
    }
}

impl fmt::Debug for StatementPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", public_statement(&self.0, SHOWN_BYTES_MAX))
    }
}

/// An error that a server returned. `Display` prints it without values of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// The server's error number, such as 1045.
    pub number: u16,
    /// The SQLSTATE: five characters, such as `28000`.
    pub sql_state: String,
    /// The server's message, which may contain values of rows.
    pub message: PrivateText,
}

impl ServerError {
    /// The error text for an operator who is logged in: with values of rows, but without passwords.
    pub fn private(&self) -> String {
        format!("error {} ({}): {}", self.number, self.sql_state, private_text(self.message.expose()))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.number == Self::SOURCE_FATAL_ERROR_READING_BINLOG {
            // Show the whole text, because the message of this error has only files and positions of the
            // binlog.
            return f.write_str(&self.private());
        }
        write!(f, "error {} ({}): {}", self.number, printable(&self.sql_state), self.message)
    }
}

impl From<ErrPacket> for ServerError {
    fn from(packet: ErrPacket) -> Self {
        Self { number: packet.number, sql_state: packet.sql_state, message: packet.message.into() }
    }
}

/// Whether the same operation may succeed if it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRetry {
    /// Retry later on a new connection: the network failed, or the server is busy or restarting.
    Later,
    /// Retry only after a change of an option, an account or the server.
    AfterChange,
}

impl SessionError {
    /// The stable code of this error, as documented in docs/reference/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "TW-SES-0001",
            Self::Resolve { .. } => "TW-SES-0002",
            Self::ConnectTimeout { .. } => "TW-SES-0003",
            Self::Io { .. } => "TW-SES-0004",
            Self::Closed { .. } => "TW-SES-0005",
            Self::Timeout { .. } => "TW-SES-0006",
            Self::Protocol { .. } => "TW-SES-0007",
            Self::OutOfStep => "TW-SES-0008",
            Self::Server { .. } => "TW-SES-0009",
            Self::Denied { .. } => "TW-SES-0010",
            Self::Tls { .. } => "TW-SES-0011",
            Self::TlsNotOffered { .. } => "TW-SES-0012",
            Self::TlsOptions { .. } => "TW-SES-0013",
            Self::AuthPlugin { .. } => "TW-SES-0014",
            Self::ClearPassword { .. } => "TW-SES-0015",
            Self::LocalInfile { .. } => "TW-SES-0016",
            Self::ResultTooLarge { .. } => "TW-SES-0017",
            Self::UnexpectedResult { .. } => "TW-SES-0018",
            Self::MissingGrant { .. } => "TW-SES-0019",
            Self::DumpRequest { .. } => "TW-SES-0020",
            Self::OptionFile { .. } => "TW-SES-0021",
            Self::Environment { .. } => "TW-SES-0022",
            Self::LoginRefused { .. } => "TW-SES-0023",
            Self::LoginTimeout { .. } => "TW-SES-0024",
            Self::LimitReached { .. } => "TW-SES-0025",
            Self::Account { .. } => "TW-SES-0026",
            Self::ServerTls { .. } => "TW-SES-0027",
            Self::LocalInfileOff { .. } => "TW-SES-0028",
            Self::LoadBody => "TW-SES-0029",
            Self::SessionSetting { .. } => "TW-SES-0030",
            Self::SettingNotKept { .. } => "TW-SES-0031",
            Self::ServerTooOld { .. } => "TW-SES-0035",
        }
    }

    /// Whether the operation may succeed if it is tried again.
    pub fn retry(&self) -> SessionRetry {
        match self {
            Self::Connect { .. }
            | Self::Resolve { .. }
            | Self::ConnectTimeout { .. }
            | Self::Io { .. }
            | Self::Closed { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::LoginTimeout { .. }
            | Self::LimitReached { .. }
            | Self::OutOfStep => SessionRetry::Later,
            Self::Server { error, .. } | Self::Denied { error, .. } => error.retry(),
            Self::ServerTooOld { .. }
            | Self::Tls { .. }
            | Self::TlsNotOffered { .. }
            | Self::TlsOptions { .. }
            | Self::AuthPlugin { .. }
            | Self::ClearPassword { .. }
            | Self::LocalInfile { .. }
            | Self::LocalInfileOff { .. }
            | Self::LoadBody
            | Self::ResultTooLarge { .. }
            | Self::UnexpectedResult { .. }
            | Self::MissingGrant { .. }
            | Self::DumpRequest { .. }
            | Self::OptionFile { .. }
            | Self::LoginRefused { .. }
            | Self::Account { .. }
            | Self::ServerTls { .. }
            | Self::SessionSetting { .. }
            | Self::SettingNotKept { .. }
            | Self::Environment { .. } => SessionRetry::AfterChange,
        }
    }

    /// The part of the error that [`fmt::Display`] leaves out because it may contain values of rows. Show it
    /// only to an operator who has logged in and requests it. It never contains passwords. `None` if nothing
    /// is left out.
    pub fn private_detail(&self) -> Option<String> {
        let error = self.server_error()?;
        let mut text = error.private();
        let mut is_more = text != error.to_string();
        if let Self::Server { statement, .. } = self {
            let public = statement.to_string();
            let private = match statement.private() {
                private if private.is_empty() => private,
                private => format!("; the statement begins: {private}"),
            };
            is_more |= private != public;
            text.push_str(&private);
        }
        is_more.then_some(text)
    }

    /// The error that the server returned, if that is the cause.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Server { error, .. } | Self::Denied { error, .. } | Self::LocalInfileOff { error, .. } => {
                Some(error)
            }
            Self::SessionSetting { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl ServerError {
    /// `ER_MASTER_FATAL_ERROR_READING_BINLOG`: the source cannot send the binlog, for example because the
    /// file is gone, the position is wrong or the GTIDs were purged.
    pub const SOURCE_FATAL_ERROR_READING_BINLOG: u16 = 1236;

    /// Whether the operation may succeed if it is tried again.
    pub fn retry(&self) -> SessionRetry {
        match self.number {
            // The server has too many connections, in total or of one user, or is out of memory or threads.
            1040 | 1203 | 1226 | 1037 | 1041 | 1135 => SessionRetry::Later,
            // The server is shutting down or still starting, or the connection was killed or timed out.
            1053 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1317 | 1927 | 3169 | 4031 => SessionRetry::Later,
            // Lock wait timeout, deadlock, or rollback of an XA transaction.
            1205 | 1213 | 1613 | 1614 => SessionRetry::Later,
            _ => SessionRetry::AfterChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ServerError, SessionError, StatementPrefix};

    #[test]
    fn a_rejected_statement_is_shown_without_its_values() {
        let error = ServerError {
            number: 1062,
            sql_state: "23000".into(),
            message: "Duplicate entry 'geheim' for key 'PRIMARY'".into(),
        };
        let statement = StatementPrefix::of(b"INSERT INTO t (a) VALUES ('geheim') /* why */");
        let error = SessionError::Server { doing: "running a statement", error, statement };
        assert_eq!(
            error.to_string(),
            "the server refused while running a statement: error 1062 (23000): Duplicate entry '?' for key 'PRIMARY'; the \
             statement begins: INSERT INTO t (a) VALUES (?)"
        );
        assert!(
            !format!("{error:?}").contains("geheim"),
            "the error must hide the values of rows: {error:?}"
        );
        let detail = error.private_detail().unwrap();
        assert!(
            detail.contains("'geheim' for key") && detail.contains("VALUES ('geheim')"),
            "the private detail must contain the values of rows: {detail}"
        );

        // Neither `Display` nor `private_detail` contains passwords.
        let error = ServerError {
            number: 1396,
            sql_state: "HY000".into(),
            message: "Operation CREATE USER failed for 'u'@'%'".into(),
        };
        let statement = StatementPrefix::of(b"CREATE USER u IDENTIFIED BY 'geheim'");
        let error = SessionError::Server { doing: "running a statement", error, statement };
        assert!(
            error.to_string().ends_with("CREATE USER u IDENTIFIED BY ?"),
            "the error must hide the password: {error}"
        );
        assert!(!error.private_detail().unwrap_or_default().contains("geheim"));
    }

    #[test]
    fn user_names_of_clients_cannot_forge_log_lines() {
        let user = "root\n2026-01-01 login ok\x1b[2J'".to_owned();
        let peer = ([127, 0, 0, 1], 3306).into();
        let printed = SessionError::LoginRefused { peer, user, reason: "unknown user" }.to_string();
        assert!(
            !printed.contains(['\n', '\x1b']) && printed.contains("127.0.0.1:3306"),
            "the message must escape the control characters of the user name: {printed}"
        );
    }

    #[test]
    fn every_error_code_is_documented_once() {
        let page = include_str!("../../../docs/reference/errors.md");
        let source = include_str!("error.rs");
        let codes: Vec<_> =
            source.lines().filter_map(|line| line.split_once("=> \"TW-SES-")?.1.split('"').next()).collect();
        assert!(!codes.is_empty());
        for code in &codes {
            let row = format!("\n| TW-SES-{code} |");
            assert_eq!(
                page.matches(&row).count(),
                1,
                "TW-SES-{code} must have one row in docs/reference/errors.md"
            );
        }
        assert_eq!(
            page.matches("\n| TW-SES-").count(),
            codes.len(),
            "docs/reference/errors.md documents codes that no error has"
        );
    }
}
