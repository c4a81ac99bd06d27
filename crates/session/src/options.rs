//! Where and how to connect.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::session_settings::SessionPreset;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Over TCP.
    Tcp {
        /// A name or an address.
        host: String,
        /// Usually 3306.
        port: u16,
    },
    /// Through a Unix socket of this machine.
    Unix {
        /// The socket.
        path: PathBuf,
    },
}

impl Endpoint {
    /// An endpoint over TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// An endpoint through a Unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix { path: path.into() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => write!(f, "{}", path.display()),
        }
    }
}

/// A password. It never prints itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PasswordText(String);

impl PasswordText {
    /// Wraps a password; empty for none.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself. Keep it out of logs and messages.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PasswordText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for PasswordText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for PasswordText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How much TLS a connection over TCP needs. Unix sockets never use it: nobody but the system carries their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// None.
    Off,
    /// If the server offers it, without looking at its certificate. Nobody who only listens can read along; whoever
    /// sits in the middle can.
    #[default]
    Preferred,
    /// Always, without looking at the server's certificate.
    Required,
    /// Always, and the server's certificate must come from the given authority.
    VerifyCa,
    /// As [`TlsMode::VerifyCa`], and the certificate must be for the host connected to.
    VerifyFull,
}

/// Certificates and keys, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// How much TLS is needed.
    pub mode: TlsMode,
    /// The authorities that the server's certificate may come from. Needed by [`TlsMode::VerifyCa`] and
    /// [`TlsMode::VerifyFull`].
    pub ca: Option<PathBuf>,
    /// The client's own certificate, if the account asks for one.
    pub certificate: Option<PathBuf>,
    /// The key of the client's own certificate.
    pub key: Option<PathBuf>,
}

impl TlsOptions {
    /// Reads the files that are named, without connecting.
    ///
    /// # Errors
    /// [`crate::SessionError::TlsOptions`] if one is missing or no use.
    pub fn check(&self) -> Result<(), crate::SessionError> {
        crate::tls::check(self)
    }
}

/// Where and how to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// The account.
    pub user: String,
    /// Its password; empty for none.
    pub password: PasswordText,
    /// The default database.
    pub database: Option<String>,
    /// TLS.
    pub tls: TlsOptions,
    /// The server's RSA public key in a PEM file, for `caching_sha2_password` without TLS. Without it the server is
    /// asked for its key, which whoever sits in the middle could replace.
    pub server_public_key: Option<PathBuf>,
    /// Whether a server may ask for the password itself (`mysql_clear_password`, as PAM and LDAP need it). Even then
    /// it is only sent under TLS.
    pub clear_password_allowed: bool,
    /// For name, connection, TLS and login together.
    pub connect_timeout: Duration,
    /// How long the server may send nothing while an answer is due; `None` for ever.
    pub read_timeout: Option<Duration>,
    /// How long the server may take nothing; `None` for ever.
    pub write_timeout: Option<Duration>,
    /// The most bytes that [`crate::Connection::query`] collects, and the longest single row of a stream.
    pub rows_bytes_max: usize,
    /// Shown by the server in `performance_schema.session_connect_attrs`.
    pub program_name: String,
    /// Whether a statement may be several, with semicolons between them: one round trip for all, and none is run behind
    /// one that fails.
    pub multi_statements: bool,
    /// Whether an UPDATE answers how many rows it found, rather than how many were not yet as it wants them.
    pub found_rows: bool,
    /// Whether [`crate::Connection::load_data`] may be used. It sends only what it is handed: files of this machine are never
    /// given to a server, whatever it asks for.
    pub local_infile: bool,
    /// Which settings the session begins with, whatever the server's global ones are.
    pub session_preset: SessionPreset,
}

impl ConnectOptions {
    /// Options with defaults: no password, no database, TLS if offered, 10 s to connect, 300 s for an answer,
    /// results up to 64 MiB.
    pub fn new(endpoint: Endpoint, user: impl Into<String>) -> Self {
        Self {
            endpoint,
            user: user.into(),
            password: PasswordText::default(),
            database: None,
            tls: TlsOptions::default(),
            server_public_key: None,
            clear_password_allowed: false,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Some(Duration::from_secs(300)),
            write_timeout: Some(Duration::from_secs(60)),
            rows_bytes_max: 64 << 20,
            program_name: "tailwater".to_owned(),
            multi_statements: false,
            found_rows: false,
            local_infile: false,
            session_preset: SessionPreset::default(),
        }
    }

    /// With this password.
    #[must_use]
    pub fn password(mut self, password: impl Into<PasswordText>) -> Self {
        self.password = password.into();
        self
    }

    /// With this default database.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// With this TLS.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = tls;
        self
    }
}
