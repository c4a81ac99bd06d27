//! The keys for the address and login of a server. Sources, targets and other servers use the same keys.

use std::path::Path;

use serde::Deserialize;

/// `source.tls`, `channel.tls`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsConfig {
    /// No encryption.
    Off,
    /// Encrypted if the server offers TLS. The server's certificate is not checked.
    Preferred,
    /// Always encrypted. The server's certificate is not checked.
    Required,
    /// Always encrypted. The server's certificate must be signed by `tls_ca`.
    VerifyCa,
    /// Always encrypted. The server's certificate must be signed by `tls_ca` and name the host.
    VerifyFull,
}

/// The address and login of a server, as given in a section of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct ServerAddress<'a> {
    /// Host name or IP address.
    pub host: Option<&'a str>,
    /// TCP port.
    pub port: Option<u16>,
    /// Unix socket.
    pub socket: Option<&'a Path>,
    /// The user to log in as.
    pub user: Option<&'a str>,
    /// Option file with user and password.
    pub defaults_file: Option<&'a Path>,
    /// How the connection is encrypted.
    pub tls: Option<TlsConfig>,
    /// PEM file of the certificate authorities.
    pub tls_ca: Option<&'a Path>,
}

impl ServerAddress<'_> {
    /// Whether the section has an address, or names an option file, which may have one.
    pub fn is_given(&self) -> bool {
        self.socket.is_some() || self.host.is_some() || self.port.is_some() || self.defaults_file.is_some()
    }

    /// Checks these keys for contradictions.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
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

/// Defines a section that has the keys of a server and its own keys. `#[serde(flatten)]` could do this too,
/// but its errors lack the line of the key and the list of known keys.
macro_rules! server_section {
    ($(#[$about:meta])* pub struct $name:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Host name or IP address of the server; needs `port`, excludes `socket`.
            pub host: Option<String>,
            /// TCP port of the server.
            pub port: Option<u16>,
            /// Unix socket of the server. Excludes `host` and `port`.
            pub socket: Option<std::path::PathBuf>,
            /// The user to log in as. If absent, the user in the option file.
            pub user: Option<String>,
            /// Option file with a `[client]` group that has the user and password; relative to the
            /// configuration file.
            pub defaults_file: Option<std::path::PathBuf>,
            /// How the connection is encrypted. If absent, the setting in the option file is used; if that is
            /// absent too, `preferred` is used.
            pub tls: Option<$crate::TlsConfig>,
            /// PEM file of the certificate authorities that may have signed the server's certificate.
            pub tls_ca: Option<std::path::PathBuf>,
            $($own)*
        }

        impl $name {
            /// Returns the address and login of the server.
            pub fn server(&self) -> $crate::ServerAddress<'_> {
                $crate::ServerAddress {
                    host: self.host.as_deref(),
                    port: self.port,
                    socket: self.socket.as_deref(),
                    user: self.user.as_deref(),
                    defaults_file: self.defaults_file.as_deref(),
                    tls: self.tls,
                    tls_ca: self.tls_ca.as_deref(),
                }
            }

            /// Makes paths relative to the configuration file's folder.
            pub fn rebase(&mut self, base: &std::path::Path) {
                for file in [&mut self.defaults_file, &mut self.tls_ca].into_iter().flatten() {
                    *file = base.join(&*file);
                }
            }
        }
    };
}
