//! Options of the server side.

use std::path::PathBuf;

use tailwater_wire::Flavour;

use crate::server::accounts::Accounts;
use crate::server::limits::ConnectionLimits;

/// The TLS certificate for clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// No TLS.
    Off,
    /// The operator's certificate.
    Files {
        /// PEM file with the certificate and the intermediate ones.
        certificate: PathBuf,
        /// PEM file with the key.
        key: PathBuf,
    },
    /// A certificate generated at each start and kept in memory. It protects against passive listeners.
    /// Clients that verify certificates do not trust it, except MariaDB 11.4 and later, which verify it with
    /// their password.
    #[default]
    Generated,
}

/// Options of the server side.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The flavour that this server presents.
    pub flavour: Flavour,
    /// The version text that this server presents, such as `9.7.1` or `10.11.14-MariaDB-log`.
    pub version_text: String,
    /// The accounts.
    pub accounts: Accounts,
    /// The TLS options.
    pub tls: ServerTls,
    /// Whether clients without TLS are refused.
    pub require_tls: bool,
    /// The limits.
    pub limits: ConnectionLimits,
}

impl ServerOptions {
    /// The defaults: a generated certificate, TLS offered but not required.
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
