//! Options of the server side.

use std::path::PathBuf;

use tailwater_wire::Flavour;

use crate::server::client_accounts::Accounts;
use crate::server::client_limits::ConnectionLimits;

/// The TLS certificate that Tailwater shows to clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// TLS is not offered.
    Off,
    /// TLS with the operator's certificate.
    Files {
        /// PEM file with the certificate, followed by the intermediate certificates.
        certificate: PathBuf,
        /// PEM file with the private key.
        key: PathBuf,
    },
    /// A certificate generated at each start and kept in memory. It protects against eavesdropping. Clients
    /// that verify certificates do not trust it. Only clients of MariaDB 11.4 and later can verify it, with
    /// the help of their password.
    #[default]
    Generated,
}

/// The options of the server side.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The flavour that clients see: MySQL or MariaDB.
    pub flavour: Flavour,
    /// The version text that clients see, such as `9.7.1` or `10.11.14-MariaDB-log`.
    pub version_text: String,
    /// The accounts that may log in.
    pub accounts: Accounts,
    /// The TLS options.
    pub tls: ServerTls,
    /// Whether the server refuses clients that do not use TLS.
    pub require_tls: bool,
    /// The limits for connections and logins.
    pub limits: ConnectionLimits,
}

impl ServerOptions {
    /// The default options: a generated certificate; TLS is offered but not required.
    pub fn new(flavour: Flavour, version_text: impl Into<String>, accounts: Accounts) -> Self {
        Self {
            flavour,
            version_text: version_text.into(),
            accounts,
            tls: ServerTls::default(),
            require_tls: false,
            limits: ConnectionLimits::default(),
        }
    }
}
