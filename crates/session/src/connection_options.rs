//! The options of a connection to a server.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::session_settings::SessionPreset;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The server is reached over TCP.
    Tcp {
        /// A host name or IP address.
        host: String,
        /// The port, usually 3306.
        port: u16,
    },
    /// The server is reached through a Unix socket of this machine.
    Unix {
        /// The path of the socket.
        path: PathBuf,
    },
}

impl Endpoint {
    /// A TCP address from host and port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }

    /// The address of a Unix socket.
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

/// A password. `Debug` does not print it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PasswordText(String);

impl PasswordText {
    /// Wraps a password; empty for no password.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password in clear text. Do not use it in logs and messages.
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

/// How a TCP connection uses TLS. Connections through a Unix socket never use it, because their bytes do not
/// leave the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never use TLS.
    Off,
    /// Use TLS if the server offers it, without verifying the server's certificate. This protects against
    /// eavesdropping, but not against a man in the middle.
    #[default]
    Preferred,
    /// Always use TLS, without verifying the server's certificate.
    Required,
    /// Always use TLS. One of the certificate authorities in [`TlsOptions::ca`] must have issued the server's
    /// certificate.
    VerifyCa,
    /// Like [`TlsMode::VerifyCa`], but the certificate must also match the host name.
    VerifyFull,
}

/// The TLS mode, with certificates and keys in PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// The TLS mode.
    pub mode: TlsMode,
    /// The trusted certificate authorities. Required by [`TlsMode::VerifyCa`] and [`TlsMode::VerifyFull`].
    pub ca: Option<PathBuf>,
    /// The client certificate, for accounts that require one.
    pub certificate: Option<PathBuf>,
    /// The private key of the client certificate.
    pub key: Option<PathBuf>,
}

impl TlsOptions {
    /// Reads and checks the TLS files without connecting.
    ///
    /// # Errors
    /// [`crate::SessionError::TlsOptions`] if a file is missing or invalid.
    pub fn check(&self) -> Result<(), crate::SessionError> {
        crate::tls::check(self)
    }
}

/// Connection options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The server's address.
    pub endpoint: Endpoint,
    /// The user name to log in with.
    pub user: String,
    /// The password; empty for no password.
    pub password: PasswordText,
    /// The default database. `None` for no default database.
    pub database: Option<String>,
    /// The TLS options.
    pub tls: TlsOptions,
    /// PEM file with the server's RSA public key, for `caching_sha2_password` without TLS. Without this file
    /// the client requests the key from the server, and a man in the middle could replace it.
    pub server_public_key: Option<PathBuf>,
    /// Whether the client sends the password in clear text if the server requests it (`mysql_clear_password`,
    /// for PAM and LDAP). Even then the client sends it only over TLS.
    pub clear_password_allowed: bool,
    /// The time limit for name resolution, connecting, TLS and login together.
    pub connect_timeout: Duration,
    /// The time limit for an answer: how long the server may send no bytes. `None` for no limit.
    pub read_timeout: Option<Duration>,
    /// The time limit for sending: how long the server may accept no bytes. `None` for no limit.
    pub write_timeout: Option<Duration>,
    /// The maximum size in bytes of a result of [`crate::Connection::query`], and of a single row of a row
    /// stream.
    pub rows_bytes_max: usize,
    /// The program name that the server shows in `performance_schema.session_connect_attrs`.
    pub program_name: String,
    /// Whether several statements, separated by semicolons, may be sent in one round trip. The server stops
    /// at the first statement that fails.
    pub multi_statements: bool,
    /// Whether an UPDATE reports the number of matched rows instead of the number of changed rows
    /// (CLIENT_FOUND_ROWS).
    pub found_rows: bool,
    /// Whether [`crate::Connection::load_data`] may be used. It sends only the rows that it receives from its
    /// caller, and never a local file.
    pub local_infile: bool,
    /// Which session variables are set after the login, so that the session does not depend on the server's
    /// global values.
    pub session_preset: SessionPreset,
}

impl ConnectOptions {
    /// Returns the defaults: no password, no database, TLS if the server offers it, 10 s to connect, 300 s
    /// for an answer, results up to 64 MiB.
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

    /// Sets the password.
    #[must_use]
    pub fn password(mut self, password: impl Into<PasswordText>) -> Self {
        self.password = password.into();
        self
    }

    /// Sets the default database.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// Sets the TLS options.
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = tls;
        self
    }
}
