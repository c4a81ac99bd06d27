//! The keys for the address and login of a server, which sources and targets share.

use std::path::Path;

use serde::Deserialize;

/// `source.tls`, `channel.tls`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsConfig {
    /// Never.
    Off,
    /// If the server offers it, without a check of its certificate.
    Preferred,
    /// Always, without a check of the certificate.
    Required,
    /// Always; the certificate must be signed by `tls_ca`.
    VerifyCa,
    /// Always; the certificate must be signed by `tls_ca` and name the host.
    VerifyFull,
}

/// The address and login of a server, as a section has them.
#[derive(Debug, Clone, Copy)]
pub struct ServerAddress<'a> {
    /// Host name or address.
    pub host: Option<&'a str>,
    /// TCP port.
    pub port: Option<u16>,
    /// Unix socket.
    pub socket: Option<&'a Path>,
    /// User to log in as.
    pub user: Option<&'a str>,
    /// Option file with user and password.
    pub defaults_file: Option<&'a Path>,
    /// How the connection is encrypted.
    pub tls: Option<TlsConfig>,
    /// PEM file of the authorities.
    pub tls_ca: Option<&'a Path>,
}

impl ServerAddress<'_> {
    /// Whether the section has an address, or an option file that may have one.
    pub fn is_given(&self) -> bool {
        self.socket.is_some() || self.host.is_some() || self.port.is_some() || self.defaults_file.is_some()
    }

    /// Checks the keys for contradictions.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.socket.is_some() && (self.host.is_some() || self.port.is_some()) {
            return Err("give either socket, or host and port");
        }
        let verifies = matches!(self.tls, Some(TlsConfig::VerifyCa | TlsConfig::VerifyFull));
        if verifies && self.tls_ca.is_none() {
            return Err("tls = verify-ca and verify-full need tls_ca");
        }
        Ok(())
    }
}

/// Defines a section with the keys of a server and its own keys. With `#[serde(flatten)]` an error would lack
/// the line of the key and the list of known keys.
macro_rules! server_section {
    ($(#[$about:meta])* pub struct $name:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Host name or address of the server; with `port`. Excludes `socket`.
            pub host: Option<String>,
            /// TCP port of the server.
            pub port: Option<u16>,
            /// Unix socket of the server. Excludes `host` and `port`.
            pub socket: Option<std::path::PathBuf>,
            /// User to log in as; the option file's if absent.
            pub user: Option<String>,
            /// Option file with a `[client]` group for user and password; relative to the configuration file.
            pub defaults_file: Option<std::path::PathBuf>,
            /// How the connection is encrypted; the option file decides if absent, or else it is `preferred`.
            pub tls: Option<$crate::config::TlsConfig>,
            /// PEM file of the authorities that may have signed the server's certificate.
            pub tls_ca: Option<std::path::PathBuf>,
            $($own)*
        }

        impl $name {
            /// The address and login of the server.
            pub fn server(&self) -> $crate::config::ServerAddress<'_> {
                $crate::config::ServerAddress {
                    host: self.host.as_deref(),
                    port: self.port,
                    socket: self.socket.as_deref(),
                    user: self.user.as_deref(),
                    defaults_file: self.defaults_file.as_deref(),
                    tls: self.tls,
                    tls_ca: self.tls_ca.as_deref(),
                }
            }

            /// Paths are relative to the configuration file's folder.
            pub fn rebase(&mut self, base: &std::path::Path) {
                for file in [&mut self.defaults_file, &mut self.tls_ca].into_iter().flatten() {
                    *file = base.join(&*file);
                }
            }
        }
    };
}
