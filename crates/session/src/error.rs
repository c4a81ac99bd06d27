//! Errors of connections to servers and from clients.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tailwater_wire::protocol::ErrPacket;
use tailwater_wire::redact::{
    KEPT_BYTES_MAX, SHOWN_BYTES_MAX, private_statement, private_text, public_statement, public_text,
};
use tailwater_wire::{WireError, printable};

/// An error of a connection, or an unexpected answer.
///
/// The connection is unusable after every error but [`SessionError::Server`],
/// [`SessionError::LocalInfileOff`], [`SessionError::UnexpectedResult`] and [`SessionError::MissingGrant`].
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server cannot be reached.
    #[error("cannot connect to {endpoint}: {source}; is the server running, and is the address right?")]
    Connect {
        /// The server's address.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// The host name cannot be resolved.
    #[error("cannot find the address of host {host}: {source}")]
    Resolve {
        /// The host name.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server did not finish the login in time.
    #[error("no login at {endpoint} within {} s (connect_timeout)", seconds.as_secs_f64())]
    ConnectTimeout {
        /// The server's address.
        endpoint: String,
        /// The limit.
        seconds: Duration,
    },
    /// The connection broke.
    #[error("the connection broke while {doing}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The server, or the client in the server role, closed the connection.
    #[error("the other side closed the connection while {doing}")]
    Closed {
        /// The operation.
        doing: &'static str,
    },
    /// The other side sent or accepted nothing for too long.
    #[error("the other side was silent for {} s while {doing}", seconds.as_secs_f64())]
    Timeout {
        /// The operation.
        doing: &'static str,
        /// The limit.
        seconds: Duration,
    },
    /// The other side sent invalid bytes.
    #[error("the other side broke the protocol while {doing}: {source}")]
    Protocol {
        /// The operation.
        doing: &'static str,
        /// What is wrong with the bytes.
        source: WireError,
    },
    /// An earlier call on this connection was cancelled or failed before its end.
    #[error("the connection is in the middle of an earlier exchange that was given up; connect again")]
    OutOfStep,
    /// The server answered with an error.
    #[error("the server refused while {doing}: {error}{statement}")]
    Server {
        /// The operation.
        doing: &'static str,
        /// The server's error.
        error: ServerError,
        /// The beginning of the statement; empty without one.
        statement: StatementPrefix,
    },
    /// The server rejected the login.
    #[error(
        "{endpoint} does not let user {user} in: {}; check user, password and the host the account is for",
        // Before the login, a message cannot hold values of rows.
        error.private()
    )]
    Denied {
        /// The server's address.
        endpoint: String,
        /// The user.
        user: String,
        /// The server's error.
        error: ServerError,
    },
    /// The server is too old.
    #[error("{endpoint} is {server}, which is too old for Tailwater; supported is {supported}")]
    ServerTooOld {
        /// The server's address.
        endpoint: String,
        /// Its flavour and version.
        server: String,
        /// The supported versions of its flavour.
        supported: &'static str,
    },
    /// The TLS handshake failed.
    #[error("TLS with {endpoint} failed: {reason}")]
    Tls {
        /// The server's address.
        endpoint: String,
        /// Cause and remedy.
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
    /// The TLS files or mode are not usable.
    #[error("TLS cannot be set up: {reason}")]
    TlsOptions {
        /// The cause, with the file.
        reason: String,
    },
    /// The account uses an unsupported authentication plugin.
    #[error("user {user} logs in with plugin {plugin}, which is not supported; supported are {supported}")]
    AuthPlugin {
        /// The user.
        user: String,
        /// The plugin.
        plugin: String,
        /// The supported plugins.
        supported: String,
    },
    /// The server requested the password in clear text over an unprotected connection.
    #[error(
        "the server requests the password of {user} in clear text ({plugin}), which is refused: {reason}"
    )]
    ClearPassword {
        /// The user.
        user: String,
        /// The plugin.
        plugin: &'static str,
        /// The remedy.
        reason: &'static str,
    },
    /// The server requested a local file.
    #[error("the server requests the local file {file:?}, which is refused; such a server may be hostile")]
    LocalInfile {
        /// The file name, truncated.
        file: String,
    },
    /// The server does not accept `LOAD DATA LOCAL`.
    #[error(
        "{endpoint} does not take LOAD DATA LOCAL: {error}; run there: SET GLOBAL local_infile = ON, and connect again"
    )]
    LocalInfileOff {
        /// The server's address.
        endpoint: String,
        /// The server's error.
        error: ServerError,
    },
    /// The input of `LOAD DATA LOCAL` is incomplete.
    #[error("what was to be loaded broke off; the statement was given up, and with it its transaction")]
    LoadBody,
    /// A result exceeds the limit.
    #[error("the result exceeds {bytes_max} bytes (rows_bytes_max); ask for less, or read it as a stream")]
    ResultTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The result does not have the expected form.
    #[error("unexpected answer while {doing}: {reason}")]
    UnexpectedResult {
        /// The operation.
        doing: &'static str,
        /// The cause.
        reason: String,
    },
    /// The account lacks a privilege.
    #[error("user {user} lacks {missing} for {purpose}; run: {statement}")]
    MissingGrant {
        /// The account.
        user: String,
        /// The privileges that are missing.
        missing: String,
        /// The purpose.
        purpose: &'static str,
        /// The GRANT statement, for an administrator.
        statement: String,
    },
    /// The server cannot serve the requested binlog stream.
    #[error("the binlog cannot be asked for: {reason}")]
    DumpRequest {
        /// Cause and remedy.
        reason: String,
    },
    /// An option file cannot be read or understood.
    #[error("option file {}, line {line}: {reason}", file.display())]
    OptionFile {
        /// The file.
        file: PathBuf,
        /// The line from 1; 0 for the whole file.
        line: usize,
        /// Cause and remedy.
        reason: String,
    },
    /// A client's login failed.
    #[error("login of user {user:?} from {peer} refused: {reason}")]
    LoginRefused {
        /// The client's address.
        peer: SocketAddr,
        /// The user it claims to be, truncated.
        user: String,
        /// The cause, for the log only: the client sees nothing but "access denied".
        reason: &'static str,
    },
    /// A client did not finish its login in time.
    #[error("no login from {peer} within {} s (login_timeout)", seconds.as_secs_f64())]
    LoginTimeout {
        /// The client's address.
        peer: SocketAddr,
        /// The limit.
        seconds: Duration,
    },
    /// A client exceeded a connection limit.
    #[error("connection from {peer} refused: {reason}")]
    LimitReached {
        /// The client's address.
        peer: SocketAddr,
        /// The limit.
        reason: &'static str,
    },
    /// An account in Tailwater's configuration is not usable.
    #[error("account {user:?}: {reason}")]
    Account {
        /// The account.
        user: String,
        /// Cause and remedy, never the password or hash.
        reason: String,
    },
    /// TLS for clients cannot be configured.
    #[error("TLS for clients cannot be set up: {reason}")]
    ServerTls {
        /// The cause, with the file.
        reason: String,
    },
    /// A session variable that changes results cannot be set.
    #[error(
        "{endpoint} gives its sessions a value of {variable} under which results would be wrong or definitions others, and this \
         user may not set it to {wanted} for its own: {error}; run there: SET GLOBAL {variable} = {wanted}, or grant the user \
         {privilege} ON *.*"
    )]
    SessionSetting {
        /// The server's address.
        endpoint: String,
        /// The variable.
        variable: &'static str,
        /// The required value, in SQL.
        wanted: &'static str,
        /// The privilege to set it in a session.
        privilege: &'static str,
        /// The server's error.
        error: Box<ServerError>,
    },
    /// A session variable that changes results does not have the value it was set to.
    #[error(
        "{endpoint} took {variable} = {wanted} for this session, and does not keep to it; is there a proxy between that \
         spreads statements over several sessions?"
    )]
    SettingNotKept {
        /// The server's address.
        endpoint: String,
        /// The variable.
        variable: &'static str,
        /// The value it was set to, in SQL.
        wanted: &'static str,
    },
    /// An environment variable is not usable.
    #[error("environment variable {name}: {reason}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// The cause.
        reason: String,
    },
}

/// A server's text that may hold values of rows. `Display` prints it without them. Code that shows it to a
/// user who may see the values calls [`PrivateText::expose`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PrivateText(String);

impl PrivateText {
    /// The complete text. Do not use it in logs, statuses, or anything shown before a login.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrivateText {
    /// The text without values of rows.
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

/// The beginning of a statement. `Display` prints it without values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StatementPrefix(Vec<u8>);

impl StatementPrefix {
    /// Keeps the beginning of a statement.
    pub fn of(statement: &[u8]) -> Self {
        Self(Self::cut(statement).to_owned())
    }

    /// The part of a statement that is kept.
    pub(crate) fn cut(statement: &[u8]) -> &[u8] {
        statement.get(..KEPT_BYTES_MAX).unwrap_or(statement)
    }

    /// The text with values, without passwords; empty without a statement.
    pub fn private(&self) -> String {
        private_statement(&self.0, SHOWN_BYTES_MAX)
    }
}

impl fmt::Display for StatementPrefix {
    /// `; the statement begins: ...`, or nothing.
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

/// An error of a server. `Display` prints it without values of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// The server's error number, such as 1045.
    pub number: u16,
    /// Five characters, such as `28000`.
    pub sql_state: String,
    /// The server's message, which may hold values of rows.
    pub message: PrivateText,
}

impl ServerError {
    /// The error with values of rows and without passwords, for an operator who is logged in.
    pub fn private(&self) -> String {
        format!("error {} ({}): {}", self.number, self.sql_state, private_text(self.message.expose()))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.number == Self::SOURCE_FATAL_ERROR_READING_BINLOG {
            // Its text has only files and positions of the binlog.
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

/// Whether a retry may help.
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

    /// Whether a retry may help.
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

    /// What [`fmt::Display`] leaves out, as it may hold values of rows: for an operator who has logged in and
    /// requests it. `None` where nothing is left out. Passwords are never in it.
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

    /// The server's own error, if this is one.
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
    /// A replication stream failed: the file is gone, the position is wrong, the GTIDs were purged, ...
    pub const SOURCE_FATAL_ERROR_READING_BINLOG: u16 = 1236;

    /// Whether a retry may help.
    pub fn retry(&self) -> SessionRetry {
        match self.number {
            // Too many connections, of all or of one user; out of memory or threads.
            1040 | 1203 | 1226 | 1037 | 1041 | 1135 => SessionRetry::Later,
            // Shutting down, not yet up, connection killed or timed out.
            1053 | 1079 | 1080 | 1152 | 1158..=1161 | 1184 | 1317 | 1927 | 3169 | 4031 => SessionRetry::Later,
            // Lock wait time-out, deadlock, XA rolled back.
            1205 | 1213 | 1613 | 1614 => SessionRetry::Later,
            _ => SessionRetry::AfterChange,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ServerError, SessionError, StatementPrefix};

    #[test]
    fn a_refused_statement_is_named_without_its_values() {
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
        assert!(!format!("{error:?}").contains("geheim"), "{error:?}");
        let detail = error.private_detail().unwrap();
        assert!(detail.contains("'geheim' for key") && detail.contains("VALUES ('geheim')"), "{detail}");

        // Passwords are in neither.
        let error = ServerError {
            number: 1396,
            sql_state: "HY000".into(),
            message: "Operation CREATE USER failed for 'u'@'%'".into(),
        };
        let statement = StatementPrefix::of(b"CREATE USER u IDENTIFIED BY 'geheim'");
        let error = SessionError::Server { doing: "running a statement", error, statement };
        assert!(error.to_string().ends_with("CREATE USER u IDENTIFIED BY ?"), "{error}");
        assert!(!error.private_detail().unwrap_or_default().contains("geheim"));
    }

    #[test]
    fn names_that_clients_claim_do_not_forge_lines_of_a_log() {
        let user = "root\n2026-01-01 login ok\x1b[2J'".to_owned();
        let peer = ([127, 0, 0, 1], 3306).into();
        let printed = SessionError::LoginRefused { peer, user, reason: "unknown user" }.to_string();
        assert!(!printed.contains(['\n', '\x1b']) && printed.contains("127.0.0.1:3306"), "{printed}");
    }

    #[test]
    fn every_code_is_explained_once_and_no_other() {
        let page = include_str!("../../../docs/reference/errors.md");
        let source = include_str!("error.rs");
        let codes: Vec<_> =
            source.lines().filter_map(|line| line.split_once("=> \"TW-SES-")?.1.split('"').next()).collect();
        assert!(!codes.is_empty());
        for code in &codes {
            let row = format!("\n| TW-SES-{code} |");
            assert_eq!(page.matches(&row).count(), 1, "TW-SES-{code} in docs/reference/errors.md");
        }
        assert_eq!(
            page.matches("\n| TW-SES-").count(),
            codes.len(),
            "errors.md explains codes that no error has"
        );
    }
}
