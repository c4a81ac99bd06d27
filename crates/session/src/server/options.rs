//! How clients are received.

use std::path::PathBuf;

use tailwater_wire::Flavour;

use crate::server::accounts::Accounts;
use crate::server::limits::ConnectionLimits;

/// Which certificate clients are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServerTls {
    /// TLS is not offered.
    Off,
    /// The operator's own.
    Files {
        /// The certificate and those between it and its authority, in a PEM file.
        certificate: PathBuf,
        /// Its key, in a PEM file.
        key: PathBuf,
    },
    /// One that is made at each start and lives in memory. Nobody who only listens can read along; clients that verify
    /// certificates do not trust it, except those of MariaDB 11.4 and later, which verify it by their password.
    #[default]
    Generated,
}

/// How clients are received.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Which family of servers we speak like.
    pub flavour: Flavour,
    /// The version as that server spells it, such as `9.7.1` or `10.11.14-MariaDB-log`.
    pub version_text: String,
    /// Who may log in.
    pub accounts: Accounts,
    /// TLS.
    pub tls: ServerTls,
    /// Whether clients that do not use TLS are refused.
    pub require_tls: bool,
    /// How much clients may take.
    pub limits: ConnectionLimits,
}

impl ServerOptions {
    /// Options with defaults: a certificate of our own, TLS offered and not required.
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
